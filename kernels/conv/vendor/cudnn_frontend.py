"""cuDNN's engines, selected by their numerical notes through NVIDIA's Python package for the graph API.

Each kernel is the first plan in the list of cuDNN's heuristics whose engine has the required notes and none of the
excluded notes. The row names the engine. Written for nvidia-cudnn-frontend 1.32.
"""

from functools import lru_cache, partial
from importlib import import_module
from typing import Any, NamedTuple

from kernelmark import Launch, Unsupported, kernel
from kernelmark.kernels.conv.problem import ConvOperands, ConvProblem
from kernelmark.kernels.conv.vendor.cudnn import products, spectral, three_by_three, unequal_padding

_DATA_TYPE = {"f32": "FLOAT", "f16": "HALF", "bf16": "BFLOAT16"}
_OPERANDS = {"fprop": ("x", "w", "y"), "dgrad": ("y", "w", "x"), "wgrad": ("x", "y", "w")}
# Members of cudnn.numerical_note, which mirrors cudnnBackendNumericalNote_t.
_COARSE = ("TENSOR_CORE", "DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION")
_OTHER_COORDINATES = ("FFT", "WINOGRAD")
_MODES = ("A", "B", "FALLBACK")


def _frontend() -> Any:
    """Return NVIDIA's package, not this module of the same name."""
    return import_module("cudnn")


@lru_cache
def _handle() -> Any:
    """Return the process's handle, on the device that was current at the first call."""
    return _frontend().create_handle()


def _layout(problem: ConvProblem, name: str) -> dict[str, list[int]]:
    """Return sizes and strides in the order n, c, h, w, whatever the layout."""
    n, c, h, w = problem.shapes()[name]
    stride = [1, w * c, c] if problem.layout == "nhwc" else [h * w, w, 1]
    return {"dim": [n, c, h, w], "stride": [c * h * w, *stride]}


def _graph(problem: ConvProblem) -> tuple[Any, dict[str, Any]]:
    """Return the convolution as a cuDNN graph with one node, and its tensors by operand."""
    cudnn = _frontend()
    stored, single = getattr(cudnn.data_type, _DATA_TYPE[problem.dtype]), cudnn.data_type.FLOAT
    kinds = {"io_data_type": stored, "intermediate_data_type": single, "compute_data_type": single}
    graph = cudnn.pygraph(**kinds, handle=_handle())
    first, second, output = _OPERANDS[problem.direction]
    tensors = {name: graph.tensor(name=name, data_type=stored, **_layout(problem, name)) for name in (first, second)}
    convolve = getattr(graph, f"conv_{problem.direction}")
    layout = _layout(problem, output)
    result = convolve(tensors[first], tensors[second], **_geometry(problem))
    result.set_output(True).set_data_type(stored).set_dim(layout["dim"]).set_stride(layout["stride"])
    return graph, {**tensors, output: result}


def _geometry(p: ConvProblem) -> dict[str, list[int]]:
    return {
        "pre_padding": [p.pad_h.before, p.pad_w.before],
        "post_padding": [p.pad_h.after, p.pad_w.after],
        "stride": [p.stride_h, p.stride_w],
        "dilation": [p.dilation_h, p.dilation_w],
    }


def _first_plan(graph: Any, wanted: tuple[str, ...], barred: tuple[str, ...]) -> str:
    """Build the first plan with the wanted and no barred notes; return its name. Raises Unsupported if none exists."""
    cudnn = _frontend()
    graph.create_execution_plans([getattr(cudnn.heur_mode, mode) for mode in _MODES])
    graph.deselect_numeric_notes([getattr(cudnn.numerical_note, name) for name in barred])
    if wanted:
        graph.select_numeric_notes([getattr(cudnn.numerical_note, name) for name in wanted])
    for index in range(graph.get_execution_plan_count()):
        try:
            graph.build_plan_at_index(index)
        except (cudnn.cudnnGraphNotSupportedError, ValueError):  # not for this device, or ruled out by its notes
            continue
        return str(graph.get_plan_name_at_index(index))
    notes = [f"{verb} {', '.join(names)}" for verb, names in (("has", wanted), ("lacks", barred)) if names]
    raise Unsupported(f"none of cuDNN's {graph.get_execution_plan_count()} plans {' and '.join(notes)}")


class _Planned(NamedTuple):
    """A graph that can be executed, its tensors by operand, and the plan that was built."""

    graph: Any
    tensors: dict[str, Any]
    plan: str


@lru_cache(maxsize=1)  # a plan serves all operands of a problem
def _planned(problem: ConvProblem, wanted: tuple[str, ...], barred: tuple[str, ...]) -> _Planned:
    graph, tensors = _graph(problem)
    try:
        graph.validate()
        graph.build_operation_graph()
        return _Planned(graph, tensors, _first_plan(graph, wanted, barred))
    except _frontend().cudnnGraphNotSupportedError as error:
        raise Unsupported(str(error).strip().split("\n")[0]) from None


def _launch(problem: ConvProblem, x: ConvOperands, wanted: tuple[str, ...], barred: tuple[str, ...]) -> Launch:
    _frontend().set_stream(_handle(), x.stream.ptr)
    graph, tensors, plan = _planned(problem, wanted, barred)
    x.chose(plan=plan)
    needed = graph.get_workspace_size()
    space = int(x.scratch((-(-needed // 2),), "f16").data.ptr) if needed else None
    addresses = {tensor: int(getattr(x, name).data.ptr) for name, tensor in tensors.items()}
    return partial(graph.execute, addresses, space, handle=_handle())


def _version(problem: ConvProblem) -> str:
    cudnn = _frontend()
    return f"cudnn {cudnn.backend_version_string()} by cudnn-frontend {cudnn.__version__}"


_FRONTEND: dict[str, Any] = {
    "provider": "cudnn_frontend",
    "device": "cuda",
    "modules": ("cupy", "cudnn"),
    "library_version": _version,
}
_FP32: dict[str, Any] = {**_FRONTEND, "dtypes": ("f32",)}


@kernel("conv", **_FP32)
def fma(problem: ConvProblem, x: ConvOperands) -> Launch:
    """First engine of cuDNN's heuristics without tensor cores, Winograd or FFT."""
    return _launch(problem, x, (), (*_COARSE, *_OTHER_COORDINATES))


def _fft_refuses(p: ConvProblem) -> str | None:
    return unequal_padding(p, "otherwise cuDNN 9.19's FFT engines return wrong results on an H200")


@kernel("conv", numerics="fft", supports=_fft_refuses, executed=spectral, **_FP32)
def fft(problem: ConvProblem, x: ConvOperands) -> Launch:
    """First engine of cuDNN's heuristics with the note FFT, without tensor cores."""
    return _launch(problem, x, ("FFT",), _COARSE)


@kernel("conv", numerics="winograd", supports=three_by_three, executed=products(2), **_FP32)
def winograd(problem: ConvProblem, x: ConvOperands) -> Launch:
    """First engine of cuDNN's heuristics with the note WINOGRAD_TILE_4x4, without tensor cores."""
    return _launch(problem, x, ("WINOGRAD_TILE_4x4",), _COARSE)


@kernel("conv", numerics="winograd4", supports=three_by_three, executed=products(4), **_FP32)
def winograd4(problem: ConvProblem, x: ConvOperands) -> Launch:
    """First engine of cuDNN's heuristics with the note WINOGRAD_TILE_6x6, without tensor cores."""
    return _launch(problem, x, ("WINOGRAD_TILE_6x6",), _COARSE)


@kernel("conv", numerics={"f32": "tf32", "f16": "f16", "bf16": "bf16"}, **_FRONTEND)
def tensor_core(problem: ConvProblem, x: ConvOperands) -> Launch:
    """First engine of cuDNN's heuristics with the note TENSOR_CORE, with sums in FP32."""
    return _launch(problem, x, ("TENSOR_CORE",), ("REDUCED_PRECISION_REDUCTION", *_OTHER_COORDINATES))
