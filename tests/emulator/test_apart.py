"""Rows lie so far apart that an offset of 32 bits misses them: kernels are right, and planted overflows are found."""

from collections.abc import Iterator

import numpy as np
import pytest
from _pytest.mark import ParameterSet

from emulator.fixtures import outcomes_of
from emulator.overflows import APART, Overflow
from emulator.proof import kernels_by_source
from kernelmark.bench.emulator.apart import LEADING, cases_apart
from kernelmark.bench.emulator.sweep import EmulatedCase, complaints
from kernelmark.bench.emulator.worker import Buffer, Launch
from kernelmark.bench.plan.discovery import discover
from support.emulated import program_entries

KERNEL = """
__global__ void f(const float *x, float *y, unsigned ld) {
  y[size_t(blockIdx.x) * ld + threadIdx.x] = x[%s * ld + threadIdx.x];
}
"""


def _groups() -> Iterator[ParameterSet]:
    """Yield the cases of each kernel that has pads; the short run takes those of the first."""
    groups = [
        cases_apart(discover(), kernel) for kernels in kernels_by_source(discover()).values() for kernel in kernels
    ]
    for i, group in enumerate(filter(None, groups)):
        yield pytest.param(group, id=group[0].kernel.id, marks=pytest.mark.long if i else ())


def _complaints(cases: list[EmulatedCase], **options: object) -> list[str]:
    names = program_entries(cases)
    return [found for case in cases for found in complaints(case, names, **options)]


@pytest.mark.parametrize("cases", list(_groups()))
def test_kernel_is_right_where_rows_lie_far_apart(cases: list[EmulatedCase]) -> None:
    found = _complaints(cases)
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    "planted",
    [pytest.param(planted, id=planted.id, marks=pytest.mark.long if i else ()) for i, planted in enumerate(APART)],
)
def test_planted_overflow_is_found_where_rows_lie_far_apart(planted: Overflow) -> None:
    (kernel, *_) = kernels_by_source(discover())[planted.compiled]
    assert _complaints(cases_apart(discover(), kernel), cuda=planted.folder())


def _copy(row: str) -> tuple[list[str], np.ndarray]:
    """Return the kinds of reports and the result of copying six rows that lie LEADING floats apart."""
    x = np.arange(6 * 32, dtype=np.float32)
    places = tuple(row * LEADING * 4 for row in range(6))
    buffers = {
        "x": Buffer("in", x, 32, LEADING - 32, places),
        "y": Buffer("out", np.full_like(x, np.nan), 32, LEADING - 32, places),
    }
    (outcome, *_) = outcomes_of(KERNEL % row, Launch("f", 6, 32, ("x", "y", LEADING)), buffers)
    return [report.kind for report in outcome.reports], outcome.outputs["y"]


def test_only_the_rows_of_a_large_buffer_exist() -> None:
    kinds, rows = _copy("size_t(blockIdx.x)")
    assert not kinds
    assert np.array_equal(rows, np.arange(6 * 32))
    assert _copy("blockIdx.x")[0] == ["crash"]


def test_row_that_is_not_written_is_reported() -> None:
    x = np.zeros(4, np.float32)
    buffers = {"x": Buffer("in", x), "y": Buffer("out", x, 2, LEADING - 2, (0, LEADING * 4))}
    (outcome, *_) = outcomes_of(KERNEL % "0", Launch("f", 1, 2, ("x", "y", LEADING)), buffers)
    assert [str(report) for report in outcome.reports] == [
        f"(no line): not-written: 8 bytes of y never written, the first at +{LEADING * 4}; "
        "block (0, 0, 0) thread (0, 0, 0), 1 times"
    ]
