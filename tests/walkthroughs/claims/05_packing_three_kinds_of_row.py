assert facts == {"order": [2, 0, 1], "gather_ids": [13, 14, 15]}
assert [step.rows.num_rows for step in steps[2:6]] == [18, 16, 4, 4]
assert steps[2].rows.gather_ids.tolist() == [16, 17]
assert "".join(ROW_KINDS[k] for k in steps[4].rows.kinds) == "GGGP"
assert steps[4].rows.token_ids[3] == 0
assert [ROW_SOURCES[s] for s in steps[4].rows.sources] == ["previous_sample"] * 3 + ["zero_fill"]
assert [span.num_rows for span in steps[3].schedule.spans] == [14, 1, 1]
assert texts["right"] != texts["wrong"]
assert [len(text) for text in texts["wrong"]] == [6, 6]
assert [a[0] for a in texts["right"]] == [a[0] for a in texts["wrong"]], "the first token comes from the prompt"
assert "".join(ROW_KINDS[k] for k in verify.rows.kinds) == "E" * 10
assert verify.rows.gather_ids.tolist() == list(range(10))
assert [token for request_id, token in verify.outcome.tokens if request_id == 1] == list(known.token_ids[1:3])
assert [token for request_id, token in verify.outcome.tokens if request_id == 2] != [0]
assert next(out.token_ids for out in finished if out.request_id == 1) == known.token_ids
