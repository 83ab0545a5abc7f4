assert {budget: [s.request_id for s in step.schedule.spans] for budget, step in first.items()} == {
    64: [0, 1],
    65: [0, 1, 2],
    70: [0, 1, 2, 3],
}
assert [held.reason for held in first[64].schedule.deferrals] == ["TOKEN_BUDGET", "BEHIND_BLOCKED_REQUEST"]
assert reasons[2].startswith("NO_FREE_BLOCKS")
assert ran == [0, 1, 2]
assert paused
assert texts["guaranteed_no_evict"] == texts["max_utilization"]
assert rows > sum(LENGTHS) + 4 * 13
steps = session.trace.steps
assert [step.num_rows for step in steps[:4]] == [50, 22, 4, 4]
assert all(step.num_rows == step.schedule.budget.num_tokens for step in steps)
assert max(step.num_rows for step in steps) < steps[0].schedule.budget.max_num_tokens
assert session.is_finished
