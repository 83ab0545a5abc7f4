"""``stepscope run``: one prompt through the engine, streamed to the terminal or reported as JSON.

Only the answer goes to stdout; one line on stderr says that the model loads, and when it is ready.

Does not: keep a conversation, or serve more than one request.
"""

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from engine.errors import RequestError

if TYPE_CHECKING:
    from engine.config import EngineConfig, SamplingParams
    from engine.llm import LLM, RequestOutput

DEFAULT_MODEL: Final = "smollm2-135m"
INTERRUPTED: Final = 130
FAILED: Final = 2
PATHS: Final = ("eager", "capture", "replay")


def add_parser(commands: Any) -> None:
    """Describe the command to argparse."""
    parser = commands.add_parser(
        "run", help="answer one prompt", description="Run one prompt and print its text as it comes."
    )
    parser.add_argument("prompt", help="the text to continue, or the question with --chat")
    parser.add_argument("--chat", action="store_true", help="put the prompt into the model's chat template")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="a name, a .gguf file or a folder (%(default)s)")
    parser.add_argument("--max-tokens", type=int, default=128, help="tokens at most (%(default)s)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (%(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="noise of this request when temperature is above 0")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print ids, text, finish reason and steps by path instead")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve the prompt. Ctrl-C keeps what came so far and gives exit status 130."""
    from engine.config import SamplingParams

    params = SamplingParams(
        max_tokens=arguments.max_tokens, temperature=arguments.temperature, seed=arguments.seed
    )  # before the model: a bad number should not cost a load
    _require_text(arguments.prompt)
    with _load(arguments.model, _one_request_config(arguments.device)) as llm:
        prompt: str = arguments.prompt
        if arguments.chat:
            prompt = llm.tokenizer.apply_chat_template([{"role": "user", "content": prompt}])
        if not arguments.json:
            return _stream(llm, prompt, params)
        report, arguments.status = _report(llm, prompt, params)
    print(json.dumps(report, ensure_ascii=False, indent=2))
    return arguments.status


def _require_text(prompt: str) -> None:
    """Refuse bytes that are no UTF-8, which arrive as lone surrogates."""
    try:
        prompt.encode()
    except UnicodeEncodeError as error:
        byte = ord(prompt[error.start]) & 0xFF
        message = f"the prompt must be UTF-8 text, got the byte 0x{byte:02x} at character {error.start}"
        raise RequestError(message) from error


def _load(model: str, config: "EngineConfig") -> "LLM":
    """Load and warm up, which is seconds of silence otherwise: one line on stderr says so."""
    print(f"loading {model} ... ", end="", file=sys.stderr, flush=True)
    began = time.perf_counter()
    try:
        from engine.llm import LLM  # importing torch is part of the wait

        llm = LLM(model, config)
    except BaseException:
        print("stopped", file=sys.stderr)  # so that the error begins a line of its own
        raise
    report = llm.warmup_report
    count = len(report.captures)
    graphs = f"{count} graph{'' if count == 1 else 's'} captured{' (simulated)' if report.simulated else ''}"
    print(f"ready in {time.perf_counter() - began:.1f} s, {graphs}", file=sys.stderr)
    return llm


def _one_request_config(device: str) -> "EngineConfig":
    """Size the engine for one request, so that only one bucket is captured and a long prompt is cut into chunks."""
    from engine.config import EngineConfig, SchedulerConfig

    return EngineConfig(device=device, scheduler=SchedulerConfig(max_batch_size=1, chunking="fcfs"))


def _stream(llm: "LLM", prompt: str, params: "SamplingParams") -> int:
    pieces = llm.stream(prompt, params)
    try:
        for piece in pieces:
            sys.stdout.write(piece)
            sys.stdout.flush()
    except KeyboardInterrupt:
        print()
        return INTERRUPTED
    print()
    return 0


def _report(llm: "LLM", prompt: str, params: "SamplingParams") -> tuple[dict[str, Any], int]:
    """Serve the prompt and return what there is to say of it, and the exit status."""
    from lab.session import attach

    status = 0
    with attach(llm) as recorder:
        request_id = llm.submit(prompt, params)
        outputs: list[RequestOutput] = []
        try:
            while not outputs:
                outputs = llm.step()
        except KeyboardInterrupt:
            llm.abort(request_id)
            outputs = llm.step()
            status = INTERRUPTED
    counts = recorder.trace.summary().paths
    output = outputs[0]
    report = {
        "model": llm.loaded.name,
        "prompt_token_ids": list(output.prompt_token_ids),
        "token_ids": list(output.token_ids),
        "text": output.text,
        "finish_reason": output.finish_reason,
        "error": output.error,
        "steps": {**dict.fromkeys(PATHS, 0), **counts},
        "simulated": llm.warmup_report.simulated,  # replays are the CPU tape's
    }
    return report, FAILED if output.finish_reason == "error" else status
