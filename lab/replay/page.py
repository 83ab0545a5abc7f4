"""The page of a replay: batches, waiting, memory, paths and waste over virtual time, each with its table.

Does not: draw (``lab/figures``) or count (``outcome.py``).
"""

from typing import Any

from lab.figures.charts import bars, over_time
from lab.figures.page import Section, page
from lab.replay.outcome import Replay, bucket_rows, num_usable_blocks, path_rows, size_rows, spread_rows


def replay_page(replay: Replay, lead: tuple[str, ...] = ()) -> str:
    """Return the HTML. lead: sentences about what was served, before the numbers."""
    summary = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in replay.summary().items())
    interrupted = ("The replay was interrupted: these are its steps so far.",) if replay.is_interrupted else ()
    simulated = "Times are virtual, by the cost model; host times are real, of the machine that served the replay."
    return page("Replay of a serving trace", (*interrupted, *lead, summary, simulated), _sections(replay))


def _sections(replay: Replay) -> list[Section]:
    load, *rest = _over_time(replay)
    return [load, *_batches(replay), *rest]


def _over_time(replay: Replay) -> list[Section]:
    """Show what changes while the trace is served."""
    columns = replay.columns
    times = columns["start_us"] / 1e6
    batch = {"running": columns["requests"], "waiting": columns["waiting"]}
    blocks = {"in use": num_usable_blocks(replay) - columns["free_blocks"]}
    host = {"host": columns["host_ns"] / 1e3}
    spreads = {row["quantity"]: row for row in spread_rows(replay)}

    def spread_of(*names: str) -> list[dict[str, Any]]:
        return [spreads[name] for name in names if name in spreads]

    return [
        Section(
            "Requests that run and that wait",
            over_time("Requests", times, batch, unit="requests"),
            spread_of("requests a step", "waiting requests a step", "rows a step"),
            "over all steps",
        ),
        Section(
            "KV blocks", over_time("KV blocks", times, blocks, unit="blocks"), spread_of("KV blocks in use"), "blocks"
        ),
        Section(
            "Host time of a step",
            over_time("Host time", times, host, unit="us"),
            spread_of("host us a step", "virtual us a step"),
            "microseconds",
        ),
        Section(
            "Latencies",
            None,
            spread_of("first token after, virtual ms", "finished after, virtual ms"),
            "of finished requests, since their arrival",
        ),
    ]


def _batches(replay: Replay) -> list[Section]:
    """Show the shapes that steps had, and what became of them."""
    paths, sizes = path_rows(replay.columns), size_rows(replay.columns)
    buckets = bucket_rows(replay.columns, replay.buckets)
    by_size = {"steps": [row["steps"] for row in sizes]}
    by_bucket = {"padding, %": [row["waste_pct"] for row in buckets]}
    by_path = {"virtual s": [row["virtual_s"] for row in paths]}
    names = [row["reason"] or row["path"] for row in paths]
    return [
        Section(
            "Batch sizes",
            bars(
                "Steps of each batch size", [row["requests"] for row in sizes], by_size, axis="requests", unit="steps"
            ),
            sizes,
            "steps by the number of their requests, and the share of them on a graph",
        ),
        Section(
            "Decode buckets and their padding",
            bars(
                "Padding of each bucket", [r["bucket"] for r in buckets], by_bucket, axis="bucket", unit="% of the rows"
            ),
            buckets,
            "steps that replayed a decode graph",
        ),
        Section(
            "Paths, and why steps fell off",
            bars("Virtual seconds", names, by_path, axis="path, or the reason of an eager step", unit="virtual s"),
            paths,
            "all steps",
        ),
    ]
