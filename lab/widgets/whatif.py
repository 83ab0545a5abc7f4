"""What would have put an eager step on a graph, as the stepper says it: the words, and the door to the proof.

The proof is a re-run of the workload (``lab/counterfactuals``), which needs the engine and torch; the widget needs
neither. So the widget knows that module by name only, and only when a reader asks.

Does not: change, run or prove anything. Source: the smallest change, proved, is what a log line never tells.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from engine.errors import ConfigError
from engine.fields import shown
from lab.trace import Trace

Said = tuple[str, dict[str, Any]]
Answers = dict[str, list[Said]]

_PROVER: Final = (
    "lab.counterfactuals.search"  # a layer above this one: never imported, found by name when it is asked for
)

WHAT_IF_WORDS: Final[dict[str, tuple[str, str]]] = {
    "whatif.ask": ("Prove the smallest change", "证明最小的改动"),
    "whatif.busy": ("Running the workload again…", "正在重新运行……"),
    "whatif.title": ("What would have put this step on a graph?", "怎样才能让这一步走图路径？"),
    "whatif.already": (
        "This step is on a graph already: nothing has to change.",
        "这一步已经在图上：不必改动。",
    ),
    "whatif.change": ("{field}: {before} → {after}.", "{field}：{before} → {after}。"),
    "whatif.proved": (
        "Proved by a re-run: its step {step} does the same work by {path} of {key}.",
        "已由重新运行证明：新运行的第 {step} 步以{path} {key} 做同样的工作。",
    ),
    "whatif.by_itself": (
        "No change is needed: run again as configured, step {step} does the same work by {path} of {key}.",
        "不必改动：按原配置重新运行时，第 {step} 步以{path} {key} 做同样的工作。",
    ),
    "whatif.outside": (
        "What sent the recorded step off ({reason}) is not in the configuration.",
        "使所记录的一步离开图的原因（{reason}）不在配置里。",
    ),
    "whatif.none": (
        "No change of the stated set helps. Tried: {tried}.",
        "所列的改动都没有用。已尝试：{tried}。",
    ),
    "whatif.untried": ("No change was tried.", "没有尝试任何改动。"),
    "whatif.tried": ("{n} {n|change was|changes were} tried before it.", "在它之前尝试了 {n} 种改动。"),
    "whatif.simulated": (
        "The graph of the re-run is simulated by the CPU tape.",
        "重新运行的图由 CPU 磁带模拟。",
    ),
}


def prove(trace: Trace, indices: Sequence[int], *, model: object = None) -> Answers:
    """Return what the stepper says of these steps, by step number. model, Raises: as for ``counterfactual``."""
    prover = importlib.import_module(_PROVER)
    explore = cast("Callable[..., Any]", prover.counterfactual)
    return {str(trace.steps[index].step): list(explore(trace, index, model=model).say) for index in indices}


def can_prove(trace: Trace) -> bool:
    """Return whether the trace holds what a re-run needs; what else may stop it is said when it is asked for."""
    header = trace.header
    return bool(header.config) and not header.redacted and not header.num_dropped


def wanted(trace: Trace, choice: bool | Mapping[int, Any]) -> Answers:  # noqa: FBT001 - the public option of show
    """Return the answers to ship: none, all eager steps', or those that the caller has, by index into the steps."""
    if choice is False:
        return {}
    if choice is True:
        return prove(trace, [at for at, step in enumerate(trace.steps) if step.graph.path == "eager"])
    if not isinstance(choice, Mapping):
        message = f"counterfactuals must be True, False, or answers by index into the steps, got {shown(choice)}"
        raise ConfigError(message)
    for at, found in choice.items():
        if not hasattr(found, "say"):
            message = f"counterfactuals[{shown(at)}] must be an answer of lab.counterfactual, got {shown(found)}"
            raise ConfigError(message)
    return {str(trace.steps[trace.place(at)].step): list(found.say) for at, found in choice.items()}
