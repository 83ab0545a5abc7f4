import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.columns import all_of, cut_arrays, cut_tuples, decode_column, encode_column, typed

COLUMNS = st.lists(st.integers(-(2**40), 2**40), max_size=60)
INT64, UINT8, FLOAT32 = np.dtype(np.int64), np.dtype(np.uint8), np.dtype(np.float32)


@given(COLUMNS, st.integers(1, 7))
def test_a_column_comes_back_whatever_way_of_writing_it_was_the_shortest(column, num_steps):
    assert decode_column(encode_column(column, num_steps)).tolist() == column


def test_a_column_that_grows_evenly_is_written_as_differences():
    count, lag, text = encode_column(list(range(1000, 3000)), 200)
    assert (count, lag) == (2000, 1)
    assert len(text) < 60


@pytest.mark.parametrize("stored", [[-1, 0, "AQ=="], [5, 9, "AQ=="], [1 << 27, 0, "AQ=="], [1, 0, "Aw=="]])
def test_a_column_that_nobody_wrote_is_refused(stored):
    with pytest.raises(ValueError, match=r"cannot be right"):
        decode_column(stored)


@given(st.lists(st.lists(st.integers(), max_size=4)))
def test_tuples_are_cut_as_they_were_counted(lists):
    items = [item for one in lists for item in one]
    assert cut_tuples(items, [len(one) for one in lists]) == [tuple(one) for one in lists]


@pytest.mark.parametrize("counts", [[2], [1, 1, 1, 1]])
def test_counts_that_do_not_fit_their_column_are_refused(counts):
    with pytest.raises(ValueError, match=f"counts with the sum {sum(counts)} for 3 values"):
        cut_tuples([7, 8, 9], counts)


def test_a_negative_count_is_refused_though_the_sum_is_right():
    with pytest.raises(ValueError, match="counts with the sum 3 for 3 values"):
        cut_tuples([7, 8, 9], [4, -1])


def test_arrays_of_one_kind_and_of_several_come_back_in_their_shapes():
    values = np.arange(10)
    same = cut_arrays(values, [UINT8, UINT8], [1, 2], [4, 2, 3])
    assert [one.dtype for one in same] == [UINT8, UINT8]
    assert same[0].tolist() == [0, 1, 2, 3]
    assert same[1].tolist() == [[4, 5, 6], [7, 8, 9]]
    mixed = cut_arrays(values, [UINT8, INT64, INT64], [1, 1, 1], [4, 6, 0])
    assert [one.dtype for one in mixed] == [UINT8, INT64, INT64]
    assert [len(one) for one in mixed] == [4, 6, 0]


def test_floats_are_their_bits():
    bits = np.array([1.5, float("nan")], np.float32).view(np.int32).astype(np.int64)
    [array] = cut_arrays(bits, [FLOAT32], [1], [2])
    assert array[0] == 1.5
    assert np.isnan(array[1])


@pytest.mark.parametrize("sizes", [[4], [11], [-1]])
def test_an_array_that_is_not_as_long_as_its_column_is_refused(sizes):
    with pytest.raises(ValueError, match=r"more values than its counts say|cannot reshape|negative"):
        cut_arrays(np.arange(10), [INT64], [1], sizes)


def test_a_value_that_its_type_cannot_hold_is_refused():
    with pytest.raises(ValueError, match="values beyond uint8 cannot be right"):
        typed(np.array([256]), UINT8)
    with pytest.raises(ValueError, match="an array of <U4 cannot be right"):
        typed(np.array([1]), np.dtype("<U4"))


def test_what_is_left_over_of_a_column_is_told():
    assert all_of(iter(()), [1]) == [1]
    with pytest.raises(ValueError, match="a column holds more values than its counts say"):
        all_of(iter([0]), [1])
