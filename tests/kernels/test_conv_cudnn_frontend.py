"""The graph that cuDNN's frontend is asked for is the problem, and the first plan with the right notes is taken.

A stand-in has the names of nvidia-cudnn-frontend 1.32 that are used, and plans of its own.
"""

import sys
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kernelmark.bench.plan.errors import Unsupported
from kernelmark.kernels.conv.vendor import cudnn_frontend
from support.blas import array
from support.kernels import DIRECTIONS, REGISTRY

KERNELS = {kernel.name: kernel for kernel in REGISTRY.kernels.values() if kernel.provider == "cudnn_frontend"}
DOWN = {"TENSOR_CORE", "DOWN_CONVERT_INPUTS"}
#: Plans by name with their notes; `broken` does not build.
PLANS = {
    "half_sums": {"TENSOR_CORE", "REDUCED_PRECISION_REDUCTION"},
    "fast_tile": {*DOWN, "WINOGRAD", "WINOGRAD_TILE_4x4"},
    "cores": DOWN,
    "spectra": {"FFT"},
    "broken": set(),
    "tile4": {"WINOGRAD", "WINOGRAD_TILE_4x4"},
    "tile6": {"WINOGRAD", "WINOGRAD_TILE_6x6"},
    "plain": set(),
}
CHOSEN = {"fma": "plain", "fft": "spectra", "winograd": "tile4", "winograd4": "tile6", "tensor_core": "cores"}
NOTES = Enum("Notes", sorted(set().union(*PLANS.values())))


class NotSupportedError(Exception):
    pass


class Tensor:
    def __init__(self, **told: Any) -> None:
        self.told = told

    def set_output(self, value: bool) -> "Tensor":
        return self._tell("output", value)

    def set_data_type(self, kind: str) -> "Tensor":
        return self._tell("data_type", kind)

    def set_dim(self, dim: list[int]) -> "Tensor":
        return self._tell("dim", dim)

    def set_stride(self, stride: list[int]) -> "Tensor":
        return self._tell("stride", stride)

    def _tell(self, name: str, value: Any) -> "Tensor":
        self.told[name] = value
        return self


class Graph:
    last: "Graph"

    def __init__(self, **options: Any) -> None:
        Graph.last, self.options, self.steps, self.built = self, options, [], None

    def tensor(self, **told: Any) -> Tensor:
        return Tensor(**told)

    def conv_fprop(self, image: Tensor, weight: Tensor, **geometry: Any) -> Tensor:
        return self._convolve({"x": image, "w": weight}, "y", geometry)

    def conv_dgrad(self, loss: Tensor, filter: Tensor, **geometry: Any) -> Tensor:  # noqa: A002
        return self._convolve({"y": loss, "w": filter}, "x", geometry)

    def conv_wgrad(self, image: Tensor, loss: Tensor, **geometry: Any) -> Tensor:
        return self._convolve({"x": image, "y": loss}, "w", geometry)

    def _convolve(self, inputs: dict[str, Tensor], output: str, geometry: Any) -> Tensor:
        self.tensors, self.geometry = {**inputs, output: Tensor()}, geometry
        return self.tensors[output]

    def validate(self) -> None:
        self.steps.append("validate")

    def build_operation_graph(self) -> None:
        self.steps.append("build")

    def create_execution_plans(self, modes: list[str]) -> None:
        self.steps.append("plans")
        self.allowed = dict(PLANS)

    def deselect_numeric_notes(self, notes: list[Any]) -> None:
        self.allowed = {name: of for name, of in self.allowed.items() if not of & {note.name for note in notes}}

    def select_numeric_notes(self, notes: list[Any]) -> None:
        self.allowed = {name: of for name, of in self.allowed.items() if of >= {note.name for note in notes}}

    def get_execution_plan_count(self) -> int:
        return len(PLANS)

    def build_plan_at_index(self, index: int) -> None:
        name = list(PLANS)[index]
        if name not in self.allowed:
            raise ValueError(f"{name} is barred")
        if name == "broken":
            raise NotSupportedError(name)
        self.built = index

    def get_plan_name_at_index(self, index: int) -> str:
        return list(PLANS)[index]

    def get_workspace_size(self) -> int:
        return 7 if self.built == list(PLANS).index("spectra") else 0

    def execute(self, addresses: dict[Tensor, int], workspace: int | None, handle: str) -> None:
        self.ran = addresses, workspace, handle


@pytest.fixture(autouse=True)
def frontend(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    module, streams = ModuleType("cudnn"), []
    module.pygraph, module.numerical_note, module.cudnnGraphNotSupportedError = Graph, NOTES, NotSupportedError
    module.data_type = SimpleNamespace(FLOAT="float", HALF="half", BFLOAT16="bfloat16")
    module.heur_mode = SimpleNamespace(A="a", B="b", FALLBACK="fallback")
    module.create_handle = lambda: "handle"
    module.set_stream = lambda handle, stream: streams.append((handle, stream))
    monkeypatch.setitem(sys.modules, "cudnn", module)
    cudnn_frontend._handle.cache_clear()
    cudnn_frontend._planned.cache_clear()
    return streams


def operands() -> Any:
    buffers = {name: array(np.empty(1)) for name in "xwy"}
    for number, buffer in enumerate(buffers.values()):
        buffer.data.ptr = 100 + number
    chosen, taken = {}, []

    def scratch(shape: tuple[int, ...], dtype: str) -> Any:
        taken.append((shape, dtype))
        return SimpleNamespace(data=SimpleNamespace(ptr=500))

    stream = SimpleNamespace(ptr=5)
    return SimpleNamespace(**buffers, stream=stream, chose=chosen.update, chosen=chosen, scratch=scratch, taken=taken)


@pytest.mark.parametrize("name", CHOSEN)
def test_the_first_plan_with_the_notes_is_built(name: str, frontend: list[Any]) -> None:
    for direction in DIRECTIONS:
        x = operands()
        problem = REGISTRY.problem(f"conv/n1c2h8w8k3r3s3/f32/nchw/{direction}")
        assert KERNELS[name].refuses(problem) is None
        KERNELS[name].setup(problem, x)()
        assert x.chosen == {"plan": CHOSEN[name]}
        assert Graph.last.steps == ["validate", "build", "plans"]
        named = {tensor: operand for operand, tensor in Graph.last.tensors.items()}
        addresses, workspace, handle = Graph.last.ran
        assert {named[tensor]: address for tensor, address in addresses.items()} == {"x": 100, "w": 101, "y": 102}
        assert (workspace, x.taken) == ((500, [((4,), "f16")]) if name == "fft" else (None, []))
        assert (handle, Graph.last.options["handle"], frontend[-1]) == ("handle", "handle", ("handle", 5))


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("dtype", "kind"), [("f32", "float"), ("f16", "half"), ("bf16", "bfloat16")])
def test_the_graph_is_the_problem(layout: str, direction: str, dtype: str, kind: str) -> None:
    problem = REGISTRY.problem(f"conv/n2c4h9w8k6r3s2pad0-1x2stride2x1/{dtype}/{layout}/{direction}/dil1x3/g2")
    KERNELS["tensor_core"].setup(problem, operands())
    for spec in problem.operands():
        view = np.empty(spec.shape, np.uint8)
        view = view.transpose(0, 3, 1, 2) if layout == "nhwc" else view
        told = Graph.last.tensors[spec.name].told
        assert (told["dim"], told["stride"], told["data_type"]) == (list(view.shape), list(view.strides), kind)
        assert told.get("output", False) == (spec.role == "out")
    wanted = {"pre_padding": [0, 2], "post_padding": [1, 2], "stride": [2, 1], "dilation": [1, 3]}
    assert Graph.last.geometry == wanted
    kinds = {name.removesuffix("_data_type"): value for name, value in Graph.last.options.items() if name != "handle"}
    assert kinds == {"io": kind, "intermediate": "float", "compute": "float"}


def test_no_plan_with_the_notes_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(PLANS, "spectra")
    problem = REGISTRY.problem("conv/n1c2h8w8k3r3s3/f32/nchw/fprop")
    text = "^none of cuDNN's 7 plans notes FFT and not TENSOR_CORE, DOWN_CONVERT_INPUTS, REDUCED_PRECISION_REDUCTION$"
    with pytest.raises(Unsupported, match=text):
        KERNELS["fft"].setup(problem, operands())


def test_what_the_graph_api_refuses_is_unsupported_in_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(graph: Graph) -> None:
        raise NotSupportedError("no such convolution\nand more")

    monkeypatch.setattr(Graph, "build_operation_graph", refuse)
    with pytest.raises(Unsupported, match=r"^no such convolution$"):
        KERNELS["fma"].setup(REGISTRY.problem("conv/n1c2h8w8k3r3s3/f32/nchw/fprop"), operands())
