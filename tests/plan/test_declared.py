"""Declarations of kernels and operations, and the registry that holds them."""

from typing import ClassVar

import pytest

from kernelmark import Dim, Problem, cuda_kernel, kernel, operation
from kernelmark.bench.plan.declared import shown
from kernelmark.kernels.copy.problem import CopyProblem

OPTIONS = {"provider": "mine", "device": "cpu"}


def twin(problem, x):
    return lambda: None


BAD_ARGUMENTS = [
    ({"device": "tpu"}, "device is 'tpu', expected one of cpu, cuda"),
    ({"device": 1}, "device is 1, expected a string"),
    ({"provider": None}, "provider is None, expected a string"),
    ({"provider": "my own"}, "provider is 'my own', expected letters, digits, _"),
    ({"name": "a\n"}, r"name is 'a\n', expected letters"),
    ({"name": "é"}, "name is 'é', expected letters"),
    ({"modules": "numpy"}, "modules is 'numpy', expected a tuple, each element a string"),
    ({"threaded": "yes"}, "threaded is 'yes', expected True or False"),
    ({"supports": "even"}, "supports is 'even', expected a function or None"),
    ({"order": "fortran"}, "order is 'fortran', expected one of C, F"),
    ({"numerics": 32}, "numerics is 32, expected a string or a dict"),
    ({"numerics": "fp33"}, "numerics is 'fp33', expected one of exact, fp64, fp32"),
    ({"numerics": {"f31": "fp32"}}, "expected storage types from f64, f32"),
    ({"dtypes": ()}, "dtypes is (), expected at least one value"),
    ({"dtypes": ["f32"]}, "dtypes is ['f32'], expected a tuple of values"),
    ({"ms": (0,)}, "m is 0, expected"),
    ({"places": ("in",)}, "places is unknown, expected one of alphas, batchs, betas, "),
    ({"op": "gem"}, "'gem' is not an operation; expected one of aggregate, conv, copy"),
    ({"dtpyes": ("f32",)}, "did you mean dtypes?"),
    ({"provider": ""}, "provider is missing, expected a string"),
    ({"layouts": ("NT", "NX")}, "layout is 'NX', expected one of NN, NT, TN, TT"),
]
BAD_CUDA_ARGUMENTS = [
    ({"source": 1}, "source is 1, expected a string"),
    ({"archs": "sm_90a"}, "archs is 'sm_90a', expected a tuple, each element a string"),
    ({"alignment": True}, "alignment is True, expected a whole number"),
    ({"tunables": ["BM"]}, "tunables is ['BM'], expected a dict"),
    ({"tunables": {"BM": ()}}, "tunable BM is (), expected at least one value"),
    ({"tunables": {"BM": ("x",)}}, "each value a tuple, each element a whole number or a function"),
    ({"sourc": "gemm/x.cu"}, "did you mean source?"),
    ({"entry": ""}, "entry is missing, expected a string"),
    ({}, "its plan takes (problem, x), expected (problem, tile, device)"),
    ({"provider": "mine"}, "provider is unknown, expected one of "),
]


@pytest.mark.parametrize(
    ("decorator", "options", "refusal"),
    [
        *((kernel, OPTIONS | options, refusal) for options, refusal in BAD_ARGUMENTS),
        *((cuda_kernel, {"source": "gemm/x.cu", "entry": "x"} | options, text) for options, text in BAD_CUDA_ARGUMENTS),
    ],
)
def test_a_bad_argument_of_a_kernel_is_named_with_what_is_expected(registry, complaint, decorator, options, refusal):
    before = set(registry.kernels)
    line = complaint(lambda: decorator(**{"op": "gemm", **options})(twin))
    assert line.startswith("kernel gemm/cuda.twin: " if decorator == cuda_kernel else "kernel gem")
    assert refusal in line
    assert set(registry.kernels) == before


@pytest.mark.parametrize(("decorator", "name"), [(kernel, "kernel"), (cuda_kernel, "cuda_kernel")])
def test_a_decorator_without_parentheses_is_refused_with_an_example(complaint, decorator, name):
    line = complaint(lambda: decorator(twin))
    assert line.startswith(f"{name}: got <function twin")
    assert f'@{name}("gemm", ...)' in line


def test_a_kernel_that_is_not_a_function_is_refused(registry, complaint):
    line = complaint(lambda: kernel("gemm", **OPTIONS)(42))
    assert line == "kernel gemm/mine.?: setup is 42, expected a function or None"


class Bare(Problem, frozen=True, kw_only=True):
    sizes: ClassVar[tuple[str, ...]] = ("m",)
    m: Dim


def varied(frozen=True, **namespace):
    """Return a complete operation, with some attributes replaced."""
    namespace |= {"__module__": __name__}
    return type(CopyProblem)("Varied", (CopyProblem,), namespace, frozen=frozen, kw_only=True)


def with_axis(name):
    return varied(__annotations__={name: int}, **{name: 1})


BAD_OPERATIONS = {
    "a_function": ("mine", twin, "it is <function twin", "a subclass of kernelmark.Problem"),
    "a_class_of_another_base": ("mine", dict, "it is <class 'dict'>", "a subclass of kernelmark.Problem"),
    "a_blank_in_the_name": ("my own", CopyProblem, "its name is 'my own'", "letters, digits"),
    "problems_that_can_change": ("mine", varied(frozen=False), "frozen is False", "frozen=True"),
    "an_unknown_size": ("mine", varied(sizes=("m", "q")), "sizes is ('m', 'q')", "some of its axes: "),
    "an_unknown_suffix": ("mine", varied(suffixes=("q",)), "suffixes is ('q',)", "some of its axes: "),
    "no_size": ("mine", varied(sizes=()), "sizes is ()", "one axis or more"),
    "a_key_of_suites": ("mine", with_axis("count"), "an axis is 'count'", "another name"),
    "an_option_of_kernels": ("mine", with_axis("module"), "an axis is 'module'", "another name"),
    "axes_of_its_own": ("mine", varied(axes=classmethod(dict)), "an overridden method is 'axes'", "fields determine"),
    "a_missing_method": ("mine", Bare, "operands is missing", "operands, reference, check, flop"),
}


@pytest.mark.parametrize("case", BAD_OPERATIONS)
def test_a_bad_operation_is_refused_with_what_is_expected(registry, complaint, case):
    name, cls, refusal, expected = BAD_OPERATIONS[case]
    before = set(registry.operations)
    line = complaint(lambda: operation(name)(cls))
    assert line.startswith("operation ")
    assert refusal in line
    assert expected in line
    assert set(registry.operations) == before


def test_a_complete_operation_is_registered(registry):
    operation("mine")(varied())
    assert registry.problem("mine/m3n5/f32").m == 3


class Mute:
    """An object whose repr raises an error."""

    def __repr__(self):
        raise ValueError


def test_any_value_is_shown_in_one_short_line():
    assert shown(Mute()) == "an object of Mute"
    assert shown("x" * 100) == f"'{'x' * 56}..."
    assert "\n" not in shown({"a": "b\nc"})


def declare(**options):
    @kernel("gemm", **OPTIONS, **options)
    def twin(problem, x):
        """Does nothing.

        This line is not part of the label.
        """
        return lambda: None

    return twin


def test_a_kernel_takes_name_and_label_from_its_function_unless_they_are_declared(registry):
    assert declare()(None, None)() is None  # the function is not replaced
    declare(name="other", label="Does something.")
    labels = [registry.kernels[f"gemm/mine.{name}"].label for name in ("twin", "other")]
    assert labels == ["Does nothing.", "Does something."]


def test_a_second_registration_is_refused_by_name_and_the_first_stays(registry, complaint):
    declare()
    first, known = registry.kernels["gemm/mine.twin"], registry.operations["gemm"]
    assert complaint(declare) == "kernel gemm/mine.twin is registered twice; rename one of the two"
    assert "operation gemm is registered twice" in complaint(lambda: operation("gemm")(type("Gemm", (known,), {})))
    assert (registry.kernels["gemm/mine.twin"], registry.operations["gemm"]) == (first, known)


def test_supports_is_called_only_for_problems_in_the_domain(dummy, registry):
    twin = dummy("twin", dtypes=("f32",), layouts=("NT", "NN"), supports=lambda p: "takes even m" if p.m % 2 else None)
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
def test_numerics_are_the_declared_ones_or_those_of_the_storage_type(dummy, registry, declared, dtype, numerics):
    problem = registry.problem(f"gemm/m8n8k8/{dtype}/NN")
    assert dummy("twin", numerics=declared).numerics_for(problem) == numerics


def test_without_a_preference_the_first_valid_tile_of_all_combinations_is_taken(dummy, registry):
    fits = {"valid": lambda problem, t, device: f"{t.BM} does not divide m" if problem.m % t.BM else None}
    declared = dummy("tuned", tunables={"BM": (64, 16), "BN": (8, 4)}, **fits)
    assert [(t.BM, t.BN) for t in declared.tiles()] == [(64, 8), (64, 4), (16, 8), (16, 4)]
    chosen = [declared.tile_for(registry.problem(f"gemm/m{m}n8k8/f32/NN")) for m in (128, 48, 31)]
    assert [tile and (tile.BM, tile.BN) for tile in chosen] == [(64, 8), (16, 8), None]
    refusal = declared.refuses(registry.problem("gemm/m31n8k8/f32/NN"))
    assert refusal == "gemm/own.tuned: no tile is valid: 64 does not divide m"
