"""Run a workload, with a fault or without, and compare the two runs row by row.

A run ends with its last request, or with the first error: a request that finished with one, an audit that refused a
step, or a warm-up that failed.

Does not: know any fault, or start processes (``children.py``).
"""

import contextlib
import dataclasses
from typing import Any, Final

import torch

from engine.config import EngineConfig
from engine.llm import LLM
from engine.probe import Probe, Stage
from engine.reasons import PathKind
from engine.runners.interface import ForwardOutputs
from lab.faults.audit import StepAudit
from lab.faults.fault import Fault, Workload, swapped
from lab.faults.guards import guards_off
from lab.session import Session
from lab.trace import RowMark, Trace

Rows = tuple[tuple[int, int], ...]

WARM_UP: Final = -1  # the step of an error before the first step
_DELAY_CYCLES: Final = 20_000_000  # about 10 ms of an H200: more than the host needs to stage a step


@dataclasses.dataclass(frozen=True, slots=True)
class StepSeen:
    """What a step gave: its path, and (flat row, token) of every logit row.

    padding: the same for rows whose samples nobody reads, by argmax.
    """

    step: int
    path: str
    tokens: Rows
    padding: Rows = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Raised:
    """An error that ended a run: the type's name, the message and the step."""

    kind: str
    message: str
    step: int


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """One run: its steps, its error if it had one, its trace (None when warm-up failed) and the text so far."""

    steps: tuple[StepSeen, ...]
    raised: Raised | None
    trace: Trace | None
    simulated: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """Where a run first leaves the healthy one. Each is None when it does not.

    step and row: the first row whose token differs. lost: the first step that ran eagerly instead of on its graph.
    """

    step: int | None = None
    row: int | None = None
    lost: int | None = None


class PlannedInterrupt(KeyboardInterrupt):
    """The Ctrl-C of a workload, told apart from the user's own."""


class _Watch:
    """Hands every stage to the recorder and the audit, and notes each row's token."""

    def __init__(self, inner: Probe, audit: StepAudit | None, engine: Any) -> None:
        self.steps: list[StepSeen] = []
        self._probes = [inner] if audit is None else [audit, inner]
        self._engine = engine
        self._rows: tuple[int, ...] = ()
        self._path = ""

    def emit(self, stage: Stage, step: int, value: Any) -> None:
        for probe in self._probes:
            probe.emit(stage, step, value)
        if stage is Stage.PACKED:
            self._rows = tuple(getattr(value, "gather_ids", None) or range(getattr(value, "num_rows", 0)))
        elif stage is Stage.RAN:
            self._path = value.path.value
        elif stage is Stage.SAMPLED:
            tokens = tuple(zip(self._rows, [token for _, token in value.token_ids], strict=False))
            rows = self._rows[len(tokens) :]
            best = self._engine.outputs.logits.tensor[len(tokens) :].argmax(1).tolist() if rows else []
            self.steps.append(StepSeen(step, self._path, tokens, tuple(zip(rows, best, strict=True))))


@dataclasses.dataclass(slots=True)
class _Forwards:
    """The engine's forward, with the newest outputs kept, the device held back, and Ctrl-C sent when it is due."""

    forward: Any
    interrupts: list[int]
    is_late: bool
    outputs: ForwardOutputs | None = None

    def __call__(self, batch: Any, **options: Any) -> ForwardOutputs:
        """Run the forward; then act as if the user had pressed Ctrl-C, if this is the step for it."""
        if self.is_late:
            getattr(torch.cuda, "_sleep")(_DELAY_CYCLES)  # noqa: B009 - private, and torch has no other such kernel
        outputs = self.outputs = self.forward(batch, **options)
        if options.get("step") in self.interrupts:
            self.interrupts.remove(options["step"])
            raise PlannedInterrupt
        return outputs


def run_workload(workload: Workload, device: str, *, fault: Fault | None = None, guarded: bool = True) -> Run:
    """Run a workload to its end or to its first error.

    guarded: with the engine's guards and the audit, else without both. device: "cpu" or "cuda".
    """
    config = dataclasses.replace(
        workload.config,
        device=device,
        cuda_graph=dataclasses.replace(workload.config.cuda_graph, strict_buffers=guarded),
    )
    with contextlib.ExitStack() as stack:
        if not guarded:
            stack.enter_context(guards_off())
            stack.enter_context(fault.lift() if fault else contextlib.nullcontext())
        if fault is not None:
            stack.enter_context(fault.patch())
        try:
            llm = stack.enter_context(_engine(workload, config, fault))
        except Exception as error:
            return Run((), Raised(type(error).__name__, str(error), WARM_UP), None, simulated=device == "cpu")
        return _drive(llm, workload, fault, guarded=guarded)


def _engine(workload: Workload, config: EngineConfig, fault: Fault | None) -> LLM:
    lag = workload.lag if config.device == "cpu" else 0
    if fault is None:
        return LLM("tiny", config, stream_lag=lag)
    return LLM("tiny", config, decisions=fault.decisions(), stream_lag=lag)


def _drive(llm: Any, workload: Workload, fault: Fault | None, *, guarded: bool) -> Run:
    prompts = [(one.arrival_step, one.prompt, one.params) for one in workload.joining]
    engine = llm._model_engine
    is_late = bool(workload.lag) and llm.device_spec.is_cuda
    forwards = _Forwards(engine.forward, list(workload.interrupts), is_late)
    raised: Raised | None = None
    # A recorder in full mode waits for the device at every stage, which would leave nothing late.
    mode = "light" if workload.lag else "full"
    audit = StepAudit(llm, lambda: _present(forwards.outputs)) if guarded else None
    if fault is not None:
        fault.start(llm)
    with swapped(engine, "forward", forwards), Session(llm, prompts=prompts, mode=mode) as session:
        watch = _Watch(session.recorder, audit, forwards)
        llm.set_probe(watch)
        while raised is None and not session.is_finished:
            step = llm.num_steps
            try:
                session.step()
            except PlannedInterrupt:
                continue
            except Exception as error:
                raised = Raised(type(error).__name__, str(error), step)
            raised = raised or next((_parsed(o.error, step) for o in session.outputs if o.error is not None), None)
        llm.set_probe(None)
        return Run(tuple(watch.steps), raised, session.trace, llm.warmup_report.simulated)


def _present(outputs: ForwardOutputs | None) -> ForwardOutputs:
    assert outputs is not None
    return outputs


def _parsed(error: str, step: int) -> Raised:
    """Take apart what the executor writes into the output of a failed request: type, colon, message."""
    kind, _, message = error.partition(": ")
    return Raised(kind, message, step)


def first_difference(healthy: Run, broken: Run) -> Difference:
    """Compare two runs of one workload, step by step and row by row, as far as both go.

    A wrong padding row counts only where no request's row is ever wrong.
    """
    pairs = list(zip(healthy.steps, broken.steps, strict=False))
    off_graph = [right.step for right, got in pairs if right.path != PathKind.EAGER and got.path == PathKind.EAGER]
    wrong = [(right.step, row) for right, got in pairs for row, _, _ in wrong_rows(right.tokens, got.tokens)]
    wrong += [(right.step, row) for right, got in pairs for row, _, _ in wrong_rows(right.padding, got.padding)]
    step, row = wrong[0] if wrong else (None, None)
    return Difference(step, row, off_graph[0] if off_graph else None)


def wrong_rows(right: Rows, got: Rows) -> list[tuple[int, int, int]]:
    """List (row, right token, token) of the rows that differ; rows that only one of the two has are left out."""
    tokens = dict(right)
    return [(row, tokens[row], token) for row, token in got if row in tokens and tokens[row] != token]


def marks(healthy: Run, broken: Run) -> tuple[RowMark, ...]:
    """Mark every wrong row of the broken run, for the stepper."""
    return tuple(
        RowMark(got.step, row, f"samples {token}, the healthy run {needed}")
        for right, got in zip(healthy.steps, broken.steps, strict=False)
        for row, needed, token in wrong_rows(right.tokens + right.padding, got.tokens + got.padding)
    )
