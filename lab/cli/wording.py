"""Errors as the command line says them: its options in place of the library's fields and calls.

A message names what its reader can change: in a program ``SchedulerConfig.max_num_tokens``, on the command line
``--max-num-tokens``, if the command has it. What has no option keeps its name.

Does not: make a message, or choose which error is shown.
"""

import argparse
import re
from typing import Final

_CALLS: Final = {
    r"device='([a-z]+)'": r"--device \1",
    r"counterfactual\(trace, i, model=\.\.\.\)": "--model",
    r"attach\(llm\) or Session": "`stepscope trace record`",
    r"without redact\b": "without --redact",
}
# Options that are not called as the field is.
_OTHER_NAMES: Final = {
    "batch_sizes": "buckets", "prefill_num_tokens": "prefill_buckets", "num_blocks": "blocks",
    "capacity_policy": "policy", "most_steps": "max_steps",
}  # fmt: skip
# What argparse knows besides options: arguments without dashes, and what the commands put there themselves.
_NO_OPTIONS: Final = (
    "prompt", "file", "name", "trace", "left", "right", "exercise", "set", "submissions", "grades",
    "run", "status", "target", "wait_policy",
)  # fmt: skip
_GROUP: Final = r"(?:[A-Z]\w*Config|SamplingParams)"
_CALL: Final = re.compile(rf"{_GROUP}\((\w+)=['\"]?([^'\")]*)['\"]?\)")
_FIELD: Final = re.compile(rf"\b(?:{_GROUP}\.)(\w+)(?:\[\d+\])?(?:=(\w+(?:\.\d+)?))?")
_BARE: Final = re.compile(r"(?<![\w.`'\"/-])([a-z]+(?:_[a-z]+)+)(?:=(\w+(?:\.\d+)?))?(?![\w(/]|\.\w)")
_FIRST: Final = re.compile(r"^([a-z]+)(?= must be )")
_TUPLE: Final = re.compile(r"\((\d+(?:, \d+)*),?\)")
_LISTS: Final = ("--batch-sizes", "--buckets", "--prefill-num-tokens", "--prefill-buckets", "--draft-lens")


def in_options(text: str, arguments: argparse.Namespace) -> str:
    """Return a message in one line, with the options of the command that was given."""
    text = " ".join(text.split())
    for call, option in _CALLS.items():
        text = re.sub(call, option, text)
    options = set(vars(arguments)).difference(_NO_OPTIONS)

    def named(match: re.Match[str]) -> str:
        field, *rest = match.groups()
        name = next((one for one in (field, _OTHER_NAMES.get(field, field)) if one in options), None)
        if name is None:
            return match.group()
        value = f" {rest[0]}" if rest and rest[0] else ""
        return f"--{name.replace('_', '-')}{value}"

    for pattern in (_CALL, _FIELD, _BARE, _FIRST):
        text = pattern.sub(named, text)
    if any(option in text for option in _LISTS):  # lists are typed with commas alone
        text = _TUPLE.sub(lambda match: match.group(1).replace(" ", ""), text)
    return text
