assert facts == {"same texts": True, "records a step": 10, "five users on a graph": False}
assert {step.path.reason for step in fives} == {"ABOVE_LARGEST_BUCKET"}
assert status == 1
assert sent.header.redacted
assert {request.prompt_text for request in sent.header.requests} == {None}
assert {token for step in sent.steps for _, token in step.outcome.tokens} == {-1}
assert [step.graph.path for step in sent.steps] == [step.graph.path for step in trace.steps]
assert len(trace.header.requests) == 9
assert len(set(keeper.copied)) > 1
assert len({int(view[0]) for view in keeper.kept}) == 1
assert probe.rows[3] > 30
with LLM("tiny", config) as llm:
    seen = {}
    llm.set_probe(type("P", (), {"emit": lambda self, stage, step, value: seen.setdefault(step, []).append(stage)})())
    llm.generate("abc", SamplingParams(max_tokens=2))
    assert {len(stages) for stages in seen.values()} == {10}
