steps = session.trace.steps
took = [step.path.bucket if step.path.key else "eager" for step in steps]
assert took == ["eager", 1, "eager", 2, "eager", 4, 4, "eager", 4, 4]
assert [step.step for step in steps if step.num_padding_rows] == [5, 6]
assert {step.path.reason for step in steps if not step.path.key} == {"HAS_CONTEXT_UNPROMOTED"}
assert answer.proof is not None
assert answer.reason == "HAS_CONTEXT_UNPROMOTED"
assert steps[9].graph.steady == ""
assert len(session.trace.header.warmup.captures) == 6
sources = {int(code) for code in steps[4].rows.sources}
assert len(sources) == 2, "a prompt's rows come from the host, a generation's from a gather, in the same eager step"
assert [(step.step, step.path.reason) for step in changed] == [
    (5, "NO_EXACT_BUCKET_PADDING_OFF"),
    (6, "NO_EXACT_BUCKET_PADDING_OFF"),
]
assert [step.outcome.tokens for step in other.trace.steps] == [step.outcome.tokens for step in steps[:10]]
