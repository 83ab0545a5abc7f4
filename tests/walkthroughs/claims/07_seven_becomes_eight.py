assert facts == {"rows": 8, "tokens that somebody gets": 7, "the dummy's KV length": 1}
assert step.schedule.budget.num_tokens == 7
assert (step.graph.path, step.path.num_padding) == ("replay", 1)
assert (rows.token_ids[7], rows.positions[7]) == (0, 0)
blocks = [block for table in metadata.block_tables for block in table]
assert len(set(blocks)) == len(blocks)
assert len(set(metadata.seq_slots.tolist())) == 8
dummies = {(s.metadata.kv_lens[-1], s.metadata.block_tables[-1]) for s in session.trace.steps[1:]}
assert dummies == {(1, metadata.block_tables[-1])}
assert padded.metadata.request_ids.tolist() == [0, 1, 2, 3, 4, -2, -2, -2]
assert len(set(padded.metadata.block_tables[5:])) == 1
assert unpadded == padded_texts
assert fallen.steps[1].path.reason == "NO_EXACT_BUCKET_PADDING_OFF"
assert answer.change[0].field == "CudaGraphConfig.enable_padding"
assert answer.proof.path == "replay"
alias = run("dummy-aliases-live-block").report.outcomes[0]
assert [got == right for right, got in alias.texts] == [False, True, True]
assert outcome.verdict == "off-graph"
assert all(got == right for right, got in outcome.texts)
