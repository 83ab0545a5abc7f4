is_steady = {step.step for step in steps if not step.graph.steady}
assert is_steady == {2, 3, 4, 5, 6, 7, 15, 16, 17, 18, 19}
assert steps[8].graph.steady == "OTHER_NUMBER_OF_REQUESTS"
assert {steps[at].path.num_padding for at in range(8, 14)} == {1}
assert {view.name for view in quiet.buffers if view.writes and view.layer == "persistent"} == {
    "input_ids",
    "position_ids",
}
assert len([view for view in steps[1].buffers if view.writes and view.layer == "persistent"]) == 5
assert "host_copy" not in {w.writer for view in quiet.buffers for w in view.writes}
assert outcome.verdict == "wrong(0)"
assert [right == got for right, got in outcome.texts] == [False, False, True]
assert run("steady-record-not-dropped", guards="on").report.outcomes[0].raised is not None
assert texts["engine"] == texts["careful"]
assert served[False] == served[True]
assert spans[:5] == [[0, 1], [0, 1], [0, 1], [0, 1], [1]]
assert sum(map(len, spans)) == 12
