import dataclasses

import numpy as np
import pytest

from lab.coherence import require_coherent
from lab.flight import FlightView
from lab.ledger import CopyView, LedgerView, OwnersView, PlaceView
from tests.lab.sample_steps import decode_step


def changed(part, **values):
    """A step whose one part is replaced; "" is the step itself, "buffer" its first buffer."""
    step = decode_step(3, mode="full")
    if part == "buffer":
        buffers = (dataclasses.replace(step.buffers[0], **values), *step.buffers[1:])
        return dataclasses.replace(step, buffers=buffers)
    if not part:
        return dataclasses.replace(step, **values)
    return dataclasses.replace(step, **{part: dataclasses.replace(getattr(step, part), **values)})


@pytest.mark.parametrize("mode", ["light", "full"])
def test_a_real_step_passes(mode):
    require_coherent(decode_step(0, mode=mode))
    require_coherent(decode_step(7, mode=mode))


FIRST = decode_step(3, mode="full").buffers[0]
ORIGIN = FIRST.origins[0]
SPAN = dataclasses.replace(decode_step(3).schedule.spans[0], kind="Q")


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (changed("rows", kinds=np.array([0], np.uint8)), r"the columns of rows have lengths \[1, 8\]"),
        (changed("rows", kinds=np.full(8, 4, np.uint8)), "rows.kinds holds 4 to 4, below 4 is possible"),
        (changed("rows", sources=np.full(8, 9, np.uint8)), "rows.sources holds 9 to 9, below 5 is possible"),
        (changed("rows", gather_ids=np.array([-1, 8])), "rows.gather_ids holds -1 to 8, below 8 is possible"),
        (changed("rows", positions=np.zeros((2, 4))), "rows.positions is no column of integers"),
        (changed("metadata", kv_lens=np.zeros(7, np.int32)), r"the columns of metadata have lengths \[7, 8\]"),
        (changed("metadata", block_tables=()), "metadata has 0 block tables for 8 sequences"),
        (changed("buffer", live_rows=1 << 40), "buffer 'input_ids' has impossible rows, writers or layer"),
        (changed("buffer", layer="cache"), "buffer 'input_ids' has impossible rows, writers or layer"),
        (
            changed("buffer", origins=(dataclasses.replace(ORIGIN, writer="nobody"),)),
            "impossible rows, writers or layer",
        ),
        (changed("buffer", origins=(dataclasses.replace(ORIGIN, end=-2),)), "impossible rows, writers or layer"),
        (changed("buffer", origins=(dataclasses.replace(ORIGIN, step=1 << 40),)), "impossible rows, writers or layer"),
        (changed("schedule", spans=(SPAN,)), "step 3 has the row kind 'Q', not one of C, E, G, P"),
        (changed("schedule", asked=(SPAN,)), "step 3 has the row kind 'Q', not one of C, E, G, P"),
        (
            changed("reservation", copies=(CopyView("MOON", 0, 1, 4),)),
            "step 3 has the copy kind 'MOON', not one of DEVICE, OFFLOAD, ONBOARD",
        ),
        (changed("graph", path="teleport"), "step 3 on the path 'teleport' is impossible"),
        (changed("graph", flight=FlightView(order=(1, 2))), "impossible late rows, or an order of 2 stages"),
        (changed("graph", flight=FlightView(late=((0, 9, 2),))), "step 3 has impossible late rows"),
        (
            changed("reservation", ledger=LedgerView(4, 0, owners=(OwnersView(4, (1,)),))),
            "the ledger of step 3 names blocks beyond its 4",
        ),
        (
            changed("outcome", ledger=LedgerView(4, 2, places=(PlaceView(0, (), 2),))),
            "the ledger of step 3 names host blocks beyond its 2",
        ),
        (changed("", step=-1), "step -1 on the path 'replay' is impossible"),
        (changed("", host_us=np.zeros(3, np.float32)), r"host_us has shape \(3,\), not one time for each of 10 stages"),
    ],
)
def test_a_step_that_cannot_be_one_is_refused_by_its_part(step, message):
    with pytest.raises(ValueError, match=message):
        require_coherent(step)
