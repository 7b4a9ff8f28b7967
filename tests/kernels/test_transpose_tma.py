"""Transposition by the TMA: the order of tiles, the swizzle, what a plan asks for and what it refuses."""

import itertools
from collections import Counter
from collections.abc import Iterator

import pytest

from kernelmark.bench.emulator.sweep import EmulatedCase
from kernelmark.bench.plan.kernel import TensorMap, Tile
from support.emulated import wrong_in_emulator
from support.kernels import CUDA, REGISTRY, chosen, refusal

TMA = CUDA["transpose/cuda.tma"]
BOX = 8  # vectors in a row of a box
KIB = 1024
SHARED_LIMIT = 99 * KIB  # a block, on the smallest device with a TMA


def origin(tile: int, rows: int, cols: int, group: int) -> tuple[int, int]:
    """Row and column of a tile's number, as in bands.cuh."""
    first = tile // (group * rows) * group
    width, nth = min(group, cols - first), tile - first * rows
    return nth // width, first + nth % width


@pytest.mark.parametrize("group", [1, 2, 4, 16])
@pytest.mark.parametrize("rows", [1, 2, 3, 7])
@pytest.mark.parametrize("cols", [1, 3, 4, 5, 8, 11])
def test_every_tile_has_one_number(rows: int, cols: int, group: int) -> None:
    found = Counter(origin(tile, rows, cols, group) for tile in range(rows * cols))
    assert found == Counter(itertools.product(range(rows), range(cols)))


@pytest.mark.parametrize("vector", [2, 4, 8])
def test_eight_lanes_meet_eight_places_when_they_read_and_when_they_write(vector: int) -> None:
    for d, line in itertools.product(range(BOX), range(vector)):
        squares = [(i ^ d, i) for i in range(BOX)]  # row and column of the square that lane i turns over
        read = {x ^ (y * vector + line) % 8 for y, x in squares}
        written = {y ^ (x * vector + line) % 8 for y, x in squares}
        assert len(read) == len(written) == BOX


@pytest.mark.parametrize(("dtype", "height", "columns"), [("f64", 32, 16), ("f32", 64, 32), ("bf16", 128, 64)])
def test_a_box_is_128_bytes_of_each_row_of_a_tile(dtype: str, height: int, columns: int) -> None:
    ((_, call),) = chosen(TMA.id, f"transpose/m1000n1000/{dtype}/out").calls
    assert call.args == (
        TensorMap("a", (height, columns), "128B"),
        TensorMap("b", (height, columns), "128B"),
        1000,
        1000,
    )


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
def test_the_ring_has_at_least_three_tiles_and_fits_wherever_there_is_a_tma(dtype: str) -> None:
    ((entry, call),) = chosen(TMA.id, f"transpose/m4096n4096/{dtype}/out").calls
    stages = int(entry.split(", ")[2])
    height, columns = call.args[0].box
    ring = stages * height * height * 128 // columns
    assert stages >= 3
    assert ring + KIB == call.shared_bytes
    assert call.shared_bytes + KIB <= SHARED_LIMIT


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ("m64n30/f32", "rows of a begin every 120 bytes, expected a multiple of 16"),
        ("m30n64/f32", "rows of b begin every 120 bytes, expected a multiple of 16"),
        ("m8n4/f16", "rows of a begin every 8 bytes, expected a multiple of 16"),
    ],
)
def test_rows_that_no_tensor_map_describes_are_refused(sizes: str, expected: str) -> None:
    assert refusal(TMA.id, f"transpose/{sizes}/out") == expected


_SMALL = {"SQUARES": 8, "RING": 16, "BLOCKS": 1, "GROUP": 4}
_LARGE = {"SQUARES": 16, "RING": 96, "BLOCKS": 1, "GROUP": 2}
_LARGEST = {"SQUARES": 32, "RING": 128, "BLOCKS": 1, "GROUP": 1}


def long_cases() -> Iterator[EmulatedCase]:
    """One block that goes round its ring many times, through several bands, the last of them narrower."""
    for dtype, (sizes, tile) in itertools.product(
        ("f64", "f32", "f16"), (("m72n336", _SMALL), ("m200n72", _SMALL), ("m152n616", _LARGE))
    ):
        yield EmulatedCase(TMA, REGISTRY.problem(f"transpose/{sizes}/{dtype}/out"), Tile(**tile))
    yield EmulatedCase(TMA, REGISTRY.problem("transpose/m264n392/f32/out"), Tile(**_LARGEST))


@pytest.mark.parametrize("case", list(long_cases()), ids=lambda case: case.id)
def test_emulated_rings_are_right_without_reports(case: EmulatedCase) -> None:
    assert not wrong_in_emulator([case])
