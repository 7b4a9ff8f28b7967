"""cuBLASLt: kernels for the first algorithm of its heuristic's list, and for each algorithm of the list.

As with cuBLAS, products are row-major (NT is (OP_T, OP_N)). The algorithms depend on the problem, the GPU and the
version; a row's `tunables` holds the settings of its algorithm, and `launched` its kernels. FP8 products are summed in
FP32 (CUBLASLT_MATMUL_DESC_FAST_ACCUM is off), products of 8-bit integers in 32 bits (CUBLAS_COMPUTE_32I); both are
supported only in NT. FP8 with block scales works only if the library has an algorithm for it, as on Hopper.
"""

from functools import partial
from typing import Any

from kernelmark import Launch, Unsupported, kernel, split_dtype
from kernelmark.kernels.gemm import _cublas, _cublaslt
from kernelmark.kernels.gemm.cublas import fits_ints
from kernelmark.kernels.gemm.handwritten import F32, HALF, LAYOUTS
from kernelmark.kernels.gemm.problem import GemmOperands, GemmProblem

#: The number of algorithms requested from the heuristic; each is a kernel.
MOST = 20
#: Names of the storage types that cuBLASLt multiplies only in NT.
_ALONG_K = {"e4m3": "FP8", "s8": "INT8"}


def _supports(problem: GemmProblem) -> str | None:
    storage = split_dtype(problem.dtype)[0]
    if storage in _ALONG_K and problem.layout != "NT":
        what = _ALONG_K[storage]
        return f"layout is {problem.layout}, expected NT: cuBLASLt needs {what} operands to be stored along k"
    if problem.scale == "blocks":
        for name, size in (("m", problem.m), ("n", problem.n)):
            if size % 4:
                return f"{name} is {size}, expected a multiple of 4: cuBLASLt reads four scales at a time"
        if problem.batch > 1:
            return f"batch is {problem.batch}, expected 1: cuBLASLt does not define where the scales of a batch lie"
    return fits_ints(problem)


def _launch(problem: GemmProblem, x: GemmOperands, compute: int, most: int, number: int) -> Launch:
    """Multiply by algorithm `number` of the heuristic's list. Raises Unsupported if the list is shorter."""
    are_integers = problem.dtype == "s8.s32"
    compute = _cublas.COMPUTE_32I if are_integers else compute
    scales = tuple(int(scale.data.ptr) for scale in (x.scale_a, x.scale_b)) if problem.scale == "blocks" else ()
    algorithms = _cublaslt.listed(problem, compute, most, scales)
    if number >= len(algorithms):
        count = f"{len(algorithms)} algorithm{'s' * (len(algorithms) != 1)}" if algorithms else "no algorithm"
        raise Unsupported(f"cuBLASLt lists {count} for this problem")
    chosen, described = algorithms[number], _cublaslt.described(problem, compute, scales)
    x.chose(**_cublaslt.settings(chosen))
    needed = chosen.workspace_bytes
    space = int(x.scratch((-(-needed // 2),), "f16").data.ptr) if needed else 0
    scalars, kind = (problem.alpha, problem.beta), "i4" if are_integers else "f4"
    alpha, beta = (_cublas.host_scalar(value, kind).ctypes.data for value in scalars)
    a, b, c = (int(array.data.ptr) for array in (x.a, x.b, x.c))
    inputs = (alpha, b, described.first, a, described.second)
    outputs = (beta, c, described.c, c, described.c)
    ends = (chosen.address, space, needed, int(x.stream.ptr))
    return partial(_cublaslt.api().matmul, _cublaslt.handle(), described.product, *inputs, *outputs, *ends)


_DECLARED: dict[str, Any] = {
    "provider": "cublaslt",
    "device": "cuda",
    "modules": ("cupy", "nvmath.bindings"),
    "supports": _supports,
    "library_version": _cublaslt.version,
}
_EVERY: dict[str, Any] = {
    "dtypes": (*F32["dtypes"], *HALF["dtypes"], "e4m3.f32", "e4m3.bf16", "s8.s32"),
    "layouts": LAYOUTS,
    "numerics": {"f32": "fp32", **HALF["numerics"], "e4m3": "e4m3", "s8": "exact"},
    "scales": ("none", "blocks"),
}
_TF32: dict[str, Any] = F32 | {"numerics": "tf32"}
_FIRST = "The first algorithm of cublasLtMatmulAlgoGetHeuristic"
_SUMMED = "summed in FP32, integers in 32 bits"
_KERNELS: tuple[tuple[str, dict[str, Any], int, int, int, str], ...] = (
    ("heuristic", _EVERY, _cublas.COMPUTE_32F, 1, 0, f"{_FIRST}, {_SUMMED}."),
    ("heuristic_tf32", _TF32, _cublas.COMPUTE_32F_FAST_TF32, 1, 0, f"{_FIRST} with COMPUTE_32F_FAST_TF32."),
    *(
        (
            *(f"algo_{number}", _EVERY | {"on_request": True}, _cublas.COMPUTE_32F, MOST, number),
            f"Algorithm {number} of at most {MOST} that cublasLtMatmulAlgoGetHeuristic lists, {_SUMMED}.",
        )
        for number in range(MOST)
    ),
)


def _declare(name: str, declared: dict[str, Any], compute: int, most: int, number: int, label: str) -> None:
    @kernel("gemm", name=name, label=label, **declared, **_DECLARED)
    def set_up(problem: GemmProblem, x: GemmOperands) -> Launch:
        return _launch(problem, x, compute, most, number)


for _kernel in _KERNELS:
    _declare(*_kernel)
