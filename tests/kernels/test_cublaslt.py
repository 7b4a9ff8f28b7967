"""cuBLASLt is asked for the problem, for as many algorithms as there are kernels, and runs the one of the kernel."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from kernelmark.bench.measure.present import EXTRAS
from kernelmark.kernels.gemm import _cublaslt, cublaslt
from support.blas import CublasLt, HostOperands
from support.kernels import LAYOUTS, REGISTRY

KERNELS = {k.name: k for k in REGISTRY.kernels.values() if k.provider == "cublaslt"}
OPTIONS = ("", "/beta1", "/alpha0.5/beta2/batch3", "/lda+3/ldb+1/ldc+5", "/batch2/lda+1")
CACHED = (_cublaslt.handle, _cublaslt.described, _cublaslt.listed, _cublaslt._preference)
NT = "gemm/m5n7k4/f32/NT"
#: Storage types, and the numerics of each but for those on request.
DTYPES = {"f32": "fp32", "f16.f32": "f16", "bf16": "bf16", "e4m3.f32": "e4m3", "s8.s32": "exact"}


@pytest.fixture
def lt(monkeypatch: pytest.MonkeyPatch) -> Iterator[CublasLt]:
    """Stand-in for the bindings; what was made of it is forgotten at the end."""
    found = CublasLt()
    monkeypatch.setattr(_cublaslt, "api", lambda: found)
    yield found
    for function in CACHED:
        function.cache_clear()


def set_up(name: str, problem: str) -> tuple[Any, HostOperands]:
    parsed = REGISTRY.problem(problem)
    assert KERNELS[name].refuses(parsed) is None
    operands = HostOperands(parsed)
    return KERNELS[name].setup(parsed, operands), operands


def test_there_is_a_kernel_for_what_the_heuristic_chooses_and_one_for_each_algorithm() -> None:
    assert list(KERNELS) == ["heuristic", "heuristic_tf32", *(f"algo_{i}" for i in range(20))]
    assert {name for name, k in KERNELS.items() if k.on_request} == {f"algo_{i}" for i in range(20)}


def test_without_the_bindings_they_are_unavailable() -> None:
    assert {k.modules for k in KERNELS.values()} == {("cupy", "nvmath.bindings")}
    assert EXTRAS["nvmath.bindings"] == "gpu"


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", ["heuristic", "heuristic_tf32", "algo_1"])
def test_cublaslt_is_asked_for_the_problem(name: str, options: str, lt: CublasLt) -> None:
    for dtype in KERNELS[name].domain["dtype"]:
        if dtype == "s8.s32" and "beta" in options:
            continue
        for layout in ("NT",) if dtype.startswith(("e4m3", "s8")) else LAYOUTS:
            launch, operands = set_up(name, f"gemm/m5n7k4/{dtype}/{layout}{options}")
            launch()
            problem = REGISTRY.problem(f"gemm/m5n7k4/{dtype}/{layout}{options}")
            assert operands.complaint(problem, KERNELS[name].numerics_for(problem)) is None, problem.id
    assert {number for number, _, _ in lt.ran} == {1 if name == "algo_1" else 0}


def test_numerics_and_the_type_of_sums_belong_together(lt: CublasLt) -> None:
    problems = {dtype: REGISTRY.problem(f"gemm/m5n7k4/{dtype}/NT") for dtype in DTYPES}
    found = {dtype: KERNELS["heuristic"].numerics_for(problem) for dtype, problem in problems.items()}
    assert found == DTYPES
    for name, compute in (("heuristic", 68), ("algo_0", 68), ("heuristic_tf32", 77)):
        set_up(name, NT)[0]()
        assert lt.ran[-1][2] == compute
    for name in ("heuristic", "algo_0"):
        set_up(name, "gemm/m5n7k4/s8.s32/NT")[0]()
        assert lt.ran[-1][2] == 72


def test_the_heuristic_is_asked_for_one_algorithm_or_for_all_with_a_workspace_of_32_mib(lt: CublasLt) -> None:
    for name in ("heuristic", "algo_0", "algo_1"):
        set_up(name, NT)
    assert [asked["most"] for asked in lt.asked] == [1, 20]
    assert {asked["MAX_WORKSPACE_BYTES"] for asked in lt.asked} == {32 * 2**20}


@pytest.mark.parametrize(
    ("dtype", "mask"), [("f32", 7), ("f16.f32", 7), ("f16", 2), ("bf16", 2), ("e4m3.bf16", 2), ("s8.s32", 7)]
)
def test_slices_of_k_are_summed_in_32_bits(dtype: str, mask: int, lt: CublasLt) -> None:
    set_up("heuristic", f"gemm/m5n7k4/{dtype}/NT")
    assert lt.asked[0]["REDUCTION_SCHEME_MASK"] == mask


def test_an_algorithm_gets_the_workspace_that_it_asked_for_and_no_more(lt: CublasLt) -> None:
    lt.algorithms = (0, 65)
    assert set_up("algo_0", NT)[1].kept == []
    launch, operands = set_up("algo_1", NT)
    assert [space.nbytes for space in operands.kept] == [66]
    launch()
    assert lt.ran == [(1, 65, 68)]


@pytest.mark.parametrize(
    ("algorithms", "reason"),
    [
        ((0,) * 7, "cuBLASLt lists 7 algorithms for this problem"),
        ((0,), "cuBLASLt lists 1 algorithm for this problem"),
        ((), "cuBLASLt lists no algorithm for this problem"),
    ],
)
def test_a_number_beyond_the_list_is_unsupported(algorithms: tuple[int, ...], reason: str, lt: CublasLt) -> None:
    lt.algorithms = algorithms
    with pytest.raises(cublaslt.Unsupported, match=f"^{reason}$"):
        set_up(f"algo_{len(algorithms)}", NT)


def test_a_problem_that_the_library_does_not_support_is_unsupported_and_another_error_is_not(lt: CublasLt) -> None:
    lt.status = 15
    with pytest.raises(cublaslt.Unsupported, match="lists no algorithm"):
        set_up("heuristic", NT)
    for lt.status in (7, 13):
        with pytest.raises(CublasLt.cuBLASLtError, match=f"status {lt.status}"):
            set_up("heuristic", f"gemm/m5n7k{lt.status}/f32/NT")


def test_the_settings_of_the_algorithm_are_the_rows_tunables(lt: CublasLt) -> None:
    chosen = [set_up(name, NT)[1].chosen for name in ("algo_0", "algo_1")]
    assert [settings["algorithm"] for settings in chosen] == [66, 67]
    assert json.loads(json.dumps(chosen[0])) == {
        "algorithm": 66,
        "tile": "128x256",
        "stages": 99,  # for which the bindings have no name
        "cluster": "2x1x1",
        "splitk": 3,
        "reduction": 2,
        "swizzling": 1,
        "option": 4,
        "waves": 1.5,
    }


@pytest.mark.parametrize("options", ["", "/alpha2/beta0.5/lda+3/ldb+1/ldc+5"])
@pytest.mark.parametrize("dtype", ["e4m3.f32", "e4m3.bf16"])
def test_scales_of_blocks_are_those_of_the_problem(dtype: str, options: str, lt: CublasLt) -> None:
    """Three blocks of k and two of columns, of which the last ones end early; other operands have other scales."""
    problem = REGISTRY.problem(f"gemm/m132n140k300/{dtype}/NT{options}/scale-blocks")
    _, others = set_up("heuristic", problem.id)
    launch, operands = set_up("heuristic", problem.id)
    for name in ("scale_a", "scale_b"):
        others.flat[name].fill(float("nan"))
    launch()
    assert operands.complaint(problem, "e4m3") is None


def test_what_the_library_does_not_define_of_scales_is_refused() -> None:
    reasons = {
        "m6n8k16": "m is 6, expected a multiple of 4: cuBLASLt reads four scales at a time",
        "m8n6k16": "n is 6, expected a multiple of 4: cuBLASLt reads four scales at a time",
        "m8n8k16/batch2": "batch is 2, expected 1: cuBLASLt does not define where the scales of a batch lie",
    }
    for name, reason in reasons.items():
        sizes, *words = name.split("/")
        problem = REGISTRY.problem("/".join(["gemm", sizes, "e4m3.f32/NT", *words, "scale-blocks"]))
        assert KERNELS["heuristic"].refuses(problem) == reason


def test_a_library_without_scales_of_blocks_is_unsupported_in_one_line(lt: CublasLt) -> None:
    lt.version = 120804
    reason = r"^cublaslt 12\.8\.4 by nvmath has no scales of blocks, which 12\.9 is the first to have$"
    with pytest.raises(cublaslt.Unsupported, match=reason):
        set_up("heuristic", "gemm/m8n8k16/e4m3.f32/NT/scale-blocks")
    lt.version = 120900
    set_up("heuristic", "gemm/m8n8k16/e4m3.f32/NT/scale-blocks")


@pytest.mark.parametrize("layout", ["NN", "TN", "TT"])
@pytest.mark.parametrize(("dtype", "what"), [("e4m3.bf16", "FP8"), ("s8.s32", "INT8")])
def test_bytes_are_taken_as_nt_alone(dtype: str, what: str, layout: str) -> None:
    refused = KERNELS["heuristic"].refuses(REGISTRY.problem(f"gemm/m16n16k16/{dtype}/{layout}"))
    assert refused == f"layout is {layout}, expected NT: cuBLASLt multiplies {what} operands that are stored along k"


def test_the_version_is_the_librarys(lt: CublasLt) -> None:
    assert re.fullmatch(r"cublaslt 13\.0\.2 by nvmath", _cublaslt.version(None))


def test_bindings_that_do_not_load_are_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    _cublaslt.api.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "nvmath", None)
    with pytest.raises(cublaslt.Unsupported, match=r"^nvmath\.bindings\.cublasLt does not load: "):
        _cublaslt.api()
