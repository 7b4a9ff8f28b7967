"""Helpers for CPU kernels: vector width, compiled launches, single-threaded BLAS, and dividing work among threads."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from kernelmark import Launch, Unsupported

LINE_BYTES = 64  # of a cache line
EXTENT, NEAR = 2**18, 256  # limits of `is_read_in_place`, in floats
NARROW = 32  # threads share an axis only if each gets at least this many of its pixels or channels
ANEW = 0.1  # relative time that cutting into twice as many items adds, since each reads and packs operands again
ALONE = 4  # a product of at most this many columns is computed column by column, without panels


def powers(first: int, last: int) -> tuple[int, ...]:
    """Return the powers of two from 2**first to 2**last, and the midpoints between them."""
    return tuple(sorted([*(2**i for i in range(first, last + 1)), *(3 * 2 ** (i - 1) for i in range(first, last))]))


@lru_cache
def second_level_bytes() -> int:
    """Return the size of a CPU's second-level cache, or 1 MiB if the system does not report it."""
    try:
        kib = Path("/sys/devices/system/cpu/cpu0/cache/index2/size").read_text()
        return int(kib.strip().removesuffix("K")) * 1024
    except (OSError, ValueError):
        return 2**20


class Registers(NamedTuple):
    """The size of a CPU's vector register in bytes, and the number of registers used as accumulators.

    Two multiply-adds per cycle with a latency of five cycles need ten accumulators; four per cycle with a latency of
    four (Neoverse V1) need sixteen.
    """

    nbytes: int
    accumulators: int

    def group(self, itemsize: int) -> int:
        """Return the number of elements, of `itemsize` bytes each, that all accumulators hold."""
        return self.accumulators * self.nbytes // itemsize


@lru_cache
def registers() -> Registers:
    """Return the registers of the CPU that Numba generates code for. Raises Unsupported without fused multiply-add."""
    from numba.core.registry import cpu_target

    triple, cpu, listed = cpu_target.target_context.codegen().magic_tuple()
    features = set(listed.split(","))
    if "+avx512f" in features:
        return Registers(64, 24)
    if "+fma" in features:
        return Registers(32, 12)
    if triple.startswith(("aarch64", "arm64")):
        return Registers(16, 24)
    raise Unsupported(f"{cpu} has no fused multiply-add; expected AVX2 with FMA, AVX-512 or NEON")


@dataclass(frozen=True)
class Call:
    """A call of a compiled function. kinds: Numba's types of the arguments."""

    function: Callable[..., object]
    args: tuple[Any, ...]
    kinds: tuple[Any, ...]


@dataclass(frozen=True)
class Compiled:
    """A launch of compiled functions, one after the other; `_calls.py` calls them without the interpreter."""

    calls: tuple[Call, ...]

    def __call__(self) -> None:
        for call in self.calls:
            call.function(*call.args)


@lru_cache
def _libraries() -> list[Any]:
    import scipy.linalg.blas  # noqa: F401  threadpoolctl sees loaded libraries only
    import threadpoolctl

    return [library for library in threadpoolctl.ThreadpoolController().lib_controllers if library.user_api == "blas"]


def alone(launch: Launch) -> Launch:
    """Return a launch that runs `launch` with BLAS set to one thread, since `launch` has threads that call BLAS."""
    libraries = _libraries()

    def run() -> None:
        several = [(library, count) for library in libraries if (count := library.get_num_threads()) > 1]
        for library, _ in several:
            library.set_num_threads(1)
        try:
            launch()
        finally:
            for library, count in several:
                library.set_num_threads(count)

    return run


def is_read_in_place(rows: int, step: int) -> bool:
    """Return whether a product should read rows in place instead of copying them. step: floats from row to row.

    It should if the rows span few pages and do not compete for the same cache sets. Rows compete if `step` is a
    multiple of NEAR that is greater than NEAR.
    """
    return rows * step <= EXTENT and (step <= NEAR or step % NEAR != 0)


def split(length: int, most: int, others: int, threads: int) -> list[tuple[int, int]]:
    """Cut a length into parts of at most `most`, or into smaller parts if threads then share the work more evenly.

    Each part is `others` items of work. In the cost model, the thread with the most items determines the time, and
    twice as many parts as necessary add the fraction ANEW to the time.
    """
    least = -(-length // most)

    def cost(parts: int) -> float:
        items = others * parts
        return -(-items // threads) / items * (1 + ANEW * (parts / least - 1))

    parts = min(min(range(least, least + threads), key=cost), length)
    return list(pairwise(length * i // parts for i in range(parts + 1)))
