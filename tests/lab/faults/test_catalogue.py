import contextlib
import re
import sys

import pytest

from engine.errors import ConfigError
from lab.faults.catalogue import FAULTS, find_fault
from tests.lab.faults.expected import VERDICTS


def test_every_fault_has_its_row_in_the_table_of_verdicts():
    assert list(VERDICTS) == list(FAULTS)


def test_there_are_at_least_twenty_two_and_each_says_what_why_and_whence():
    assert len(FAULTS) >= 22
    for fault in FAULTS.values():
        assert fault.explanation.endswith(".")
        assert fault.rule.endswith(".")
        assert ": " in fault.source
        assert len(fault.explanation.split()) > 15


def test_each_source_is_a_public_thread_with_its_number_or_is_called_a_rule():
    thread = re.compile(r"[\w.-]+/[\w.-]+ (PRs?|issue) \d+")
    rules = [name for name, fault in FAULTS.items() if not thread.match(fault.source)]
    assert rules == ["capture-while-serving", "cached-list-aliased", "steady-record-not-dropped"]
    assert all(FAULTS[name].source.startswith("a rule of NVIDIA/TensorRT-LLM") for name in rules)


def test_a_misspelt_fault_names_the_nearest():
    with pytest.raises(ConfigError, match="there is no fault 'forgoten-replay'; did you mean 'forgotten-replay'"):
        find_fault("forgoten-replay")
    with pytest.raises(ConfigError, match="`stepscope faults list` names them"):
        find_fault("?")


def engine_as_it_is():
    """Everything that a patch could replace: the names of every engine module and of every class in it."""
    modules = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "engine"}
    found = {name: dict(vars(module)) for name, module in modules.items()}
    for module in modules.values():
        for value in vars(module).values():
            if isinstance(value, type) and value.__module__.startswith("engine"):
                found[f"{value.__module__}.{value.__qualname__}"] = dict(vars(value))
    return found


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_leaves_the_engine_as_it_was(name):
    fault, before = FAULTS[name], engine_as_it_is()
    with fault.lift(), fault.patch():
        is_changed = engine_as_it_is() != before
    assert is_changed == (fault.patch is not contextlib.nullcontext)
    after = engine_as_it_is()
    assert {key: vars_ for key, vars_ in after.items() if key in before} == before
