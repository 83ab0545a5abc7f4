"""A step's order among its neighbours: known of every stage, or of none."""

import dataclasses
import itertools

from lab.flight import FlightView
from lab.snapshot import STAGES, GraphView
from tests.lab.sample_steps import decode_step


def test_every_stage_of_a_recorded_run_has_its_turn(full_trace):
    orders = [step.graph.flight.order for step in full_trace.steps]
    assert {len(order) for order in orders} == {len(STAGES)}
    turns = list(itertools.chain.from_iterable(orders))
    assert turns == sorted(set(turns)), "without overlap one step follows the other"


def test_a_step_of_an_old_trace_has_no_order_and_no_times():
    known = {field.name: getattr(decode_step(0).graph, field.name) for field in dataclasses.fields(GraphView)}
    del known["flight"]
    assert GraphView(**known).flight == FlightView((), (), (), None)
