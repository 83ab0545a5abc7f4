import dataclasses
import fractions
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import CudaGraphConfig, EngineConfig, KVCacheConfig, SamplingParams, SchedulerConfig
from engine.errors import ConfigError, RequestError


def refusal(make, error=ConfigError):
    """The message with which a constructor refuses."""
    with pytest.raises(error) as caught:
        make()
    return str(caught.value)


@pytest.mark.parametrize("kind", [SchedulerConfig, KVCacheConfig, CudaGraphConfig, EngineConfig, SamplingParams])
def test_configs_are_frozen_keyword_only_records_with_working_defaults(kind):
    config = kind()
    field = dataclasses.fields(config)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(config, field, 3)
    with pytest.raises(TypeError):
        kind(3)
    assert kind() == config
    assert dataclasses.replace(config) == config


@pytest.mark.parametrize(
    ("kind", "field", "value", "text"),
    [
        (SchedulerConfig, "max_batch_size", 0, "must be an integer of at least 1, got 0"),
        (SchedulerConfig, "max_batch_size", True, "must be an integer of at least 1, got True"),
        (SchedulerConfig, "max_batch_size", 8.0, "must be an integer of at least 1, got 8.0; use 8"),
        (SchedulerConfig, "max_batch_size", 8.5, "must be an integer of at least 1, got 8.5"),
        (SchedulerConfig, "max_num_tokens", -5, "must be an integer of at least 1, got -5"),
        (SchedulerConfig, "max_num_tokens", "512", "must be an integer of at least 1, got '512'; use 512"),
        (SchedulerConfig, "max_num_tokens", None, "must be an integer of at least 1, got None"),
        (SchedulerConfig, "max_batch_size", 10**15, "must be at most 16384, got 1000000000000000"),
        (SchedulerConfig, "max_num_tokens", 10**15, "must be at most 16777216, got 1000000000000000"),
        (SchedulerConfig, "chunk_unit", 10**9, "must be at most 16777216, got 1000000000"),
        (SchedulerConfig, "chunk_unit", 0, "must be an integer of at least 1, got 0"),
        (SchedulerConfig, "chunking", "FCFS", "must be one of None, 'fcfs', 'equal_progress', got 'FCFS'; use 'fcfs'"),
        (SchedulerConfig, "chunking", "none", "must be one of None, 'fcfs', 'equal_progress', got 'none'; use None"),
        (SchedulerConfig, "chunking", True, "must be one of None, 'fcfs', 'equal_progress', got True"),
        (
            SchedulerConfig,
            "capacity_policy",
            "max_use",
            "must be one of 'guaranteed_no_evict', 'max_utilization', 'static_batch', got 'max_use'",
        ),
        (KVCacheConfig, "tokens_per_block", 0, "must be an integer of at least 1, got 0"),
        (KVCacheConfig, "tokens_per_block", 10**9, "must be at most 65536, got 1000000000"),
        (KVCacheConfig, "num_blocks", 10**12, "must be at most 67108864, got 1000000000000"),
        (KVCacheConfig, "num_blocks", 0, "must be an integer of at least 1, got 0"),
        (KVCacheConfig, "num_blocks", False, "must be an integer of at least 1, got False"),
        (KVCacheConfig, "memory_fraction", 0.0, "must be a finite number in (0, 1], got 0.0"),
        (KVCacheConfig, "memory_fraction", 1.5, "must be a finite number in (0, 1], got 1.5"),
        (KVCacheConfig, "memory_fraction", float("nan"), "must be a finite number in (0, 1], got nan"),
        (KVCacheConfig, "memory_fraction", "0.9", "must be a finite number in (0, 1], got '0.9'"),
        (KVCacheConfig, "memory_fraction", True, "must be a finite number in (0, 1], got True"),
        (KVCacheConfig, "host_blocks", 10**12, "must be at most 67108864, got 1000000000000"),
        (KVCacheConfig, "host_blocks", False, "must be an integer of at least 0, got False"),
        (KVCacheConfig, "enable_block_reuse", "no", "must be True or False, got 'no'"),
        (KVCacheConfig, "enable_partial_reuse", 1, "must be True or False, got 1"),
        (CudaGraphConfig, "enabled", None, "must be True or False, got None"),
        (CudaGraphConfig, "enable_padding", 0, "must be True or False, got 0"),
        (CudaGraphConfig, "strict_buffers", "yes", "must be True or False, got 'yes'"),
        (CudaGraphConfig, "prefill_num_tokens", 64, "must be a sequence of integers, got 64; use (64,)"),
        (EngineConfig, "max_seq_len", 0, "must be an integer of at least 2, got 0"),
        (EngineConfig, "max_seq_len", 10**18, "must be at most 16777216, got 1000000000000000000"),
        (
            EngineConfig,
            "device",
            "c" * 999,
            f"must be 'auto', 'cpu', 'cuda' or 'cuda:N', got '{'c' * 37}...{'c' * 38}'",
        ),
        (EngineConfig, "seed", -1, "must be an integer from 0 to 9223372036854775807, got -1"),
        (EngineConfig, "seed", None, "must be an integer from 0 to 9223372036854775807, got None"),
        (EngineConfig, "dtype", "fp32", "must be one of 'auto', 'float32', 'bfloat16', 'float16', got 'fp32'"),
        (EngineConfig, "attention_backend", "flash", "must be one of 'native', 'vanilla', got 'flash'"),
        (EngineConfig, "device", "gpu", "must be 'auto', 'cpu', 'cuda' or 'cuda:N', got 'gpu'"),
        (EngineConfig, "device", "cuda:one", "must be 'auto', 'cpu', 'cuda' or 'cuda:N', got 'cuda:one'"),
        (EngineConfig, "device", 0, "must be 'auto', 'cpu', 'cuda' or 'cuda:N', got 0"),
        (EngineConfig, "torch_compile", "yes", "must be True or False, got 'yes'"),
        (EngineConfig, "overlap", 0, "must be True or False, got 0"),
        (EngineConfig, "scheduler", {"max_batch_size": 4}, "must be a SchedulerConfig, got {'max_batch_size': 4}"),
        (EngineConfig, "kv_cache", None, "must be a KVCacheConfig, got None"),
        (EngineConfig, "cuda_graph", False, "must be a CudaGraphConfig, got False"),
    ],
)
def test_a_field_that_cannot_work_is_named_with_what_was_required_and_got(kind, field, value, text):
    assert refusal(lambda: kind(**{field: value})) == f"{kind.__name__}.{field} {text}"


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:0", "cuda:11"])
def test_every_documented_device_is_accepted(device):
    assert EngineConfig(device=device).device == device


def test_a_config_error_is_also_a_value_error():
    with pytest.raises(ValueError, match="tokens_per_block"):
        KVCacheConfig(tokens_per_block=-1)


def test_a_budget_below_one_row_a_request_is_refused_with_both_numbers():
    assert refusal(lambda: SchedulerConfig(max_batch_size=8, max_num_tokens=7)) == (
        "SchedulerConfig.max_num_tokens must be at least max_batch_size (one row a request), got max_num_tokens=7 "
        "with max_batch_size=8; raise max_num_tokens to 8 or lower max_batch_size"
    )
    SchedulerConfig(max_batch_size=8, max_num_tokens=8)


def chunked(max_num_tokens, *, max_batch_size=8, chunk_unit=None, tokens_per_block=16):
    scheduler = SchedulerConfig(
        max_batch_size=max_batch_size, max_num_tokens=max_num_tokens, chunking="fcfs", chunk_unit=chunk_unit
    )
    return EngineConfig(scheduler=scheduler, kv_cache=KVCacheConfig(tokens_per_block=tokens_per_block))


def test_a_budget_too_small_for_chunking_is_refused_with_the_sum():
    assert refusal(lambda: chunked(22)) == (
        "chunking needs SchedulerConfig.max_num_tokens >= max_batch_size + chunk_unit - 1 = 8 + 16 - 1 = 23, got 22; "
        "raise max_num_tokens to 23 or lower chunk_unit or max_batch_size"
    )
    assert chunked(23).chunk_unit == 16
    assert chunked(11, chunk_unit=4).chunk_unit == 4
    assert "8 + 32 - 1 = 39, got 38" in refusal(lambda: chunked(38, tokens_per_block=32))


def test_without_chunking_the_chunk_unit_asks_for_nothing():
    assert EngineConfig(scheduler=SchedulerConfig(max_num_tokens=8)).chunk_unit == 16


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ((), "batch_sizes must not be empty, got (); use enabled=False to run without graphs"),
        ((4, 2, 1), "batch_sizes must be ascending without duplicates, got (4, 2, 1); use (1, 2, 4)"),
        ((1, 2, 2), "batch_sizes must be ascending without duplicates, got (1, 2, 2); use (1, 2)"),
        ((0, 1), "batch_sizes[0] must be an integer of at least 1, got 0"),
        ((1, 2.0), "batch_sizes[1] must be an integer of at least 1, got 2.0; use 2"),
        ((1, "4"), "batch_sizes[1] must be an integer of at least 1, got '4'; use 4"),
        (("1", "x"), "batch_sizes[0] must be an integer of at least 1, got '1'; use 1"),
        ((1, "x"), "batch_sizes[1] must be an integer of at least 1, got 'x'"),
        ((True,), "batch_sizes[0] must be an integer of at least 1, got True"),
        (8, "batch_sizes must be a sequence of integers, got 8; use (8,)"),
        ("48", "batch_sizes must be a sequence of integers, got '48'; use (48,)"),
        ("4,8", "batch_sizes must be a sequence of integers, got '4,8'; use (4, 8)"),
        ({4: 8}, "batch_sizes must be a sequence of integers, got {4: 8}"),
        (np.array(4), "batch_sizes must be a sequence of integers, got array(4)"),
        (b"\x04", "batch_sizes must be a sequence of integers, got b'\\x04'"),
        ((1, 16385), "batch_sizes[1] must be at most 16384, got 16385"),
        (range(1, 10**12), "batch_sizes must be at most 65536 integers, got range(1, 1000000000000)"),
    ],
)
def test_a_bucket_list_that_cannot_work_is_refused(sizes, text):
    assert refusal(lambda: CudaGraphConfig(batch_sizes=sizes)) == f"CudaGraphConfig.{text}"


def test_prefill_buckets_are_rows_in_ascending_order_and_no_more_than_a_step_has():
    assert CudaGraphConfig(prefill_num_tokens=[64, np.int64(128)]).prefill_num_tokens == (64, 128)
    field = "CudaGraphConfig.prefill_num_tokens"
    for rows, text in (
        ((64, 0), "[1] must be an integer of at least 1, got 0"),
        ((128, 64, 64), " must be ascending without duplicates, got (128, 64, 64); use (64, 128)"),
    ):
        assert refusal(lambda rows=rows: CudaGraphConfig(prefill_num_tokens=rows)) == field + text
    assert EngineConfig(cuda_graph=CudaGraphConfig(prefill_num_tokens=(512,))).scheduler.max_num_tokens == 512
    assert refusal(lambda: EngineConfig(cuda_graph=CudaGraphConfig(prefill_num_tokens=(64, 1024)))) == (
        f"{field} must not exceed SchedulerConfig.max_num_tokens=512, got (64, 1024); drop the larger ones or raise "
        "max_num_tokens"
    )


def test_draft_lengths_with_graphs_ascend_and_are_no_longer_than_a_step_verifies():
    graphs = CudaGraphConfig(draft_lens=[2, 4])
    assert EngineConfig(cuda_graph=graphs).cuda_graph.draft_lens == (2, 4)
    assert refusal(lambda: CudaGraphConfig(draft_lens=(4, 2))).endswith("got (4, 2); use (2, 4)")
    assert refusal(lambda: CudaGraphConfig(draft_lens=(0,))).endswith("must be an integer of at least 1, got 0")
    assert refusal(lambda: EngineConfig(scheduler=SchedulerConfig(draft_len=3), cuda_graph=graphs)) == (
        "CudaGraphConfig.draft_lens must not exceed SchedulerConfig.draft_len=3, got (2, 4); drop the larger ones or "
        "raise draft_len"
    )
    assert SchedulerConfig(draft_len=0).draft_len == 0
    assert refusal(lambda: SchedulerConfig(draft_len=-1)).endswith("must be an integer of at least 0, got -1")


def test_buckets_above_the_largest_batch_are_refused():
    assert refusal(lambda: EngineConfig(cuda_graph=CudaGraphConfig(batch_sizes=(1, 8, 16)))) == (
        "CudaGraphConfig.batch_sizes must not exceed SchedulerConfig.max_batch_size=8, got (1, 8, 16); "
        "drop the larger sizes or raise max_batch_size"
    )
    EngineConfig(cuda_graph=CudaGraphConfig(batch_sizes=(1, 8)))


@pytest.mark.parametrize("sizes", [[1, 2, 4], (1, 2, 4), np.array([1, 2, 4]), (size for size in (1, 2, 4))])
def test_any_sequence_of_buckets_becomes_a_tuple_of_plain_integers(sizes):
    config = CudaGraphConfig(batch_sizes=sizes)
    assert config.batch_sizes == (1, 2, 4)
    assert {type(size) for size in config.batch_sizes} == {int}


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("max_tokens", 0, "must be an integer of at least 1, got 0"),
        ("max_tokens", -3, "must be an integer of at least 1, got -3"),
        ("max_tokens", None, "must be an integer of at least 1, got None"),
        ("max_tokens", 16.0, "must be an integer of at least 1, got 16.0; use 16"),
        ("max_tokens", True, "must be an integer of at least 1, got True"),
        ("temperature", float("nan"), "must be a finite number in [0, inf), got nan"),
        ("temperature", float("inf"), "must be a finite number in [0, inf), got inf"),
        ("temperature", -0.1, "must be a finite number in [0, inf), got -0.1"),
        ("temperature", "0.7", "must be a finite number in [0, inf), got '0.7'"),
        ("temperature", None, "must be a finite number in [0, inf), got None"),
        ("temperature", False, "must be a finite number in [0, inf), got False"),
        ("temperature", np.float32("nan"), "must be a finite number in [0, inf), got np.float32(nan)"),
        ("top_p", 0.0, "must be a finite number in (0, 1], got 0.0"),
        ("top_p", 1.01, "must be a finite number in (0, 1], got 1.01"),
        ("top_p", -1, "must be a finite number in (0, 1], got -1"),
        ("top_p", float("nan"), "must be a finite number in (0, 1], got nan"),
        ("min_p", -0.5, "must be a finite number in [0, 1], got -0.5"),
        ("min_p", 2, "must be a finite number in [0, 1], got 2"),
        ("repetition_penalty", 0.0, "must be a finite number in (0, inf), got 0.0"),
        ("top_k", -1, "must be an integer of at least 1, got -1; use None to keep every token"),
        ("top_k", 0, "must be an integer of at least 1, got 0; use None to keep every token"),
        ("top_k", 5.0, "must be an integer of at least 1, got 5.0; use 5"),
        ("seed", -1, "must be an integer from 0 to 9223372036854775807, got -1"),
        ("seed", 2**63, "must be an integer from 0 to 9223372036854775807, got 9223372036854775808"),
        ("logprobs", -1, "must be an integer of at least 0, got -1"),
        ("logprobs", True, "must be an integer of at least 0, got True"),
        ("ignore_eos", None, "must be True or False, got None"),
        ("stop", ("a", ""), "must hold non-empty strings, got ('a', '')"),
        ("stop", "", "must hold non-empty strings, got ('',)"),
        ("stop", ("a", 3), "must hold non-empty strings, got ('a', 3)"),
        ("stop", None, "must be a sequence of strings, got None"),
        ("stop", b"end", "must be a sequence of strings, got b'end'"),
        ("stop", 5, "must be a sequence of strings, got 5; the end at a token is stop_token_ids=(5,)"),
        ("stop", {"end": 1}, "must be a sequence of strings, got {'end': 1}"),
        ("stop_token_ids", "7", "must be a sequence of token ids, got '7'"),
        ("stop_token_ids", 2, "must be a sequence of token ids, got 2; use (2,)"),
        ("stop_token_ids", None, "must be a sequence of token ids, got None"),
    ],
)
def test_a_sampling_parameter_that_cannot_work_is_named_with_what_was_required_and_got(field, value, text):
    assert refusal(lambda: SamplingParams(**{field: value}), RequestError) == f"SamplingParams.{field} {text}"


@pytest.mark.parametrize("value", [-1, 2.0, "7", True])
def test_a_stop_id_that_is_no_token_id_is_named_by_its_place(value):
    text = refusal(lambda: SamplingParams(stop_token_ids=(3, value)), RequestError)
    assert text.startswith(f"SamplingParams.stop_token_ids[1] must be an integer of at least 0, got {value!r}")


def test_a_number_too_large_for_a_float_is_no_finite_number():
    assert "must be a finite number in [0, inf)" in refusal(lambda: SamplingParams(temperature=10**400), RequestError)


def test_one_stop_string_may_stand_alone():
    assert SamplingParams(stop="end").stop == ("end",)
    assert SamplingParams(stop=["a", "b"]).stop == ("a", "b")


def test_numbers_of_numpy_become_plain_ones():
    params = SamplingParams(
        max_tokens=np.int64(5),
        temperature=np.float32(0.5),
        top_k=np.int32(3),
        seed=np.uint8(7),
        stop_token_ids=np.array([4, 5]),
        top_p=fractions.Fraction(1, 2),
    )
    plain = SamplingParams(max_tokens=5, temperature=0.5, top_k=3, seed=7, stop_token_ids=(4, 5), top_p=0.5)
    assert params == plain
    assert hash(params) == hash(plain)
    for field in dataclasses.fields(params):
        assert type(getattr(params, field.name)) is type(getattr(plain, field.name))
    assert type(SchedulerConfig(max_batch_size=np.int64(4)).max_batch_size) is int
    assert type(KVCacheConfig(num_blocks=np.int16(4)).num_blocks) is int


@pytest.mark.parametrize(
    ("params", "greedy"),
    [
        ({}, True),
        ({"top_k": 5, "top_p": 0.5}, True),
        ({"temperature": 0.1}, False),
        ({"repetition_penalty": 1.1}, False),
    ],
)
def test_argmax_suffices_when_neither_noise_nor_penalty_is_asked_for(params, greedy):
    assert SamplingParams(**params).is_greedy is greedy


anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.binary(max_size=2),
    st.tuples(),
    st.lists(st.integers(-2, 9) | st.floats(), max_size=3),
    st.builds(object),
    st.just(10**400),
)


@settings(deadline=None)
@given(st.sampled_from([SchedulerConfig, KVCacheConfig, CudaGraphConfig, EngineConfig, SamplingParams]), st.data())
def test_nothing_but_our_own_errors_ever_leaves_a_constructor(kind, data):
    names = [field.name for field in dataclasses.fields(kind)]
    given_fields = data.draw(st.dictionaries(st.sampled_from(names), anything, max_size=3))
    try:
        config = kind(**given_fields)
    except (ConfigError, RequestError) as refused:
        outcome = str(refused)
    else:
        outcome = dataclasses.replace(config)
    assert "got" in outcome if isinstance(outcome, str) else outcome == config


def test_configuring_and_scheduling_leave_torch_out():
    parts = "config, llm_request, scheduled, resources, scheduler.capacity, scheduler.micro_batch, scheduler.refit"
    code = (
        "; ".join(f"import engine.{part}" for part in parts.split(", ")) + "; import sys; print('torch' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


def test_sampler_modes_come_in_one_order_and_once():
    assert CudaGraphConfig().sample_modes == ("greedy", "full")
    assert CudaGraphConfig(sample_modes=["full", "greedy", "full"]).sample_modes == ("greedy", "full")


@pytest.mark.parametrize("modes", [(), ("fast",), ("greedy", 1), ([],)])
def test_sampler_modes_that_do_not_exist_are_named(modes):
    assert refusal(lambda: CudaGraphConfig(sample_modes=modes)) == (
        f"CudaGraphConfig.sample_modes must be a sequence of 'greedy', 'full' or both, got {modes!r}"
        + ("" if modes else "; use enabled=False to run without graphs")
    )


@pytest.mark.parametrize(("modes", "meant"), [(("Greedy",), ("greedy",)), (("greedy", "FULL"), ("greedy", "full"))])
def test_a_sampler_mode_in_capitals_is_refused_with_the_one_that_was_meant(modes, meant):
    assert refusal(lambda: CudaGraphConfig(sample_modes=modes)).endswith(f"got {modes!r}; use {meant!r}")


@pytest.mark.parametrize(("device", "hint"), [("CUDA:1", "; use 'cuda:1'"), ("gpu", ""), (0, "")])
def test_a_device_in_capitals_is_refused_with_the_one_that_was_meant(device, hint):
    assert refusal(lambda: EngineConfig(device=device)) == (
        f"EngineConfig.device must be 'auto', 'cpu', 'cuda' or 'cuda:N', got {device!r}{hint}"
    )


def test_one_sampler_mode_alone_is_refused_with_the_tuple():
    for mode, hint in (("greedy", "; use ('greedy',)"), ("full", "; use ('full',)"), ("both", "")):
        assert refusal(lambda mode=mode: CudaGraphConfig(sample_modes=mode)) == (
            f"CudaGraphConfig.sample_modes must be a sequence of sampler modes, got {mode!r}{hint}"
        )


def test_host_blocks_without_block_reuse_are_refused():
    with pytest.raises(ConfigError) as caught:
        KVCacheConfig(host_blocks=8, enable_block_reuse=False)
    assert str(caught.value) == (
        "KVCacheConfig.host_blocks must be 0 without block reuse (they keep blocks for later prompts), got 8; set "
        "enable_block_reuse=True"
    )
    assert KVCacheConfig(host_blocks=8).host_blocks == 8
