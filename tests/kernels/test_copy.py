"""Copies: every byte arrives at any length and alignment, and no thread or block is left without work."""

import numpy as np
import pytest

from kernelmark.bench.emulator.sweep import EmulatedCase
from kernelmark.bench.plan.limits import H100
from support.emulated import wrong_in_emulator
from support.kernels import CUDA, REGISTRY, compiled_by, set_up, verified

VECTORISED = CUDA["copy/cuda.vectorised"]


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 63), (1, 64), (1, 65), (31, 33), (257, 129), (1000, 1031)])
@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
def test_streaming_copies_every_byte(m: int, n: int, dtype: str, threads: int) -> None:
    pytest.importorskip("numba")
    (measured,) = verified(f"copy/m{m}n{n}/{dtype}", "copy/numba.streaming", threads=threads)
    assert measured.status == "ok", measured.reason


@pytest.mark.parametrize("offset", [*range(0, 64, 7), 63])
@pytest.mark.parametrize("size", [1, 5, 63, 64, 65, 127, 128, 1000])
def test_lines_are_streamed_wherever_the_bytes_lie(offset: int, size: int) -> None:
    moves = pytest.importorskip("kernelmark.kernels.copy._numba")
    a = np.random.default_rng(0).integers(1, 255, size, np.uint8)
    raw = np.zeros(size + 256, np.uint8)
    start = -raw.ctypes.data % 64 + 64 + offset
    moves.stream(raw[start : start + size], a, min(size, -offset % 64), (0,), (0,), 0, True)
    assert np.array_equal(raw[start : start + size], a)
    assert not raw[:start].any()
    assert not raw[start + size :].any()


def test_streaming_stores_past_the_caches_and_compiles_nothing_after_set_up() -> None:
    numba = pytest.importorskip("numba")
    moves = pytest.importorskip("kernelmark.kernels.copy._numba")
    assert not compiled_by(set_up("copy/m100n100/f32", "copy/numba.streaming").launch)
    fresh = numba.njit(moves.stream.py_func)  # numba shows no code that it read from its cache
    arguments = np.zeros(1, np.uint8), np.zeros(1, np.uint8), 0, (0,), (0,), 0, True
    fresh.compile(types := tuple(map(numba.typeof, arguments)))
    assert any(word in fresh.inspect_asm(types) for word in ("movnt", "stnp"))


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (31, 33), (1024, 4096), (1024, 4097), (26752, 26752)])
def test_one_round_of_blocks_covers_the_matrix_and_none_is_idle(m: int, n: int, dtype: str) -> None:
    problem = REGISTRY.problem(f"copy/m{m}n{n}/{dtype}")
    for tile in VECTORISED.tiles():
        (call,) = VECTORISED.plan(problem, tile, H100)
        vectors = tile.THREADS * tile.LOADS * call.grid
        assert vectors * 16 >= problem.footprint_bytes // 2 or call.grid == tile.BLOCKS
        assert (vectors - tile.THREADS * tile.LOADS) * 16 < problem.footprint_bytes // 2
        assert call.args[-1] == m * n
        assert isinstance(call.args[-1], np.int64)


@pytest.mark.long
@pytest.mark.parametrize(
    "problem", ["copy/m131n1021/f32", "copy/m63n1031/f64", "copy/m131n2045/bf16", "copy/m1n15/f16", "copy/m64n1024/f32"]
)
def test_rounds_of_a_small_grid_and_the_elements_behind_the_last_vector_are_copied(problem: str) -> None:
    """Larger than what the sweep takes every kernel through."""
    every = [EmulatedCase(VECTORISED, REGISTRY.problem(problem), tile) for tile in VECTORISED.tiles()]
    assert not wrong_in_emulator(every)
