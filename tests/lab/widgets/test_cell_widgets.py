"""A cell that runs again closes what its last run showed, and nothing else."""

from lab.widgets import cell_widgets
from lab.widgets.stepper import Stepper
from tests.lab.sample_steps import sample_trace


class Shown:
    def __init__(self, closed):
        self.close = lambda: closed.append(self)


def test_a_cell_that_runs_again_closes_what_it_showed_before(monkeypatch):
    closed = []
    monkeypatch.setattr(cell_widgets, "_last_of_cell", {})
    runs = iter([("cell", "run 1"), ("cell", "run 1"), ("other", "run 2"), ("cell", "run 3")])
    monkeypatch.setattr(cell_widgets, "_running_cell", lambda: next(runs))
    shown = [Shown(closed) for _ in range(4)]
    for widget in shown:
        cell_widgets.close_earlier_of_this_cell(widget)
    assert closed == shown[:2]


def test_outside_of_a_notebook_nothing_is_kept(monkeypatch):
    monkeypatch.setattr(cell_widgets, "_last_of_cell", {})
    cell_widgets.close_earlier_of_this_cell(Shown([]))
    assert cell_widgets._last_of_cell == {}


def test_a_stepper_belongs_to_the_cell_that_made_it(monkeypatch):
    kept = {}
    monkeypatch.setattr(cell_widgets, "_last_of_cell", kept)
    monkeypatch.setattr(cell_widgets, "_running_cell", lambda: ("cell", "run 1"))
    widget = Stepper(sample_trace(2))
    assert kept == {"cell": ("run 1", [widget])}
    widget.close()
