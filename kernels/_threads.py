"""Splitting an array over threads for library calls that are serial by themselves and release the GIL."""

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from kernelmark import Launch

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


@lru_cache
def _pool(threads: int) -> "ThreadPoolExecutor":
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(threads, thread_name_prefix="kernelmark")


def in_bands(length: int, threads: int, run: Callable[[int, int], Launch]) -> Launch:
    """A launch that does `run(start, stop)` for each of `threads` bands of `length`, the last on the calling thread."""
    edges = [length * i // threads for i in range(threads + 1)]
    bands = [run(start, stop) for start, stop in pairwise(edges) if start < stop]
    if len(bands) == 1:
        return bands[0]
    pool = _pool(threads)

    def launch() -> None:
        futures = [pool.submit(band) for band in bands[:-1]]
        bands[-1]()
        for future in futures:
            future.result()

    return launch
