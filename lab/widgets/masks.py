"""Masks: which parts of the stepper a teacher may hide until somebody asks, and what else would give each away.

A part that is named hides what follows from it: a bucket stands in the graph's key, and next to the padding. The
browser gets the whole list, so that it has only to look a part up. What is said of a step goes by the same list: a
sentence that tells a hidden part is left out.

Does not: draw, or keep what was asked for (a trait of the stepper does).
Source: a question comes before its answer; a screen that shows both asks nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from engine.errors import ConfigError
from engine.fields import shown
from lab.widgets.places import nearest, stage_names, stage_number, stage_spellings

_LAID_OUT: Final = ("stage.4", "stage.5", "stage.6")  # the panels that draw padding rows
PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "path": ("path", "reason", "key", "bucket", "padding", "checklist", "stage.2", "stage.3", *_LAID_OUT, "stage.7"),
    "reason": ("reason", "checklist"),
    "bucket": ("bucket", "key", "padding", "checklist", "stage.2", *_LAID_OUT, "stage.7"),
    "key": ("key", "checklist", "stage.7"),
    "checklist": ("checklist",),
    "deferrals": ("deferrals",),
    "padding": ("padding", "stage.2", *_LAID_OUT),
    "next": ("next",),
}
# Which parts a sentence tells, by its id or by the id's first word; the same table goes to the browser.
TELLS: Final[Mapping[str, tuple[str, ...]]] = {
    "say.replay": ("path", "bucket", "padding"),
    "say.capture": ("path", "bucket", "padding"),
    "say.prefill_replay": ("path",),
    "say.eager": ("path",),
    "say.waits": ("deferrals",),
    "say.paused": ("deferrals",),
    "why": ("reason",),
    "outline.ran": ("path", "bucket", "padding"),
    "outline.untold": ("path",),
    "chg.path": ("path",),
    "chg.none": ("path",),
    "chg.bucket": ("bucket",),
    "chg.deferred": ("deferrals",),
}

Said = tuple[str, dict[str, Any]]


def expand(mask: object) -> dict[str, list[str]]:
    """Return each named part with all that it hides; a stage, by name or label, hides its panel. Raises: ConfigError.

    mask: a name, several, or None.
    """
    names = (mask,) if isinstance(mask, str) else () if mask is None else mask
    if not isinstance(names, Iterable) or isinstance(names, bytes | Mapping):
        raise ConfigError(_wanted(mask))
    found: dict[str, list[str]] = {}
    for name in names:
        stage = stage_number(name) if isinstance(name, str) else None
        if isinstance(name, str) and name in PARTS:
            found[name] = list(PARTS[name])
        elif stage is not None:
            found[f"stage.{stage}"] = [f"stage.{stage}"]
        else:
            raise ConfigError(_wanted(name))
    return found


def _wanted(got: object) -> str:
    near = nearest(got, [*PARTS, *stage_spellings()])
    return f"mask hides any of {', '.join(PARTS)}, or a stage by name ({stage_names()}), got {shown(got)}{near}"


def hidden_parts(mask: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """Return all that is hidden as long as nobody asked."""
    return frozenset(part for parts in mask.values() for part in parts)


def tells(name: str) -> tuple[str, ...]:
    """Return which parts a sentence tells."""
    return TELLS.get(name) or TELLS.get(name.split(".", 1)[0]) or ()


def tellable(said: Sequence[Said], hidden: frozenset[str]) -> list[Said]:
    """Return a step's sentences without those that tell a hidden part; the first always says which step it is."""
    kept = [one for one in said if not hidden.intersection(tells(one[0]))]
    if said and said[0] not in kept:
        first = said[0][1]
        kept.insert(0, ("mask.say", {"step": first["step"], "what": first.get("what", ("mask.some", {}))}))
    return kept
