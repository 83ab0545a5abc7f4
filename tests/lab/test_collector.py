import gc

import pytest

from lab.collector import collector_held


@pytest.fixture(autouse=True)
def _collector():
    was_on = gc.isenabled()
    gc.enable()
    yield
    (gc.enable if was_on else gc.disable)()


def test_it_is_off_in_the_block_and_on_again_after_it():
    with collector_held():
        assert not gc.isenabled()
        with collector_held():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_in_the_block_puts_it_on_again():
    with pytest.raises(ZeroDivisionError), collector_held():
        raise ZeroDivisionError
    assert gc.isenabled()


def test_who_had_it_off_keeps_it_off():
    gc.disable()
    with collector_held():
        assert not gc.isenabled()
    assert not gc.isenabled()
