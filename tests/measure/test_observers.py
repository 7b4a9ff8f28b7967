"""Energy of a call, from a counter that steps."""

import pytest

from kernelmark.bench.measure.observers import METERED_S, Energy
from support.timing import FakeTime, Rig, Script


class Meter:
    """A counter of 100 W that is brought up to date every 70 ms."""

    def __init__(self, fake: FakeTime) -> None:
        self._fake = fake

    def __call__(self) -> float:
        return 100 * 0.07 * (self._fake.now // 0.07)


def test_energy_is_that_of_calls_between_two_steps_of_the_counter(fake_time: FakeTime) -> None:
    rig = Rig(fake_time, "copy/m3n4/f32", 3)
    series = rig.warmed(seconds=1e-3)
    found = Energy(series, Script(joules=Meter(fake_time))).results(METERED_S)
    assert found == {"energy_j": pytest.approx(0.1, rel=0.05)}
    assert len(rig.log) >= 500
    assert rig.log[:4] == ["k0", "k1", "k2", "k0"]


def test_without_a_sensor_or_with_one_that_stands_still_there_is_no_energy(fake_time: FakeTime) -> None:
    rig = Rig(fake_time, "copy/m3n4/f32", 3)
    series, evicted = rig.warmed(), rig.warmed(cold=True, evict=True)
    assert Energy(series, Script()).results(METERED_S) == {}
    # Back to back it would be warm.
    assert Energy(evicted, Script(joules=Meter(fake_time))).results(METERED_S) == {}
    assert rig.log == []
    assert Energy(series, Script(joules=lambda: 5.0)).results(METERED_S) == {}
