assert {name: len(addresses) for name, addresses in seen.items() if not name.startswith("metadata")} == {
    name: 1 for name in seen if not name.startswith("metadata")
}
assert len(seen["metadata kv_lens"]) == 4
assert (min(s.num_rows for s in steps), max(s.num_rows for s in steps)) == (1, 24)
assert {step.path.num_requests for step in steps} == {1, 2, 3, 4}
assert 90 < len(steps) < 120
host = [w for view in mixed.buffers if view.layer == "persistent" for w in view.writes if w.writer == "host_copy"]
assert len(host) == 5, "one a list"
assert used["persistent input_ids"] == 24
writers = {w.writer for view in steady.buffers for w in view.writes}
assert "host_copy" not in writers
assert outcome.verdict.startswith("wrong")
assert all(got != right for right, got in outcome.texts)
assert run("rebound-buffer", guards="on").report.outcomes[0].raised == "ReplayRefusedError"
assert late.verdict.startswith("wrong")
assert lengths.data_ptr() != before
