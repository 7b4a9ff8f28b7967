"""What counts as sparing work, and what is only a slow start."""

import pytest

from kernelmark.bench.measure.audit import AUDITS, Freshness, spared_work


def complaint(pairs, footprint_bytes=0):
    freshness = Freshness(footprint_bytes)
    for fresh_s, known_s in pairs:
        freshness.add(fresh_s, known_s)
    return freshness.complaint()


def test_a_kernel_that_is_always_slower_on_fresh_operands_is_accused():
    assert complaint([(0.5, 0.1), (0.6, 0.12)]) == (
        "spares itself the work: 0.5 s a call on fresh operands, 0.12 s on known ones"
    )


@pytest.mark.parametrize(
    "pairs",
    [
        [(0.5, 0.1), (0.15, 0.1)],  # slow once: a neighbour
        [(0.5, 0.1), (0.5, 0.4)],  # known operands took as long, once
        [(0.099, 0.0001)] * 5,  # threads that wake up
    ],
)
def test_a_slow_start_is_no_sparing(pairs):
    assert complaint(pairs) is None


def test_operands_may_take_their_time_from_memory():
    assert complaint([(0.5, 0.1)] * 5, footprint_bytes=10**9) is None
    assert complaint([(0.5, 0.1)] * 5, footprint_bytes=10**8)


def test_a_call_is_long_by_ratio_and_by_difference():
    freshness = Freshness(0)
    assert freshness.is_long(0.41, 0.2)
    assert not freshness.is_long(0.39, 0.2)
    assert not freshness.is_long(0.09, 0.0001)


class Paired:
    """A series whose calls on known operands take these seconds, and on changed ones ten times the shortest."""

    batch = 2

    def __init__(self, same):
        self.same, self.taken = same, 0
        self.sets, self.draw = [self], None

    def call(self):
        self.changed = False

    def refresh(self, draw):
        self.changed = True

    def time_alone(self):
        if self.changed:
            return 10.0
        self.taken += 1
        return self.same[(self.taken - 1) % len(self.same)]


def test_a_kernel_that_spares_work_is_caught_though_two_of_the_first_pairs_were_disturbed():
    disturbed = [1.0] * 7 + [10.0] * 2 + [1.0] * 27
    assert "spares itself the work" in (spared_work(Paired(disturbed)) or "")


def test_pairs_that_leave_nothing_open_are_not_taken_again():
    for seconds, spared in ((10.0, False), (1.0, True)):
        paired = Paired([seconds])
        assert bool(spared_work(paired)) == spared
        assert paired.taken == AUDITS
