"""The memory around ``put``: makes the arrays, calls the function, and looks at the memory afterwards.

Does not: judge what it sees.
"""

from collections.abc import Callable
from typing import Any

import numpy as np


def run(function: Callable[..., Any], case: dict[str, Any]) -> dict[str, Any]:
    """Return what the memory holds, whether a view of it came back, and whether the values were refused."""
    buffer = np.array(case["held"], dtype=np.int32)
    values = np.array(case["values"], dtype=case["dtype"]).reshape(case["shape"])
    seen: dict[str, Any] = {"refused": False, "shares": False, "length": -1, "same_type": False}
    try:
        view = function(buffer, values)
    except ValueError:
        seen["refused"] = True
    else:
        is_array = isinstance(view, np.ndarray)
        seen["shares"] = is_array and bool(np.may_share_memory(view, buffer))
        seen["length"] = int(view.size) if is_array else -1
        seen["same_type"] = is_array and view.dtype == np.int32
        if is_array and view.size and seen["shares"]:
            starts = view.__array_interface__["data"][0] == buffer.__array_interface__["data"][0]
            seen["shares"] = bool(starts)
    return {**seen, "held": buffer.tolist()}
