"""Mutants differ in one place, the short run covers all traits of the sweep, and removed barriers are detected."""

import re
import subprocess
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from emulator import proof
from emulator.mutation import REMOVED, Mutant, mutants
from emulator.proof import (
    ALSO,
    SURVIVORS,
    are_explained,
    corners,
    emulated,
    fate,
    headers_by_name,
    included,
    kernels_by_source,
    mention,
    paired_cases,
    pairs,
    plan,
    short_cases,
    short_run,
    swept,
)
from kernelmark.bench.emulator.build import CUDA
from kernelmark.bench.emulator.sweep import EmulatedCase
from kernelmark.bench.plan.limits import H100

KERNEL = """
// a < b in a comment is left alone
__global__ void f(float *c, unsigned m, unsigned n, unsigned ldc) {
  if (i >= m || j >= n) return;
  for (unsigned k = 0; k < n; ++k) c[i * ldc + k] = 0.0f;
  __syncthreads();
  const bool some = __syncthreads_or(i < 2);
  ptx::cp_async_wait<1>();
  ptx::mbarrier_wait(full[i % 2], i / 2 % 2);
  ptx::wgmma_wait<0>();
  if (lane == 0) ptx::mbarrier_arrive_cluster(ptx::smem_address(&empty[i]), 0);
  ptx::fence_proxy_async();
  load<T, Op::N>(c, ldc);
}"""


def _each(files: Iterable[str], kinds: Container[str]) -> Iterator[ParameterSet]:
    """Yield each mistake of these kinds that survivors.md does not explain; the short run has one of each kind."""
    seen = set()
    for file in files:
        selected = [mutant for mutant in mutants((CUDA / file).read_text()) if mutant.kind in kinds]
        explained = are_explained(file, selected)  # known survivors would run all cases for a minute
        for mutant in selected:
            if mutant not in explained:
                marks = pytest.mark.long if mutant.kind in seen else ()
                seen.add(mutant.kind)
                name = f"{file}/{mutant.kind.replace(' ', '-')}-{mutant.line}"
                yield pytest.param(file, mutant, id=name, marks=marks)


TILED = swept("gemm/cuda.tiled")
SHORT = short_cases(TILED)


def _plans(file: str) -> Iterator[Sequence[EmulatedCase]]:
    """Yield the cases of the short run, each as a separate program, then all cases, then the corners."""
    yield from ([case] for group in plan(file, short=True) for case in group)
    yield from plan(file)
    yield from ([case] for case in corners(file))


@pytest.mark.parametrize(("source", "mutant"), list(_each(kernels_by_source(), REMOVED)))
def test_kernel_without_a_barrier_wait_or_fence_is_reported_with_file_and_line(source: str, mutant: Mutant) -> None:
    complaint = fate(source, mutant, _plans(source)).complaint
    if complaint is None:
        assert mention(source, mutant) in SURVIVORS.read_text(), f"no case notices it, and no reason is given: {mutant}"
        return
    assert re.search(r": [\w.]+\.cuh?:\d+: ", complaint), complaint  # the line may be in a header
    assert re.search(r"block \(\d+, \d+, \d+\) thread \(\d+, \d+, \d+\)", complaint), complaint


def _changes(kind: str) -> list[str]:
    return [mutant.change for mutant in mutants(KERNEL) if mutant.kind == kind]


def test_barriers_and_waits_are_removed_and_a_used_result_leaves_its_predicate() -> None:
    assert _changes("no barrier") == ["`__syncthreads()` -> ``", "`__syncthreads_or(i < 2)` -> `(i < 2)`"]
    assert _changes("no wait for copies") == ["`ptx::cp_async_wait<1>()` -> ``"]
    assert _changes("no wait for a phase") == ["`ptx::mbarrier_wait(full[i % 2], i / 2 % 2)` -> ``"]
    assert _changes("no wait for products") == ["`ptx::wgmma_wait<0>()` -> ``"]
    assert _changes("no arrival") == ["`ptx::mbarrier_arrive_cluster(ptx::smem_address(&empty[i]), 0)` -> ``"]
    assert _changes("no fence") == ["`ptx::fence_proxy_async()` -> ``"]


def test_guards_are_removed_and_loops_are_not() -> None:
    assert _changes("no guard") == ["`i >= m` -> `false`", "`j >= n` -> `false`", "`i < 2` -> `true`"]


def test_bounds_are_shifted_both_ways() -> None:
    shifted = _changes("bound shifted by one")
    assert len(shifted) == 8
    assert {"`k < n` -> `k < n + 1`", "`k < n` -> `k < int(n) - 1`"} <= set(shifted)


def test_leading_dimensions_are_exchanged_for_the_functions_other_sizes() -> None:
    assert _changes("other leading dimension") == ["`ldc` -> `m`", "`ldc` -> `n`"] * 2


def test_sums_lose_their_zeros_and_results_their_test_of_beta() -> None:
    text = "float sums[2] = {};\n*c = beta == 0.0f ? a : a + beta * *c;"
    changes = [mutant.change for mutant in mutants(text) if mutant.kind == "unwritten register"]
    assert changes == ["`= {}` -> ``", "`beta == 0.0f` -> `false`"]


def test_second_rounds_and_products_are_spoilt() -> None:
    text = "i += round; parity ^= 1; init(CONSUMERS * CLUSTER); wait<STAGES - 2>(); a + blockIdx.z * stride_a;"
    changes = [(mutant.kind, mutant.change) for mutant in mutants(text)]
    assert changes == [
        ("second round", "`round` -> `2 * round`"),
        ("second round", "`^= 1` -> ` ^= 0`"),
        ("second round", "`* CLUSTER` -> ``"),
        ("second round", "`STAGES - 2` -> `STAGES - 1`"),
        ("second product", "`blockIdx.z` -> `0`"),
    ]


#: Kinds of mistakes that small problems may not detect.
RARE = ("unwritten register", "second round", "second product")


def _one_of_an_operation() -> Iterator[ParameterSet]:
    """Yield one mistake of each kind in each folder of cuda/; `make mutants` tries all."""
    kinds = set()
    for parameters in _each((*kernels_by_source(), *headers_by_name()), RARE):
        file, mutant = parameters.values
        if (kind := (file.rpartition("/")[0], mutant.kind)) not in kinds:
            kinds.add(kind)
            yield parameters


@pytest.mark.parametrize(("file", "mutant"), list(_one_of_an_operation()))
def test_mistake_of_a_register_or_a_second_round_is_found_by_the_short_run(file: str, mutant: Mutant) -> None:
    before = "\n".join(mutant.text.splitlines()[: mutant.line])
    (*_, function) = ("", *re.findall(r"(\w+)\([^;{}]*\)\s*\{", before))
    callers = {source for source in kernels_by_source() if function in (CUDA / source).read_text()}

    def reaches(case: EmulatedCase) -> tuple[bool, bool, bool]:
        """Return a sort key: first, kernels that call the changed function; then, several rounds; then, batches."""
        return case.kernel.source not in callers, case.device == H100, getattr(case.problem, "batch", 1) == 1

    short = sorted((case for group in plan(file, short=True) for case in group), key=reaches)
    outcome = fate(file, mutant, [[case] for case in short])
    assert outcome.complaint
    assert outcome.compiles


def test_mutants_differ_from_the_source_in_one_place() -> None:
    for mutant in islice(mutants(KERNEL), 50):
        pairs = zip(KERNEL.splitlines(), mutant.text.splitlines(), strict=True)
        assert [i + 1 for i, (a, b) in enumerate(pairs) if a != b] == [mutant.line]


def test_header_is_met_by_every_kernel_that_includes_it_if_only_through_another() -> None:
    assert {"gemm/panel.cuh", "gemm/fragment.cuh", "common.cuh"} <= included("gemm/splitk.cu").keys()
    sources = headers_by_name()["gemm/fragment.cuh"]
    assert {"gemm/warptile.cu", "gemm/splitk.cu"} <= set(sources)
    assert {group[0].kernel.source for group in plan("gemm/fragment.cuh", short=True)} == set(sources)


def test_case_that_is_over_time_may_take_as_long_as_the_slow_machine_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    case, limits = TILED[0], []

    def complaints(case: EmulatedCase, names: tuple[str, ...], folder: Path = CUDA, limit_s: int = 0) -> Iterator[str]:
        if folder == CUDA:
            return iter(())
        limits.append(limit_s)
        if len(limits) == 1:
            raise subprocess.TimeoutExpired("program", limit_s)
        return iter(("x: timeout: endless",))

    clock = iter((0.0, 7.0))
    monkeypatch.setattr(proof, "complaints", complaints)
    monkeypatch.setattr(proof, "program", lambda *words: None)
    monkeypatch.setattr(proof.time, "monotonic", lambda: next(clock))
    assert proof.first_complaint(case, (), Path("mutant")) == "x: timeout: endless"
    assert limits == [3, 70]


def test_mistake_in_a_header_is_found_by_a_kernel_that_includes_it() -> None:
    header = "gemm/pipeline.cuh"
    wait = next(m for m in mutants((CUDA / header).read_text()) if m.kind == "no wait for copies")
    assert re.search(r": \w+\.cuh?:\d+: copy-in-flight: ", fate(header, wait, _plans(header)).complaint or "")


def test_short_run_keeps_each_variant_tile_option_and_last_size_in_a_seventh_of_the_sweep() -> None:
    for every, short in ((swept(kernel), short_run(kernel)) for kernel in emulated()):
        for trait in ("dtype", "layout", "direction", "place"):
            values = [{getattr(case.problem, trait, "") for case in cases} for cases in (every, short)]
            assert values[0] == values[1]
        assert {str(case.tile) for case in every} == {str(case.tile) for case in short}
    sizes = [{case.problem.k for case in cases if case.problem.k <= 512} for cases in (TILED, SHORT)]
    assert sizes[0] == sizes[1]
    assert len([case for case in SHORT if case.problem.k == 613]) == 1  # long problems take seconds
    padded = {case.problem.layout for case in SHORT if case.problem.batch > 1 and case.problem.lda_pad}
    assert padded == {"NN", "NT", "TN", "TT"}
    assert sum(len(short_run(kernel)) for kernel in emulated()) * 7 < sum(len(swept(kernel)) for kernel in emulated())


def test_case_is_kept_where_no_other_shows_its_traits() -> None:
    assert short_cases(SHORT[:1] * 3) == SHORT[:1]
    assert len(short_run("gemm/cuda.tiled")) == len(SHORT)


@pytest.mark.long
def test_long_run_has_each_pair_of_features_of_the_sweep() -> None:
    for kernel in emulated():
        taken = [*short_run(kernel), *paired_cases(kernel)]
        assert {pair for case in taken for pair in pairs(case)} == {p for c in swept(kernel) for p in pairs(c)}


def test_problem_that_mutants_need_besides_is_one_of_the_sweep() -> None:
    for kernel, problems in ALSO.items():
        assert {case.problem.id for case in short_run(kernel)} >= set(problems)
