"""Transposition: right on every shape; the index maps of steps in place, boxes of the TMA, and little scratch."""

import itertools
import math

import numpy as np
import pytest

from kernelmark.bench.emulator.sweep import EmulatedCase
from kernelmark.bench.measure.compile import compile_cubin
from kernelmark.bench.measure.launch import resident_blocks
from kernelmark.bench.plan.kernel import Scratch, TensorMap, Tile
from kernelmark.bench.plan.limits import H100, TYPICAL
from kernelmark.kernels._numba import bind
from kernelmark.kernels.transpose import _numba, _strips, _tiles
from kernelmark.kernels.transpose._blocks import width
from support.emulated import wrong_in_emulator
from support.kernels import CUDA, REGISTRY, cases, chosen, failures, set_up

AWKWARD = [(1, 1), (1, 97), (97, 1), (2, 3), (3, 2), (13, 7), (31, 33), (97, 101), (101, 97), (509, 64), (64, 509)]
COMMON = [(48, 36), (36, 48), (96, 160), (160, 96), (257, 129), (250, 1000), (1000, 250), (17, 3001), (3001, 17)]
WHOLE = [(16, 2048), (2048, 16), (128, 4096), (4096, 128), (64, 64), (33, 33), (1, 2), (257, 257)]
BLOCKED, TILES = "transpose/numba.blocked", "transpose/numba.tiles"


@pytest.mark.parametrize(
    "dtype", ["f32", "bf16", *(pytest.param(name, marks=pytest.mark.long) for name in ("f64", "f16"))]
)
@pytest.mark.parametrize(("place", "name"), [("out", BLOCKED), ("in", TILES)])
def test_every_shape_and_storage_type_is_transposed_right(dtype, place, name):
    sizes = [size for size in AWKWARD + COMMON + WHOLE if place == "out" or 1 not in size]
    for i, (m, n) in enumerate(sizes, dtype in ("bf16", "f64")):
        threads = (1, 3)[i % 2]  # the other number of threads with another storage type
        assert not failures(f"transpose/m{m}n{n}/{dtype}/{place}", name, threads=threads), (m, n, threads)


@pytest.mark.parametrize(("m", "n"), [(1024, 2048), (2047, 1031), (40, 40000), (39999, 41), (1500, 1500), (5, 100003)])
def test_in_place_needs_at_most_a_tenth_of_the_matrix(m, n):
    for dtype, threads in itertools.product(("f64", "f16"), (1, 2, 16)):
        *_, scratch = set_up(f"transpose/m{m}n{n}/{dtype}/in", TILES, threads)
        assert scratch.nbytes <= 0.1 * m * n * np.dtype(f"f{2 if dtype == 'f16' else 8}").itemsize


def test_scratch_grows_with_threads_by_one_strip_each(monkeypatch):
    monkeypatch.setattr(_tiles, "second_level_bytes", lambda: 2**20)

    def nbytes(threads):
        return set_up("transpose/m512n4099/f32/in", TILES, threads)[-1].nbytes

    assert nbytes(2) - nbytes(1) == 128 * 512 * 4


@pytest.mark.parametrize("threads", [1, 2, 7, 64, 500])
def test_strips_of_any_length_take_at_most_a_tenth_of_the_matrix(threads):
    for longer in (*range(2, 300), 1009, 26752, 100003):
        size, workers, rest = _strips.strips(longer, 4096, threads, 2**21)
        assert longer == longer // size * size + rest
        assert 1 <= workers <= threads
        assert size == 1 or workers * size + rest <= 0.1 * longer


@pytest.mark.parametrize(("cache_bytes", "size"), [(2**17, 32), (2**18, 64), (2**19, 64), (2**20, 128)])
def test_a_strip_above_64_is_at_most_half_the_second_level_cache_and_one_above_32_at_most_all_of_it(cache_bytes, size):
    assert _strips.strips(26752, 4096, 2, cache_bytes).size == size


@pytest.mark.parametrize(("rows", "columns"), [(2, 3), (4, 4), (7, 5), (12, 18), (31, 40), (1, 9)])
def test_segments_are_the_cycles_of_the_transposed_grid(rows, columns):
    grid = np.arange(rows * columns)
    for longest in (2, 3, 10, 10**6):
        starts, lengths, ends, saved = _numba.cycles(rows, columns, longest)
        moved_grid = grid.copy()
        for start, length, end in zip(starts, lengths, ends, strict=True):
            q = start
            for _ in range(length):
                p = grid.reshape(rows, columns).T.flat[q]
                moved_grid[q], q = grid[p], p
            assert length < longest
            moved_grid[q] = grid[start] if end < 0 else grid[saved[end]]
        assert np.array_equal(moved_grid, grid.reshape(rows, columns).T.reshape(-1)), longest
        moved = np.count_nonzero(moved_grid != grid)
        assert sum(lengths) + len(starts) == moved
        assert len(saved) <= 2 * moved / longest + 1


@pytest.mark.parametrize(("m", "n"), [(96, 1000), (1000, 96)])
def test_a_grid_that_is_one_long_cycle_is_cut_for_the_threads(m, n, monkeypatch):
    cycles = _numba.cycles
    monkeypatch.setattr(_numba, "cycles", lambda rows, columns, _: cycles(rows, columns, 5))
    launch, operands, draw, _ = set_up(f"transpose/m{m}n{n}/f32/in", TILES)
    launch()
    assert np.array_equal(operands.flat["a"].reshape(n, m), draw.flat["a"].reshape(m, n).T)


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8"])
def test_a_block_is_transposed_in_registers_wherever_it_lies(dtype):
    side = width(np.dtype(dtype).itemsize)
    for m, n in itertools.product((side, side + 3), repeat=2):
        a = np.arange(m * n).astype(dtype)
        b = np.zeros_like(a)
        bind(_numba.transpose, b, a, m, n, side, 0, False, side, m, 0, n)()
        assert np.array_equal(b.reshape(n, m), a.reshape(m, n).T)


@pytest.mark.parametrize("dtype", ["u2", "u4", "u8"])
def test_only_the_given_matrices_of_a_sequence_are_transposed(dtype):
    side = width(np.dtype(dtype).itemsize)
    for m, n in ((2 * side, 4 * side), (6 * side, 2 * side), (2 * side, 3 * side), (side, 2 * side), (7, 5)):
        a = np.arange(1, 5 * m * n + 1).astype(dtype)
        x, expected = a.copy(), a.copy()
        expected[m * n : 4 * m * n] = a.reshape(5, m, n)[1:4].swapaxes(1, 2).reshape(-1)
        bind(_numba.bands, x, np.zeros(m * n, dtype), m, n, side, 1, 4)()
        assert np.array_equal(x, expected), (m, n)


@pytest.mark.parametrize("dtype", ["u2", "u4", "u8"])
def test_streaming_stores_reach_every_element_at_any_alignment(dtype):
    m, n, size = 96, 37, int(dtype[1])
    for offset in range(0, 64, 4):
        raw = np.zeros(m * n + 128 // size, dtype)
        start = (-raw.ctypes.data % 64 + offset) // size
        a, b = np.arange(m * n).astype(dtype), raw[start : start + m * n]
        bind(_numba.transpose, b, a, m, n, width(size), -b.ctypes.data % 64 // size, True, 64 // size, m, 0, n)()
        assert np.array_equal(b.reshape(n, m), a.reshape(m, n).T), offset


BATCHED = CUDA["transpose/cuda.batched"]
ON_CPU = ("transpose/numpy.out", "transpose/numba.blocked")


def test_a_batch_of_one_is_the_matrix_itself():
    assert REGISTRY.problem("transpose/b1m5n7/f32/out") == REGISTRY.problem("transpose/m5n7/f32/out")


def test_only_some_kernels_take_a_batch():
    problem = REGISTRY.problem("transpose/b2m64n64/f32/out")
    taken = {k.id for k in REGISTRY.kernels.values() if k.op == "transpose" and k.refuses(problem) is None}
    assert taken == {*ON_CPU, BATCHED.id}


@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16"])
@pytest.mark.parametrize("sizes", ["b3m37n41", "b2m64n96", "b5m7n1", "b2m1n9"])
def test_every_matrix_of_a_batch_is_right_on_the_cpu(sizes, dtype):
    assert not failures(f"transpose/{sizes}/{dtype}/out", *ON_CPU)


@pytest.mark.parametrize("sizes", ["b8m64n3136", "b3m512n49", "b2m49n513", "m1n1", "b70000m3n5"])
def test_blocks_cover_every_matrix_with_vectors_where_rows_are_aligned(sizes):
    case = chosen(BATCHED.id, f"transpose/{sizes}/f32/out")
    problem, ((entry, call),) = case.problem, case.calls
    tile, _, wide_a, wide_b = (int(word) for word in entry.rstrip(">").split(", ")[1:])
    assert call.grid == problem.batch * math.ceil(problem.m / tile) * math.ceil(problem.n / tile)
    assert (wide_a, wide_b) == tuple(1 if size % 4 else 4 for size in (problem.n, problem.m))


C2R, FUSED = CUDA["transpose/cuda.c2r"], CUDA["transpose/cuda.c2r_fused"]
SEED_SHAPES = ((1024, 26752), (2048, 26752), (26752, 1024))
ROWS = (*range(1, 14), 24, 31, 64)
_RING = {"W": 8, "STAGES": 2, "ORDERED": 1}
COLS = (*range(1, 40), 48, 64, 97, 128)


def rotated(x):
    """Step 1 of c2r.cu."""
    rows, cols = x.shape
    i, j = np.ogrid[:rows, :cols]
    return x[(i + j // (cols // math.gcd(rows, cols))) % rows, j]


def row_targets(rows, cols):
    """Return the column to which step 2 of c2r.cu moves each element of its row."""
    i, j = np.ogrid[:rows, :cols]
    return ((i + j // (cols // math.gcd(rows, cols))) % rows + j * rows) % cols


def column_sources(rows, cols):
    """Return the row from which step 3 of c2r.cu takes each element of its column."""
    i, j = np.ogrid[:rows, :cols]
    return (i * cols + j - i // (rows // math.gcd(rows, cols))) % rows


def c2r(x):
    rows, cols = x.shape
    x = rotated(x)
    scattered = np.empty_like(x)
    np.put_along_axis(scattered, row_targets(rows, cols), x, axis=1)
    return np.take_along_axis(scattered, column_sources(rows, cols), axis=0)


@pytest.mark.parametrize("rows", ROWS)
def test_the_steps_of_c2r_transpose(rows):
    for cols in (cols for cols in COLS if cols >= rows):
        x = np.arange(rows * cols).reshape(rows, cols)
        assert np.array_equal(c2r(x).reshape(cols, rows), x.T), cols


def calls(problem, kernel=C2R, more=None, device=H100):
    parsed = REGISTRY.problem(f"transpose/{problem}")
    return kernel.plan(parsed, Tile(**{**vars(kernel.tile_for(parsed, device) or Tile()), **(more or {})}), device)


def scratch_bytes(made):
    """Return the scratch that a run reports; equal names are one buffer, of one size."""
    buffers = {arg for call in made for arg in call.args if isinstance(arg, Scratch)}
    assert len({arg.name for arg in buffers}) == len(buffers)
    return sum(arg.nbytes for arg in buffers)


@pytest.mark.parametrize("kernel", [C2R, FUSED], ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
@pytest.mark.parametrize(("m", "n"), SEED_SHAPES)
def test_scratch_is_at_most_a_tenth_of_the_matrix(m, n, dtype, kernel):
    problem = REGISTRY.problem(f"transpose/m{m}n{n}/{dtype}/in")
    taken = cases(kernel.id, problem)
    assert taken
    for case in taken:
        assert 10 * scratch_bytes(kernel.plan(problem, case.tile, H100)) <= problem.footprint_bytes


@pytest.mark.parametrize(("m", "n"), SEED_SHAPES)
def test_the_seed_shapes_are_staged_in_shared_memory_alone(m, n):
    made = calls(f"m{m}n{n}/f32/in")
    assert len(made) == 3
    assert scratch_bytes(made) == 0
    assert max(call.shared_bytes for call in made) == 26752 * 4


def test_c2r_makes_a_pass_only_where_something_moves():
    kinds = {problem: [str(call.entry) for call in calls(problem)] for problem in ("m7n64/f32/in", "m1n64/f32/in")}
    assert ["c2r_rows" in entry for entry in kinds["m7n64/f32/in"]] == [True, False]  # coprime: no rotation
    assert ["c2r_rows" in entry for entry in kinds["m1n64/f32/in"]] == [False]


def test_c2r_runs_its_steps_backwards_where_columns_are_longer():
    forward, backward = (calls(f"{sizes}/f32/in") for sizes in ("m64n96", "m96n64"))
    names = [[str(call.entry).replace("true", "false") for call in made] for made in (forward, backward)]
    assert names[0] == names[1][::-1]


@pytest.mark.parametrize("problem", ["m8192n28672/f32/in", "m26000n1000000/f32/in", "m16384n16384/f64/in"])
def test_rows_too_large_for_shared_memory_go_through_scratch(problem):
    made = calls(problem)
    assert 0 < 10 * scratch_bytes(made) <= REGISTRY.problem(f"transpose/{problem}").footprint_bytes


@pytest.mark.parametrize(("b", "c"), [(1, 2), (3, 2), (1, 3), (5, 3), (3, 4), (2, 7), (5, 8), (209, 128)])
def test_the_stash_has_a_separate_place_for_each_element_that_is_needed_again(b, c):
    s, j = np.indices((c - 1, b * c))
    late, needed = s >= c // 2, j >= (s + 1) * b
    # Row and column of the stash that keep element j of row s, as in c2r_fused.cu.
    rows, cols = (np.where(late, *pair)[needed] for pair in ((c - 2 - s, s), (j - (s + 1) * b, j)))
    assert len(np.unique(rows * b * c + cols)) == needed.sum()
    assert 0 <= rows.min() <= rows.max() < c // 2
    assert 0 <= cols.min() <= cols.max() < b * c


@pytest.mark.parametrize(("rows", "cols"), [(25, 165), (24, 63), (42, 96), (12, 20), (7, 9), (5, 10)])
def test_a_row_after_both_fused_steps_comes_from_later_rows_and_the_stash(rows, cols):
    c = math.gcd(rows, cols)
    b = cols // c
    x = np.arange(rows * cols).reshape(rows, cols)
    both = np.empty_like(x)
    np.put_along_axis(both, row_targets(rows, cols), rotated(x), axis=1)
    for i in range(rows):
        sources, at = np.divmod(both[i], cols)
        again = sources < i
        assert np.array_equal(sources, (i + at // b) % rows)
        assert ((sources < c - 1) & (at >= (sources + 1) * b))[again].all()


def test_c2r_fused_makes_two_passes_and_a_stash_backwards_where_columns_are_longer():
    names = [
        [str(call.entry).partition("<")[0] for call in calls(f"{sizes}/f32/in", FUSED)]
        for sizes in ("m1024n26752", "m26752n1024")
    ]
    assert names[0] == ["c2r_stash", "c2r_fused_rows", "c2r_fused_columns"] == names[1][::-1]


_LONG = [(90, f"m{m}n{n}/{dtype}") for m, n in SEED_SHAPES for dtype in ("f64", "f16")]
_LONG += [(75, "m300n30001/f16"), (86, "m1024n20000/f32"), (80, "m1024n26752/f32")]


@pytest.mark.parametrize(
    ("capability", "sizes", "more"),  # rows that the device has shared memory for
    [
        *((90, f"m{m}n{n}/f32", more) for m, n in SEED_SHAPES for more in ({}, _RING)),
        *(pytest.param(*row, {}, marks=pytest.mark.long) for row in _LONG),
    ],
)
@pytest.mark.usefixtures("cuda_compiler")
def test_all_blocks_of_the_cooperative_launches_are_resident(capability, sizes, more):
    device = TYPICAL[capability]
    made = calls(f"{sizes}/in", FUSED, more, device)
    cubin = compile_cubin(FUSED.source, [str(call.entry) for call in made], device.arch)
    for call in made:
        resident = resident_blocks(call, cubin.resources[str(call.entry)], device)
        assert call.grid <= device.multiprocessors * resident, call.entry


@pytest.mark.parametrize(
    ("kernel", "problem", "tile", "device", "expected"),
    [
        (C2R, "m2048n26752/f32", {"W": 8}, H100, None),
        (FUSED, "m2048n26752/f32", {"W": 8}, H100, None),
        (C2R, "m2048n26752/f32", {"W": 16}, H100, "2 stripes of 16 columns take 262144 bytes, expected at most 232448"),
        (FUSED, "m2048n26752/f64", {"W": 8}, H100, "2 stripes of 8 columns take 262144 bytes, expected at most 232448"),
        (C2R, "m2048n26752/f16", {}, H100, "cp.async needs compute capability 8.0 and elements of 4 bytes or more"),
        (C2R, "m64n96/f32", {}, TYPICAL[75], "cp.async needs compute capability 8.0 and elements of 4 bytes or more"),
        (C2R, "m64n96/f32", {"SCRATCH": 1}, H100, "a ring of 2 stripes lies in shared memory, not in scratch"),
    ],
)
def test_a_ring_of_stripes_is_refused_with_the_reason(kernel, problem, tile, device, expected):
    wanted = REGISTRY.problem(f"transpose/{problem}/in")
    default = vars(kernel.tile_for(wanted, device) or Tile())
    assert kernel.unfit(wanted, Tile(**{**default, **tile, "STAGES": 2}), device) == expected


def test_a_ring_has_a_block_on_each_multiprocessor_for_every_stripe_that_fits():
    problem = REGISTRY.problem("transpose/m1024n26752/f32/in")
    for stages, grid in ((2, 2 * 132), (3, 2 * 132)):
        *_, columns = C2R.plan(problem, Tile(SCRATCH=0, W=8, STAGES=stages), H100)
        assert (columns.grid, columns.block, columns.shared_bytes) == (grid, 512, stages * 1024 * 8 * 4)


@pytest.mark.parametrize("tiles", range(1, 6))
@pytest.mark.parametrize(("dtype", "width"), [("f64", 32), ("f32", 64), ("f16", 128)])
def test_square_matrices_have_the_same_grid_by_vectors_as_by_elements(dtype, width, tiles):
    by_vectors, by_elements = (CUDA[f"transpose/cuda.{name}"] for name in ("vectorised_inplace", "tiled_inplace"))
    (launch, *_), (expected, *_) = (
        calls(f"m{n}n{n}/{dtype}/in", kernel) for n, kernel in ((width * tiles, by_vectors), (32 * tiles, by_elements))
    )
    assert launch.grid == expected.grid


_FURTHER = (("m36n90", 1, 8), ("m90n36", 1, 8), ("m31n97", 1, 8), ("m4n1030", 0, 32), ("m999n6", 0, 16))
#: Many waves in both directions; the last rows are made of the first ones, too; rows longer than a batch of reads.
_WAVES = (("m25n165", 8), ("m165n25", 8), ("m42n96", 16), ("m96n42", 32), ("m50n510", 8), ("m510n50", 8))


TMA = CUDA["transpose/cuda.tma"]
KIB = 1024


@pytest.mark.parametrize(("dtype", "height", "columns"), [("f64", 32, 16), ("f32", 64, 32), ("bf16", 128, 64)])
def test_a_box_is_128_bytes_of_each_row_of_a_tile(dtype, height, columns):
    ((_, call),) = chosen(TMA.id, f"transpose/m1000n1000/{dtype}/out").calls
    boxes = (TensorMap(name, (height, columns), "128B") for name in "ab")
    assert call.args == (*boxes, 1000, 1000)


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
def test_the_ring_has_at_least_three_tiles_and_fits_wherever_there_is_a_tma(dtype):
    ((entry, call),) = chosen(TMA.id, f"transpose/m4096n4096/{dtype}/out").calls
    stages = int(entry.split(", ")[2])
    height, columns = call.args[0].box
    ring = stages * height * height * 128 // columns
    assert stages >= 3
    assert ring + KIB == call.shared_bytes
    assert call.shared_bytes + KIB <= 99 * KIB  # of a block on the smallest device with a TMA


_SMALL = {"SQUARES": 8, "RING": 16, "BLOCKS": 1, "GROUP": 4}
_LARGE = {"SQUARES": 16, "RING": 96, "BLOCKS": 1, "GROUP": 2}
_LARGEST = {"SQUARES": 32, "RING": 128, "BLOCKS": 1, "GROUP": 1}


def beyond():
    """Yield cases beyond the sweep: both directions through scratch, and rows longer than a block reads at a time.

    Grids have a few blocks, so that each block takes part in many waves and has several stripes. The kernel with the
    TMA has one block, which goes round its ring many times, through several bands; the last band is narrower.
    """
    for sizes, by_scratch, columns in _FURTHER:
        problem = REGISTRY.problem(f"transpose/{sizes}/f32/in")
        yield EmulatedCase(C2R, problem, Tile(SCRATCH=by_scratch, W=columns, STAGES=1))
    for (sizes, columns), ordered in itertools.product(_WAVES, (0, 1)):
        tile = Tile(W=columns, SMS=1, STAGES=1 + ordered, ORDERED=ordered)
        yield EmulatedCase(FUSED, REGISTRY.problem(f"transpose/{sizes}/f32/in"), tile)
    rings = (("m72n336", _SMALL), ("m200n72", _SMALL), ("m152n616", _LARGE))
    for dtype, (sizes, tile) in (*itertools.product(("f64", "f32", "f16"), rings), ("f32", ("m264n392", _LARGEST))):
        yield EmulatedCase(TMA, REGISTRY.problem(f"transpose/{sizes}/{dtype}/out"), Tile(**tile))


@pytest.mark.parametrize("case", list(beyond()), ids=lambda case: case.id)
def test_emulated_rectangles_waves_and_rings_are_right_without_reports(case):
    assert not wrong_in_emulator([case])
