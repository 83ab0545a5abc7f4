assert {size: shares[size] for size in (7, 9, 12) if size in shares} == {7: "some", 9: "none", 12: "none"}
assert all(share == "none" for size, share in shares.items() if size > 8)
assert status == 1
on_graphs = [us for (_, way), some in times.items() if way == "on a graph" for us in some]
eagerly = [us for (_, way), some in times.items() if way != "on a graph" for us in some]
assert bool(on_graphs) == bool(eagerly) == h200.exists()
assert not times or min(eagerly) > 2 * max(on_graphs)  # what a step loses is more than the step itself
fallen = {step.path.reason for step in decoding}
assert fallen == {None, "ABOVE_LARGEST_BUCKET", "SAMPLER_MODE_NOT_CAPTURED"}
assert answers["ABOVE_LARGEST_BUCKET"].change[0].field == "CudaGraphConfig.batch_sizes"
assert answers["SAMPLER_MODE_NOT_CAPTURED"].change[0].field == "CudaGraphConfig.sample_modes"
assert all(answer.proof.path == "replay" for answer in answers.values())
assert set(fixed.summary().reasons) == {"HAS_CONTEXT_UNPROMOTED"}
assert share == 1.0
assert lost
assert min(lost) > 10
assert loose.summary().padding_share < fixed.summary().padding_share
assert sum(len(some) for some in stretches) == len(decoding)
assert [(step.path.num_requests, step.graph.path) for step in imported.steps[-3:]] == [
    (5, "replay"),
    (8, "replay"),
    (9, "eager"),
]
assert imported.steps[-1].path.reason == "ABOVE_LARGEST_BUCKET"
