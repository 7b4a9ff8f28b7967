"""Kernels that take the memory of the machine, in real processes, and the floor at which they are ended."""

import os
import re
from itertools import count

import pytest

from kernelmark.bench.measure import memory
from kernelmark.bench.run import pool
from kernelmark.bench.run.family import below
from support.runs import Measure


def test_a_kernel_that_takes_the_last_of_the_memory_is_oom(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 200_000_000)
    monkeypatch.setattr(memory, "whole_bytes", lambda: 10_000_000_000)
    bad, good = measure("fills_memory", "honest")
    assert (bad.status, good.status) == ("oom", "ok")
    assert re.fullmatch(r"verification: the process took 0\.[234]\d* GB, 0\.2 GB are left", bad.reason)


@pytest.mark.long
def test_a_kernel_that_leaks_64_mb_a_call_is_oom_before_nothing_is_left(
    measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine has 1.2 GB beyond what stood before, and 134 MB must stay free; the pages are real."""

    def resident() -> int:
        return sum(member.resident_bytes for member in below(os.getpid()))

    before, whole, least = resident(), 1_200_000_000, []

    def available() -> int:
        least.append(whole + before - resident())
        return least[-1]

    monkeypatch.setattr(memory, "available_bytes", available)
    monkeypatch.setattr(memory, "whole_bytes", lambda: whole)
    bad, good = measure("leaks", "honest")
    assert (bad.status, good.status) == ("oom", "ok")
    assert "verification: the process took 1." in bad.reason
    assert min(least) > 0


def test_a_worker_is_looked_at_sooner_where_memory_is_short() -> None:
    assert pool.next_look_s(None) == pool.next_look_s(100e9) == pool.POLL_S
    assert pool.SOONEST_S < pool.next_look_s(1e9) < pool.POLL_S
    assert pool.next_look_s(-1.0) == pool.SOONEST_S
    assert pool.floor_bytes(100_000_000_000) == 3e9
    assert pool.floor_bytes(1_000_000_000) == pool.LEAST_FLOOR_BYTES


def test_what_the_system_killed_for_memory_is_oom(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "kills_by_system", count().__next__)
    bad, good = measure("killed_by_a_stranger", "honest")
    assert (bad.status, bad.reason) == ("oom", "verification: killed by the system for want of memory")
    assert good.status == "ok"
