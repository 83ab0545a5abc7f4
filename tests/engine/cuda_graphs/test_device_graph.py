"""A CPU gets the tape; what CUDA refuses comes out as our refusal. Graphs themselves are tested in tests/gpu."""

import pytest

from engine.cuda_graphs.device_graph import _refuse_if_cuda_did, make_graph_backend
from engine.cuda_graphs.tape import TapeBackend
from engine.device import DeviceRegistry
from engine.errors import CaptureRefusedError
from tests.engine.cuda_graphs.graph_parts import CPU


def test_a_cpu_gets_the_tape_which_says_that_it_is_simulated():
    backend = make_graph_backend(CPU, DeviceRegistry())
    assert isinstance(backend, TapeBackend)
    assert backend.simulated


def _failed_capture(cause, consequence):
    """Raise as a capture does: its end goes wrong because of what went wrong inside."""
    try:
        try:
            raise RuntimeError(cause)
        finally:
            raise RuntimeError(consequence)
    except RuntimeError as error:
        return error


def test_a_refusal_of_cuda_names_the_line_and_its_first_cause():
    error = _failed_capture(
        "CUDA error: operation not permitted when stream is capturing\nmore", "CUDA error: failed during capture"
    )
    pattern = r"operation at test_device_graph\.py:\d+ cannot be captured: CUDA error: operation not permitted .*ing$"
    with pytest.raises(CaptureRefusedError, match=pattern) as refusal:
        _refuse_if_cuda_did(error)
    assert refusal.value.__cause__ is error


def test_an_error_that_has_nothing_to_do_with_capture_is_left_alone():
    assert _refuse_if_cuda_did(_failed_capture("shapes do not fit", "shapes do not fit")) is None
