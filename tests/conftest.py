"""What every test shares: tests marked ``gpu`` are skipped, with the reason, where there is no CUDA device.

Ctrl-C works in tests even if the run was started in the background, where a shell has it ignored.
"""

import signal

import pytest

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the gpu tests, with the reason, where no CUDA device exists; torch is imported only if any is selected."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="gpu: no CUDA device on this machine"))
