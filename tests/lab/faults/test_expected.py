from tests.engine.cuda_graphs.verdicts import severity
from tests.graph_table import markdown, table_rows
from tests.lab.faults.expected import VERDICTS


def test_the_table_has_every_kind_of_row_and_explains_each_difference():
    rows = table_rows()
    assert len(rows) >= 100
    assert {row.tape.split("(")[0] for row in rows} == {"ok", "wrong", "refused", "raised", "off-graph"}
    assert all(bool(row.difference) == (row.tape != row.cuda) for row in rows)


def test_differences_are_few_and_the_tape_is_the_stricter_one_but_where_a_guard_was_lifted():
    different = [row for row in table_rows() if row.difference]
    assert len(different) <= 12
    laxer = [row.name for row in different if severity(row.tape) < severity(row.cuda)]
    assert laxer == ["fault host-read-inside-capture, guards off"]


def test_with_its_guards_every_fault_is_refused_on_both_machines():
    for row in VERDICTS.values():
        assert row.verdict("on", "cpu").startswith("refused(")
        assert row.verdict("on", "cuda") == row.verdict("on", "cpu")


def test_the_table_reads_as_markdown():
    text = markdown(table_rows())
    assert "| a stale tail | wrong(3) | the same |" in text
    assert "| fault forgotten-replay, guards off | wrong(0) | the same |" in text
    assert "\n\n| tried | why |\n|---|---|\n" in text
