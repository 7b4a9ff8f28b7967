"""Epilogues: right against their formulas, wrong where a step is, and kernels that have none refuse them."""

import math

import numpy as np
import pytest

from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.kernel import Scratch
from kernelmark.kernels.gemm import _reference
from support.emulated import wrong_in_emulator
from support.kernels import LAYOUTS, REGISTRY, chosen, drawn, lean, refusal, set_up, verified

FUSED, TWO_STEP = "gemm/cuda.async_fused", "gemm/cuda.async_two_step"
EPILOGUES = ("bias-relu", "sigmoid", "update")
CPU = ("gemm/numpy.matmul", "gemm/numpy.two_step", "gemm/numpy.fused")


def _by_definition(problem, x):
    """C and V of one product, element by element in Python's own numbers."""
    a = x["a"] if problem.op_a == "N" else x["a"].T
    b = x["b"] if problem.op_b == "N" else x["b"].T
    c, v = np.zeros((problem.m, problem.n)), np.zeros((problem.m, problem.n))
    for i, j in np.ndindex(c.shape):
        value = problem.alpha * math.fsum(float(p) * float(q) for p, q in zip(a[i], b[:, j], strict=True))
        value += problem.beta * float(x["c"][i, j]) if problem.beta else 0.0
        if problem.epilogue == "bias-relu":
            c[i, j] = max(0.0, value + float(x["bias"][j]))
        elif problem.epilogue == "sigmoid":
            c[i, j] = 0.5 + 0.5 * math.tanh(value / 2)
        else:
            weight = float(x["c"][i, j])
            v[i, j] = 7 / 8 * float(x["v"][i, j]) - (value + weight / 2048) / 64
            c[i, j] = weight + v[i, j]
    return c, v


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "words", ["epi-bias-relu", "alpha2/beta0.5/epi-bias-relu", "alpha-0.5/ldc+3/epi-sigmoid", "alpha2/epi-update"]
)
def test_reference_is_the_formula(layout, words):
    problem, x = drawn(f"gemm/m7n9k5/f64/{layout}/{words}")
    reference = problem.reference(x, np.random.default_rng(0))
    c, v = _by_definition(problem, x)
    assert np.allclose(reference.values[0], c, rtol=0, atol=1e-14)
    assert [one.name for one in reference.beside] == (["v"] if "update" in words else [])
    assert all(np.allclose(one.values[0], v, rtol=0, atol=1e-14) for one in reference.beside)


def test_products_of_a_batch_have_a_bias_and_a_velocity_each():
    for name, words in (("bias", "epi-bias-relu"), ("v", "epi-update")):
        problem, x = drawn(f"gemm/m3n4k5/f64/NT/batch2/{words}")
        whole = problem.reference(x, np.random.default_rng(0))
        for i in range(2):
            single, _ = drawn(f"gemm/m3n4k5/f64/NT/{words}")
            c, v = _by_definition(single, {each: x[each][i] for each in ("a", "b", "c", name) if each in x})
            assert np.allclose(whole.values[i], c, rtol=0, atol=1e-14)
            assert all(np.allclose(one.values[i], v, rtol=0, atol=1e-14) for one in whole.beside)


@pytest.mark.parametrize(
    ("words", "operands", "nbytes"),
    [
        ("NT/epi-bias-relu", {"bias": ("in", (5,))}, 4 * (21 + 35 + 15 + 5)),
        ("NT/epi-sigmoid", {}, 4 * (21 + 35 + 15)),
        ("TN/ldc+2/epi-update", {"v": ("inout", (3, 5))}, 4 * (21 + 35 + 2 * 15 + 2 * 15)),
    ],
)
def test_an_epilogue_adds_its_operands_and_their_bytes_and_no_flop(words, operands, nbytes):
    problem = REGISTRY.problem(f"gemm/m3n5k7/f32/{words}")
    assert {o.name: (o.role, o.shape) for o in problem.operands()[3:]} == operands
    assert (problem.traffic_bytes, problem.flop) == (nbytes, 2 * 3 * 5 * 7)
    assert REGISTRY.problem(problem.id) == problem
    assert len({o.ld for o in problem.operands() if o.name in "cv"}) == 1


def test_weights_in_single_precision_are_updated_by_operands_of_16_bits():
    assert REGISTRY.problem("gemm/m3n5k7/bf16.f32/TN/epi-update").operands()[3].dtype == "f32"


@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_only_kernels_that_declare_epilogues_take_them(epilogue):
    able = set()
    for kernel in discover().kernels.values():
        if kernel.op != "gemm":
            continue
        problem = REGISTRY.problem(f"gemm/m64n64k64/f32/{'TN' if epilogue == 'update' else 'NT'}/epi-{epilogue}")
        if reason := kernel.outside(problem):
            assert "path; it has" in reason
        else:
            able.add(kernel.id)
    assert able == {*CPU, FUSED, TWO_STEP}
    assert refusal("gemm/cuda.async", f"gemm/m4n4k4/f32/TN/epi-{epilogue}").endswith(
        f"no {epilogue} path; it has plain"
    )


@pytest.mark.parametrize("options", ["f32/NT", "f64/TN/alpha-0.5", "f32/NN/ldc+3", "f32/TT/beta0.5"])
@pytest.mark.parametrize("sizes", ["m1n1k1", "m300n33k17"])
def test_kernels_of_the_cpu_are_right_or_refuse_with_a_reason(sizes, options):
    for epilogue in EPILOGUES[: 2 if "beta" in options else 3]:
        for measured in verified(f"gemm/{sizes}/{options}/epi-{epilogue}", *CPU):
            assert measured.status in ("ok", "unsupported"), f"{measured.kernel}: {measured.reason}"
            if measured.status == "unsupported":
                assert "padding" in measured.reason or "beta 0.5 path" in measured.reason


def test_the_baseline_takes_batches():
    for epilogue in EPILOGUES:
        (measured,) = verified(f"gemm/m5n7k3/f32/NN/alpha2/batch3/ldc+1/epi-{epilogue}", CPU[0])
        assert (measured.status, measured.reason) == ("ok", "")


def test_fused_rows_of_an_update_have_no_gradient_of_all_weights():
    scratch = {row.kernel: row.scratch_bytes for row in verified("gemm/m1000n9k3/f32/TN/epi-update", *CPU)}
    assert scratch["gemm/numpy.fused"] == 2 * 2 * 128 * 9 * 4  # 128 rows of x and of room, for each of two threads
    assert scratch["gemm/numpy.two_step"] == 2 * 1000 * 9 * 4


def test_activations_of_large_problems_are_compared_element_by_element(monkeypatch):
    monkeypatch.setattr(_reference, "WHOLE_REFERENCE_MACS", 0)
    problem, x = drawn("gemm/m131n97k20/f32/NT/alpha0.25/epi-sigmoid")
    reference = problem.reference(x, np.random.default_rng(0))
    right = reference.values[0].astype(np.float32)
    assert problem.check({"c": right}, reference, "fp32").reason is None
    right[77, 55] += 1e-3
    assert problem.check({"c": right}, reference, "fp32").reason.startswith("c[77, 55] is ")


@pytest.mark.parametrize("output", ["c", "v"])
@pytest.mark.parametrize("error", [1e-3, np.nan])
def test_an_update_of_many_weights_is_sampled_and_a_wrong_one_is_named(output, error, monkeypatch):
    monkeypatch.setattr(_reference, "WHOLE_REFERENCE_MACS", 0)
    problem, x = drawn("gemm/m531n497k20/f32/NT/epi-update")
    reference = problem.reference(x, np.random.default_rng(0))
    v = 7 / 8 * x["v"] - (x["a"].astype(float) @ x["b"].T.astype(float) + x["c"] / 2048) / 64
    found = {"c": (x["c"] + v).astype(np.float32), "v": v.astype(np.float32)}
    assert problem.check(found, reference, "fp32").reason is None
    row = next(i for i in range(531) if i not in reference.rows and i not in reference.beside[0].rows)
    found[output][row, 5] += error
    assert f"checksum of {output} by row[{row}, " in problem.check(found, reference, "fp32").reason


@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_two_launches_have_the_tiles_of_one_and_room_for_all_sums(epilogue):
    layout = "TN" if epilogue == "update" else "NT"
    problem = f"gemm/m132n72k40/f32/{layout}/batch3/epi-{epilogue}"
    (one,), (first, second) = chosen(FUSED, problem).calls, chosen(TWO_STEP, problem).calls
    assert (one[1].grid, one[1].block, one[1].shared_bytes) == (first[1].grid, first[1].block, first[1].shared_bytes)
    (sums,) = {arg for arg in first[1].args if isinstance(arg, Scratch)}
    assert sums.nbytes == 3 * 132 * 72 * 4
    assert second[1].grid == (math.ceil(72 / 128), math.ceil(132 / 8), 3)
    assert second[0].startswith("sgemm_epilogue<")
    assert second[0].endswith(", 4>")


def test_layouts_that_no_layer_has_are_refused():
    taken = {(e, ops) for e in EPILOGUES for ops in LAYOUTS if not refusal(FUSED, f"gemm/m8n8k8/f32/{ops}/epi-{e}")}
    assert taken == {*((e, ops) for e in EPILOGUES[:2] for ops in ("NN", "NT")), ("update", "TN")}
    assert "the layout is NN, expected TN with epi-update" in refusal(FUSED, "gemm/m8n8k8/f32/NN/epi-update")


@pytest.mark.long
def test_packs_of_an_update_are_right_over_the_edges_of_tiles():
    problem = "gemm/m140n132k20/f32/TN/alpha2/batch2/lda+4/ldb+8/ldc+4/epi-update"
    assert not wrong_in_emulator([chosen(FUSED, problem)])


@pytest.mark.long
@pytest.mark.parametrize("words", ["NT/epi-sigmoid", "TN/epi-update"])
def test_no_other_epilogue_than_that_inspected_spills_where_a_thread_has_most_sums(words):
    wide = chosen(FUSED, f"gemm/m4096n4096k64/f32/{words}")
    assert (wide.tile.TM, wide.tile.TN) == (8, 16)
    lean(FUSED, [name for name, _ in wide.calls], "sm_90a")


def test_blas_has_its_threads_back_after_a_launch() -> None:
    import scipy.linalg.blas  # noqa: F401
    import threadpoolctl

    def threads() -> list[int]:
        return [lib["num_threads"] for lib in threadpoolctl.threadpool_info() if lib["user_api"] == "blas"]

    launch, *_ = set_up("gemm/m30n20k10/f32/NN/epi-sigmoid", "gemm/numpy.fused", 3)
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        launch()
        assert set(threads()) == {2}
