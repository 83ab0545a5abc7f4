import json

from lab.bench import cpu, gpu
from lab.cli.main import main

CPU_ROWS = [{"batch": 1, "stepscope_tok_s": 20.5, "transformers_tok_s": 10.0, "ratio": 2.05}]
GPU_ROWS = [{"batch": 4, "eager_tok_s": 100.0, "graph_tok_s": 300.0, "ratio": 3.0}]


def test_cpu_rows_come_as_a_list_or_as_a_table(monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(cpu, "measure", lambda settings: asked.append(settings) or CPU_ROWS)
    assert main(["bench", "cpu", "--json", "--batches", "1", "--rounds", "2"]) == 0
    assert json.loads(capsys.readouterr().out) == CPU_ROWS
    assert (asked[0].batches, asked[0].rounds, asked[0].model) == ((1,), 2, "smollm2-135m")
    assert main(["bench", "cpu"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == list(CPU_ROWS[0])
    assert asked[1].batches == (1, 4, 8)


def test_gpu_rows_come_as_a_list_or_as_a_table(monkeypatch, capsys):
    monkeypatch.setattr(gpu, "measure", lambda settings: GPU_ROWS)
    assert main(["bench", "gpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == GPU_ROWS
    assert main(["bench", "gpu"]) == 0
    assert "300.0" in capsys.readouterr().out
