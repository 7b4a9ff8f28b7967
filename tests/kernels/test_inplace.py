"""In-place transposition of rectangles: the steps' index maps, what a plan stages through, and what it refuses."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from bench.plan.discovery import discover
from bench.plan.registry import CudaKernel, KernelCall, Scratch, Tile
from emulator.build import missing_tool
from emulator.sweep import Case, complaints, entries

REGISTRY = discover()
C2R = REGISTRY.kernels["transpose/cuda.c2r"]
assert isinstance(C2R, CudaKernel)
SEED_SHAPES = ((1024, 26752), (2048, 26752), (26752, 1024))
ROWS = (*range(1, 14), 24, 31, 64)
COLS = (*range(1, 40), 48, 64, 97, 128)

Array = np.ndarray[Any, Any]


def longer(rows: int) -> Iterator[int]:
    """The widths that are not less than the height."""
    return (cols for cols in COLS if cols >= rows)


def rotated(x: Array) -> Array:
    """Step 1 of c2r.cu."""
    rows, cols = x.shape
    i, j = np.ogrid[:rows, :cols]
    return x[(i + j // (cols // math.gcd(rows, cols))) % rows, j]


def row_targets(rows: int, cols: int) -> Array:
    """Where step 2 of c2r.cu brings each column of each row."""
    i, j = np.ogrid[:rows, :cols]
    return ((i + j // (cols // math.gcd(rows, cols))) % rows + j * rows) % cols


def column_sources(rows: int, cols: int) -> Array:
    """Which row step 3 of c2r.cu takes each element from."""
    i, j = np.ogrid[:rows, :cols]
    return (i * cols + j - i // (rows // math.gcd(rows, cols))) % rows


def c2r(x: Array) -> Array:
    """The three steps on a matrix with rows <= cols."""
    rows, cols = x.shape
    x = rotated(x)
    scattered = np.empty_like(x)
    np.put_along_axis(scattered, row_targets(rows, cols), x, axis=1)
    return np.take_along_axis(scattered, column_sources(rows, cols), axis=0)


@pytest.mark.parametrize("rows", ROWS)
def test_the_steps_transpose(rows: int) -> None:
    for cols in longer(rows):
        x = np.arange(rows * cols).reshape(rows, cols)
        assert np.array_equal(c2r(x).reshape(cols, rows), x.T), cols


@pytest.mark.parametrize("rows", ROWS)
def test_each_step_permutes_so_that_its_inverse_exists(rows: int) -> None:
    for cols in longer(rows):
        assert (np.sort(row_targets(rows, cols), axis=1) == np.arange(cols)).all(), cols
        assert (np.sort(column_sources(rows, cols), axis=0) == np.arange(rows)[:, None]).all(), cols


def calls(problem: str) -> list[KernelCall]:
    parsed = REGISTRY.problem(f"transpose/{problem}")
    tile = C2R.tile_for(parsed)
    assert tile is not None
    return C2R.plan(parsed, tile)


def scratch_bytes(made: list[KernelCall]) -> int:
    """What a run reports: equal names are one buffer, and of one size."""
    found = {arg for call in made for arg in call.args if isinstance(arg, Scratch)}
    assert len({arg.name for arg in found}) == len(found)
    return sum(arg.nbytes for arg in found)


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
@pytest.mark.parametrize(("m", "n"), SEED_SHAPES)
def test_scratch_is_at_most_a_tenth_of_the_matrix(m: int, n: int, dtype: str) -> None:
    problem = REGISTRY.problem(f"transpose/m{m}n{n}/{dtype}/in")
    tiles = [t for t in C2R.tiles() if not (C2R.valid and C2R.valid(problem, t))]
    assert tiles
    for tile in tiles:
        assert 10 * scratch_bytes(C2R.plan(problem, tile)) <= problem.footprint_bytes


@pytest.mark.parametrize(("m", "n"), SEED_SHAPES)
def test_the_seed_shapes_are_staged_in_shared_memory_alone(m: int, n: int) -> None:
    made = calls(f"m{m}n{n}/f32/in")
    assert len(made) == 3
    assert scratch_bytes(made) == 0
    assert max(call.shared_bytes for call in made) == 26752 * 4


def test_c2r_makes_a_pass_only_where_something_moves() -> None:
    kinds = {problem: [str(call.entry) for call in calls(problem)] for problem in ("m7n64/f32/in", "m1n64/f32/in")}
    assert ["c2r_rows" in entry for entry in kinds["m7n64/f32/in"]] == [True, False]  # coprime: no rotation
    assert ["c2r_rows" in entry for entry in kinds["m1n64/f32/in"]] == [False]


def test_c2r_runs_its_steps_backwards_where_columns_are_longer() -> None:
    forward, backward = (calls(f"{sizes}/f32/in") for sizes in ("m64n96", "m96n64"))
    names = [[str(call.entry).replace("true", "false") for call in made] for made in (forward, backward)]
    assert names[0] == names[1][::-1]


@pytest.mark.parametrize("problem", ["m8192n28672/f32/in", "m26000n1000000/f32/in", "m16384n16384/f64/in"])
def test_what_is_too_large_for_shared_memory_goes_through_scratch(problem: str) -> None:
    made = calls(problem)
    assert 0 < 10 * scratch_bytes(made) <= REGISTRY.problem(f"transpose/{problem}").footprint_bytes


def test_few_rows_that_no_stage_holds_are_refused() -> None:
    reason = C2R.refuses(REGISTRY.problem("transpose/m9n1000000/f32/in"))
    assert reason is not None
    assert "a row of 1000000 elements takes 4000000 bytes" in reason
    assert reason.endswith("it has 9 rows, expected at least 10")


_FURTHER = (("m36n90", 1, 8), ("m90n36", 1, 8), ("m31n97", 1, 8), ("m4n1030", 0, 32), ("m999n6", 0, 16))


def further_cases() -> Iterator[Case]:
    """Beyond the sweep's shapes: both directions through scratch, and rows longer than a block reads at a time."""
    for sizes, by_scratch, width in _FURTHER:
        problem = REGISTRY.problem(f"transpose/{sizes}/f32/in")
        yield Case(C2R, problem, Tile(SCRATCH=by_scratch, W=width))


@pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool()))
@pytest.mark.parametrize("case", list(further_cases()), ids=lambda case: case.id)
def test_emulated_rectangles_are_right_without_reports(case: Case) -> None:
    names = entries(list(further_cases()))
    assert not list(complaints(case, names))
