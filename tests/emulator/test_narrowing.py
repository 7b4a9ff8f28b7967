"""Mutants that compute offsets in 32 bits: what is changed, and that the changes are noticed."""

import pytest

from emulator import offsets
from emulator.narrowing import narrowed, narrowed_fates
from emulator.proof import is_explained
from kernelmark.bench.emulator.build import CUDA

KERNEL = """
// size_t(row) * ld in a comment is left alone
__device__ size_t at(unsigned row, unsigned ld, long long stride) {
  const size_t first = size_t(row) * ld + 1;
  unsigned long long wide;
  return first + static_cast<long long>(row + 1) * f.ld() + stride;
}
"""


def test_casts_are_dropped_or_come_late_and_names_become_narrow() -> None:
    assert [(mutant.kind, mutant.change) for mutant in narrowed(KERNEL)] == [
        ("no cast", "`size_t(row)` -> `(row)`"),
        ("product widened late", "`size_t(row) * ld` -> `size_t((row) * ld)`"),
        ("no cast", "`static_cast<long long>(row + 1)` -> `(row + 1)`"),
        (
            "product widened late",
            "`static_cast<long long>(row + 1) * f.ld()` -> `static_cast<long long>((row + 1) * f.ld())`",
        ),
        ("narrow name", "`size_t at` -> `unsigned at`"),
        ("narrow name", "`size_t first` -> `unsigned first`"),
    ]


def test_mutants_differ_from_the_source_on_their_line() -> None:
    for mutant in narrowed(KERNEL):
        pairs = zip(KERNEL.splitlines(), mutant.text.splitlines(), strict=True)
        assert [i + 1 for i, (a, b) in enumerate(pairs) if a != b] == [mutant.line]


@pytest.mark.long
@pytest.mark.skipif(offsets.clang_tidy() is None, reason="clang-tidy is not on PATH")
@pytest.mark.parametrize("file", ["common.cuh", "panel_share.cuh", "transpose/c2r.cuh", "conv/direct.cu"])
def test_narrowed_offsets_are_noticed_or_explained(file: str) -> None:
    found = list(narrowed_fates(file, workers=2))
    assert len(found) == len(list(narrowed((CUDA / file).read_text()))) > 3
    assert all(fate.complaint or is_explained(file, fate.mutant) for fate in found)
