"""No offset into memory is computed in 32 bits: what clang-tidy finds in the kernels, and in kernels made wrong."""

from collections.abc import Iterator
from functools import cache

import pytest
from _pytest.mark import ParameterSet

from emulator import offsets
from emulator.offsets import ACCEPTED, Finding, findings, instances, unaccepted
from emulator.overflows import STATIC, Overflow
from emulator.proof import all_cases, kernels_by_source
from kernelmark.bench.emulator.build import CUDA, source_folder
from kernelmark.bench.plan.discovery import discover
from support.tools import needed

KERNEL = """__global__ void f(float *x, unsigned m, unsigned ld) {
  const unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
%s
}
"""
WRONG = (
    "x[row * ld] = 0;",
    "x[size_t(row * ld) + 1] = 0;",
    "*(x + row * ld) = 0;",
    "{ const unsigned at = row * ld + 1; x[at] = 0; }",
    "{ const size_t at = row * ld + 1; x[at] = 0; }",
    "{ const unsigned at = size_t(row) * ld; x[at] = 0; }",
    "{ const size_t at = blockIdx.x * 256 + threadIdx.x; x[at] = 0; }",
    "x[row * ld % m] = 0;",
)
RIGHT = (
    "x[size_t(row) * ld + row] = 0;",
    "{ __shared__ float s[64]; s[threadIdx.x * m] = 0; }",
    "x[blockIdx.x * 256] = 0;",
)


@pytest.fixture(autouse=True, scope="module")
def clang_tidy() -> None:
    """Skip where clang-tidy is missing, which is an error in CI."""
    if offsets.clang_tidy() is None:
        needed("offsets are checked by clang-tidy, which is not on PATH; install it with: pip install -e '.[test]'")


def _sources() -> Iterator[ParameterSet]:
    """Each source; the short run takes the first."""
    for i, source in enumerate(sorted(kernels_by_source(discover()))):
        yield pytest.param(source, marks=pytest.mark.long if i else ())


@cache
def _names_of(source: str) -> tuple[str, ...]:
    """Return the entries that all cases of a source need."""
    return instances(case for kernel in kernels_by_source(discover())[source] for case in all_cases()[kernel.id])


@pytest.mark.parametrize("source", list(_sources()))
def test_no_offset_of_a_kernel_is_a_product_of_32_bits(source: str) -> None:
    found = unaccepted(findings(source, _names_of(source)))
    assert not found, "\n" + "\n".join(map(str, found))


@pytest.mark.parametrize(("file", "part"), ACCEPTED, ids=" ".join)
def test_accepted_product_stands_in_its_file(file: str, part: str) -> None:
    assert part in (CUDA / file).read_text()


@pytest.mark.parametrize(
    "planted",
    [
        pytest.param(planted, id=planted.id, marks=() if i == 0 else pytest.mark.long)
        for i, planted in enumerate(STATIC)
    ],
)
def test_planted_overflow_is_found_in_its_file(planted: Overflow) -> None:
    found = unaccepted(findings(planted.compiled, _names_of(planted.compiled), planted.folder()))
    assert planted.file in [finding.file for finding in found]


def _found(*statements: str) -> list[Finding]:
    folder = source_folder({"kernel.cu": KERNEL % "\n".join(statements)})
    return findings("kernel.cu", ("f",), folder)


def test_products_of_32_bits_in_offsets_are_found_and_others_are_not() -> None:
    lines = [finding.text for finding in _found(*WRONG, *RIGHT)]
    assert list(dict.fromkeys(lines)) == list(WRONG)


def test_source_that_clang_refuses_is_named() -> None:
    with pytest.raises(ValueError, match=r"kernel\.cu: clang-tidy cannot judge it: .*undeclared identifier 'nonsense'"):
        _found("nonsense;")
