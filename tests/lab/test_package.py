import pytest

import lab


def test_every_public_name_can_be_loaded():
    for name in lab.__all__:
        assert getattr(lab, name).__name__ == name


def test_an_unknown_name_lists_what_the_lab_offers():
    with pytest.raises(AttributeError, match=r"has no attribute 'Sesion'; it offers .*Session"):
        _ = lab.Sesion
    assert "Trace" in dir(lab)
