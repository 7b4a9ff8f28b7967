"""Declarations of kernels: what they may hold, and why one is refused."""

import pytest

from kernelmark import KernelCall, cuda_kernel, kernel, operation
from kernelmark.bench.plan.kernel import CudaKernel

OPTIONS = {"provider": "mine", "device": "cpu"}


def declare(op="gemm", **options):
    @kernel(op, **{**OPTIONS, **options})
    def twin(problem, x):
        """Does nothing.

        This line is no part of the label.
        """
        return lambda: None

    return twin


def test_a_kernel_has_its_functions_name_and_its_docstrings_first_line(registry):
    declare()
    assert registry.kernels["gemm/mine.twin"].label == "Does nothing."


def test_a_declared_name_and_label_go_before_the_functions(registry):
    declare(name="other", label="Does something.")
    assert registry.kernels["gemm/mine.other"].label == "Does something."


def test_a_decorated_function_stays_the_function(registry):
    assert declare()(None, None)() is None


def test_a_kernel_registered_twice_is_refused_by_name(registry, complaint):
    declare()
    first = registry.kernels["gemm/mine.twin"]
    assert complaint(declare) == "kernel gemm/mine.twin is registered twice; rename one of the two"
    assert registry.kernels["gemm/mine.twin"] is first


def test_an_operation_registered_twice_is_refused_by_name(registry, complaint):
    known = registry.operations["gemm"]
    assert "operation gemm is registered twice" in complaint(lambda: operation("gemm")(type("Gemm", (known,), {})))
    assert registry.operations["gemm"] is known


@pytest.mark.parametrize(
    ("options", "found", "expected"),
    [
        ({"op": "gem"}, "'gem'", "fma, gemm, transfer, transpose"),
        ({"numerics": "fp33"}, "'fp33'", "fp64, fp32"),
        ({"numerics": {"f32": "fp33"}}, "'fp33'", "fp64, fp32"),
        ({"places": ("out",)}, "places is unknown", "executed, groupings, groupss, host_memory, ks, label"),
        ({"dtpyes": ("f32",)}, "dtpyes is unknown", "did you mean dtypes?"),
        ({"provider": ""}, "provider is missing", "string"),
        ({"dtypes": ("f31",)}, "'f31'", "f64, f32, f16, bf16"),
        ({"layouts": ("NT", "NX")}, "'NX'", "NN, NT, TN, TT"),
        ({"layouts": "NT"}, "layouts is 'NT'", "tuple"),
        ({"treaded": True}, "treaded is unknown", "did you mean threaded?"),
    ],
)
def test_a_bad_declaration_is_one_line_and_registers_nothing(registry, complaint, options, found, expected):
    before = set(registry.kernels)
    line = complaint(lambda: declare(**options))
    assert ".twin: " in line
    assert found in line
    assert expected in line
    assert set(registry.kernels) == before


@pytest.mark.parametrize("problem", ["gemm/m8n8k8/f64/NT", "gemm/m8n8k8/f16.f32/NT"])
def test_outside_the_domain_the_kernel_says_what_it_has(registry, problem):
    declare(dtypes=("f32",), layouts=("NT",))
    twin, p = registry.kernels["gemm/mine.twin"], registry.problem(problem)
    assert twin.outside(p) == twin.refuses(p) == f"gemm/mine.twin has no {p.dtype} path; it has f32"


def test_inside_its_domain_a_kernel_refuses_nothing(registry):
    declare(dtypes=("f32",), layouts=("NT", "NN"))
    assert registry.kernels["gemm/mine.twin"].refuses(registry.problem("gemm/m8n8k8/f32/NN")) is None


def test_supports_gives_its_own_reason_inside_the_domain_alone(registry):
    declare(dtypes=("f32",), supports=lambda p: "takes even m" if p.m % 2 else None)
    twin = registry.kernels["gemm/mine.twin"]
    assert twin.refuses(registry.problem("gemm/m31n8k8/f32/NN")) == "takes even m"
    assert twin.refuses(registry.problem("gemm/m32n8k8/f32/NN")) is None
    assert "no f64 path" in twin.refuses(registry.problem("gemm/m31n8k8/f64/NN"))


@pytest.mark.parametrize(
    ("declared", "dtype", "numerics"),
    [
        (None, "f32", "fp32"),
        (None, "f64", "fp64"),
        (None, "bf16.f32", "fp32"),
        ("tf32", "f32", "tf32"),
        ({"f32": "3xtf32", "f16": "f16acc"}, "f16", "f16acc"),
    ],
)
def test_numerics_are_the_declared_ones_or_the_storages_own(registry, declared, dtype, numerics):
    declare(numerics=declared)
    problem = registry.problem(f"gemm/m8n8k8/{dtype}/NN")
    assert registry.kernels["gemm/mine.twin"].numerics_for(problem) == numerics


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"sourc": "gemm/x.cu", "entry": "x"}, "sourc is unknown"),
        ({"source": "gemm/x.cu"}, "entry is missing, expected a string"),
        ({"source": "gemm/x.cu", "entry": "x", "provider": "mine"}, "provider is unknown"),
    ],
)
def test_a_cuda_kernels_keywords_are_named_as_they_were_written(registry, complaint, options, found):
    line = complaint(lambda: cuda_kernel("gemm", **options)(lambda problem, tile, device: []))
    assert line.startswith(f"kernel gemm/cuda.<lambda>: {found}")
    assert "did you mean source?" in line or "sourc is" not in line


def tile_fits(problem, tile, device):
    return f"{tile.BM} does not divide m" if problem.m % tile.BM else None


@pytest.fixture
def tuned(registry) -> CudaKernel:
    @cuda_kernel(
        "gemm", source="gemm/x.cu", entry="x<{BM},{BN}>", tunables={"BM": (64, 16), "BN": (8, 4)}, valid=tile_fits
    )
    def tuned(problem, tile, device):
        """A plan."""
        return [KernelCall(grid=problem.m // tile.BM, block=tile.BM, args=("a", "b", "c"))]

    return registry.kernels["gemm/cuda.tuned"]


def test_tiles_are_every_combination_and_the_defaults_come_first(tuned):
    assert [(t.BM, t.BN) for t in tuned.tiles()] == [(64, 8), (64, 4), (16, 8), (16, 4)]


@pytest.mark.parametrize(("m", "tile"), [(128, (64, 8)), (48, (16, 8))])
def test_the_first_valid_tile_is_taken(tuned, registry, m, tile):
    chosen = tuned.tile_for(registry.problem(f"gemm/m{m}n8k8/f32/NN"))
    assert tile == (chosen.BM, chosen.BN)


def test_a_cuda_kernel_without_a_valid_tile_refuses_with_the_reason(tuned, registry):
    problem = registry.problem("gemm/m31n8k8/f32/NN")
    assert tuned.tile_for(problem) is None
    assert tuned.refuses(problem) == "gemm/cuda.tuned: no tile is valid: 64 does not divide m"
