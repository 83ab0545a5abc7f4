assert computed == {0: 38, 1: 9, 2: 1}
assert steps[4].graph.path == "replay"
assert 2 in steps[4].schedule.promoted
tables = {int(r): steps[4].metadata.block_tables[i] for i, r in enumerate(steps[4].metadata.request_ids)}
assert tables[0][:4] == tables[1][:4] == tables[2][:4]
assert tables[1][:5] == tables[2][:5]
assert len({tables[0][4], tables[1][4]}) == 2
assert len({tables[1][5], tables[2][5]}) == 2
for step in steps:
    assert (step.metadata.seq_lens + step.metadata.cached_lens == step.metadata.kv_lens).all()
assert without == [out.text for out in outputs]
assert [out.cached_tokens for out in outputs] == [0, 32, 40]
assert outcome.verdict.startswith("wrong")
assert run("stale-block-table-column", guards="on").report.outcomes[0].raised_by == "audit"
