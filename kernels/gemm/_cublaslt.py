"""cuBLASLt: its descriptors of a problem, the algorithms that its heuristic lists, and their settings.

It is called through nvmath's bindings. Descriptors and lists live as long as the process, since launches hold their
addresses.
"""

import importlib
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from kernelmark import Unsupported, split_dtype
from kernelmark.kernels.gemm._cublas import COMPUTE_32I, CUDA_R, OP, WORKSPACE_BYTES
from kernelmark.kernels.gemm.problem import GemmProblem

_NOT_SUPPORTED = 15  # CUBLAS_STATUS_NOT_SUPPORTED
#: Masks of how slices of k may be summed, by C's type: in any way, or only in the compute type (FP32, not 16 bits).
_SCHEMES = {"f32": 7, "s32": 7, "f16": 2, "bf16": 2}
#: The first version that supports block scales.
_WITH_BLOCKS = 120900


class Algorithm(NamedTuple):
    """An algorithm that the heuristic lists: a cublasLtMatmulHeuristicResult_t, in an array with one element."""

    entry: Any

    @property
    def address(self) -> int:
        """Return the address of the algorithm's cublasLtMatmulAlgo_t."""
        return int(self.entry["algo"].ctypes.data)

    @property
    def workspace_bytes(self) -> int:
        """Return the bytes of workspace that the algorithm needs."""
        return int(self.entry["workspace_size"][0])


class Described(NamedTuple):
    """A product in cuBLASLt's terms: its descriptor and the layouts of the first and second operand and of C.

    Row-major C (m x n) is column-major C^T (n x m), so B is the first operand.
    """

    product: int
    first: int
    second: int
    c: int


@cache
def api() -> Any:
    """Return nvmath's bindings of cuBLASLt. Raises Unsupported if they do not load with the installed packages."""
    try:
        return importlib.import_module("nvmath.bindings.cublasLt")
    except Exception as error:  # a package of an incompatible version may raise anything
        raise Unsupported(f"nvmath.bindings.cublasLt does not load: {error}") from None


@cache
def handle() -> int:
    """Return the process's handle."""
    created: int = api().create()
    return created


def version(problem: object) -> str:
    """Return the library's version and the binding through which it is called: `cublaslt 13.0.2 by nvmath`."""
    number = api().get_version()
    return f"cublaslt {number // 10000}.{number // 100 % 100}.{number % 100} by nvmath"


@cache
def described(problem: GemmProblem, compute: int, scales: tuple[int, ...] = ()) -> Described:
    """Describe a product with sums of type `compute`. alpha and beta are 32-bit integers for integer sums, else floats.

    scales: the addresses of scale_a and scale_b if the problem has scales. Raises Unsupported if the library does not
    support them.
    """
    lt = api()
    product = lt.matmul_desc_create(compute, CUDA_R["s32" if compute == COMPUTE_32I else "f32"])
    words = [
        (lt.MatmulDescAttribute.TRANSA, OP[problem.op_b], "i4"),
        (lt.MatmulDescAttribute.TRANSB, OP[problem.op_a], "i4"),
    ]
    if scales:
        if lt.get_version() < _WITH_BLOCKS:
            raise Unsupported(f"{version(problem)} has no block scales, expected version 12.9 or later")
        words += [
            (lt.MatmulDescAttribute.A_SCALE_MODE, lt.MatmulMatrixScale.BLK128x128_32F, "i4"),
            (lt.MatmulDescAttribute.A_SCALE_POINTER, scales[1], "u8"),
            (lt.MatmulDescAttribute.B_SCALE_MODE, lt.MatmulMatrixScale.VEC128_32F, "i4"),
            (lt.MatmulDescAttribute.B_SCALE_POINTER, scales[0], "u8"),
        ]
    for attribute, value, kind in words:
        word = np.array(value, kind)
        lt.matmul_desc_set_attribute(product, attribute, word.ctypes.data, word.nbytes)
    a, b, c = (_layout(problem, operand) for operand in problem.operands()[:3])
    return Described(product, b, a, c)


def _layout(problem: GemmProblem, operand: Any) -> int:
    lt, (rows, columns) = api(), operand.shape[-2:]
    layout: int = lt.matrix_layout_create(CUDA_R[operand.dtype], columns, rows, operand.ld)
    for attribute, value in (
        (lt.MatrixLayoutAttribute.BATCH_COUNT, np.array(problem.batch, "i4")),
        (lt.MatrixLayoutAttribute.STRIDED_BATCH_OFFSET, np.array(rows * operand.ld, "i8")),
    ):
        lt.matrix_layout_set_attribute(layout, attribute, value.ctypes.data, value.nbytes)
    return layout


@cache
def listed(problem: GemmProblem, compute: int, most: int, scales: tuple[int, ...] = ()) -> tuple[Algorithm, ...]:
    """Return at most `most` algorithms that the heuristic lists for a product, the expected fastest first.

    An algorithm needs at most WORKSPACE_BYTES, and never adds slices of k in a type narrower than FP32. scales: as in
    `described`.
    """
    lt, product = api(), described(problem, compute, scales)
    results = np.zeros(most, lt.matmul_heuristic_result_dtype)
    count = np.zeros((), "i4")
    result = split_dtype(problem.dtype)[1]
    layouts = (product.first, product.second, product.c, product.c)
    try:
        lt.matmul_algo_get_heuristic(
            handle(), product.product, *layouts, _preference(result), most, results.ctypes.data, count.ctypes.data
        )
    except lt.cuBLASLtError as error:
        if error.status != _NOT_SUPPORTED:
            raise
    return tuple(Algorithm(results[i : i + 1]) for i in range(int(count)) if results["state"][i] == 0)


@cache
def _preference(result: str) -> int:
    """Return the preference that limits the heuristic's choice for this storage type of C."""
    lt = api()
    preference: int = lt.matmul_preference_create()
    for attribute, value in (
        (lt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES, np.array(WORKSPACE_BYTES, "u8")),
        (lt.MatmulPreferenceAttribute.REDUCTION_SCHEME_MASK, np.array(_SCHEMES[result], "u4")),
    ):
        lt.matmul_preference_set_attribute(preference, attribute, value.ctypes.data, value.nbytes)
    return preference


def settings(algorithm: Algorithm) -> dict[str, Any]:
    """Return an algorithm's settings, such as its number, tile, stages, slices of k and waves of blocks."""
    lt = api()
    attributes = lt.MatmulAlgoConfigAttribute
    return {
        "algorithm": _setting(algorithm, attributes.ID),
        "tile": _name(lt.MatmulTile, _setting(algorithm, attributes.TILE_ID)),
        "stages": _name(lt.MatmulStages, _setting(algorithm, attributes.STAGES_ID)),
        "cluster": _name(lt.ClusterShape, _setting(algorithm, attributes.CLUSTER_SHAPE_ID)),
        "splitk": _setting(algorithm, attributes.SPLITK_NUM),
        "reduction": _setting(algorithm, attributes.REDUCTION_SCHEME),
        "swizzling": _setting(algorithm, attributes.CTA_SWIZZLING),
        "option": _setting(algorithm, attributes.CUSTOM_OPTION),
        "waves": round(float(algorithm.entry["waves_count"][0]), 3),
    }


def _setting(algorithm: Algorithm, attribute: Any) -> int:
    lt, written = api(), np.zeros((), "u8")
    value = np.zeros((), lt.get_matmul_algo_config_attribute_dtype(attribute))
    lt.matmul_algo_config_get_attribute(
        algorithm.address, attribute, value.ctypes.data, value.nbytes, written.ctypes.data
    )
    return int(value)


def _name(kind: Any, value: int) -> str | int:
    """Return `128x256` for TILE_128x256, or the number itself if the bindings have no name for it."""
    return next((str(member.name).partition("_")[2] for member in kind if member == value), value)
