"""What the words of a reason are made of: two languages, a row of texts, the article's sections.

Does not: word a reason (``reasons.py``) or decide one (``engine/``).
Source: the sections are those of the article that the walkthroughs follow; own words.
"""

import dataclasses
import enum
import re
import string
from collections.abc import Mapping
from typing import Final

from engine.errors import ConfigError
from engine.reasons import DeferralReason, FallOff, PathKind

Reason = FallOff | DeferralReason | PathKind
LANGUAGES: Final = ("en", "zh")
_CHOICE: Final = re.compile(r"\{(\w+)\|([^|}]*)\|([^}]*)\}")
_FIELD: Final = re.compile(r"(\w+Config|SamplingParams)[.(](\w+)")


class Section(enum.StrEnum):
    """The article's sections that explain a reason, by the beginning of their headings."""

    SCHEDULE_TO_INPUTS = "从调度输出到模型输入"
    RUNNERS = "三类 runner"
    PACKING = "逐请求打包"
    PADDING = "Padding"
    CHOOSING_THE_GRAPH = "一次前向的执行编排"
    CAPTURE_AND_REPLAY = "图捕获与重放的硬边界"


@dataclasses.dataclass(frozen=True, slots=True)
class Words:
    """One text in both languages; placeholders in braces have the same names in both.

    ``{n}`` inserts an argument, ``{n|one|many}`` chooses by a number, as in the stepper's table of strings.
    """

    en: str
    zh: str

    def get(self, language: str) -> str:
        """Return the text. Raises: ConfigError for a language without a table."""
        if language not in LANGUAGES:
            message = f"language must be one of {', '.join(LANGUAGES)}, got {language!r}"
            raise ConfigError(message)
        return self.en if language == "en" else self.zh

    def fill(self, language: str, arguments: Mapping[str, object]) -> str:
        """Return the text with the arguments in it. Raises: ConfigError as ``get``."""
        chosen = _CHOICE.sub(lambda found: found[2] if arguments[found[1]] == 1 else found[3], self.get(language))
        return chosen.format_map(arguments)


def placeholders(template: str) -> frozenset[str]:
    """Return the names in braces of a template."""
    plain = _CHOICE.sub(r"{\1}", template)
    return frozenset(name for _text, name, _spec, _conversion in string.Formatter().parse(plain) if name)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReasonRow:
    """Everything that is said about one reason.

    clause: lower case, no full stop, no arguments. sentence: with named arguments. fix: the smallest change, None
    where there is nothing to change. section: where the article explains it.
    """

    reason: Reason
    clause: Words
    sentence: Words
    section: Section
    fix: Words | None = None

    @property
    def fields(self) -> tuple[tuple[str, str], ...]:
        """Configuration classes and their fields that the fix names, in its order."""
        return () if self.fix is None else tuple(_FIELD.findall(self.fix.en))


SECTION_NOTES: Final[Mapping[Section, Words]] = {
    Section.SCHEDULE_TO_INPUTS: Words(
        "What the scheduler hands over changes in length with every step; the buffers that take it never do.",
        "调度器交出的内容每一步长度都在变，而承接它的缓冲区大小不变。",
    ),
    Section.RUNNERS: Words(
        "Context shapes vary because prompts run in pieces.", "提示分块运行，上下文的形状因此多变。"
    ),
    Section.PACKING: Words("Each kind of request brings its own number of rows.", "每类请求带来的行数各不相同。"),
    Section.PADDING: Words(
        "Only a few batch sizes get a graph; other batches are filled up with whole dummy requests made ahead of time.",
        "只为少数批次大小捕获图；其他批次用事先造好的完整假请求补满。",
    ),
    Section.CHOOSING_THE_GRAPH: Words(
        "The key names all that changes shapes or kernels; without a key the step runs eagerly.",
        "图键包含所有会改变形状或内核的因素；没有图键，这一步就以 eager 方式运行。",
    ),
    Section.CAPTURE_AND_REPLAY: Words(
        "All capturing happens in warm-up, because it allocates and could move what other graphs point to.",
        "所有捕获都在预热阶段完成，因为捕获要分配内存，可能使其他图记住的地址失效。",
    ),
}
