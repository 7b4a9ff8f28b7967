"""Winograd convolution on the CPU: what it takes, how filters and tiles are cut, and what threads leave alone."""

from itertools import product

import numpy as np
import pytest

pytest.importorskip("numba")

from kernelmark import Tile
from kernelmark.bench.plan.discovery import discover
from kernelmark.kernels._numba import jit
from kernelmark.kernels.conv.winograd import _loops as winograd
from kernelmark.kernels.conv.winograd import _planes as planes
from kernelmark.kernels.conv.winograd import cpu
from kernelmark.kernels.conv.winograd._lines import LANES, divide, join
from kernelmark.kernels.conv.winograd._tiling import tiling
from support.kernels import DIRECTIONS, verified

LAYOUTS = ("nchw", "nhwc")


@pytest.mark.parametrize("size", ["h9w7", "h7w5"])  # six and four tiles of 4 x 4
@pytest.mark.parametrize("outputs", [4, 32])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_winograd_is_right_where_few_filters_are_transformed_at_a_time(direction: str, outputs: int, size: str) -> None:
    names = [f"conv/cpu.{name}@HELD=2097152,OUTPUTS={outputs}" for name in ("winograd", "winograd4")]
    for layout, threads in product(LAYOUTS, (1, 2, 3)):
        for measured in verified(f"conv/n1c43{size}k45r3s3pad1/f32/{layout}/{direction}", *names, threads=threads):
            assert measured.status == "ok", f"{layout} {measured.kernel}: {measured.reason}"


@pytest.mark.parametrize(
    ("sizes", "images", "gradient"),
    [
        ("n1c64h14w14k64", 0, 0),  # the cache has room for the transformed filters
        ("n1c128h56w56k128", 0, 0),  # what they are multiplied with is more
        ("n1c128h28w28k128", 32, 0),
        ("n1c256h14w14k256", 32, 32),
        ("n1c512h14w14k512", 128, 128),  # the cache has no room for those of 32 channels
        ("n1c512h7w7k512", 16, 16),  # tiles are so few that products do not pack them
        ("n8c256h28w28k256", 0, 0),  # several blocks of tiles meet them
    ],
)
def test_winograd_transforms_few_filters_at_a_time_where_all_leave_the_cache(
    sizes: str, images: int, gradient: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "second_level_bytes", lambda: 2**21)
    kernel = discover().kernels["conv/cpu.winograd4"]
    for direction, outputs in zip(DIRECTIONS, (images, images, gradient), strict=True):
        tile = kernel.tile_for(discover().problem(f"conv/{sizes}r3s3pad1/f32/nchw/{direction}"))
        assert tile is not None
        assert vars(tile)["OUTPUTS"] == outputs


def test_winograd_has_no_tiles_that_do_the_same() -> None:
    tile = Tile(HELD=2**12, OUTPUTS=4)
    for direction in DIRECTIONS:
        problem = discover().problem(f"conv/n2c19h22w31k70r3s3pad1/f32/nchw/{direction}")
        reason = discover().kernels["conv/cpu.winograd4"].unwanted(problem, tile)
        assert ("added up in several blocks" in reason) == (direction == "wgrad")


@pytest.mark.parametrize("count", [2, 3, 4, 9])
def test_elements_are_divided_and_joined(count: int) -> None:
    @jit
    def both(tile, divided, joined, line, length):  # type: ignore[no-untyped-def]
        divide(tile, divided, 0, length, line)
        join(tile, joined, 0, divided, (0, length), length)

    line = np.arange(2 * LANES * count, dtype="f4")
    divided, joined = np.empty_like(line), np.empty_like(line)
    both((0,) * count, divided, joined, line, 2 * LANES)
    assert (divided.reshape(count, -1) == line.reshape(-1, count).T).all()
    assert (joined == line).all()


@pytest.mark.parametrize("pad", ["3", "1-1x3-3", "3-0x0-3"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_winograd_leaves_out_what_no_tile_meets(direction: str, pad: str) -> None:
    for layout, threads in product(LAYOUTS, (1, 3)):
        problem = f"conv/n2c5h4w10k3r3s3pad{pad}/f32/{layout}/{direction}"
        for measured in verified(problem, "conv/cpu.winograd", "conv/cpu.winograd4", threads=threads):
            assert measured.status == "ok", f"{layout} {measured.kernel}: {measured.reason}"


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        ("conv/n1c4h9w9k4r3s3stride2/f32/nchw/fprop", "stride is 2, expected 1"),
        ("conv/n1c4h9w9k4r3s3stride2x1/f32/nchw/fprop", "stride is 2x1, expected 1"),
        ("conv/n1c4h9w9k4r3s3/f32/nchw/fprop/dil2", "dilation is 2, expected 1"),
        ("conv/n1c4h9w9k4r3s3/f32/nchw/fprop/g2", "groups is 2, expected 1"),
        ("conv/n1c4h9w9k4r5s3/f32/nchw/fprop", "r is 5, expected 3"),
        ("conv/n1c4h9w9k4r3s1/f32/nchw/dgrad", "s is 1, expected 3"),
    ],
)
def test_winograd_says_what_it_cannot_take(problem: str, reason: str) -> None:
    for name in ("winograd", "winograd4"):
        (measured,) = verified(problem, f"conv/cpu.{name}")
        assert (measured.status, measured.reason) == ("unsupported", reason)


def executed(name: str, problem: str) -> int:
    """What the kernel declares to execute."""
    return discover().kernels[f"conv/cpu.{name}"].executed_flop(discover().problem(problem))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_winograd_executes_fewer_operations_by_what_its_tiles_save(direction: str) -> None:
    layer = f"conv/n64c512h48w48k512r3s3pad1/f32/nchw/{direction}"
    for name, saved in (("winograd", 9 * 4 / 16), ("winograd4", 9 * 16 / 36)):
        ratio = discover().problem(layer).flop / executed(name, layer)
        assert 0.95 * saved < ratio < saved


def test_winograd_counts_the_operations_of_its_transforms() -> None:
    # F(2,3) of one vector: 4 additions of the input, 4 of the output, 4 of the filter and 6 multiplications by a half.
    products, inputs, outputs, filters = 2 * 16, 2 * 4 * 4, (4 + 2) * 4, (3 + 4) * (4 + 6)
    assert executed("winograd", "conv/n1c1h4w4k1r3s3/f32/nchw/fprop") == products + inputs + outputs + filters
    # A takes 2 additions for a vector of the gradient, G^T 5 for one of the products and 6 multiplications by a half.
    outputs, filters = (2 + 4) * 2, (4 + 3) * (5 + 6)
    assert executed("winograd", "conv/n1c1h4w4k1r3s3/f32/nchw/wgrad") == products + inputs + outputs + filters


@pytest.mark.parametrize("side", [7, 13, 4 * LANES - 1, 4 * LANES + 3])
def test_rows_between_zeros_leave_those_of_other_threads_alone(side: int) -> None:
    problem = discover().problem(f"conv/n1c2h{side}w{side}k1r3s3pad1/f32/nchw/fprop")
    g = tiling(problem, 4, LANES)
    row, source = g.phases * g.columns, np.arange(2.0 * side * side, dtype="f4") + 1
    image, held = np.full(2 * g.rows * row, np.nan, "f4"), np.empty(2 * g.phases * (g.columns + LANES), "f4")
    start, stop = 3, g.rows + 4  # the last has elements
    winograd.padded(image, source, held, g, start, stop)
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
def test_planes_leave_lines_of_other_threads_alone(layout: str, side: int, first: int) -> None:
    problem = discover().problem(f"conv/n1c3h{side}w{side}k1r3s3pad1/f32/{layout}/fprop")
    g = tiling(problem, 4, LANES)
    plane, *strides = planes.strides(g, g.down)
    v, image = np.full(36 * plane, np.nan, "f4"), np.ones(3 * g.rows * g.phases * g.columns + LANES, "f4")
    edge = 36 * (g.down * g.across + LANES)
    held = np.empty(6 * (winograd.STRIPS * g.inputs * (g.phases * g.columns + LANES) + LANES) + edge, "f4")
    band = planes.strips if g.channels_last else planes.channels
    band(v, image, held, g, (plane, *strides), 0, g.down, first, 2)
    inputs, tiles = np.arange(3), np.arange(g.down * g.across)
    if g.channels_last:
        tiles = tiles[first * g.across : 2 * g.across]
    else:
        inputs = inputs[first:2]
    own = np.add.outer(np.arange(36) * plane, np.add.outer(inputs * strides[0], tiles * strides[1]))
    assert not np.isnan(v[own]).any()
    if g.channels_last:
        own = own[:, :1] + np.arange(strides[1])[:, None]  # lines are written to their ends
    v[own] = np.nan
    assert np.isnan(v).all()
