import pytest

from engine.errors import ConfigError
from lab.faults.catalogue import FAULTS, find_fault
from tests.lab.faults.expected import VERDICTS


def test_every_fault_has_its_row_in_the_table_of_verdicts():
    assert list(VERDICTS) == list(FAULTS)


def test_there_are_at_least_twenty_and_each_says_what_why_and_whence():
    assert len(FAULTS) >= 20
    for fault in FAULTS.values():
        assert fault.explanation.endswith(".")
        assert fault.rule.endswith(".")
        assert ": " in fault.source
        assert len(fault.explanation.split()) > 15


def test_a_misspelt_fault_names_the_nearest():
    with pytest.raises(ConfigError, match="there is no fault 'forgoten-replay'; did you mean 'forgotten-replay'"):
        find_fault("forgoten-replay")
    with pytest.raises(ConfigError, match="`stepscope faults list` names them"):
        find_fault("?")
