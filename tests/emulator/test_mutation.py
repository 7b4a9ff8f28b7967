"""The mutation script itself, and the part of it that every test run repeats: no barrier can be taken away."""

import re
from collections.abc import Iterator
from itertools import islice

import pytest
from _pytest.mark import ParameterSet

from bench.plan.discovery import discover
from emulator.build import CUDA
from emulator.mutation import Mutant, mutants
from emulator.proof import fate, kernels_by_source, plan

KERNEL = """
// a < b in a comment is left alone
__global__ void f(float *c, unsigned m, unsigned n, unsigned ldc) {
  if (i >= m || j >= n) return;
  for (unsigned k = 0; k < n; ++k) c[i * ldc + k] = 0.0f;
  __syncthreads();
  const bool some = __syncthreads_or(i < 2);
  ptx::cp_async_wait<1>();
  load<T, Op::N>(c, ldc);
}
"""


def _barriers() -> Iterator[ParameterSet]:
    for source in kernels_by_source(discover()):
        for mutant in mutants((CUDA / source).read_text()):
            if mutant.kind in ("no barrier", "no wait for copies"):
                yield pytest.param(source, mutant, id=f"{source}/{mutant.kind.replace(' ', '-')}-{mutant.line}")


@pytest.mark.parametrize(("source", "mutant"), list(_barriers()))
def test_kernel_without_a_barrier_is_reported_with_file_and_line(source: str, mutant: Mutant) -> None:
    complaint = fate(source, mutant, plan(discover(), source)).complaint
    assert complaint is not None, f"nobody misses the barrier: {mutant}"
    assert re.search(r": [\w.]+\.cuh?:\d+: ", complaint), complaint  # the line may stand in a header of the source
    assert re.search(r"block \(\d+, \d+, \d+\) thread \(\d+, \d+, \d+\)", complaint), complaint


def _changes(kind: str) -> list[str]:
    return [mutant.change for mutant in mutants(KERNEL) if mutant.kind == kind]


def test_barriers_and_waits_are_removed_and_a_used_result_leaves_its_predicate() -> None:
    assert _changes("no barrier") == ["`__syncthreads()` -> ``", "`__syncthreads_or(i < 2)` -> `(i < 2)`"]
    assert _changes("no wait for copies") == ["`ptx::cp_async_wait<1>()` -> ``"]


def test_guards_are_removed_and_loops_are_not() -> None:
    assert _changes("no guard") == ["`i >= m` -> `false`", "`j >= n` -> `false`", "`i < 2` -> `true`"]


def test_bounds_are_shifted_both_ways() -> None:
    shifted = _changes("bound shifted by one")
    assert len(shifted) == 8
    assert {"`k < n` -> `k < n + 1`", "`k < n` -> `k < int(n) - 1`"} <= set(shifted)


def test_leading_dimensions_are_exchanged_for_the_functions_other_sizes() -> None:
    assert _changes("other leading dimension") == ["`ldc` -> `m`", "`ldc` -> `n`"] * 2


def test_mutants_differ_from_the_source_in_one_place() -> None:
    for mutant in islice(mutants(KERNEL), 50):
        pairs = zip(KERNEL.splitlines(), mutant.text.splitlines(), strict=True)
        assert [i + 1 for i, (a, b) in enumerate(pairs) if a != b] == [mutant.line]
