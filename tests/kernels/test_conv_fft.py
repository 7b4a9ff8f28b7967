"""Convolution by FFT: right across tiles, blocks and threads; tiles cover the output; cuFFT's calls are right."""

import ctypes
import json
import subprocess
import sys
from functools import partial
from itertools import product
from types import ModuleType, SimpleNamespace

import numpy as np
import pyfftw
import pytest

from kernelmark.bench.emulator.sweep import entries
from kernelmark.bench.plan.kernel import Scratch
from kernelmark.bench.plan.limits import H100
from kernelmark.kernels.conv.fft import _codelets, _planes, _products, _spectra, _transforms, cpu
from kernelmark.kernels.conv.fft._tiling import cheapest, cuts, executed, good_size, spans, whole
from kernelmark.kernels.conv.vendor import cufft
from kernelmark.kernels.gemm import _cublas
from support.blas import Blas, HostOperands, blas_stand_in, view
from support.emulated import host_compiler, wrong_in_emulator
from support.kernels import CUDA, DIRECTIONS, REGISTRY, cases, convolution, lean, set_up, verified

IN_STEPS, FUSED_STEPS = "conv/cuda.fft_tiled", "conv/cuda.fft_fused"
KERNELS = ("conv/pyfftw.full", "conv/pyfftw.tiled", "conv/numba.fft_tiled")
LAYOUTS = ("nchw", "nhwc")
#: Tiles and batches that end within an image, beyond it, and with it; more than one group; zeros between elements.
RAGGED = (
    "n3c10h23w31k6r3s5pad1-2x0-3/g2",
    "n2c3h40w17k5r7s2pad3x0stride2x3",
    "n5c4h1w97k4r1s9pad0x4/dil1x3",
    "n2c1h20w20k33r5s5",
    "n1c33h61w1k1r11s1pad5x0",
    "n2c40h21w24k35r3s3pad1",
)
#: All sizes in all directions; the short run has each size once and each direction twice.
WAYS = [
    pytest.param(sizes, direction, i + j, marks=() if i % 3 == j else pytest.mark.long)
    for i, sizes in enumerate(RAGGED)
    for j, direction in enumerate(DIRECTIONS)
]


@pytest.fixture
def tile(monkeypatch):
    """Return a function that sets the side of tiles and the bytes of a block of tiles."""
    at_once = cpu.at_once

    def set_(side, block_bytes):
        monkeypatch.setattr(cpu, "SIDES", (side,))
        monkeypatch.setattr(cpu, "STRAIGHT", (side, 32))
        monkeypatch.setattr(cpu, "at_once", lambda c, _: at_once(c, block_bytes / 2**20))
        # Many tiles cost least in this model, so that the tile that holds a whole image is not chosen.
        monkeypatch.setattr(cpu, "_seconds", lambda c: -c.x.places)
        monkeypatch.setattr(cpu, "_straight_seconds", lambda c: c.points)  # chooses `side` if it holds the filter
        forget()

    def forget():
        cpu.chosen.cache_clear()
        cpu.straight.cache_clear()

    yield set_
    forget()


@pytest.mark.parametrize(("sizes", "direction", "place"), WAYS)
def test_tiles_in_many_blocks_are_right_on_any_number_of_threads(sizes, direction, place, tile, monkeypatch):
    several, batch = set(), _spectra._batch  # a limit of 0 bytes gives several batches
    monkeypatch.setattr(_spectra, "_batch", lambda count, threads, _, least: batch(count, threads, 0, least))
    for i, (side, layout) in enumerate(product((32, 12), LAYOUTS), place):
        threads = (1, 2, 5)[i % 3]  # each number with each side and layout, on another problem
        tile(side, 40_000)
        parsed = convolution(sizes, f"{layout}/{direction}")
        places = cuts(parsed, cpu.chosen(parsed)).x.places
        for measured in verified(parsed.id, *KERNELS, threads=threads):
            assert measured.status == "ok", f"{side} {layout} {threads} {measured.kernel}: {measured.reason}"
            several.add(json.loads(measured.tunables)["tiles"] < places)
    assert True in several


def test_rows_record_the_tile_and_how_fftw_planned_it(monkeypatch):
    monkeypatch.setattr("kernelmark.kernels._fftw.PLANNING_S", 60.0)  # a busy machine plans slowly
    parsed = convolution("n1c4h100w100k4r5s5pad2")
    (measured,) = verified(parsed.id, "conv/pyfftw.tiled")
    tunables = json.loads(measured.tunables)
    assert cpu.chosen(parsed) == (tunables["tile"], tunables["tile"])
    assert tunables["rigour"] == "FFTW_MEASURE"
    assert tunables["wisdom"] in ("new", "found")
    (measured,) = verified("conv/n1c4h100w49k4r5s5pad2/f32/nchw/fprop", "conv/pyfftw.full")
    assert json.loads(measured.tunables)["tile"] == "108x54"


def test_the_columns_of_a_tensor_in_a_tile_never_end_before_they_begin():
    for side in (8, 16, 32):
        axis = cuts(convolution("n1c4h1w9k2r1s7pad14"), (side, side)).x.width
        intervals = [_planes.met(axis, axis.first + tile * axis.step) for tile in range(axis.tiles)]
        assert all(0 <= first <= last for first, last in intervals)
        assert {column for part in intervals for column in range(*part)} == set(range(axis.size))


@pytest.mark.parametrize("choose", [cpu.chosen, cpu.straight])
def test_larger_filters_take_larger_tiles(choose):
    sides = [choose(convolution(f"n1c64h224w224k64r{r}s{r}")) for r in (3, 7, 31)]
    assert sides == sorted(set(sides))


def candidates(parsed):
    tried = []
    cheapest(parsed, (*cpu.SIDES, *whole(parsed)), lambda c: tried.append(c) or 0.0)
    return tried


def test_tiles_hold_their_filter_and_cover_every_output(direction):
    for parsed in (convolution(sizes, f"nchw/{direction}") for sizes in (*RAGGED, *EVERY, L1, L2, L3)):
        sides = (side for side in (16, 32) if max(spans(parsed)) < side)
        for c in (*candidates(parsed), *(cuts(parsed, (side, side)) for side in sides)):
            tiled = c.x if direction == "dgrad" else c.y
            for axis, span in zip((tiled.height, tiled.width), spans(parsed), strict=True):
                dense = (axis.size - 1) * axis.spacing + 1
                assert axis.step == axis.side - span + 1 >= 1
                assert axis.step * (axis.tiles - 1) < dense <= axis.step * axis.tiles
            count = cpu.at_once(c, cpu.BLOCK)
            assert count * -(-c.x.places // count) >= c.x.places


def test_tiles_are_no_larger_than_an_image_needs():
    for parsed in map(convolution, RAGGED):
        largest, sides = whole(parsed), [c.sides for c in candidates(parsed)]
        assert cuts(parsed, largest).x.places == parsed.n
        assert largest in sides
        assert all(height <= largest[0] and width <= largest[1] for height, width in sides)


def test_good_sizes_are_even_or_one_and_have_small_factors():
    sizes = [good_size(size) for size in (1, 2, 3, 11, 13, 97, 230, 251, 4 * 10**11 + 1)]
    assert sizes == [1, 2, 4, 12, 14, 98, 240, 252, 400_075_200_000]


def test_executed_operations_are_those_of_transforms_and_products():
    # One tile of 16 x 16, 2 images of 3 channels, 5 filters: 5/2 N log2 N a transform, 16 x 9 frequencies.
    transforms = (2 * 3 + 2 * 5 + 3 * 5) * 5 * 256 * 8 // 2
    products = 8 * 16 * 9 * 2 * 3 * 5
    assert REGISTRY.kernels["conv/pyfftw.full"].executed_flop(convolution("n2c3h16w16k5r3s3")) == transforms + products


def test_tiles_save_operations_where_filters_are_large():
    layer = convolution("n1c64h224w224k64r7s7pad3")
    full, *tiled = (REGISTRY.kernels[name].executed_flop(layer) for name in KERNELS)
    assert max(tiled) * 4 < full < layer.flop
    assert max(tiled) * 8 < layer.flop


@pytest.mark.parametrize("shape", [(8, 1, 1), (8, 1, 12), (16, 14, 1), (8, 7, 10), (32, 16, 16)])
@pytest.mark.parametrize("rigour", ["FFTW_MEASURE", "FFTW_ESTIMATE"])
def test_transforms_are_those_of_numpy(shape, rigour, monkeypatch):
    monkeypatch.setattr(_transforms, "plan", lambda *args, **kwargs: SimpleNamespace(facts={"rigour": rigour}))
    tiles = pyfftw.empty_aligned(shape, np.float32)
    spectra = pyfftw.empty_aligned((shape[1], shape[2] // 2 + 1, shape[0]), np.complex64)
    forward, inverse = (_transforms.transform.__wrapped__(*shape, back) for back in (False, True))
    tiles[:] = np.random.default_rng(0).uniform(-1, 1, shape)
    before = tiles.copy()
    _planes.transform((forward.execute, forward.plan), tiles, spectra)
    assert np.abs(np.moveaxis(spectra, 2, 0) - np.fft.rfft2(before)).max() < 1e-5
    _planes.transform((inverse.execute, inverse.plan), spectra, tiles)
    assert np.abs(tiles / (shape[1] * shape[2]) - before).max() < 1e-6


@pytest.mark.parametrize("n", [1, 2, 9, 14, 20, 25, 32, pytest.param(96, marks=pytest.mark.long)])
def test_straight_line_transforms_are_those_of_numpy(n):
    unit, item = _codelets.UNIT, 4
    rng, half = np.random.default_rng(n), n // 2 + 1
    numbers = rng.uniform(-1, 1, (n, 2, unit)).astype(np.float32)
    columns, signal, back = np.empty_like(numbers), numbers[:, 0].copy(), np.empty((n, unit), np.float32)
    spectrum = np.empty((half, 2, unit), np.float32)
    strides = 2 * item * unit, item * unit
    called(_codelets.column(n), columns.ctypes.data, *strides, numbers.ctypes.data, *strides, -1)
    called(_codelets.row(n), spectrum.ctypes.data, signal.ctypes.data)
    called(_codelets.row_back(n), back.ctypes.data, spectrum.ctypes.data)
    as_complex = [array[:, 0] + 1j * array[:, 1] for array in (numbers, columns, spectrum)]
    assert np.abs(as_complex[1].conj() - np.fft.fft(as_complex[0], axis=0)).max() < 1e-5
    assert np.abs(as_complex[2] - np.fft.rfft(signal, axis=0)).max() < 1e-5
    assert np.abs(back / n - signal).max() < 1e-6


def called(address, *numbers):
    ctypes.CFUNCTYPE(None, *(ctypes.c_int64,) * len(numbers))(address)(*numbers)


@pytest.mark.parametrize(("rows", "lanes", "steps"), [(1, 1, 1), (31, 33, 300), (97, 70, 7), (13, 9, 129)])
@pytest.mark.parametrize("keep", [False, True])
def test_products_are_those_of_numpy(rows, lanes, steps, keep):
    rng, frequencies, groups = np.random.default_rng(rows), 3, 2
    shapes = [(frequencies, 2, groups, *shape) for shape in ((rows, steps), (steps, lanes), (rows, lanes))]
    a, b, c = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in shapes)
    expected = c.copy() if keep else np.zeros_like(c)
    expected[:, 0] += a[:, 0] @ b[:, 0] - a[:, 1] @ b[:, 1]
    expected[:, 1] += a[:, 0] @ b[:, 1] + a[:, 1] @ b[:, 0]
    of = [(array[0].size, array[0, 0, 0].size, array.shape[-1]) for array in (a, b, c)]
    parts = [array[0, 0].size for array in (a, b, c)]
    scratch, flat = np.empty(_products.SCRATCH, np.float32), np.append(b, np.zeros(_products.WIDTH, np.float32))
    places = (*of[0], 1, parts[0]), (*of[1], parts[1]), (*of[2], parts[2])
    sizes = groups, rows, lanes, steps
    _products.products(scratch, sizes, a.ravel(), places[0], flat, places[1], keep, c.reshape(-1), places[2], 0, 3)
    assert np.abs(c - expected).max() < 1e-4


def test_filters_are_transformed_once_for_all_blocks(tile, monkeypatch):
    tile(12, 40_000)
    names = []
    transformed = _spectra._transformed

    def recording(planes, *rest):
        names.append({(6, 10): "w", (1, 10): "x", (1, 6): "y"}[planes.cut.images, planes.cut.channels])
        return transformed(planes, *rest)

    monkeypatch.setattr(_spectra, "_transformed", recording)
    for direction in DIRECTIONS:
        names.clear()
        set_up(f"conv/n1c10h40w40k6r3s3/f32/nchw/{direction}", "conv/pyfftw.tiled")
        assert names.count("w") == 1 < names.count("x") == names.count("y")


#: One tile and several, within the image and beyond it; padding on one side; one group and more.
ANY = ("n2c3h14w11k5r3s2pad1", "n1c4h33w25k6r5s7pad0-2x3-1/g2", "n3c2h7w1k3r7s1pad0x1-0", "n1c3h29w9k2r11s9pad6x8")
#: ANY, and enough channels and images for several tiles of a product, of which the last are partly empty.
TILED = (*ANY, "n3c19h5w14k35r3s3pad1", "n1c9h40w31k5r4s15pad3x7")
#: By direction: enough channels and images to fill a product's largest tile.
FILLING = {"fprop": "n33c1h3w4k49r3s3", "dgrad": "n33c49h3w4k1r3s3", "wgrad": "n1c49h3w4k33r3s3"}
EVERY = (*TILED, *FILLING.values())
FUSED = (*ANY, "n3c8h13w27k19r3s3", "n2c4h40w31k3r17s5pad16x2", "n1c6h9w50k6r3s3pad1/g6", "n1c1h1w1k1r1s1")
FUSED += ("n9c2h3w4k17r2s2pad1",)
L1, L2, L3 = "n128c3h128w128k96r11s11", "n128c64h64w64k128r9s9", "n128c128h32w32k128r9s9"


def cases_in(kernel, sizes, direction):
    return cases(kernel, *(convolution(text, f"nchw/{direction}") for text in sizes))


@pytest.mark.long  # the sweep has all tiles on smaller problems
@pytest.mark.parametrize(
    "every",
    [
        *(partial(cases_in, IN_STEPS, (*TILED, sizes), direction) for direction, sizes in FILLING.items()),
        # As many channels as a block has tiles, and fewer.
        *(partial(cases_in, FUSED_STEPS, FUSED, direction) for direction in ("fprop", "dgrad")),
    ],
    ids=lambda every: f"{every.args[0]}-{every.args[2]}",
)
def test_every_tile_is_right_in_every_direction(every):
    tested = every()
    assert {case.tile.T for case in tested} == {16, 32}
    assert every.args[0] == FUSED_STEPS or {case.tile.BM for case in tested} == {64, 32, 16}
    assert not wrong_in_emulator(tested)


@pytest.mark.parametrize("sizes", EVERY)
def test_spectra_are_multiplied_with_the_sizes_with_which_they_were_written(sizes, direction):
    parsed = convolution(sizes, f"nchw/{direction}")
    kernel = CUDA[IN_STEPS]
    for tile in kernel.tiles():
        if max(parsed.r, parsed.s) >= tile.T:
            continue
        *transforms, multiply, _ = kernel.plan(parsed, tile, H100)
        a, b, c, m, k, lda, ldb = multiply.args
        at_a_frequency = 8 * tile.T * (tile.T // 2 + 1) * parsed.groups
        assert [part.nbytes // at_a_frequency for part in (a, b, c)] == [k * lda, k * ldb, m * ldb]
        for call, read in zip(transforms, (a, b), strict=True):
            (written,) = (arg for arg in call.args if isinstance(arg, Scratch))
            blocks, groups = call.grid
            assert written == read
            assert written.nbytes == 8 * tile.T * (tile.T // 2 + 1) * blocks * groups * 2 * 128 // tile.T


@pytest.mark.parametrize(("sizes", "side"), [(L1, 32), (L2, 32), (L3, 32), ("n8c512h14w14k512r3s3pad1", 16)])
def test_the_side_is_the_one_with_fewest_frequencies(sizes, side):
    tile = CUDA[IN_STEPS].tile_for(convolution(sizes))
    assert side == tile.T


@pytest.mark.parametrize("sizes", [L1, L2, L3])
def test_fft_of_large_filters_executes_at_most_a_quarter_of_direct_convolution(sizes):
    parsed = convolution(sizes)
    count = CUDA[FUSED_STEPS if sizes == L1 else IN_STEPS].executed_flop(parsed)
    assert 0 < count < parsed.flop / (4 if sizes == L1 else 10)


@pytest.mark.long
@pytest.mark.parametrize(("kernel", "sizes"), [(IN_STEPS, (L2, *EVERY)), (FUSED_STEPS, (L1, *FUSED))])
@pytest.mark.usefixtures("cuda_compiler")
def test_no_entry_spills_registers_or_uses_stack(kernel, sizes):
    every = [case for direction in DIRECTIONS for case in cases_in(kernel, sizes, direction)]
    for arch in ("sm_80", "sm_90a"):
        lean(kernel, entries(every), arch)


SHAPES = (
    "n2c3h37w21k5r3s5pad1x2",
    "n1c4h19w40k6r3s3pad0-1x2-0stride2x3/g2",
    "n3c2h23w5k4r3s2pad2x1/dil4x3",
    "n1c1h1w1k1r1s1",
    "n2c6h1w41k6r1s7pad0x3stride1x9/g6",
    "n1c2h9w9k3r2s1stride4",
)
SHIM = """
struct Index { unsigned x; } blockIdx, blockDim, threadIdx;
#define __global__
"""
RUN = """
extern "C" void run_NAME(unsigned grid, unsigned block, const float* source, float* target) {
    blockDim.x = block;
    for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x)
        for (threadIdx.x = 0; threadIdx.x < block; ++threadIdx.x) NAME(source, target);
}
"""


class Plan:
    """`cupy.cuda.cufft.PlanNd` of single-precision real transforms in two dimensions, by cuFFT's advanced layout."""

    def __init__(self, shape, *layout):
        inner, istride, idist, outer, ostride, odist, self.kind, batch, *_ = layout
        self.shape, half = shape, (shape[0], shape[1] // 2 + 1)
        read, written = (shape, half) if self.kind == 0x2A else (half, shape)
        self.read = (batch, *read), (idist, istride * inner[1], istride)
        self.written = (batch, *written), (odist, ostride * outer[1], ostride)
        self.work_area = SimpleNamespace(mem=SimpleNamespace(size=512))

    def fft(self, source, target, direction):
        forward = self.kind == 0x2A
        assert direction == (-1 if forward else 1)
        kinds = (np.float32, np.complex64) if forward else (np.complex64, np.float32)
        operand, result = view(source.data.ptr, kinds[0], *self.read), view(target.data.ptr, kinds[1], *self.written)
        if forward:
            result[...] = np.fft.rfft2(operand)
        else:
            result[...] = np.fft.irfft2(operand, self.shape) * (self.shape[0] * self.shape[1])


class Cgemm3m(Blas):
    """cublasCgemm3mStridedBatched, with the three products of real matrices in single precision."""

    def cgemm3m_strided_batched(self, handle, op_a, op_b, m, n, k, *rest):
        alpha, a, lda, stride_a, b, ldb, stride_b, beta, c, ldc, stride_c, batch = rest
        alpha, beta = (complex(view(pointer, np.complex64, (1,), (1,))[0]) for pointer in (alpha, beta))
        assert beta == 0
        left = _operand(a, op_a, lda, stride_a, batch, m, k)
        right = _operand(b, op_b, ldb, stride_b, batch, k, n)
        result = view(c, np.complex64, (batch, m, n), (stride_c, 1, ldc))
        real, imaginary = left.real @ right.real, left.imag @ right.imag
        mixed = (left.real + left.imag) @ (right.real + right.imag)
        result[...] = np.complex64(alpha) * ((real - imaginary) + 1j * (mixed - real - imaginary)).astype(np.complex64)


def _operand(pointer, op, ld, stride, batch, rows, columns):
    assert op in (0, 2)
    matrices = view(pointer, np.complex64, (batch, rows, columns), (stride, ld, 1) if op else (stride, 1, ld))
    return matrices.conj() if op else matrices


@pytest.fixture
def standins(tmp_path, monkeypatch):
    """Replace cuBLAS by a stand-in, and CuPy by one that has only FFT plans and compiled modules."""

    class Module:
        def __init__(self, code):
            names = [word.split("(")[0] for word in code.split() if word.startswith(("cut_", "paste_"))]
            path = tmp_path / f"{len(list(tmp_path.iterdir()))}"
            source = SHIM + code + "".join(RUN.replace("NAME", name) for name in names)
            command = [host_compiler(), "-x", "c++", "-O1", "-shared", "-fPIC", "-Wno-narrowing", "-o", str(path), "-"]
            subprocess.run(command, input=source, text=True, check=True)
            self.library = ctypes.CDLL(str(path))

        def get_function(self, name):
            run = self.library[f"run_{name}"]
            run.argtypes = (ctypes.c_uint, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p)
            return lambda grid, block, arrays: run(*grid, *block, *(part.data.ptr for part in arrays))

    cupy, cuda, transforms = ModuleType("cupy"), ModuleType("cupy.cuda"), ModuleType("cupy.cuda.cufft")
    cupy.RawModule, cupy.cuda, cuda.cufft, transforms.PlanNd = Module, cuda, transforms, Plan
    for module in (cupy, cuda, transforms):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(_cublas, "_cublas", blas_stand_in(Cgemm3m()))
    cufft._plans.cache_clear()
    cufft._movers.cache_clear()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sizes", SHAPES)
def test_cufft_and_cublas_compute_the_convolution(sizes, layout, direction, standins):
    parsed = convolution(sizes, f"{layout}/{direction}")
    for name in ("full", "tiled"):
        kernel, operands = REGISTRY.kernels[f"conv/cufft.{name}"], HostOperands(parsed)
        assert kernel.refuses(parsed) is None
        kernel.setup(parsed, operands)()
        assert operands.complaint("fft") is None, name


def test_small_and_oblong_tiles_are_right(direction, standins, monkeypatch):
    parsed = convolution("n2c2h17w23k3r3s2pad1stride2x1", f"nhwc/{direction}")
    for sides in ((3, 2), (4, 8), (7, 5), (16, 3)):
        monkeypatch.setattr(cufft, "chosen", lambda _, sides=sides: sides)
        operands = HostOperands(parsed)
        cufft.tiled(parsed, operands)()
        assert operands.complaint("fft") is None, sides


def test_rows_record_the_tile_and_the_scratch(standins):
    parsed = convolution("n1c2h8w8k3r3s3")
    operands = HostOperands(parsed)
    cufft.full(parsed, operands)
    assert operands.chosen == {"tile": "8x8"}
    tiles, x, w, y = (part.shape for part in operands.buffers)
    assert (tiles, x, w, y) == ((6 * 64,), (40, 2, 2), (40, 6, 2), (40, 3, 2))
    assert REGISTRY.kernels["conv/cufft.full"].library_scratch(parsed) == 3 * 512 + _cublas.WORKSPACE_BYTES


def test_tiles_execute_at_most_as_much_as_whole_images():
    parsed = convolution(L2)
    tiled, full = (REGISTRY.kernels[f"conv/cufft.{name}"].executed(parsed) for name in ("tiled", "full"))
    assert tiled <= full < parsed.flop
    assert executed(cuts(convolution("n1c1h8w8k1r1s1"), (8, 8)), 6) == 3 * 2.5 * 64 * 6 + 6 * 40
