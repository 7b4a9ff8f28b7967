"""A clock that tests control, and series timed by it."""

import math
from types import SimpleNamespace

import pytest

from kernelmark.bench.measure import sample, timing
from support.timing import FakeTime, Rig


@pytest.fixture
def fake_time(monkeypatch):
    fake = FakeTime()
    monkeypatch.setattr(timing, "time", fake)
    monkeypatch.setattr(timing, "resolution", lambda: 1e-7)
    monkeypatch.setattr(sample, "LONGEST_PAUSE_S", 0.0)  # a pause would never end by the fake clock
    monkeypatch.setattr(timing, "random", SimpleNamespace(uniform=lambda *_: 0.0))
    return fake


@pytest.fixture
def rig(fake_time):
    return Rig(fake_time, "copy/m3n4/f32", 1)


@pytest.fixture
def without_waking(monkeypatch):
    monkeypatch.setattr(sample, "WAKING", (0,))
    monkeypatch.setattr(sample, "LONG_CALL_S", math.inf)
