"""CPU transpositions and batches: right on every shape, in place with little scratch, compiled before a launch."""

import itertools
import math

import numpy as np
import pytest

from kernelmark.bench.emulator.sweep import entries
from kernelmark.bench.measure.compile import ARCHS
from kernelmark.bench.plan.errors import UsageError
from kernelmark.kernels._numba import bind
from kernelmark.kernels.transpose import _numba, _strips, _tiles
from kernelmark.kernels.transpose._blocks import width
from support.kernels import CUDA, REGISTRY, cases, chosen, compiled_by, lean, set_up, verified

AWKWARD = [(1, 1), (1, 97), (97, 1), (2, 3), (3, 2), (13, 7), (31, 33), (97, 101), (101, 97), (509, 64), (64, 509)]
COMMON = [(48, 36), (36, 48), (96, 160), (160, 96), (257, 129), (250, 1000), (1000, 250), (17, 3001), (3001, 17)]
WHOLE = [(16, 2048), (2048, 16), (128, 4096), (4096, 128), (64, 64), (33, 33), (1, 2), (257, 257)]
BLOCKED, TILES = "transpose/numba.blocked", "transpose/numba.tiles"
LARGE = [(1024, 2048), (2047, 1031), (40, 40000), (39999, 41), (1500, 1500), (5, 100003)]


@pytest.mark.parametrize(
    "dtype", ["f32", "bf16", *(pytest.param(name, marks=pytest.mark.long) for name in ("f64", "f16"))]
)
@pytest.mark.parametrize(("m", "n"), AWKWARD + COMMON + WHOLE)
@pytest.mark.parametrize(("place", "name"), [("out", BLOCKED), ("in", TILES)])
def test_every_shape_and_storage_type_is_transposed(m: int, n: int, dtype: str, place: str, name: str) -> None:
    for threads in (1, 3):
        (measured,) = verified(f"transpose/m{m}n{n}/{dtype}/{place}", name, threads=threads)
        assert measured.status == "ok", measured.reason


@pytest.mark.parametrize("dtype", ["f64", "f16"])
@pytest.mark.parametrize(("m", "n"), LARGE)
def test_in_place_needs_at_most_a_tenth_of_the_matrix(m: int, n: int, dtype: str) -> None:
    for threads in (1, 2, 16):
        *_, scratch = set_up(f"transpose/m{m}n{n}/{dtype}/in", TILES, threads)
        assert scratch.nbytes <= 0.1 * m * n * np.dtype(f"f{2 if dtype == 'f16' else 8}").itemsize


def test_scratch_grows_with_threads_by_one_strip_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_tiles, "second_level_bytes", lambda: 2**20)

    def nbytes(threads: int) -> int:
        return set_up("transpose/m512n4099/f32/in", TILES, threads)[-1].nbytes

    assert nbytes(2) - nbytes(1) == 128 * 512 * 4


@pytest.mark.parametrize("threads", [1, 2, 7, 64, 500])
def test_strips_of_any_length_stay_within_their_share(threads: int) -> None:
    for longer in (*range(2, 300), 1009, 26752, 100003):
        size, workers, rest = _strips.strips(longer, 4096, threads, 2**21)
        assert longer == longer // size * size + rest
        assert 1 <= workers <= threads
        assert size == 1 or workers * size + rest <= 0.1 * longer


@pytest.mark.parametrize(("cache_bytes", "size"), [(2**17, 32), (2**18, 64), (2**19, 64), (2**20, 128)])
def test_a_strip_above_64_is_at_most_half_the_second_level_cache_and_one_above_32_at_most_all_of_it(cache_bytes, size):
    assert _strips.strips(26752, 4096, 2, cache_bytes).size == size


@pytest.mark.parametrize(("rows", "columns"), [(2, 3), (4, 4), (7, 5), (12, 18), (31, 40), (1, 9)])
@pytest.mark.parametrize("longest", [2, 3, 10, 10**6])
def test_segments_are_the_cycles_of_the_transposed_grid(rows: int, columns: int, longest: int) -> None:
    grid = np.arange(rows * columns)
    starts, lengths, ends, saved = _numba.cycles(rows, columns, longest)
    found = grid.copy()
    for start, length, end in zip(starts, lengths, ends, strict=True):
        q = start
        for _ in range(length):
            p = grid.reshape(rows, columns).T.flat[q]
            found[q], q = grid[p], p
        assert length < longest
        found[q] = grid[start] if end < 0 else grid[saved[end]]
    assert np.array_equal(found, grid.reshape(rows, columns).T.reshape(-1))
    moved = np.count_nonzero(found != grid)
    assert sum(lengths) + len(starts) == moved
    assert len(saved) <= 2 * moved / longest + 1


@pytest.mark.parametrize(("m", "n"), [(96, 1000), (1000, 96)])
def test_a_grid_that_is_one_long_cycle_is_cut_for_the_threads(m: int, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cycles = _numba.cycles
    monkeypatch.setattr(_numba, "cycles", lambda rows, columns, _: cycles(rows, columns, 5))
    launch, operands, draw, _ = set_up(f"transpose/m{m}n{n}/f32/in", TILES)
    launch()
    assert np.array_equal(operands.flat["a"].reshape(n, m), draw.flat["a"].reshape(m, n).T)


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8"])
def test_a_block_is_transposed_in_registers_wherever_it_lies(dtype: str) -> None:
    side = width(np.dtype(dtype).itemsize)
    for m, n in itertools.product((side, side + 3), repeat=2):
        a = np.arange(m * n).astype(dtype)
        b = np.zeros_like(a)
        bind(_numba.transpose, b, a, m, n, side, 0, False, side, m, 0, n)()
        assert np.array_equal(b.reshape(n, m), a.reshape(m, n).T)


@pytest.mark.parametrize("dtype", ["u2", "u4", "u8"])
def test_matrices_in_a_row_are_transposed_in_quarters_or_whole_and_no_others_are(dtype: str) -> None:
    side = width(np.dtype(dtype).itemsize)
    for m, n in ((2 * side, 4 * side), (6 * side, 2 * side), (2 * side, 3 * side), (side, 2 * side), (7, 5)):
        a = np.arange(1, 5 * m * n + 1).astype(dtype)
        x, expected = a.copy(), a.copy()
        expected[m * n : 4 * m * n] = a.reshape(5, m, n)[1:4].swapaxes(1, 2).reshape(-1)
        bind(_numba.bands, x, np.zeros(m * n, dtype), m, n, side, 1, 4)()
        assert np.array_equal(x, expected), (m, n)


@pytest.mark.parametrize("offset", range(0, 64, 4))
@pytest.mark.parametrize("dtype", ["u2", "u4", "u8"])
def test_streaming_stores_reach_every_element_at_any_alignment(dtype: str, offset: int) -> None:
    m, n, size = 96, 37, int(dtype[1])
    raw = np.zeros(m * n + 128 // size, dtype)
    start = (-raw.ctypes.data % 64 + offset) // size
    a, b = np.arange(m * n).astype(dtype), raw[start : start + m * n]
    bind(_numba.transpose, b, a, m, n, width(size), -b.ctypes.data % 64 // size, True, 64 // size, m, 0, n)()
    assert np.array_equal(b.reshape(n, m), a.reshape(m, n).T)


@pytest.mark.parametrize(("place", "name"), [("out", BLOCKED), ("in", TILES)])
@pytest.mark.parametrize(("m", "n"), [(96, 1003), (1003, 96), (100, 100)])
def test_nothing_is_compiled_after_set_up(place: str, name: str, m: int, n: int) -> None:
    assert not compiled_by(set_up(f"transpose/m{m}n{n}/f64/{place}", name).launch)


KERNEL = CUDA["transpose/cuda.batched"]
ON_CPU = ("transpose/numpy.out", "transpose/numba.blocked")


@pytest.mark.parametrize("text", ["transpose/b8m64n3136/f32/out", "transpose/m64n3136/f32/out"])
def test_an_id_names_its_batch_before_the_sizes(text: str) -> None:
    problem = REGISTRY.problem(text)
    assert problem.id == text
    assert problem.traffic_bytes == 2 * 4 * problem.batch * 64 * 3136
    assert problem.operands()[0].shape[-2:] == (64, 3136)


def test_a_batch_of_one_is_the_matrix_itself() -> None:
    assert REGISTRY.problem("transpose/b1m5n7/f32/out") == REGISTRY.problem("transpose/m5n7/f32/out")


@pytest.mark.parametrize("text", ["transpose/b0m5n7/f32/out", "transpose/bm5n7/f32/out", "transpose/b08m5n7/f32/out"])
def test_no_batch_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"transpose/b0?8?m5n7"):
        REGISTRY.problem(text)


def test_kernels_of_one_matrix_take_no_batch() -> None:
    problem = REGISTRY.problem("transpose/b2m64n64/f32/out")
    taken = {k.id for k in REGISTRY.kernels.values() if k.op == "transpose" and k.refuses(problem) is None}
    assert taken == {*ON_CPU, KERNEL.id}


@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16"])
@pytest.mark.parametrize("sizes", ["b3m37n41", "b2m64n96", "b5m7n1", "b2m1n9"])
def test_every_matrix_of_a_batch_is_right_on_the_cpu(sizes: str, dtype: str) -> None:
    rows = verified(f"transpose/{sizes}/{dtype}/out", *ON_CPU)
    assert [(row.kernel, row.status) for row in rows] == [(name, "ok") for name in ON_CPU]


@pytest.mark.parametrize("sizes", ["b8m64n3136", "b3m512n49", "b2m49n513", "m1n1", "b70000m3n5"])
def test_blocks_cover_every_matrix_with_vectors_where_rows_are_aligned(sizes: str) -> None:
    case = chosen(KERNEL.id, f"transpose/{sizes}/f32/out")
    problem, ((entry, call),) = case.problem, case.calls
    tile, _, wide_a, wide_b = (int(word) for word in entry.rstrip(">").split(", ")[1:])
    assert call.grid == problem.batch * math.ceil(problem.m / tile) * math.ceil(problem.n / tile)
    assert (wide_a, wide_b) == tuple(1 if size % 4 else 4 for size in (problem.n, problem.m))


@pytest.mark.parametrize("arch", [pytest.param(a, marks=pytest.mark.long) if a != "sm_90a" else a for a in ARCHS])
@pytest.mark.usefixtures("cuda_compiler")
def test_no_variant_spills(arch: str) -> None:
    ids = [f"transpose/b2m{m}n{n}/{d}/out" for m in (64, 49) for n in (136, 35) for d in ("f64", "f32", "f16")]
    lean(KERNEL.id, entries(cases(KERNEL.id, *ids)), arch)
