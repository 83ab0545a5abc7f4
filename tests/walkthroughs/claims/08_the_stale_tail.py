assert facts == {"wrong texts": [3], "errors": 0}
assert run("short-input-stale-tail", guards="on").report.outcomes[0].raised == "ReplayRefusedError"
padding = run("padding-rows-not-zeroed").report.outcomes[0]
assert padding.num_wrong > 0
assert all(right == got for right, got in padding.texts)
assert run("padding-rows-not-zeroed", guards="on").report.outcomes[0].raised_by == "audit"
spread = run("broadcast-positions").report.outcomes[0]
assert [right == got for right, got in spread.texts] == [True, False, False, False]
assert copy_into(torch.tensor([[8, 8, 8, 8]]), torch.tensor([[5, 9, 7]])).startswith("refused")
assert copy_into(torch.tensor([[8, 8, 8, 8]]), torch.tensor([[5]])) == "copied: [[5, 5, 5, 5]]"
assert copy_into(torch.tensor([[8, 8]]), torch.tensor([[5]])).startswith("copied"), "(1, 1) into (1, 2): n is 1"
held = [s.buffer("input_ids", "static").values[:4].ravel().tolist() for s in tail.broken.steps[1:5]]
assert len({tokens[3] for tokens in held}) == 1
assert len({tuple(tokens[:3]) for tokens in held}) > 1
assert tail.broken.marks
