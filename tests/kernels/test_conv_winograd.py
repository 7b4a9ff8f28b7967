"""Winograd's kernels: plans cover the output, threads keep to their memory, and all operations are counted."""

import math
from itertools import product

import numpy as np
import pytest

from emulator.fixtures import first_short
from kernelmark import Tile
from kernelmark.bench.emulator.sweep import entries
from kernelmark.bench.measure.launch import resident_blocks
from kernelmark.bench.measure.occupancy import typical
from kernelmark.bench.plan.kernel import Scratch
from kernelmark.kernels._numba import jit
from kernelmark.kernels.conv.winograd import _loops as winograd
from kernelmark.kernels.conv.winograd import _planes as planes
from kernelmark.kernels.conv.winograd import cpu
from kernelmark.kernels.conv.winograd._lines import LANES, divide, join
from kernelmark.kernels.conv.winograd._tiling import tiling
from support.kernels import CUDA, DIRECTIONS, REGISTRY, cases, failures, lean

LAYOUTS = ("nchw", "nhwc")
F2, F4, FUSED4 = "conv/cuda.winograd", "conv/cuda.winograd4", "conv/cuda.winograd4_fused"
VGG3 = "conv/n32c256h56w56k256r3s3pad1/f32/nchw/fprop"
CHUNKED = (VGG3, "conv/n24c64h224w224k64r3s3pad1/f32/nchw/fprop", "conv/n7c9h23w41k70r3s3/f32/nhwc/dgrad")


def calls(case, part):
    return [call for entry, call in case.calls if entry.startswith(part)]


def outputs(case, side):
    """Return how many tiles of `side` x `side` outputs all images have, and how many output channels a group has."""
    p = case.problem
    height, width, channels = (p.h, p.w, p.c) if p.direction == "dgrad" else (p.p, p.q, p.k)
    return p.n * math.ceil(height / side) * math.ceil(width / side), channels // p.groups


@pytest.mark.parametrize(("name", "saved"), [(F2, 2.25), (F4, 4.0), (FUSED4, 4.0)])
def test_fewer_products_are_executed_than_nominal_and_transforms_are_added(name, saved):
    problem, executed = REGISTRY.problem(VGG3), CUDA[name].executed_flop
    products = problem.flop / saved
    assert products < executed(problem) < 1.1 * products


@pytest.mark.parametrize("name", [F2, F4, FUSED4])
def test_both_directions_of_a_symmetric_problem_execute_the_same(name):
    executed = CUDA[name].executed_flop
    assert executed(REGISTRY.problem(VGG3)) == executed(REGISTRY.problem(VGG3.replace("fprop", "dgrad")))


@pytest.mark.parametrize("pad", ["0", "1", "2", "0-1x2-0", "3"])
def test_an_inputs_gradient_is_a_convolution_with_complementary_padding(pad):
    problem = REGISTRY.problem(f"conv/n1c2h5w6k3r3s3pad{pad}/f32/nchw/dgrad")
    (call,) = calls(cases(F2, problem.id)[-1], "winograd_fused")
    n, c, h, w, k, p, q, top, left = call.args[3:12]
    assert (top, left) == (2 - problem.pad_h.before, 2 - problem.pad_w.before)
    assert (n, c, h, w, k, p, q) == (1, 3, problem.p, problem.q, 2, 5, 6)
    assert p == h + top + (2 - problem.pad_h.after) - 2


@pytest.mark.parametrize(
    "problem", [VGG3, "conv/n3c5h7w9k65r3s3/f32/nhwc/fprop", "conv/n1c8h3w3k6r3s3/f32/nchw/dgrad/g2"]
)
def test_every_tile_and_filter_has_one_block_of_the_fused_kernel(problem):
    for case in cases(F2, problem):
        (call,) = calls(case, "winograd_fused")
        (tiles, channels), width = outputs(case, 2), case.tile.BK
        assert call.grid[:2] == (math.ceil(tiles / 32) * math.ceil(channels / width), case.problem.groups)
        assert call.args[-2] == math.ceil(channels / width) * width


@pytest.mark.parametrize(
    ("problem", "slices"),
    [
        (VGG3, 1),
        ("conv/n1c256h14w14k256r3s3pad1/f32/nchw/fprop", 8),  # slices of 8 blocks each, on 132 multiprocessors
        ("conv/n1c100h14w14k256r3s3pad1/f32/nhwc/dgrad", 8),  # slices of the 256 filters, which are summed over
        ("conv/n1c8h3w3k6r3s3/f32/nchw/dgrad/g2", 1),
    ],
)
def test_slices_of_channels_fill_the_device_once(problem, slices):
    for case in cases(F2, problem):
        (call,), sums = calls(case, "winograd_fused"), calls(case, "conv_sum")
        p = case.problem
        depth, channels = call.args[-1], (p.c if p.direction == "fprop" else p.k) // p.groups
        assert (call.grid[2], len(sums)) == (slices, slices > 1)
        assert depth % 8 == 0
        assert depth * (slices - 1) < channels <= depth * slices


@pytest.mark.parametrize("problem", CHUNKED)
def test_chunks_cover_all_tiles_in_order_within_their_memory(problem):
    for case in cases(F4, problem):
        covered, sizes, p = 0, set(), case.problem
        for call in calls(case, "winograd4_input"):
            *_, first, ldt = call.args
            assert first == covered
            covered += ldt
        for call in (*calls(case, "winograd4_input"), *calls(case, "winograd4_output")):
            sizes |= {arg for arg in call.args if isinstance(arg, Scratch)}
        assert 0 <= covered - outputs(case, 4)[0] < 4
        assert len(sizes) == 2  # every chunk has the same two buffers
        least = 4 * 36 * 32 * (p.c + p.k + 3 * p.groups)
        assert sum(scratch.nbytes for scratch in sizes) <= max(1024 * case.tile.KIB, least)


@pytest.mark.parametrize("problem", CHUNKED)
def test_a_block_of_fused_f4_has_48_tiles_of_a_chunk_64_filters_and_scratch_for_them(problem):
    for case in cases(FUSED4, problem):
        tiles, channels = outputs(case, 4)
        covered = 0
        for made, call in zip(calls(case, "winograd4_input"), calls(case, "winograd4_fused"), strict=True):
            *_, first, ldk, ldt = call.args
            assert (made.args[1], made.args[-2:]) == (call.args[1], (first, ldt))
            assert (first, ldk, ldt % 48) == (covered, math.ceil(channels / 64) * 64, 0)
            assert call.grid == (ldk // 64 * ldt // 48, case.problem.groups)
            assert call.args[2].nbytes >= 4 * 16 * 64 * 48 * math.prod(call.grid)
            covered += ldt
        assert 0 <= covered - tiles < 48


@pytest.mark.long
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("name", "resident"), [(F2, {64: 1, 32: 2}), (F4, {128: 2, 64: 3}), (FUSED4, {4: 1, 3: 1})])
@pytest.mark.usefixtures("cuda_compiler")
def test_no_variant_spills_and_the_intended_number_of_blocks_is_resident(name, resident, arch):
    if not CUDA[name].runs_on(arch):
        pytest.skip(f"{name} does not run on {arch}")
    variants = product(LAYOUTS, ("fprop", "dgrad"))
    every = cases(name, *(f"conv/n1c70h9w9k70r3s3/f32/{layout}/{direction}" for layout, direction in variants))
    cubin = lean(name, entries(every), arch)
    for case in every:
        for entry, call in case.calls:
            if entry.startswith(("winograd_fused", "winograd4_products", "winograd4_fused")):
                blocks = resident_blocks(call, cubin.resources[entry], typical(arch))
                assert blocks >= resident[vars(case.tile)[{F2: "BK", F4: "BM", FUSED4: "STAGES"}[name]]]


@pytest.mark.parametrize("size", first_short(["h9w7", "h7w5"]))  # six and four tiles of 4 x 4
@pytest.mark.parametrize("outputs", [4, 32])
def test_winograd_is_right_if_few_filters_are_transformed_at_a_time(direction, outputs, size):
    names = [f"conv/cpu.{name}@HELD=2097152,OUTPUTS={outputs}" for name in ("winograd", "winograd4")]
    for layout, threads in product(LAYOUTS, (1, 2, 3)):
        problem = f"conv/n1c43{size}k45r3s3pad1/f32/{layout}/{direction}"
        assert not failures(problem, *names, threads=threads), (layout, threads)


@pytest.mark.parametrize(
    ("sizes", "images", "gradient"),
    [
        ("n1c64h14w14k64", 0, 0),  # the cache has room for the transformed filters
        ("n1c128h56w56k128", 0, 0),  # the transformed inputs are larger than the filters
        ("n1c128h28w28k128", 32, 0),
        ("n1c256h14w14k256", 32, 32),
        ("n1c512h14w14k512", 128, 128),  # the cache has no room for the filters of 32 channels
        ("n1c512h7w7k512", 16, 16),  # tiles are so few that products do not pack them
        ("n8c256h28w28k256", 0, 0),  # several blocks of tiles use the filters
    ],
)
def test_winograd_transforms_few_filters_at_a_time_if_all_exceed_the_cache(sizes, images, gradient, monkeypatch):
    monkeypatch.setattr(cpu, "second_level_bytes", lambda: 2**21)
    kernel = REGISTRY.kernels["conv/cpu.winograd4"]
    for direction, outputs in zip(DIRECTIONS, (images, images, gradient), strict=True):
        tile = kernel.tile_for(REGISTRY.problem(f"conv/{sizes}r3s3pad1/f32/nchw/{direction}"))
        assert outputs == tile.OUTPUTS


def test_winograd_leaves_out_tiles_that_do_the_same():
    tile = Tile(HELD=2**12, OUTPUTS=4)
    for direction in DIRECTIONS:
        problem = REGISTRY.problem(f"conv/n2c19h22w31k70r3s3pad1/f32/nchw/{direction}")
        reason = REGISTRY.kernels["conv/cpu.winograd4"].unwanted(problem, tile)
        assert ("summed one by one" in reason) == (direction == "wgrad")


@pytest.mark.parametrize("count", [2, 3, 4, 9])
def test_elements_are_divided_and_joined(count):
    @jit
    def both(tile, divided, joined, line, length):
        divide(tile, divided, 0, length, line)
        join(tile, joined, 0, divided, (0, length), length)

    line = np.arange(2 * LANES * count, dtype="f4")
    divided, joined = np.empty_like(line), np.empty_like(line)
    both((0,) * count, divided, joined, line, 2 * LANES)
    assert (divided.reshape(count, -1) == line.reshape(-1, count).T).all()
    assert (joined == line).all()


@pytest.mark.parametrize("pad", ["3", "1-1x3-3", "3-0x0-3"])
def test_winograd_is_right_where_no_tile_reads_the_edges_of_an_image(direction, pad):
    for layout, threads in product(LAYOUTS, (1, 3)):
        problem = f"conv/n2c5h4w10k3r3s3pad{pad}/f32/{layout}/{direction}"
        assert not failures(problem, "conv/cpu.winograd", "conv/cpu.winograd4", threads=threads), (layout, threads)


def executed(name, problem):
    return REGISTRY.kernels[f"conv/cpu.{name}"].executed_flop(REGISTRY.problem(problem))


def test_winograd_executes_fewer_operations_by_the_factor_of_its_tiles(direction):
    layer = f"conv/n64c512h48w48k512r3s3pad1/f32/nchw/{direction}"
    for name, saved in (("winograd", 9 * 4 / 16), ("winograd4", 9 * 16 / 36)):
        ratio = REGISTRY.problem(layer).flop / executed(name, layer)
        assert 0.95 * saved < ratio < saved


def test_winograd_counts_the_operations_of_its_transforms():
    # F(2,3) of one vector: 4 additions of the input, 4 of the output, 4 of the filter and 6 multiplications by a half.
    products, inputs, outputs, filters = 2 * 16, 2 * 4 * 4, (4 + 2) * 4, (3 + 4) * (4 + 6)
    assert executed("winograd", "conv/n1c1h4w4k1r3s3/f32/nchw/fprop") == products + inputs + outputs + filters
    # A takes 2 additions for a vector of the gradient, G^T 5 for one of the products and 6 multiplications by a half.
    outputs, filters = (2 + 4) * 2, (4 + 3) * (5 + 6)
    assert executed("winograd", "conv/n1c1h4w4k1r3s3/f32/nchw/wgrad") == products + inputs + outputs + filters


@pytest.mark.parametrize("side", [7, 13, 4 * LANES - 1, 4 * LANES + 3])
def test_a_thread_surrounds_only_its_own_rows_with_zeros(side):
    problem = REGISTRY.problem(f"conv/n1c2h{side}w{side}k1r3s3pad1/f32/nchw/fprop")
    g = tiling(problem, 4, LANES)
    row, source = g.phases * g.columns, np.arange(2.0 * side * side, dtype="f4") + 1
    image, scratch = np.full(2 * g.rows * row, np.nan, "f4"), np.empty(2 * g.phases * (g.columns + LANES), "f4")
    start, stop = 3, g.rows + 4  # the last row has elements
    winograd.padded(image, source, scratch, g, start, stop)
    assert np.isnan(image[: start * row]).all()
    assert np.isnan(image[stop * row :]).all()
    for line in range(start, stop):
        expected = np.zeros(row, "f4")
        channel, down = divmod(line, g.rows)
        if 0 < down <= side:
            expected[1 : side + 1] = source[(channel * side + down - 1) * side :][:side]
        assert (image[line * row : (line + 1) * row] == expected.reshape(-1, 4).T.reshape(-1)).all()


@pytest.mark.parametrize("side", [7, 9, 4 * LANES + 3])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("first", [0, 1])
def test_a_thread_writes_only_its_own_lines_of_planes(layout, side, first):
    problem = REGISTRY.problem(f"conv/n1c3h{side}w{side}k1r3s3pad1/f32/{layout}/fprop")
    g = tiling(problem, 4, LANES)
    plane, *strides = planes.strides(g, g.down)
    v, image = np.full(36 * plane, np.nan, "f4"), np.ones(3 * g.rows * g.phases * g.columns + LANES, "f4")
    edge = 36 * (g.down * g.across + LANES)
    buffer = np.empty(6 * (winograd.STRIPS * g.inputs * (g.phases * g.columns + LANES) + LANES) + edge, "f4")
    band = planes.strips if g.channels_last else planes.channels
    band(v, image, buffer, g, (plane, *strides), 0, g.down, first, 2)
    inputs, tiles = np.arange(3), np.arange(g.down * g.across)
    if g.channels_last:
        tiles = tiles[first * g.across : 2 * g.across]
    else:
        inputs = inputs[first:2]
    written = np.add.outer(np.arange(36) * plane, np.add.outer(inputs * strides[0], tiles * strides[1]))
    assert not np.isnan(v[written]).any()
    if g.channels_last:
        written = written[:, :1] + np.arange(strides[1])[:, None]  # lines are written in full
    v[written] = np.nan
    assert np.isnan(v).all()
