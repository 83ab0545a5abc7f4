from lab.flight import LAUNCH, READ, Event, FlightView, hand_overs
from lab.snapshot import STAGES


def test_launch_and_read_are_the_stages_they_stand_for():
    assert (STAGES[LAUNCH], STAGES[READ]) == ("RAN", "SAMPLED")


def test_hand_overs_of_two_overlapping_steps_are_in_the_order_in_which_they_happened():
    first = FlightView((*range(1, 9), 17, 18))
    second = FlightView((*range(9, 17), 19, 20), unread=(4,))
    events = hand_overs([(4, first), (5, second)])
    assert events == [Event(8, "launch", 4), Event(16, "launch", 5), Event(17, "read", 4), Event(19, "read", 5)]


def test_a_step_of_an_old_trace_has_no_order():
    assert hand_overs([(0, FlightView())]) == []
