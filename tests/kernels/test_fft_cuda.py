"""Our small transforms: every shape of a tile is right in ragged batches, and what fills no tile is refused."""

import pytest

from kernelmark.bench.emulator.sweep import EmulatedCase, entries
from support.emulated import wrong_in_emulator
from support.kernels import chosen, lean, refusal

SMALL = "fft/cuda.small"
KINDS = ("r2c", "c2r", "c2c", "c2c/inverse")
#: Batches that end within a block, a tile and a row of tiles; the sweep takes others of most sides.
BATCHES = ("b1h1w8", "b130h1w16", "b67h1w32", "b5h8w8", "b17h16w16", "b1h32w32", "b9h32w32")
LINES = ("b35h1w64", "b1h1w64", "b17h1w256", "b9h1w1024")


def case(problem: str) -> EmulatedCase:
    return chosen(SMALL, f"fft/{problem}")


#: By storage type and kind; what these need is compiled into the program of the sweep.
RAGGED = {
    f"{dtype}-{kind}": [case(f"{sizes}/{dtype}/{kind}") for sizes in BATCHES + (LINES if dtype == "f32" else ())]
    for dtype in ("f32", "f64")
    for kind in KINDS
}


@pytest.mark.long
@pytest.mark.parametrize("every", RAGGED.values(), ids=RAGGED)
def test_transforms_of_every_shape_are_right_in_ragged_batches(every: list[EmulatedCase]) -> None:
    assert not wrong_in_emulator(every)


@pytest.mark.parametrize(
    ("problem", "blocks", "threads"),
    [
        ("b1h32w32/f32/c2c", 1, 128),
        ("b4h32w32/f32/c2c", 1, 128),
        ("b5h32w32/f32/c2c", 2, 128),
        ("b8h32w32/f32/r2c", 1, 128),
        ("b9h32w32/f32/c2r", 2, 128),
        ("b9h16w16/f64/r2c", 2, 64),
        ("b256h1w32/f32/r2c", 1, 128),
        ("b257h1w32/f32/r2c", 2, 128),
        ("b17h1w64/f32/c2c", 2, 128),
    ],
)
def test_real_transforms_go_two_by_two_and_rows_fill_tiles(problem: str, blocks: int, threads: int) -> None:
    ((_, call),) = case(problem).calls
    assert (call.grid, call.block) == (blocks, threads)


@pytest.mark.parametrize(
    ("sizes", "dtype"),
    [
        *((size, "f32") for size in ("h1w4", "h8w16", "h64w64", "h1w128", "h1w2048", "h8w1", "h7w7")),
        *((size, "f64") for size in ("h1w64", "h1w256", "h1w1024")),
    ],
)
def test_what_fills_no_tile_is_refused_with_what_does(sizes: str, dtype: str) -> None:
    h, w = sizes[1:].split("w")
    assert refusal(SMALL, f"fft/b3{sizes}/{dtype}/r2c").startswith(f"h x w is {h} x {w}, expected 8 x 8, ")


@pytest.mark.parametrize("arch", [pytest.param("sm_80", marks=pytest.mark.long), "sm_90a"])
@pytest.mark.usefixtures("cuda_compiler")
def test_no_large_shape_spills_registers_or_uses_stack(arch: str) -> None:
    sides = ("h16w16", "h32w32", "h1w16", "h1w32")
    problems = [f"b64{sizes}/{dtype}/{kind}" for sizes in sides for dtype in ("f32", "f64") for kind in KINDS]
    problems += [f"b64h1w{length}/f32/{kind}" for length in (256, 1024) for kind in KINDS]
    lean(SMALL, entries([case(problem) for problem in problems]), arch)
