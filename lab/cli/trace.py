"""``stepscope trace``: record a workload into a file, show a recorded file in the terminal, and check its graph share.

Does not: draw (the notebook's stepper does), or run a trace again but for ``check --prove``.
"""

import argparse
import dataclasses
import json
import math
from typing import TYPE_CHECKING, Any, Final

from lab.cli import replay, trace_diff, trace_export, trace_import
from lab.cli.step_number import place_of
from lab.cli.tables import table

if TYPE_CHECKING:
    from lab.snapshot import StepSnapshot
    from lab.trace import Trace

_SIMULATED: Final = " (graphs simulated on the CPU)"
BELOW: Final = 1  # the exit status of a share that is not reached


def add_parser(commands: Any) -> None:
    """Describe the command to argparse."""
    parser = commands.add_parser(
        "trace", help="record or show a trace", description="Record a workload step by step, or show a recorded one."
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    record = actions.add_parser("record", help="run prompts and save every step")
    record.add_argument("--model", default="tiny", help="a name, a .gguf file or a folder (%(default)s)")
    record.add_argument("--out", required=True, help="the file to write, for example run.trace.json.gz")
    record.add_argument("--prompts", nargs="+", required=True, metavar="TEXT", help="one request each")
    record.add_argument("--stagger", type=int, default=0, metavar="N", help="each prompt joins N steps after the last")
    record.add_argument("--max-tokens", type=int, default=16, help="tokens of each request at most (%(default)s)")
    record.add_argument("--max-batch-size", type=int, default=8, help="requests of a step at most (%(default)s)")
    record.add_argument("--mode", choices=("light", "full"), default="light", help="full also reads the buffers")
    record.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (%(default)s)")
    record.add_argument("--redact", action="store_true", help="leave tokens and text out of the file")
    record.set_defaults(run=record_trace)
    show = actions.add_parser("show", help="show a recorded file as a table")
    show.add_argument("file", help="a trace file")
    show.add_argument("--step", type=int, metavar="I", help="explain step I of the table instead (-1: the last)")
    show.add_argument("--language", choices=("en", "zh"), default="en", help="of the sentences (%(default)s)")
    show.add_argument("--json", action="store_true", help="print JSON instead")
    show.set_defaults(run=show_trace)
    check = actions.add_parser(
        "check",
        help="fail when too few steps ran on graphs",
        description="Print the share of steps that ran on graphs, each reason of the others with its count, and the "
        "smallest fix. Exit status: 0 the share is reached, 1 it is not, 2 the file cannot be checked.",
    )
    check.add_argument("file", help="a trace file")
    check.add_argument("--min-graph-share", type=float, default=0.9, metavar="S", help="from 0 to 1 (%(default)s)")
    check.add_argument("--prove", action="store_true", help="run the workload again until a change is proved to help")
    check.add_argument("--model", help="where the recorded model lies, for --prove (the recorded name)")
    check.add_argument("--json", action="store_true", help="print JSON instead")
    check.set_defaults(run=check_trace)
    trace_diff.add_action(actions)
    trace_export.add_action(actions)
    trace_import.add_action(actions)
    replay.add_action(actions)


def record_trace(arguments: argparse.Namespace) -> int:
    """Run the prompts to their end and save the trace."""
    from engine.config import EngineConfig, SamplingParams, SchedulerConfig
    from engine.errors import ConfigError
    from engine.fields import integer
    from lab.session import Session
    from lab.trace import trace_target

    trace_target(arguments.out)  # before the work, not after it
    integer("--stagger", arguments.stagger, refusal=ConfigError, low=0)
    params = SamplingParams(max_tokens=arguments.max_tokens)
    rows = max(512, arguments.max_batch_size)
    scheduler = SchedulerConfig(max_batch_size=arguments.max_batch_size, max_num_tokens=rows)
    config = EngineConfig(device=arguments.device, scheduler=scheduler)
    prompts = [(at * arguments.stagger, prompt) for at, prompt in enumerate(arguments.prompts)]
    with Session(arguments.model, prompts=prompts, config=config, params=params, mode=arguments.mode) as session:
        trace = session.run()
    path = trace.save(arguments.out, redact=arguments.redact)
    print(trace.summary())
    print(f"saved: {path} ({path.stat().st_size} bytes)")
    return 0


def show_trace(arguments: argparse.Namespace) -> int:
    """Print the table of all steps, or one step in words and rows."""
    from lab.trace import Trace

    trace = Trace.load(arguments.file)
    if arguments.step is not None:
        return _show_step(trace, arguments)
    overview = [overview_row(step) for step in trace.steps]
    summary = dataclasses.asdict(trace.summary())
    if arguments.json:
        report = {"model": trace.header.model.name, "mode": trace.header.mode, "simulated": summary["simulated"]}
        print(json.dumps({**report, "summary": summary, "steps": overview}, ensure_ascii=False, indent=2))
        return 0
    device = trace.header.device
    source = "".join(f", from {form}" for name, form in trace.header.versions.items() if name == "imported from")
    where = f"{device.device}, {trace.header.mode} mode{_SIMULATED * device.simulated}{source}"
    print(f"{trace.header.model.name} on {where}")
    print(table(overview))
    print(trace.summary())
    return 0


def overview_row(step: "StepSnapshot") -> dict[str, Any]:
    """Return what the table says of one step; None: it is not known, as much is not of an imported step.

    Units: bucket in requests, of prefill in rows; host_us: microseconds.
    """
    from lab.outline import IMPORTED
    from lab.snapshot import UNKNOWN
    from lab.trace_summary import path_word

    requests = step.schedule.budget.num_requests
    told = {
        "deferred": len(step.schedule.deferrals),
        "sampled": len(step.outcome.tokens),
        "drafts": step.schedule.draft_len * len(step.outcome.accepted),
        "accepted": sum(count for _, count in step.outcome.accepted),
        "finished": len(step.outcome.finished),
    }
    times = [us for us in step.host_us.tolist() if not math.isnan(us)]
    return {
        "step": step.step,
        "path": path_word(step),
        "bucket": step.path.bucket if step.path.key is not None else step.metadata.padded_num_tokens,
        "requests": None if requests == UNKNOWN else requests,
        "rows": step.num_rows,
        "padding": step.num_padding_rows,
        **(dict.fromkeys(told) if step.mode == IMPORTED else told),
        "host_us": round(sum(times), 1) if times else None,
        "reason": step.path.reason,
    }


def _show_step(trace: "Trace", arguments: argparse.Namespace) -> int:
    from lab.outline import IMPORTED

    at = place_of(trace, arguments.step)
    step = trace.steps[at]
    sentence = trace.explain(at, arguments.language)
    rows = step_rows(trace, step)
    conditions = [dataclasses.asdict(condition) for condition in step.path.conditions]
    if arguments.json:
        report = {**overview_row(step), "simulated": trace.header.device.simulated, "explanation": sentence}
        print(json.dumps({**report, "conditions": conditions, "rows": rows}, ensure_ascii=False, indent=2))
        return 0
    print(sentence)
    print("its rows are not in the imported file" if step.mode == IMPORTED else table(rows))
    marks = {True: "pass", False: "FAIL", None: "-"}
    for condition in step.path.conditions:
        needed = f"needed {condition.needed}, got {condition.got}" if condition.passed is not None else "not reached"
        print(f"  {marks[condition.passed]:<4}  {condition.reason}: {needed}")
    return 0


def step_rows(trace: "Trace", step: "StepSnapshot") -> list[dict[str, Any]]:
    """Return each row of a step: request, kind, token, its text, position and source.

    late: the step whose sample it is, where that was on the device when the row was laid out.
    """
    from lab.snapshot import ROW_KINDS, ROW_SOURCES

    rows, pieces = step.rows, trace.header.pieces
    late = {row: origin for start, end, origin in step.graph.flight.late for row in range(start, end)}
    return [
        {
            "row": at,
            "request": int(rows.request_ids[at]),
            "kind": ROW_KINDS[rows.kinds[at]],
            "token": int(rows.token_ids[at]),
            "text": pieces.get(int(rows.token_ids[at]), ""),
            "position": int(rows.positions[at]),
            "source": ROW_SOURCES[rows.sources[at]],
            "late": late.get(at),
        }
        for at in range(rows.num_rows)
    ]


def check_trace(arguments: argparse.Namespace) -> int:
    """Compare the graph share of a file with the least that is wanted."""
    from engine.errors import TraceError
    from lab.trace import Trace, graph_share
    from lab.trace_summary import percents

    wanted = arguments.min_graph_share
    if not 0 <= wanted <= 1:
        message = f"--min-graph-share must be from 0 to 1, got {wanted}"
        raise TraceError(message)
    trace = Trace.load(arguments.file)
    share = graph_share(trace.steps)
    if share is None:
        message = f"{arguments.file} has no step with a forward, so it has no graph share"
        raise TraceError(message)
    fall_offs = find_fall_offs(trace)
    if arguments.prove:
        fall_offs = [{**found, "proved": _prove(trace, found, arguments.model)} for found in fall_offs]
    is_reached, simulated = share >= wanted, trace.header.device.simulated
    arguments.status = 0 if is_reached else BELOW
    if arguments.json:
        report = {"file": arguments.file, "graph_share": share, "min_graph_share": wanted, "ok": is_reached}
        report |= {"simulated": simulated, "fall_offs": fall_offs}
        print(json.dumps(report, ensure_ascii=False, indent=2))
    else:
        verdict = "reached" if is_reached else "NOT reached"
        here, least = percents(share, wanted)
        print(f"graph share {here}; at least {least} was asked for: {verdict}{_SIMULATED * simulated}")
        for found in fall_offs:
            _print_fall_off(found)
    return arguments.status


def find_fall_offs(trace: "Trace") -> list[dict[str, Any]]:
    """Return each reason for an eager step, most frequent first: its count, where it came first, words and fix.

    first, largest, example and steps are indices into the trace; the fix is for the step with the most rows, so that a
    bucket that is made for it holds the others too. A fix without a number is the same for all: its example, on which
    it can be proved, is the plainest of them, which needs nothing else.
    """
    from lab import reasons
    from lab.reason_numbers import reason_arguments

    met: dict[str, list[int]] = {}
    for at, step in enumerate(trace.steps):
        if step.schedule.spans and step.graph.path not in reasons.GRAPH_PATHS:
            met.setdefault(step.path.reason or reasons.NOT_RECORDED, []).append(at)
    found: list[dict[str, Any]] = []
    for reason, places in sorted(met.items(), key=lambda one: -len(one[1])):
        largest = max(places, key=lambda at: trace.steps[at].num_rows)
        first_numbers, numbers = (
            reason_arguments(trace.steps[at], trace.header.buckets) for at in (places[0], largest)
        )
        fix = reasons.fix(reason, **numbers) if reason in reasons.REASONS else None
        is_for_all = fix is not None and not reasons.fix_arguments(reason)
        found.append(
            {
                "reason": reason,
                "count": len(places),
                "first": places[0],
                "first_step": trace.steps[places[0]].step,
                "largest": largest,
                "largest_step": trace.steps[largest].step,
                "example": min(places, key=lambda at: _plainness(trace.steps[at])) if is_for_all else largest,
                "steps": places,
                "sentence": reasons.recorded_sentence(reason, **first_numbers),
                "fix": fix,
            }
        )
    return found


def _plainness(step: "StepSnapshot") -> tuple[int, int]:
    """Order steps by what a graph for them needs: none with a prompt, few rows."""
    return sum(span.kind == "C" for span in step.schedule.spans), step.num_rows


def _prove(trace: "Trace", found: dict[str, Any], model: str | None) -> dict[str, Any]:
    """Prove the smallest change for a reason's example step, and count what it does for the reason's others."""
    from lab.counterfactuals.search import counterfactual
    from lab.counterfactuals.workload import cover

    answer = counterfactual(trace, found["example"], model=model)
    proof = answer.proof
    covered = None if proof is None else cover(trace, found["steps"], proof, model=model)
    return {
        "change": [{"field": one.field, "before": one.before, "after": one.after} for one in answer.change],
        "of_step": trace.steps[found["example"]].step,
        "step": None if proof is None else proof.step,
        "path": None if proof is None else proof.path,
        "key": None if proof is None else proof.key,
        "sentence": answer.sentence,
        "num_tried": len(answer.tried),
        "coverage": None if covered is None else dataclasses.asdict(covered),
    }


def _print_fall_off(found: dict[str, Any]) -> None:
    from lab.reasons import REASONS, fix_arguments

    print(f"{found['count']} x {found['reason']}, first at step {found['first_step']}: {found['sentence']}")
    is_known = found["reason"] in REASONS
    is_for_one = is_known and fix_arguments(found["reason"]) and found["largest"] != found["first"]
    whose = f" for step {found['largest_step']}, the largest" if is_for_one else ""
    nothing = "none" if is_known else "not known"
    print(f"    smallest fix{whose}: {found['fix'] or nothing}")
    if "proved" in found:
        _print_proof(found["proved"])


def _print_proof(proved: dict[str, Any]) -> None:
    from lab.trace_summary import counted, percent

    covered = proved["coverage"]
    verdict = "not proved" if covered is None else "proved"
    print(f"    {verdict} for step {proved['of_step']}: {proved['sentence']}")
    if covered is None:
        return
    counts = f"{covered['num_on_graph']} of the {counted(covered['num_steps'], 'step')} of this reason"
    gone = f" ({covered['num_gone']} do not occur in it)" if covered["num_gone"] else ""
    share = "none" if covered["graph_share"] is None else percent(covered["graph_share"])
    print(f"    in the whole re-run, on a graph: {counts}{gone}; its graph share is {share}")
