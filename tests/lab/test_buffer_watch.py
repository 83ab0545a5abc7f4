import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lab.buffer_watch import BufferWatch, overwrite
from lab.snapshot import WRITERS, WriteView

spans = st.tuples(st.integers(0, 20), st.integers(0, 8), st.sampled_from(WRITERS[1:]))


@given(st.lists(spans, max_size=12))
def test_origins_say_of_every_row_who_wrote_it_last(writes):
    steps, writers, origins = np.full(40, -1), [None] * 40, ()
    for step, (start, length, writer) in enumerate(writes):
        origins = overwrite(origins, WriteView(start, start + length, writer), step)
        steps[start : start + length] = step
        writers[start : start + length] = [writer] * length
    found = np.full(40, -1)
    end = 0
    for origin in origins:
        assert end <= origin.start < origin.end
        end = origin.end
        found[origin.start : origin.end] = origin.step
        assert set(writers[origin.start : origin.end]) == {origin.writer}
    assert found.tolist() == steps.tolist()


def test_a_watch_without_buffers_has_nothing_to_check_and_knows_no_writer():
    watch = BufferWatch(None, reads_values=False)
    watch.check()
    assert watch.origins == {}
