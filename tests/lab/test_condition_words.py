"""What the engine writes about a condition or a check is found again by its form, and said in both languages."""

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import CudaGraphConfig, SamplingParams
from engine.cuda_graphs.key import SampleMode, capture_keys
from engine.cuda_graphs.select import BodyFacts, GraphFacts, select_graph
from engine.errors import ConfigError
from lab.condition_words import FACTS, fact_text, recognised
from lab.session import Session
from tests.lab.tiny_runs import TINY_CONFIG

NUMBERS = st.integers(0, 9)
SIZES = st.sets(st.integers(1, 9)).map(sorted).map(tuple)
GRAPHS = st.builds(
    GraphFacts,
    num_requests=st.integers(1, 9),
    num_contexts=NUMBERS,
    draft_len=NUMBERS,
    sample_mode=st.sampled_from(SampleMode),
    graphs_enabled=st.booleans(),
    is_warmup=st.booleans(),
    padding_enabled=st.booleans(),
    buckets=SIZES,
    max_batch_size=st.integers(1, 9),
    dummy_available=st.booleans(),
    captured=SIZES.map(lambda sizes: frozenset(capture_keys(sizes, ("greedy", "full"), draft_buckets={2: sizes}))),
    body=st.builds(BodyFacts, is_recorded=st.booleans(), prefill_buckets=SIZES, num_rows=NUMBERS),
)
NAMES = re.compile(r"0x[0-9a-f]+|batch|draft|greedy|full|sampler\.\w+|metadata\.\w+|statics\.\w+|prefill\.\w+")


def english_words(text):
    return re.findall(r"[A-Za-z]{2,}", NAMES.sub("", text))


@given(GRAPHS)
def test_every_condition_of_the_engine_has_chinese_words(facts):
    for line in select_graph(facts).conditions:
        for text in (line.needed, line.got):
            assert fact_text(text) == text
            assert english_words(fact_text(text, "zh")) == [], text


def test_every_comparison_of_a_replay_has_chinese_words(full_trace):
    graphs = CudaGraphConfig(batch_sizes=(1,), prefill_num_tokens=(16,))
    config = dataclasses.replace(TINY_CONFIG, cuda_graph=graphs)
    with Session("tiny", prompts=["abc"], config=config, params=SamplingParams(max_tokens=1)) as session:
        chain = session.run()
    lines = {line for trace in (full_trace, chain) for step in trace.steps for line in step.graph.check}
    assert {line.name for line in lines} >= {"metadata object", "segments", "position shape"}
    for line in lines:
        for text in (line.name, line.expected, line.got):
            assert fact_text(text) == text
            assert english_words(fact_text(text, "zh")) == [], text


@pytest.mark.parametrize(
    ("text", "chinese"),
    [
        ("at most 64 rows", "至多 64 行"),
        ("a graph for (batch 4, draft 0, greedy)", "(batch 4, draft 0, greedy) 的图"),
        ("3, buckets (1, 2)", "3，桶 (1, 2)"),
        ("yes", "是"),
        ("segments", "分段数"),
        ("the other run has 10 “\n” here", "另一次运行在这里是 10 “\n”"),
        ("samples 104, the healthy run 99", "采样得到 104，正常的运行得到 99"),
        ("address of metadata.kv_lens", "metadata.kv_lens 的地址"),
    ],
)
def test_a_text_keeps_its_numbers_and_names(text, chinese):
    assert fact_text(text, "zh") == chinese


def test_a_text_of_another_form_stays_as_it_is():
    assert recognised("something of a later version") is None
    assert fact_text("something of a later version", "zh") == "something of a later version"


def test_no_two_facts_share_a_text():
    assert len({words.en for words in FACTS.values()}) == len(FACTS)
    with pytest.raises(ConfigError, match="language must be one of en, zh"):
        fact_text("yes", "de")
