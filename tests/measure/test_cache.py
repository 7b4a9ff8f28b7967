"""The size of the last-level cache: the system's, or what a variable gives."""

from collections.abc import Callable, Iterator

import pytest

from kernelmark.bench.measure.affinity import thread_times, working_threads
from kernelmark.bench.measure.cpu import Cpu, cpu_count, last_level_cache_bytes


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    last_level_cache_bytes.cache_clear()
    yield
    last_level_cache_bytes.cache_clear()


def test_the_variable_gives_the_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELMARK_LLC_BYTES", "12345")
    assert Cpu().llc_bytes == 12345


def test_without_it_the_size_is_that_of_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELMARK_LLC_BYTES")
    assert last_level_cache_bytes() >= 2**16


@pytest.mark.parametrize("given", ["0", "-1", "8M", "1e6", " ", "1" * 30])
def test_what_is_no_size_is_refused(given: str, monkeypatch: pytest.MonkeyPatch, complaint: Callable[..., str]) -> None:
    monkeypatch.setenv("KERNELMARK_LLC_BYTES", given)
    want = f"KERNELMARK_LLC_BYTES: is {given!r}, expected an integer above 0, in bytes"
    assert complaint(last_level_cache_bytes) == want


def test_every_cpu_empties_its_own_caches() -> None:
    cpu = Cpu()
    before = thread_times()
    for _ in range(30):
        cpu.evict()
    assert working_threads(before) == cpu_count()
