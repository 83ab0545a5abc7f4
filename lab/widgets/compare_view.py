"""CompareView: two steppers under each other, one step in both, with the first difference above them.

A step, a stage, a language or a followed request chosen in one is chosen in the other; requests go by the order in
which they joined, for the second run may have numbered them otherwise. Every control is a native one.

Does not: compare (``compare.py``), draw steps (``stepper.py``), or import torch.
"""

import html
from typing import Any, Final

import ipywidgets
import traitlets

from lab.widgets.compare import Comparison
from lab.widgets.lesson import make_lesson
from lab.widgets.stepper import Stepper
from lab.widgets.strings import translate
from lab.widgets.whatif import Answers

MAX_LISTED: Final = 200
_RUNS: Final = ("A", "B")


class CompareView(ipywidgets.VBox):
    """The two runs of a comparison. left, right: their steppers. ``go(i)`` shows the i-th difference in both."""

    _is_made = False  # ipywidgets closes what it could not make, too

    def __init__(
        self,
        comparison: Comparison,
        *,
        step: int | None = None,
        stage: str | int | None = None,
        lang: str = "en",
        whatifs: tuple[Answers, Answers] = ({}, {}),
        large: bool = False,
    ) -> None:
        """Make both steppers. step: index into the left run; None is the first difference. Raises: ConfigError."""
        self.comparison = comparison
        self._lang = lang
        self._is_following = False
        traces = (comparison.left, comparison.right)
        first = comparison.first
        start = first.indices[0] if step is None and first is not None else step
        lesson = make_lesson(int, large=large)
        self.left = Stepper(traces[0], step=start, stage=stage, lang=lang, whatifs=whatifs[0], lesson=lesson)
        self.right = Stepper(traces[1], stage=stage, lang=lang, whatifs=whatifs[1], lesson=lesson)
        self.notice = ipywidgets.HTML()
        self.chooser = ipywidgets.Dropdown(
            options=self._options(), layout=ipywidgets.Layout(width="auto"), style={"description_width": "initial"}
        )
        self._head = ipywidgets.HTML()
        self._names = (ipywidgets.HTML(), ipywidgets.HTML())
        self._word()
        body = [self._names[0], self.left, self._names[1], self.right]
        super().__init__([self._head, *([self.chooser] if comparison.differences else []), self.notice, *body])
        traitlets.link((self.left, "stage"), (self.right, "stage"))
        traitlets.link((self.left, "lang"), (self.right, "lang"))
        traitlets.link((self.left, "large"), (self.right, "large"))
        self.left.observe(self._change_language, "lang")
        for stepper in (self.left, self.right):
            stepper.observe(self._follow, ["step", "selected"])
        self.chooser.observe(self._choose, "value")
        self._take_along(self.left, "step")
        self._is_made = True

    def go(self, i: int) -> None:
        """Show the i-th difference in both runs, as far as each has the step."""
        for stepper, index in zip((self.left, self.right), self.comparison.differences[i].indices, strict=True):
            if index is not None:
                stepper.step = index

    def close(self) -> None:
        """Close the steppers too: each holds its whole trace."""
        if self._is_made:
            self.left.close()
            self.right.close()
        super().close()

    def as_text(self) -> str:
        """Return the comparison in words."""
        return self.comparison.sentence(self._lang)

    def _t(self, name: str, **arguments: Any) -> str:
        return html.escape(translate(name, arguments, self._lang))

    def _word(self) -> None:
        """Set every word in the chosen language."""
        sentence = html.escape(self.comparison.sentence(self._lang))
        self._head.value = f"<h3>{self._t('diff.title')}</h3><p>{sentence}</p>"
        self.chooser.description = translate("diff.choose", {}, self._lang)
        for name, which in zip(self._names, _RUNS, strict=True):
            name.value = f"<h4>{self._t('diff.run', which=which)}</h4>"

    def _options(self) -> list[tuple[str, int]]:
        """List the steps that differ: what a reader chooses from, with the first thing in each that differs."""
        found = self.comparison.differences[:MAX_LISTED]
        head = {"n": len(self.comparison.differences), "shown": len(found)}
        lines = [(translate("diff.list", head, self._lang), -1)]
        for at, one in enumerate(found):
            what = translate(f"diff.{one.aspect}", {}, self._lang)
            step = translate("bar.step", {"step": one.at}, self._lang)
            lines.append((f"{step} · {what}: {one.left} → {one.right}"[:200], at))
        return lines

    def _change_language(self, change: dict[str, Any]) -> None:
        self._lang = change["new"]
        self._word()
        chosen = self.chooser.value
        with self.chooser.hold_trait_notifications():
            self.chooser.options = self._options()
            self.chooser.value = chosen

    def _choose(self, change: dict[str, Any]) -> None:
        if change["new"] is not None and change["new"] >= 0:
            self.go(change["new"])

    def _follow(self, change: dict[str, Any]) -> None:
        self._take_along(change["owner"], change["name"])

    def _take_along(self, mine: Stepper, name: str) -> None:
        """Set in the other stepper what was chosen in this one."""
        if self._is_following:
            return
        is_right = mine is self.right
        other = self.left if is_right else self.right
        self._is_following = True
        try:
            if name == "selected":
                other.selected = self._same_request(mine.selected, is_right=is_right)
                return
            index = self.comparison.beside(mine.step, of_right=is_right) if mine.num_steps else None
            self.notice.value = "" if index is not None else f"<p>{self._t('diff.absent', which='BA'[is_right])}</p>"
            if index is not None:
                other.step = index
        finally:
            self._is_following = False

    def _same_request(self, request_id: int, *, is_right: bool) -> int:
        mine, other = self.comparison.sides[::-1] if is_right else self.comparison.sides
        name = mine.names.get(request_id)
        return next((there for there, called in other.names.items() if called == name), -1)
