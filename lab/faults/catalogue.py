"""Every fault, by name.

Does not: run one (``examine.py``).
"""

import difflib
from typing import Final

from engine.errors import ConfigError
from lab.faults.buffers import BUFFER_FAULTS
from lab.faults.capturing import CAPTURE_FAULTS
from lab.faults.fault import Fault
from lab.faults.keys import KEY_FAULTS
from lab.faults.steady import STEADY_FAULTS
from lab.faults.tables import TABLE_FAULTS

FAULTS: Final[dict[str, Fault]] = {
    fault.name: fault for fault in (*BUFFER_FAULTS, *KEY_FAULTS, *CAPTURE_FAULTS, *TABLE_FAULTS, *STEADY_FAULTS)
}


def find_fault(name: str) -> Fault:
    """Return the fault of that name. Raises: ConfigError, which names the nearest."""
    if name not in FAULTS:
        near = difflib.get_close_matches(name, FAULTS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "`stepscope faults list` names them"
        message = f"there is no fault {name!r}; {hint}"
        raise ConfigError(message)
    return FAULTS[name]
