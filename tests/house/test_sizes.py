"""Files, functions, argument lists and records stay small enough to read at one go."""

from tests.house.gates import ROOT, exceptions, size_findings


def test_every_file_function_and_record_keeps_its_limit():
    allowed = exceptions(ROOT).allowed
    broken = [str(f) for f in size_findings(ROOT) if (f.where, f.rule) not in allowed]
    assert not broken, "\n".join(broken)


def test_no_exception_outlives_its_need():
    needed = {(f.where, f.rule) for f in size_findings(ROOT)}
    assert not sorted(set(exceptions(ROOT).allowed) - needed)
