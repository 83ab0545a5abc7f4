assert seen == {1: 20.0, 2: 100.0, 3: 100.0, 4: 100.0, 5: 140.0}
assert torch.tensor(held.tolist()).isnan().all(), "poisoned"
refused = 0
for attempt in attempts.values():
    try:
        graphs.capture(attempt)
    except CaptureRefusedError:
        refused += 1
assert refused == len(attempts) == 4
keys = [one.key for one in session.trace.header.warmup.captures]
assert keys == sorted(keys, reverse=True)
assert len(keys) == 3
assert outcome.verdict.startswith("wrong")
assert run("forgotten-replay").report.outcomes[0].verdict.startswith("wrong")
assert run("capture-while-serving", guards="on").report.outcomes[0].raised == "CaptureRefusedError"
