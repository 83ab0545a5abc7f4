assert sizes == [32, 32, 36]
assert [span.start for span in chunks] == [0, 32, 64]
assert [span.num_logit_rows for span in chunks] == [0, 0, 1]
assert len(results) == 4
assert {out.token_ids for out in results.values()} == {whole.token_ids}
assert apart < 1e-3
assert mixed == [(1, 32), (0, 40)]
assert broken.token_ids != whole.token_ids
assert (broken.finish_reason, broken.error) == ("length", None)
cached = [step.metadata.cached_lens[list(step.metadata.request_ids).index(1)] for step in session.trace.steps[:3]]
assert cached == [0, 32, 64]
