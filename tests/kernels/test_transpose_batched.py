"""Transpositions of batches: ids, kernels on the CPU against the reference, and how blocks cover the matrices."""

import itertools
import math

import pytest

from kernelmark.bench.emulator.sweep import entries
from kernelmark.bench.measure.compile import ARCHS
from kernelmark.bench.plan.errors import UsageError
from support.emulated import wrong_in_emulator
from support.kernels import CUDA, REGISTRY, cases, chosen, lean, verified

KERNEL = CUDA["transpose/cuda.batched"]
ON_CPU = ("transpose/numpy.out", "transpose/numba.blocked")


@pytest.mark.parametrize("text", ["transpose/b8m64n3136/f32/out", "transpose/m64n3136/f32/out"])
def test_an_id_names_its_batch_before_the_sizes(text: str) -> None:
    problem = REGISTRY.problem(text)
    assert problem.id == text
    assert problem.traffic_bytes == 2 * 4 * problem.batch * 64 * 3136
    assert problem.operands()[0].shape[-2:] == (64, 3136)


def test_a_batch_of_one_is_the_matrix_itself() -> None:
    assert REGISTRY.problem("transpose/b1m5n7/f32/out") == REGISTRY.problem("transpose/m5n7/f32/out")


@pytest.mark.parametrize("text", ["transpose/b0m5n7/f32/out", "transpose/bm5n7/f32/out", "transpose/b08m5n7/f32/out"])
def test_no_batch_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"transpose/b0?8?m5n7"):
        REGISTRY.problem(text)


def test_kernels_of_one_matrix_take_no_batch() -> None:
    problem = REGISTRY.problem("transpose/b2m64n64/f32/out")
    taken = {k.id for k in REGISTRY.kernels.values() if k.op == "transpose" and k.refuses(problem) is None}
    assert taken == {*ON_CPU, KERNEL.id}


@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16"])
@pytest.mark.parametrize("sizes", ["b3m37n41", "b2m64n96", "b5m7n1", "b2m1n9"])
def test_every_matrix_of_a_batch_is_right_on_the_cpu(sizes: str, dtype: str) -> None:
    rows = verified(f"transpose/{sizes}/{dtype}/out", *ON_CPU)
    assert [(row.kernel, row.status) for row in rows] == [(name, "ok") for name in ON_CPU]


@pytest.mark.parametrize("sizes", ["b8m64n3136", "b3m512n49", "b2m49n513", "m1n1", "b70000m3n5"])
def test_blocks_cover_every_matrix_with_vectors_where_rows_are_aligned(sizes: str) -> None:
    case = chosen(KERNEL.id, f"transpose/{sizes}/f32/out")
    problem, ((entry, call),) = case.problem, case.calls
    tile, _, wide_a, wide_b = (int(word) for word in entry.rstrip(">").split(", ")[1:])
    assert call.grid == problem.batch * math.ceil(problem.m / tile) * math.ceil(problem.n / tile)
    assert (wide_a, wide_b) == tuple(1 if size % 4 else 4 for size in (problem.n, problem.m))


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["f64", "f32", "f16"])
def test_tiles_of_several_matrices_are_right_for_vectors_on_either_side(dtype: str) -> None:
    ids = [f"transpose/b3m{m}n{n}/{dtype}/out" for m, n in itertools.product((72, 49), (136, 35))]
    assert not wrong_in_emulator(cases(KERNEL.id, *ids))


@pytest.mark.parametrize("arch", [pytest.param(a, marks=pytest.mark.long) if a != "sm_90a" else a for a in ARCHS])
@pytest.mark.usefixtures("cuda_compiler")
def test_no_variant_spills(arch: str) -> None:
    ids = [f"transpose/b2m{m}n{n}/{d}/out" for m in (64, 49) for n in (136, 35) for d in ("f64", "f32", "f16")]
    lean(KERNEL.id, entries(cases(KERNEL.id, *ids)), arch)
