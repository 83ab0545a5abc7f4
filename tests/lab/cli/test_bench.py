import json

import pytest
import torch

from lab.bench import cpu, gpu, host, overlap, schedule
from lab.cli.main import main

CPU_ROWS = [{"batch": 1, "stepscope_tok_s": 20.5, "transformers_tok_s": 10.0, "ratio": 2.05}]
GPU_ROWS = [{"shape": "tiny", "batch": 4, "replay_tok_s": 300.5, "peer": "transformers static cache"}]


def test_cpu_rows_come_as_a_list_or_as_a_table(monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(cpu, "measure", lambda settings: asked.append(settings) or CPU_ROWS)
    assert main(["bench", "cpu", "--json", "--batches", "1", "--rounds", "2"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == CPU_ROWS
    assert printed.err == "graphs are simulated by the CPU tape: a replay runs the same operations as an eager step\n"
    assert (asked[0].batches, asked[0].rounds, asked[0].model) == ((1,), 2, "smollm2-135m")
    assert main(["bench", "cpu"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == list(CPU_ROWS[0])
    assert asked[1].batches == (1, 4, 8)


def test_gpu_rows_come_as_a_list_or_as_a_table_and_notes_on_stderr(monkeypatch, capsys):
    asked = []

    def measure(settings, *, device, note):
        asked.append((settings, device))
        note("reads 4 TB/s")
        return GPU_ROWS

    monkeypatch.setattr(gpu, "measure", measure)
    assert main(["bench", "gpu", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == GPU_ROWS
    assert printed.err == "reads 4 TB/s\n"
    settings, device = asked[0]
    assert (settings, device) == (gpu.GpuBench(), "cuda")
    assert (settings.shapes, settings.batches) == (("smollm2-135m", "llama-3.1-8b"), (1, 64))
    options = "--device cpu --shapes tiny --batches 4 --prompt-len 9 --new-tokens 5 --rounds 2"
    assert main(["bench", "gpu", *options.split()]) == 0
    assert "300.5" in capsys.readouterr().out
    expected = gpu.GpuBench(shapes=("tiny",), batches=(4,), prompt_len=9, new_tokens=5, rounds=2)
    assert asked[1] == (expected, "cpu")


def test_an_interrupted_gpu_benchmark_prints_the_rows_that_are_complete(monkeypatch, capsys):
    def measure(settings, *, device, note):
        yield GPU_ROWS[0]
        raise KeyboardInterrupt

    monkeypatch.setattr(gpu, "measure", measure)
    assert main(["bench", "gpu", "--json"]) == 130
    printed = capsys.readouterr()
    assert json.loads(printed.out) == GPU_ROWS
    assert "interrupted" in printed.err


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_without_cuda_the_command_says_what_it_needs(capsys):
    for target, device in (("gpu", "cuda"), ("gpu", "auto"), ("overlap", "cuda")):
        assert main(["bench", target, "--device", device]) == 2
        error = capsys.readouterr().err
        assert "device 'cuda' needs a CUDA GPU, but " in error
        assert error.endswith(
            f". Without one there is nothing to measure; `stepscope bench {target} --device cpu --shapes tiny` "
            "rehearses on the tape\n"
        )


OVERLAP_ROW = {"shape": "tiny", "batch": 4, "of_replays": 0.9, "host_us": {"SCHEDULED": 20.5, "host": 71.5}}


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_an_overlap_table_has_the_sum_of_the_hosts_time_and_json_every_stage(is_interrupted, monkeypatch, capsys):
    asked = []

    def measure(settings, *, device, note):
        asked.append((settings, device))
        yield OVERLAP_ROW
        if is_interrupted:
            raise KeyboardInterrupt

    monkeypatch.setattr(overlap, "measure", measure)
    status = 130 if is_interrupted else 0
    assert main(["bench", "overlap", "--json", "--profile", "--batches", "4"]) == status
    assert json.loads(capsys.readouterr().out) == [OVERLAP_ROW]
    assert main(["bench", "overlap"]) == status
    heading, row = capsys.readouterr().out.splitlines()
    assert (heading.split()[-1], row.split()[-1]) == ("host_us", "71.5")
    assert asked == [(overlap.OverlapBench(batches=(4,), profile=True), "cuda"), (overlap.OverlapBench(), "cuda")]


def test_a_rehearsal_says_so_in_its_table(monkeypatch, capsys):
    monkeypatch.setattr(gpu, "measure", lambda *_, **__: [{**GPU_ROWS[0], "simulated": True}])
    assert main(["bench", "gpu", "--device", "cpu"]) == 0
    heading, row = capsys.readouterr().out.splitlines()
    assert (heading.split()[-1], row.split()[-1]) == ("simulated", "yes")


def test_another_refusal_of_a_gpu_benchmark_stays_as_it_is(capsys):
    assert main(["bench", "gpu", "--device", "tpu"]) == 2
    assert "device must be 'auto', 'cpu', 'cuda' or 'cuda:N', got 'tpu'\n" in capsys.readouterr().err


HOST_ROWS = [
    {"batch": batch, "stage": stage, "full_us": 80.5, "steady_us": None, "share": None}
    for batch in (8, 256)
    for stage in ("packed", host.LAST_STAGE)
]
LOOP_ROWS = [{"stage": "step loop, repeating", "waiting": 2000, "step_us": 200.5}]


def test_host_rows_come_as_a_list_or_as_a_table_for_each_batch(monkeypatch, capsys):
    asked = []

    def measure(settings, *, device, note):
        asked.append((settings, device))
        note("measuring 1 of 1")
        yield from HOST_ROWS

    monkeypatch.setattr(host, "measure", measure)
    monkeypatch.setattr(schedule, "measure", lambda settings: iter(LOOP_ROWS))
    assert main(["bench", "host", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == HOST_ROWS + LOOP_ROWS
    assert printed.err.startswith("measuring 1 of 1\nthe step loop alone")
    assert main("bench host --shapes tiny --batches 4 --prompt-len 9 --steps 16 --device cpu".split()) == 0  # noqa: SIM905
    *tables, loop = capsys.readouterr().out.split("\n\n")
    assert [one.split() for one in tables] == [
        [*HOST_ROWS[0], *f"{n} packed 80.5 - - {n} step 80.5 - -".split()] for n in (8, 256)
    ]
    assert loop.split() == "stage waiting step_us step loop, repeating 2000 200.5".split()  # noqa: SIM905
    expected = host.HostBench(shapes=("tiny",), batches=(4,), prompt_len=9, steps=16)
    assert asked == [(host.HostBench(), "auto"), (expected, "cpu")]


@pytest.mark.parametrize("how", [[], ["--json"]])
def test_an_interrupted_host_benchmark_prints_the_batches_that_are_complete(how, monkeypatch, capsys):
    def measure(settings, *, device, note):
        yield from HOST_ROWS[:2]
        raise KeyboardInterrupt

    monkeypatch.setattr(host, "measure", measure)
    assert main(["bench", "host", *how]) == 130
    printed = capsys.readouterr()
    assert "interrupted" in printed.err
    if how:
        assert json.loads(printed.out) == HOST_ROWS[:2]
    else:
        assert len(printed.out.strip().splitlines()) == 3
