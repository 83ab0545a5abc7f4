from lab.cli.tables import table


def test_numbers_stand_right_and_words_left_under_their_heading():
    rows = [{"path": "graph", "steps": 12, "ok": True}, {"path": "eager", "steps": 3, "ok": None}]
    assert table(rows).splitlines() == ["path   steps   ok", "graph     12  yes", "eager      3    -"]


def test_a_table_without_rows_says_so():
    assert table([]) == "no steps"
