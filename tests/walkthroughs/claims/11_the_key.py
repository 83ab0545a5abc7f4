keys = {step.step: step.path.key for step in steps}
assert [keys[at] for at in (2, 3, 4, 6, 7)] == [
    "(batch 4, draft 0, greedy)",
    None,
    "(batch 4, draft 0, full)",
    "(batch 4, draft 0, full)",
    "(batch 4, draft 0, greedy)",
]
assert steps[7].path.num_padding == 1
assert len(session.trace.header.warmup.captures) == 4
assert [step.step for step in fallen.steps if step.path.reason == "SAMPLER_MODE_NOT_CAPTURED"] == [4, 5, 6]
assert answer.change[0].field == "CudaGraphConfig.sample_modes"
assert answer.proof.path == "replay"
assert texts["right"][1:] == texts["wrong"][1:]
assert texts["right"][0] != texts["wrong"][0]
with LLM("tiny", config()) as alone:
    assert [out.text for out in alone.generate(prompts[:3], greedy)] == [out.text for out in session.outputs][:3]
