import types

import pytest

from lab.faults.fault import part, swapped


class Parent:
    def greet(self):
        return "hello"


class Child(Parent):
    limit = 3


def fail_while_swapped():
    with swapped(Child, "limit", 1):
        assert Child.limit == 1
        raise ZeroDivisionError


def test_a_swap_ends_with_its_block_even_when_that_raises():
    with pytest.raises(ZeroDivisionError):
        fail_while_swapped()
    assert Child.limit == 3


def test_what_was_inherited_is_inherited_again():
    with swapped(Child, "greet", lambda _self: "bye"):
        assert Child().greet() == "bye"
        assert Parent().greet() == "hello"
    assert "greet" not in vars(Child)
    assert Child().greet() == "hello"


def test_an_object_and_a_module_can_be_swapped_too():
    child, module = Child(), types.ModuleType("some")
    module.value = 1
    with swapped(child, "limit", 9), swapped(module, "value", 2):
        assert (child.limit, Child.limit, module.value) == (9, 3, 2)
    assert (child.limit, vars(child), module.value) == (3, {}, 1)


def test_a_name_that_the_engine_no_longer_has_is_an_error_at_once():
    with pytest.raises(AttributeError, match="gone"), swapped(Child, "gone", 1):
        pytest.fail("the block must not run")
    with pytest.raises(AttributeError, match="gone"):
        part(Child, "gone")
