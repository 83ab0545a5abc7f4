"""``stepscope doctor``: what this machine can do, what stands in the way, and what is wrong with a bucket list.

Does not: change anything, load a model, or use the network.
"""

import argparse
import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from engine.config import CudaGraphConfig, SchedulerConfig

OK: Final = 0
BROKEN: Final = 1
MIN_FREE_BYTES: Final = 1 << 30
_PACKAGES: Final = (
    "stepscope", "torch", "numpy", "tokenizers", "safetensors", "gguf", "jinja2", "ipywidgets", "anywidget", "plotly",
    "jupyterlab", "triton", "transformers",
)  # fmt: skip
_REQUIRED: Final = ("torch", "numpy", "tokenizers", "safetensors")
_FOR_THE_LAB: Final = ("ipywidgets", "anywidget", "plotly", "jupyterlab")


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. state: ok, note (something is slower or missing, nothing breaks) or broken."""

    name: str
    state: str
    value: str
    advice: str = ""


def add_parser(commands: Any) -> None:
    """Describe the command to argparse."""
    parser = commands.add_parser(
        "doctor",
        help="say what this machine can do",
        description="Say what this machine can do, and which batches a configuration would run eagerly. "
        "Exit status 1 when something needed is missing, or the engine refuses the configuration.",
    )
    buckets = parser.add_argument_group("the configuration to examine")
    buckets.add_argument("--max-batch-size", type=int, default=8, metavar="N", help="requests of a step (%(default)s)")
    buckets.add_argument("--max-num-tokens", type=int, default=512, metavar="N", help="rows of a step (%(default)s)")
    buckets.add_argument("--batch-sizes", metavar="1,2,4", help="the decode buckets (TensorRT-LLM's list)")
    buckets.add_argument("--prefill-num-tokens", metavar="64,128", help="the prefill buckets (none)")
    buckets.add_argument("--draft-lens", metavar="4", help="the draft lengths with graphs of their own (none)")
    buckets.add_argument("--no-padding", action="store_true", help="exact batch sizes only (padding is on)")
    parser.add_argument("--json", action="store_true", help="print JSON instead")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Look at everything and print it."""
    plan = examine_buckets(arguments)  # a wrong number ends here, before the machine is looked at
    report = {**examine(), "buckets": plan}
    findings = [*judge(report), *judge_buckets(plan)]
    broken = any(finding.state == "broken" for finding in findings)
    arguments.status = BROKEN if broken else OK  # it holds whoever reads what follows
    if arguments.json:
        plain = [dataclasses.asdict(finding) for finding in findings]
        print(json.dumps({**report, "findings": plain, "ok": not broken}, indent=2))
    else:
        for finding in findings:
            advice = f"  ({finding.advice})" if finding.advice else ""
            print(f"{finding.state:<6}  {finding.name}: {finding.value}{advice}")
    return arguments.status


def examine() -> dict[str, Any]:
    """Return the facts as plain values. Units: bytes."""
    versions = {name: _version(name) for name in _PACKAGES}
    report: dict[str, Any] = {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "versions": versions,
        "compiler": {name: shutil.which(name) for name in ("cc", "nvcc")},
        "models": _models(),
    }
    return {**report, **(_torch_facts() if versions["torch"] is not None else {"devices": [], "graph_backend": None})}


def examine_buckets(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the buckets of the described configuration, and what is wrong with them, as plain values.

    refused: the engine's own words, where it takes the lists but not beside these limits. Raises: ConfigError for a
    number or a list that it takes nowhere.
    """
    from engine.config import CudaGraphConfig, SchedulerConfig
    from engine.cuda_graphs.buckets import bucket_findings, resolve_buckets

    limits = SchedulerConfig(max_batch_size=arguments.max_batch_size, max_num_tokens=arguments.max_num_tokens)
    graphs = CudaGraphConfig(
        batch_sizes=_sizes("--batch-sizes", arguments.batch_sizes),
        enable_padding=not arguments.no_padding,
        prefill_num_tokens=_sizes("--prefill-num-tokens", arguments.prefill_num_tokens) or (),
        draft_lens=_sizes("--draft-lens", arguments.draft_lens) or (),
    )
    asked = graphs.batch_sizes
    budget = {"max_batch_size": limits.max_batch_size, "max_num_tokens": limits.max_num_tokens}
    sizes = resolve_buckets(graphs, **budget)
    return {
        **budget,
        "padding": graphs.enable_padding,
        "refused": _refusal(limits, graphs),
        "asked_batch_sizes": None if asked is None else list(asked),
        "batch_sizes": list(sizes[0]),
        "draft_batch_sizes": {draft_len: list(of) for draft_len, of in sizes.items() if draft_len},
        "prefill_num_tokens": list(graphs.prefill_num_tokens),
        "findings": [dataclasses.asdict(finding) for finding in bucket_findings(graphs, **budget)],
    }


def _refusal(limits: "SchedulerConfig", graphs: "CudaGraphConfig") -> str | None:
    """Return why no engine starts with these groups side by side; drafts are as long as the lists need them."""
    from engine.config import EngineConfig
    from engine.errors import ConfigError

    try:
        EngineConfig(
            scheduler=dataclasses.replace(limits, draft_len=max(graphs.draft_lens, default=0)), cuda_graph=graphs
        )
    except ConfigError as error:
        return str(error)
    return None


def _sizes(option: str, text: str | None) -> tuple[int, ...] | None:
    from engine.errors import ConfigError

    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.replace(",", " ").split())
    except ValueError as error:
        message = f"{option} must be numbers with commas between them, such as 1,2,4, got {text[:80]!r}"
        raise ConfigError(message) from error


def judge_buckets(plan: dict[str, Any]) -> list[Finding]:
    """Turn a bucket plan into findings; ok when every decode batch that a step can hold has a graph."""
    padding = "padding on" if plan["padding"] else "padding off"
    limit = f"({padding}, at most {plan['max_batch_size']} requests a step)"
    notes = [Finding(found["kind"], "note", found["sentence"], found["fix"]) for found in plan["findings"]]
    if plan["refused"] is not None:  # what it would be cut to is what no engine has
        sizes = _listed(plan["asked_batch_sizes"] or plan["batch_sizes"])
        value = f"{sizes} {limit}: the engine refuses this configuration"
        return [Finding("buckets", "broken", value, plan["refused"]), *notes]
    sizes = _listed(plan["batch_sizes"])
    for draft_len, of in plan["draft_batch_sizes"].items():
        sizes += f"; with {draft_len} drafts {_listed(of)}"
    state = "note" if notes else "ok"
    return [Finding("buckets", state, f"{sizes} {limit}"), *notes, _judge_prefill(plan)]


def _judge_prefill(plan: dict[str, Any]) -> Finding:
    """Say which steps with a prompt would run eagerly."""
    most, buckets = plan["max_num_tokens"], plan["prefill_num_tokens"]
    largest = max(buckets, default=0)
    if largest >= most:
        return Finding("prefill buckets", "ok", f"{_listed(buckets)} (at most {most} rows a step)")
    eager = f"of {largest + 1} to {most} rows" if largest + 1 < most else f"of {most} rows"
    steps = f"steps {eager} that compute a prompt" if buckets else "steps that compute a prompt"
    value = f"{_listed(buckets)}: {steps}, beyond its last token, run eagerly"
    return Finding("prefill buckets", "note", value, f"with {most} in CudaGraphConfig.prefill_num_tokens none does")


def _listed(sizes: list[int]) -> str:
    return ", ".join(map(str, sizes)) or "none"


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _models() -> dict[str, Any]:
    from engine.models.catalog import cache_dir
    from lab.cli.models import described

    folder = cache_dir()
    files = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
    return {
        "cache": str(folder),
        "cache_bytes": sum(path.stat().st_size for path in files),
        "ready": [model["name"] for model in described() if model["is_ready"]],
    }


def _torch_facts() -> dict[str, Any]:
    import torch

    from engine.device import free_memory, resolve_device

    has_cuda = torch.cuda.is_available()
    cpu: dict[str, Any] = {
        "device": "cpu",
        "name": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "free_bytes": free_memory(resolve_device("cpu", "auto")),
    }
    devices = [cpu]
    for index in range(torch.cuda.device_count() if has_cuda else 0):
        spec = resolve_device(f"cuda:{index}", "auto")
        devices.append(
            {"device": f"cuda:{index}", "name": torch.cuda.get_device_name(index), "free_bytes": free_memory(spec)}
        )
    return {
        "devices": devices,
        "attention_backends": ["native", "vanilla"],
        "native_kernels": "triton" if has_cuda and importlib.util.find_spec("triton") else "cpu",
        "graph_backend": "cuda" if has_cuda else "tape",
        "graphs_simulated": not has_cuda,
        "torch_compile_lacks": _lacking_for_compile(),
    }


def _lacking_for_compile() -> str | None:
    """Return the engine's own words about what torch_compile=True lacks here; None when it lacks nothing."""
    from engine.device import resolve_device
    from engine.errors import ConfigError
    from engine.models.compiled import require_compiler

    try:
        require_compiler(resolve_device("auto", "auto"))
    except ConfigError as error:
        return str(error)
    return None


def judge(report: dict[str, Any]) -> list[Finding]:
    """Turn the facts into findings, with the nearest thing to do about each that isn't ok."""
    versions = report["versions"]
    findings = [Finding("python", "ok", f"{report['python']} on {report['platform']}")]
    for name in (*_REQUIRED, *_FOR_THE_LAB):
        state = "ok" if versions[name] else "broken"
        findings.append(Finding(name, state, versions[name] or "missing", "" if versions[name] else "run `make setup`"))
    findings += [_judge_device(device) for device in report["devices"]]
    if report["graph_backend"] == "tape":
        advice = "addresses, keys and contents are real, speed and stream order are not; CUDA graphs need a GPU"
        findings.append(Finding("graphs", "note", "simulated by the CPU tape", advice))
    elif report["graph_backend"] == "cuda":
        findings.append(Finding("graphs", "ok", "CUDA graphs"))
    if report["devices"]:
        kernels = f"native ({report['native_kernels']} kernels), vanilla"
        findings.append(Finding("attention", "ok", kernels))
        lacks = report["torch_compile_lacks"]
        findings.append(_judge_compiling(lacks, is_tape=report["graph_backend"] == "tape"))
    compilers = {name: path for name, path in report["compiler"].items() if path}
    findings.append(Finding("compiler", "ok" if compilers else "note", ", ".join(compilers) or "none found"))
    findings.append(_judge_models(report["models"]))
    if not versions["transformers"]:
        findings.append(Finding("transformers", "note", "missing", "only `stepscope bench cpu` needs it"))
    return findings


def _judge_compiling(lacks: str | None, *, is_tape: bool) -> Finding:
    if lacks is not None:
        return Finding("torch_compile", "note", "not possible", lacks)
    if is_tape:
        advice = "it cannot record a compiled body; CUDA graphs record kernels"
        return Finding("torch_compile", "note", "possible, but with the CPU tape every step then runs eagerly", advice)
    return Finding("torch_compile", "ok", "possible")


def _judge_device(device: dict[str, Any]) -> Finding:
    free = device["free_bytes"]
    value = f"{device['name']}, {free / (1 << 30):.1f} GiB free"
    if "cores" in device:
        value += "".join(
            f", {device[unit]} {unit if device[unit] != 1 else unit[:-1]}" for unit in ("cores", "threads")
        )
    if free >= MIN_FREE_BYTES:
        return Finding(device["device"], "ok", value)
    return Finding(device["device"], "note", value, "smollm2-135m in float32 wants 1 GiB; close something, or use tiny")


def _judge_models(models: dict[str, Any]) -> Finding:
    value = f"{', '.join(models['ready'])} ready; cache {models['cache']}, {models['cache_bytes'] / (1 << 20):.0f} MiB"
    if len(models["ready"]) > 1:
        return Finding("models", "ok", value)
    return Finding("models", "note", value, "`stepscope models pull smollm2-135m` fetches a real one")
