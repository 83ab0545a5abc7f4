"""Recorded texts in two languages: what a condition needed and got, what a replay compared, what a row's mark says.

A trace holds these texts as they were written, in English. Here each is found again by its form, with its
numbers and names, so that it can be said in Chinese as well. A text of another form stays as it is.

Does not: decide a condition (``engine/cuda_graphs/select.py``), compare (``runner.py``, ``prefill.py``), or word a
reason (``reasons.py``). Source: own words.
"""

import functools
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from lab.reason_rows import Words

FACTS: Final[Mapping[str, Words]] = MappingProxyType(
    {
        "fact.enabled": Words("graphs enabled", "已启用图"),
        "fact.can_record": Words("a body that can be recorded", "可以录制的模型主体"),
        "fact.compiled": Words("a compiled one", "编译后的主体"),
        "fact.serves": Words("a step that serves", "提供服务的步"),
        "fact.serving": Words("serving", "服务中"),
        "fact.warmup": Words("warm-up", "预热"),
        "fact.contexts": Words("{n} contexts", "{n} 个上下文"),
        "fact.most_rows": Words("at most {n} rows", "至多 {n} 行"),
        "fact.most_requests": Words("at most {n} requests", "至多 {n} 个请求"),
        "fact.drafts": Words("draft length {n}", "草稿长度 {n}"),
        "fact.exact": Words("an exact bucket, or padding on", "恰好的桶，或允许填充"),
        "fact.buckets": Words("{n}, buckets {buckets}", "{n}，桶 {buckets}"),
        "fact.dummy": Words("a preallocated dummy", "预先分配的填充请求"),
        "fact.mode": Words("{mode} captured", "已捕获 {mode}"),
        "fact.graph": Words("a graph for {key}", "{key} 的图"),
        "fact.yes": Words("yes", "是"),
        "fact.no": Words("no", "否"),
        "fact.none": Words("none", "无"),
        "fact.object": Words("metadata object", "元数据对象"),
        "fact.object_of": Words("the metadata object of {key}", "{key} 的元数据对象"),
        "fact.other_object": Words("another metadata object", "另一个元数据对象"),
        "fact.rows": Words("rows", "行数"),
        "fact.positions": Words("position shape", "位置的形状"),
        "fact.slots": Words("slots", "槽位"),
        "fact.segments": Words("segments", "分段数"),
        "fact.address": Words("address of {name}", "{name} 的地址"),
        "fact.absent": Words("absent", "不存在"),
        "fact.sample": Words("samples {token}, the healthy run {needed}", "采样得到 {token}，正常的运行得到 {needed}"),
        "fact.other_token": Words("the other run has {token} here", "另一次运行在这里是 {token}"),
        "fact.missing_row": Words("not in this step of the other run", "另一次运行的这一步没有这一行"),
    }
)
_FORMS: Final = tuple(
    (name, re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+)", re.escape(words.en)), re.DOTALL))
    for name, words in FACTS.items()
)


@functools.lru_cache(maxsize=1024)  # steps repeat their texts
def recognised(text: str) -> tuple[str, Mapping[str, str]] | None:
    """Return which fact a text states, with its numbers and names; None for one that has no form here."""
    for name, form in _FORMS:
        found = form.fullmatch(text)
        if found is not None:
            return name, found.groupdict()
    return None


def fact_text(text: str, language: str = "en") -> str:
    """Return the text in a language; in English it is what was given. Raises: ConfigError for another language."""
    fact = recognised(text)
    return text if fact is None else FACTS[fact[0]].fill(language, fact[1])
