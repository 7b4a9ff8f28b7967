"""Calls of cuBLAS and cuBLASLt describe the problem: stand-ins compute what the documentation defines."""

import itertools
import json
import re
import sys
from types import ModuleType

import numpy as np
import pytest

from kernelmark.bench.measure.cpu import Cpu
from kernelmark.bench.measure.cuda import Cuda
from kernelmark.bench.measure.operands import Operands, OperandSet, ScratchBuffers, loaded
from kernelmark.bench.measure.present import EXTRAS
from kernelmark.bench.plan.case import Budget, Job
from kernelmark.bench.plan.dtypes import numpy_dtype
from kernelmark.bench.plan.errors import Unsupported
from kernelmark.bench.plan.limits import H100
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.registry import kernel
from kernelmark.bench.run.job import run_job
from kernelmark.kernels.gemm import _cublas, _cublaslt, cublaslt
from support.blas import Blas, CublasLt, HostOperands, blas_stand_in, matrix
from support.kernels import LAYOUTS, REGISTRY, verified

EVERY = [kernel for kernel in REGISTRY.kernels.values() if kernel.module == "kernelmark.kernels.gemm.cublas"]
GROUPED = [kernel for kernel in EVERY if "none" not in kernel.domain["grouping"]]
KERNELS = [kernel for kernel in EVERY if kernel not in GROUPED]
OPTIONS = ("", "/beta1", "/alpha0.5/beta2/batch3", "/lda+3/ldb+1/ldc+5", "/batch2/lda+1")


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.id)
def test_cublas_is_called_with_the_problem(kernel, options):
    for dtype in kernel.domain["dtype"]:
        for layout in LAYOUTS:
            problem = REGISTRY.problem(f"gemm/m5n7k4/{dtype}/{layout}{options}")
            if reason := kernel.refuses(problem):
                assert (kernel.order, "lda" in options) == ("F", True), reason
                continue
            operands = HostOperands(problem, kernel.order)
            kernel.setup(problem, operands)()
            assert operands.complaint(kernel.numerics_for(problem)) is None, problem.id


@pytest.mark.parametrize(
    "options",
    [
        "groups1-equal",
        "beta0.5/alpha2/groups5-skewed",
        "lda+3/ldb+1/ldc+5/groups9-equal",
        "lda+8/ldb+16/ldc+8/groups9-equal",
    ],
)
@pytest.mark.parametrize("kernel", GROUPED, ids=lambda kernel: kernel.id)
def test_each_group_is_multiplied_by_its_own_b(kernel, options):
    for dtype, layout in itertools.product(("f64", "f32", "f16", "bf16"), kernel.domain["layout"]):
        problem = REGISTRY.problem(f"gemm/m7n8k16/{dtype}/{layout}/{options}")
        operands = HostOperands(problem)
        if kernel.refuses(problem):
            assert (dtype in ("f16", "bf16"), "lda+3" in options) == (True, True)
            continue
        kernel.setup(problem, operands)()
        assert operands.complaint(kernel.numerics_for(problem)) is None, problem.id


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.id)
def test_nt_is_the_call_that_the_label_names(kernel):
    problem = REGISTRY.problem(f"gemm/m5n7k4/{kernel.domain['dtype'][0]}/NT")
    ops = kernel.setup(problem, HostOperands(problem, kernel.order)).args[1:3]
    names = {number: f"OP_{name}" for name, number in _cublas.OP.items()}
    assert f"NT is the call ({', '.join(names[op] for op in ops)})" in kernel.label
    assert ops == ((_cublas.OP["N"], _cublas.OP["T"]) if kernel.order == "F" else (_cublas.OP["T"], _cublas.OP["N"]))


def test_cublas_is_called_by_ctypes_if_nvmath_refuses_the_installed_packages(tmp_path, monkeypatch):
    (tmp_path / "nvmath").mkdir()
    (tmp_path / "nvmath" / "__init__.py").write_text("raise RuntimeError('cuda-core 0.3 is required')")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.startswith("nvmath")]:
        monkeypatch.delitem(sys.modules, name)
    _cublas._nvmath.cache_clear()
    try:
        assert _cublas.binding() == "ctypes"
    finally:
        _cublas._nvmath.cache_clear()


CUPY = REGISTRY.kernels["gemm/cupy.matmul"]


class Gpu(Cpu):
    """Holds operands in the types of a GPU."""

    dtype = Cuda.dtype

    def upload(self, target, source):
        super().upload(target, source.view(target.dtype))


class CuPy(ModuleType):
    """Stands in for CuPy 14: multiplies arrays of one floating type, and counts the bytes that it copies first."""

    copied_bytes = 0

    def matmul(self, a, b, out):
        assert a.dtype == b.dtype == out.dtype
        assert a.dtype in [numpy_dtype(dtype) for dtype in CUPY.domain["dtype"]]
        for array in (a, b, out):
            may_be_transposed = array.ndim == 2 and array is not out
            if not (array.flags.c_contiguous or (may_be_transposed and array.flags.f_contiguous)):
                self.copied_bytes += array.nbytes
        out[...] = a.astype(np.float64) @ b.astype(np.float64)


@pytest.mark.parametrize("sizes", ["m5n7k4", "m1n7k4", "m5n1k1", "m1n1k1"])
@pytest.mark.parametrize("options", ["", "/batch3", "/lda+3/ldb+1/ldc+5", "/batch2/lda+1"])
def test_cupy_is_called_with_the_problem_and_its_copies_are_counted(sizes, options, monkeypatch):
    for dtype, layout in itertools.product(CUPY.domain["dtype"], LAYOUTS):
        problem = REGISTRY.problem(f"gemm/{sizes}/{dtype}/{layout}{options}")
        if CUPY.refuses(problem):
            assert "m1n1" in sizes, problem.id
            assert dtype in ("f16", "bf16")
            continue
        monkeypatch.setitem(sys.modules, "cupy", cupy := CuPy("cupy"))
        draw, operands = loaded(problem, Gpu())
        operands.poison()
        reference = problem.reference(draw.views("C"), np.random.default_rng(0))
        CUPY.launch(problem, Operands(operands, "C", Gpu(), 1, ScratchBuffers(Gpu())))()
        verdict = problem.check(operands.outputs("C"), reference, CUPY.numerics_for(problem))
        assert (verdict.reason, operands.damage(draw)) == (None, None), problem.id
        assert CUPY.library_scratch(problem) == cupy.copied_bytes, problem.id


LT = {k.name: k for k in REGISTRY.kernels.values() if k.provider == "cublaslt"}
NT = "gemm/m5n7k4/f32/NT"
#: The default numerics of storage types.
DTYPES = {"f32": "fp32", "f16.f32": "f16", "bf16": "bf16", "e4m3.f32": "e4m3", "s8.s32": "exact"}


@pytest.fixture
def lt(monkeypatch):
    """A stand-in for the bindings; caches of its objects are cleared at the end."""
    library = CublasLt()
    monkeypatch.setattr(_cublaslt, "api", lambda: library)
    yield library
    for function in (_cublaslt.handle, _cublaslt.described, _cublaslt.listed, _cublaslt._preference):
        function.cache_clear()


def set_up(name, problem):
    parsed = REGISTRY.problem(problem)
    assert LT[name].refuses(parsed) is None
    operands = HostOperands(parsed)
    return LT[name].setup(parsed, operands), operands


def test_the_heuristics_choice_and_each_algorithm_have_a_kernel():
    assert list(LT) == ["heuristic", "heuristic_tf32", *(f"algo_{i}" for i in range(20))]
    assert {name for name, k in LT.items() if k.on_request} == {f"algo_{i}" for i in range(20)}


def test_kernels_of_cublaslt_need_its_bindings():
    assert {k.modules for k in LT.values()} == {("cupy", "nvmath.bindings")}
    assert EXTRAS["nvmath.bindings"] == "gpu"


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", ["heuristic", "heuristic_tf32", "algo_1"])
def test_cublaslt_is_called_with_the_problem(name, options, lt):
    for dtype in LT[name].domain["dtype"]:
        if dtype == "s8.s32" and "beta" in options:
            continue
        for layout in ("NT",) if dtype.startswith(("e4m3", "s8")) else LAYOUTS:
            launch, operands = set_up(name, f"gemm/m5n7k4/{dtype}/{layout}{options}")
            launch()
            assert operands.complaint(LT[name].numerics_for(operands.problem)) is None, operands.problem.id
    assert {number for number, _, _ in lt.ran} == {1 if name == "algo_1" else 0}


def test_the_compute_type_follows_from_the_numerics(lt):
    problems = {dtype: REGISTRY.problem(f"gemm/m5n7k4/{dtype}/NT") for dtype in DTYPES}
    numerics = {dtype: LT["heuristic"].numerics_for(problem) for dtype, problem in problems.items()}
    assert numerics == DTYPES
    for name, compute in (("heuristic", 68), ("algo_0", 68), ("heuristic_tf32", 77)):
        set_up(name, NT)[0]()
        assert lt.ran[-1][2] == compute
    for name in ("heuristic", "algo_0"):
        set_up(name, "gemm/m5n7k4/s8.s32/NT")[0]()
        assert lt.ran[-1][2] == 72


def test_one_or_all_algorithms_are_requested_with_a_workspace_of_32_mib(lt):
    for name in ("heuristic", "algo_0", "algo_1"):
        set_up(name, NT)
    assert [query["most"] for query in lt.queries] == [1, 20]
    assert {query["MAX_WORKSPACE_BYTES"] for query in lt.queries} == {32 * 2**20}


@pytest.mark.parametrize(
    ("dtype", "mask"), [("f32", 7), ("f16.f32", 7), ("f16", 2), ("bf16", 2), ("e4m3.bf16", 2), ("s8.s32", 7)]
)
def test_slices_of_k_are_summed_in_32_bits(dtype, mask, lt):
    set_up("heuristic", f"gemm/m5n7k4/{dtype}/NT")
    assert lt.queries[0]["REDUCTION_SCHEME_MASK"] == mask


def test_an_algorithm_gets_exactly_the_workspace_that_it_requested(lt):
    lt.algorithms = (0, 65)
    assert set_up("algo_0", NT)[1].buffers == []
    launch, operands = set_up("algo_1", NT)
    assert [space.nbytes for space in operands.buffers] == [66]
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
def test_a_number_beyond_the_list_is_unsupported(algorithms, reason, lt):
    lt.algorithms = algorithms
    with pytest.raises(cublaslt.Unsupported, match=f"^{reason}$"):
        set_up(f"algo_{len(algorithms)}", NT)


def test_only_the_status_for_an_unsupported_problem_makes_it_unsupported(lt):
    lt.status = 15
    with pytest.raises(cublaslt.Unsupported, match="lists no algorithm"):
        set_up("heuristic", NT)
    for lt.status in (7, 13):
        with pytest.raises(CublasLt.cuBLASLtError, match=f"status {lt.status}"):
            set_up("heuristic", f"gemm/m5n7k{lt.status}/f32/NT")


def test_the_settings_of_the_algorithm_are_the_rows_tunables(lt):
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
def test_scales_of_blocks_are_passed_to_cublaslt(dtype, options, lt):
    """There are three blocks along k and two along n, the last of each partial. Scales of `others` must not be used."""
    problem = REGISTRY.problem(f"gemm/m132n140k300/{dtype}/NT{options}/scale-blocks")
    _, others = set_up("heuristic", problem.id)
    launch, operands = set_up("heuristic", problem.id)
    for name in ("scale_a", "scale_b"):
        others.flat[name].fill(float("nan"))
    launch()
    assert operands.complaint("e4m3") is None


def test_a_library_without_scales_of_blocks_is_unsupported_in_one_line(lt):
    lt.version = 120804
    reason = r"^cublaslt 12\.8\.4 by nvmath has no block scales, expected version 12\.9 or later$"
    with pytest.raises(cublaslt.Unsupported, match=reason):
        set_up("heuristic", "gemm/m8n8k16/e4m3.f32/NT/scale-blocks")
    lt.version = 120900
    set_up("heuristic", "gemm/m8n8k16/e4m3.f32/NT/scale-blocks")


def test_the_version_is_that_of_the_library(lt):
    assert re.fullmatch(r"cublaslt 13\.0\.2 by nvmath", _cublaslt.version(None))


def test_bindings_that_do_not_load_are_unsupported(monkeypatch):
    _cublaslt.api.cache_clear()
    monkeypatch.setitem(sys.modules, "nvmath", None)
    with pytest.raises(cublaslt.Unsupported, match=r"^nvmath\.bindings\.cublasLt does not load: "):
        _cublaslt.api()


TRANSPOSING = ("gemm/cublas.tnn_geam", "gemm/cublas.tnn", "gemm/cublas.inplace")
TWO_STEP = "gemm/cublas.two_step"
F32 = 4


class Lab(HostOperands):
    def __init__(self, problem):
        super().__init__(REGISTRY.problem(problem))
        self.launched = []

    def run(self, kernel_id):
        """Set up and launch twice: one launch must not change the result of the next."""
        launch = REGISTRY.kernels[kernel_id].setup(self.problem, self)
        launch()
        if "c" in self.before:
            self.views["c"][...] = self.before["c"]
        launch()

    @property
    def scratch_bytes(self):
        return sum(part.nbytes for part in self.buffers)

    def launch(self, kernel_id, problem, **arrays):
        parsed, chosen = REGISTRY.problem(problem), REGISTRY.kernels[kernel_id]
        assert chosen.refuses(parsed) is None
        self.launched.append(f"{kernel_id} {problem}")
        m, n = parsed.m, parsed.n

        def move():
            source = matrix(arrays["a"].data.ptr, "f32", n, n, m).T.copy()
            target = arrays["b"] if parsed.place == "out" else arrays["a"]
            matrix(target.data.ptr, "f32", m, m, n)[...] = source

        return move


@pytest.fixture(autouse=True)
def blas(monkeypatch):
    monkeypatch.setattr(_cublas, "_cublas", blas_stand_in(Blas()))


@pytest.mark.parametrize("options", ["", "/alpha0.5/beta2"])
@pytest.mark.parametrize("shape", ["m5n7k4", "m3n6k6", "m1n1k1", "m2n1k9"])
@pytest.mark.parametrize("kernel_id", TRANSPOSING)
def test_transposing_first_gives_the_product_and_keeps_the_inputs(kernel_id, shape, options):
    lab = Lab(f"gemm/{shape}/f32/NT{options}")
    lab.run(kernel_id)
    assert lab.complaint("fp32") is None


@pytest.mark.parametrize(
    ("name", "sizes", "launched", "scratch_bytes"),
    [
        ("tnn_geam", "m5n7k4", [], 7 * 4 * F32),
        ("tnn", "m5n7k4", ["vectorised transpose/m7n4/f32/out"], 7 * 4 * F32),
        ("inplace", "m5n7k4", ["c2r transpose/m7n4/f32/in", "c2r transpose/m4n7/f32/in"], 0),
        ("inplace", "m5n8k8", ["vectorised_inplace transpose/m8n8/f32/in"] * 2, 0),
    ],
)
def test_each_strategy_transposes_b_by_its_own_launches(name, sizes, launched, scratch_bytes):
    lab = Lab(f"gemm/{sizes}/f32/NT")
    lab.run(f"gemm/cublas.{name}")
    assert (lab.launched, lab.scratch_bytes) == ([f"transpose/cuda.{words}" for words in launched], scratch_bytes)


@pytest.mark.parametrize("alpha", ["", "/alpha-0.01", "/alpha0"])
@pytest.mark.parametrize("shape", ["m5n7k4", "m1n1k1"])
def test_two_steps_give_the_update(shape, alpha):
    lab = Lab(f"gemm/{shape}/f32/TN{alpha}/beta1")
    lab.run(TWO_STEP)
    assert lab.complaint("fp32") is None
    assert lab.scratch_bytes == lab.problem.m * lab.problem.n * F32


def test_every_strategy_of_every_provider_takes_the_founding_problem():
    founding = REGISTRY.problem("gemm/m1024n2048k26752/f32/NT")
    taken = {k.id for k in REGISTRY.kernels.values() if k.op == "gemm" and k.refuses(founding) is None}
    cpu = {"gemm/numpy.matmul", "gemm/scipy.sgemm", "gemm/numpy.tnn", "gemm/openblas.tnn", "gemm/openblas.inplace"}
    assert taken > cpu | set(TRANSPOSING) | {"gemm/cublas.sgemm", "gemm/cuda.streamk"}


def _operands(problem):
    return Operands(OperandSet(REGISTRY.problem(problem), Cpu()), "C", Cpu(), 1, ScratchBuffers(Cpu()))


def test_a_kernel_launches_another_on_given_arrays(registry):
    seen = []

    def set_up(problem, x):
        seen.append((problem.id, x.a, x.b, x.threads, x.scratch((2, 3), "f32").shape))
        return lambda: np.copyto(x.b, x.a.T)

    kernel("transpose", name="mine", provider="p", device="cpu", numerics="exact")(set_up)
    x = _operands("gemm/m2n3k4/f32/NT")
    transposed = x.scratch((4, 3), "f32")
    x.b[...] = np.arange(12).reshape(3, 4)
    x.launch("transpose/p.mine", "transpose/m3n4/f32/out", a=x.b, b=transposed)()
    assert np.array_equal(transposed, x.b.T)
    ((problem, a, b, threads, scratch),) = seen
    assert (problem, threads, scratch) == ("transpose/m3n4/f32/out", 1, (2, 3))
    assert a is x.b
    assert b is transposed


def test_a_refusal_of_the_launched_kernel_is_unsupported(monkeypatch):
    monkeypatch.setattr("kernelmark.bench.measure.launch.present_limits", lambda: H100)
    x = _operands("gemm/m2n3k4/f32/NT")
    with pytest.raises(Unsupported, match="square"):
        x.launch("transpose/cuda.vectorised_inplace", "transpose/m3n4/f32/in", a=x.b)


SCIPY_TWO_STEP = "gemm/scipy.two_step"


@pytest.mark.parametrize(("dtype", "size"), [("f32", 4), ("f64", 8)])
def test_two_steps_of_scipy_give_the_update_with_the_gradient_in_scratch(dtype, size):
    sizes = ((1, 1, 1), (31, 33, 17), (127, 1, 3), (1, 64, 129))
    for (m, n, k), alpha in itertools.product(sizes, ("", "/alpha-0.01", "/alpha0")):
        (measured,) = verified(f"gemm/m{m}n{n}k{k}/{dtype}/TN{alpha}/beta1", SCIPY_TWO_STEP)
        assert (measured.status, measured.reason, measured.scratch_bytes) == ("ok", "", m * n * size), (m, n, k, alpha)


@pytest.mark.parametrize("mode", [Mode.COLD, Mode.HOT])
def test_two_steps_are_right_after_any_number_of_samples(mode):
    problem = "gemm/m33n31k65/f32/TN/alpha-0.01/beta1"
    (measured,) = run_job(Job((problem,), (SCIPY_TWO_STEP,), mode, (), 0, Budget(0.05), threads=2))
    assert (measured.status, measured.reason) == ("ok", "")
