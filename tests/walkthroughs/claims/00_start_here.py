assert list(facts.values()) == [True, True, False, True]
assert len(STAGE_LINKS) == len(STAGES) == 10
assert alone.returncode == 1
assert "lab" in alone.stderr.strip().splitlines()[-1]
assert session.outputs[0].text == alone.stdout.rstrip("\n")
assert len(session.outputs[0].text) > 5
graph_defaults = EngineConfig().cuda_graph
assert graph_defaults.enable_padding, "the table says that we round up by default"
assert graph_defaults.strict_buffers
assert graph_defaults.prefill_num_tokens == ()
