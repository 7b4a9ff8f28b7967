"""Convolution by FFT: right across tiles, batches, blocks and threads, and by the tile that the row has."""

import ctypes
import json
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from kernelmark.bench.plan.discovery import discover
from kernelmark.kernels.conv.fft import _codelets, _lanes, _planes, _products, _spectra, _transforms, cpu
from kernelmark.kernels.conv.fft._tiling import Cuts, cheapest, cuts, good_size, spans, whole
from support.kernels import DIRECTIONS, allocated_by, set_up, verified

KERNELS = ("conv/pyfftw.full", "conv/pyfftw.tiled", "conv/numba.fft_tiled")
LAYOUTS = ("nchw", "nhwc")
#: Tiles and batches that end within an image, beyond it, and with it; more than one group; zeros between elements.
RAGGED = (
    ("n3c10h23w31k6r3s5pad1-2x0-3", "/g2"),
    ("n2c3h40w17k5r7s2pad3x0stride2x3", ""),
    ("n5c4h1w97k4r1s9pad0x4", "/dil1x3"),
    ("n2c1h20w20k33r5s5", ""),
    ("n1c33h61w1k1r11s1pad5x0", ""),
    ("n2c40h21w24k35r3s3pad1", ""),
)
LAYER = "conv/n1c64h224w224k64r7s7pad3/f32/nchw/fprop"


@pytest.fixture
def tile(monkeypatch: pytest.MonkeyPatch):
    """A function that sets the tile's side and the bytes of a block of tiles."""
    at_once = cpu.at_once

    def set_(side: int, block_bytes: int) -> None:
        monkeypatch.setattr(cpu, "SIDES", (side,))
        monkeypatch.setattr(cpu, "STRAIGHT", (side, 32))
        monkeypatch.setattr(cpu, "at_once", lambda c, _: at_once(c, block_bytes / 2**20))
        # The tile that holds a whole image is a candidate too, unless the model thinks it dear.
        monkeypatch.setattr(cpu, "_seconds", lambda c: -c.x.places)
        monkeypatch.setattr(cpu, "_straight_seconds", lambda c: c.points)  # the side if it holds the filter
        forget()

    def forget() -> None:
        cpu.chosen.cache_clear()
        cpu.straight.cache_clear()

    yield set_
    forget()


@pytest.mark.parametrize(("sizes", "words"), RAGGED)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_tiles_in_many_blocks_are_right_on_any_number_of_threads(sizes, words, direction, tile, monkeypatch) -> None:
    batch = _spectra._batch  # of no bytes, so that each operand takes several batches
    monkeypatch.setattr(_spectra, "_batch", lambda count, threads, _, least: batch(count, threads, 0, least))
    several = 0
    for side, layout, threads in product((32, 12), LAYOUTS, (1, 2, 5)):
        tile(side, 40_000)
        problem = f"conv/{sizes}/f32/{layout}/{direction}{words}"
        for measured in verified(problem, *KERNELS, threads=threads):
            assert measured.status == "ok", f"{side} {layout} {threads} {measured.kernel}: {measured.reason}"
            several += json.loads(measured.tunables)["tiles"] < tiles_of(problem)
    assert several


def tiles_of(problem: str) -> int:
    parsed = discover().problem(problem)
    return cuts(parsed, cpu.chosen(parsed)).x.places


def test_rows_tell_the_tile_and_how_fftw_planned_it() -> None:
    problem = "conv/n1c4h100w100k4r5s5pad2/f32/nchw/fprop"
    (measured,) = verified(problem, "conv/pyfftw.tiled")
    noted = json.loads(measured.tunables)
    assert cpu.chosen(discover().problem(problem)) == (noted["tile"], noted["tile"])
    assert noted["rigour"] in ("FFTW_MEASURE", "FFTW_ESTIMATE")
    assert noted["wisdom"] in ("new", "found")
    (measured,) = verified("conv/n1c4h100w49k4r5s5pad2/f32/nchw/fprop", "conv/pyfftw.full")
    assert json.loads(measured.tunables)["tile"] == "108x54"


@pytest.mark.parametrize("choose", [cpu.chosen, cpu.straight])
def test_larger_filters_take_larger_tiles(choose) -> None:
    sides = [choose(discover().problem(f"conv/n1c64h224w224k64r{r}s{r}/f32/nchw/fprop")) for r in (3, 7, 31)]
    assert sides == sorted(set(sides))


def candidates(problem) -> list[Cuts]:
    found: list[Cuts] = []
    cheapest(problem, (*cpu.SIDES, *whole(problem)), lambda c: found.append(c) or 0.0)
    return found


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_tiles_hold_their_filter_and_cover_every_output(direction: str) -> None:
    for sizes, words in RAGGED:
        problem = discover().problem(f"conv/{sizes}/f32/nchw/{direction}{words}")
        for c in candidates(problem):
            tiled = c.x if direction == "dgrad" else c.y
            for axis, span in zip((tiled.height, tiled.width), spans(problem), strict=True):
                dense = (axis.size - 1) * axis.spacing + 1
                assert axis.step == axis.side - span + 1 >= 1
                assert axis.step * (axis.tiles - 1) < dense <= axis.step * axis.tiles
            count = cpu.at_once(c, cpu.BLOCK)
            assert count * -(-c.x.places // count) >= c.x.places


def test_tiles_are_no_larger_than_an_image_needs() -> None:
    for sizes, words in RAGGED:
        problem = discover().problem(f"conv/{sizes}/f32/nchw/fprop{words}")
        largest, sides = whole(problem), [c.sides for c in candidates(problem)]
        assert cuts(problem, largest).x.places == problem.n
        assert largest in sides
        assert all(height <= largest[0] and width <= largest[1] for height, width in sides)


def test_good_sizes_are_even_or_one_and_have_small_factors() -> None:
    found = [good_size(size) for size in (1, 2, 3, 11, 13, 97, 230, 251)]
    assert found == [1, 2, 4, 12, 14, 98, 240, 252]


def test_executed_operations_are_those_of_transforms_and_products() -> None:
    # One tile of 16 x 16, 2 images of 3 channels, 5 filters: 5/2 N log2 N a transform, 16 x 9 frequencies.
    problem = discover().problem("conv/n2c3h16w16k5r3s3/f32/nchw/fprop")
    transforms = (2 * 3 + 2 * 5 + 3 * 5) * 5 * 256 * 8 // 2
    products = 8 * 16 * 9 * 2 * 3 * 5
    assert discover().kernels["conv/pyfftw.full"].executed_flop(problem) == transforms + products


def test_tiles_save_operations_where_filters_are_large() -> None:
    problem = discover().problem(LAYER)
    full, *tiled = (discover().kernels[name].executed_flop(problem) for name in KERNELS)
    assert max(tiled) * 4 < full < problem.flop
    assert max(tiled) * 8 < problem.flop


@pytest.mark.parametrize("shape", [(8, 1, 1), (8, 1, 12), (16, 14, 1), (8, 7, 10), (32, 16, 16)])
@pytest.mark.parametrize("rigour", ["FFTW_MEASURE", "FFTW_ESTIMATE"])
def test_transforms_are_those_of_numpy(shape, rigour, monkeypatch) -> None:
    monkeypatch.setattr(_transforms, "plan", lambda *args, **kwargs: SimpleNamespace(facts={"rigour": rigour}))
    tiles = aligned(shape, np.float32)
    spectra = aligned((shape[1], shape[2] // 2 + 1, shape[0]), np.complex64)
    forward, inverse = (_transforms.transform.__wrapped__(*shape, back) for back in (False, True))
    tiles[:] = np.random.default_rng(0).uniform(-1, 1, shape)
    kept = tiles.copy()
    _planes.transform((forward.execute, forward.plan), tiles, spectra)
    assert np.abs(np.moveaxis(spectra, 2, 0) - np.fft.rfft2(kept)).max() < 1e-5
    _planes.transform((inverse.execute, inverse.plan), spectra, tiles)
    assert np.abs(tiles / (shape[1] * shape[2]) - kept).max() < 1e-6


def aligned(shape, dtype):
    import pyfftw

    return pyfftw.empty_aligned(shape, dtype)


@pytest.mark.parametrize("n", [1, 2, 9, 14, 20, 25, 32, 96])
def test_straight_transforms_are_those_of_numpy(n: int) -> None:
    unit, item = _codelets.UNIT, 4
    rng, half = np.random.default_rng(n), n // 2 + 1
    numbers = rng.uniform(-1, 1, (n, 2, unit)).astype(np.float32)
    found, signal, back = np.empty_like(numbers), numbers[:, 0].copy(), np.empty((n, unit), np.float32)
    spectrum = np.empty((half, 2, unit), np.float32)
    strides = 2 * item * unit, item * unit
    called(_codelets.column(n), found.ctypes.data, *strides, numbers.ctypes.data, *strides, -1)
    called(_codelets.row(n), spectrum.ctypes.data, signal.ctypes.data)
    called(_codelets.row_back(n), back.ctypes.data, spectrum.ctypes.data)
    as_complex = [array[:, 0] + 1j * array[:, 1] for array in (numbers, found, spectrum)]
    assert np.abs(as_complex[1].conj() - np.fft.fft(as_complex[0], axis=0)).max() < 1e-5
    assert np.abs(as_complex[2] - np.fft.rfft(signal, axis=0)).max() < 1e-5
    assert np.abs(back / n - signal).max() < 1e-6


def called(address: int, *numbers: int) -> None:
    ctypes.CFUNCTYPE(None, *(ctypes.c_int64,) * len(numbers))(address)(*numbers)


@pytest.mark.parametrize(("rows", "lanes", "steps"), [(1, 1, 1), (31, 33, 300), (97, 70, 7), (13, 9, 129)])
@pytest.mark.parametrize("keep", [False, True])
def test_products_are_those_of_numpy(rows: int, lanes: int, steps: int, keep: bool) -> None:
    rng, frequencies, groups = np.random.default_rng(rows), 3, 2
    shapes = [(frequencies, 2, groups, *shape) for shape in ((rows, steps), (steps, lanes), (rows, lanes))]
    a, b, c = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in shapes)
    expected = c.copy() if keep else np.zeros_like(c)
    expected[:, 0] += a[:, 0] @ b[:, 0] - a[:, 1] @ b[:, 1]
    expected[:, 1] += a[:, 0] @ b[:, 1] + a[:, 1] @ b[:, 0]
    of = [(array[0].size, array[0, 0, 0].size, array.shape[-1]) for array in (a, b, c)]
    parts = [array[0, 0].size for array in (a, b, c)]
    held, flat = np.empty(_products.SCRATCH, np.float32), np.append(b, np.zeros(_products.WIDTH, np.float32))
    places = (*of[0], 1, parts[0]), (*of[1], parts[1]), (*of[2], parts[2])
    sizes = groups, rows, lanes, steps
    _products.products(held, sizes, a.ravel(), places[0], flat, places[1], keep, c.reshape(-1), places[2], 0, 3)
    assert np.abs(c - expected).max() < 1e-4


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_launch_neither_compiles_nor_allocates(kernel: str, direction: str) -> None:
    launch, operands, *_ = set_up(f"conv/n2c19h60w61k21r3s3pad1/f32/nchw/{direction}", kernel, 3)
    launch()
    operands.poison()
    functions = [run for module in (_planes, _lanes) for run in (module.forward, module.inverse)]
    known = [len(run.signatures) for run in functions]
    assert allocated_by(launch) < 50_000
    assert known == [len(run.signatures) for run in functions]
    assert not np.isnan(operands.flat[{"fprop": "y", "dgrad": "x", "wgrad": "w"}[direction]]).any()


def test_filters_are_transformed_once_whatever_the_blocks(tile, monkeypatch: pytest.MonkeyPatch) -> None:
    tile(12, 40_000)
    names = []
    transformed = _spectra._transformed

    def noted(planes, *rest):
        names.append({(6, 10): "w", (1, 10): "x", (1, 6): "y"}[planes.cut.images, planes.cut.channels])
        return transformed(planes, *rest)

    monkeypatch.setattr(_spectra, "_transformed", noted)
    for direction in DIRECTIONS:
        names.clear()
        set_up(f"conv/n1c10h40w40k6r3s3/f32/nchw/{direction}", "conv/pyfftw.tiled")
        assert names.count("w") == 1 < names.count("x") == names.count("y")
