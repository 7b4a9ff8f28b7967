"""cuDNN's calls and graphs describe the problem: stand-ins compute or record them as documented."""

import ctypes
import subprocess
import sys
from enum import Enum
from functools import partialmethod
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from kernelmark.bench.measure.draw import logical
from kernelmark.bench.plan.errors import Unsupported
from kernelmark.kernels.conv.vendor import _cudnn, cudnn_frontend
from kernelmark.kernels.conv.vendor import cudnn as declared
from support.blas import HostOperands
from support.emulated import host_compiler
from support.kernels import DIRECTIONS, REGISTRY

KERNELS = [kernel for kernel in REGISTRY.kernels.values() if kernel.module == "kernelmark.kernels.conv.vendor.cudnn"]
SHAPES = (
    "n2c4h5w7k6r3s3/{}/{}/{}",
    "n2c4h9w8k6r3s3pad1stride2x1/{}/{}/{}/g2",
    "n1c3h8w6k2r2s1pad0x2stride1x3/{}/{}/{}/dil3x2",
    "n3c6h1w5k6r1s1/{}/{}/{}/g6",
)
PROBLEMS = [
    REGISTRY.problem("conv/" + shape.format(dtype, layout, direction))
    for shape in SHAPES
    for dtype in ("f32", "f16", "bf16")
    for layout in ("nchw", "nhwc")
    for direction in DIRECTIONS
]
FMA, TENSOR_OP, DEFAULT = 3, 1, 0
WINOGRAD = ("winograd", "winograd_nonfused")
#: Algorithms of each pass, in the order of their numbers.
ALGORITHMS = {
    "fprop": ("implicit_gemm", "implicit_precomp_gemm", "gemm", "direct", "fft", "fft_tiling", *WINOGRAD),
    "dgrad": ("algo_0", "algo_1", "fft", "fft_tiling", *WINOGRAD),
    "wgrad": ("algo_0", "algo_1", "fft", "algo_3", *WINOGRAD, "fft_tiling"),
}
MISSING = {("fprop", "direct"): "NOT_SUPPORTED", ("wgrad", "winograd"): "BAD_PARAM"}


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    target = tmp_path_factory.mktemp("cudnn") / "libcudnn.so.9"
    source = Path(__file__).with_name("cudnn_standin.cpp")
    command = [host_compiler(), "-std=c++17", "-O1", "-shared", "-fPIC", "-o", str(target), str(source)]
    subprocess.run(command, check=True)
    return str(target)


@pytest.fixture
def empty_caches():
    """Clear the caches of objects of a library before and after a test."""
    caches = (_cudnn.cudnn, _cudnn.handle, declared._descriptors)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


@pytest.fixture
def standin(library, empty_caches, monkeypatch):
    monkeypatch.setattr(_cudnn, "library_path", lambda: library)
    return ctypes.CDLL(library)


def recorded(standin, name):
    return ctypes.c_int.in_dll(standin, f"standin_{name}").value


def launch(kernel, problem):
    operands = HostOperands(problem)
    kernel.setup(problem, operands)()
    return operands


def taken(kernel):
    """Return the problems that the kernel and the stand-in for cuDNN take."""
    return [
        problem
        for problem in PROBLEMS
        if kernel.refuses(problem) is None and (problem.direction, kernel.name) not in MISSING
    ]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.id)
def test_cudnn_is_called_with_the_problem_and_the_precision_of_the_numerics(kernel, standin):
    for problem in taken(kernel):
        operands, numerics = launch(kernel, problem), kernel.numerics_for(problem)
        assert operands.complaint(numerics) is None, problem.id
        wanted = FMA if numerics in ("fp32", "fft", "winograd", "winograd4") else TENSOR_OP
        assert recorded(standin, "math") == (DEFAULT if numerics == "tf32" else wanted)
        assert recorded(standin, "compute") == 0


def test_every_algorithm_of_every_pass_has_a_kernel(standin):
    named = {direction: {} for direction in ALGORITHMS}
    for kernel in KERNELS:
        for problem in PROBLEMS[:18]:
            if kernel.refuses(problem) is None:
                name = kernel.name.removesuffix("_tf32")
                if (problem.direction, name) in MISSING:
                    number = ALGORITHMS[problem.direction].index(name)
                else:
                    launch(kernel, problem)
                    number = recorded(standin, "algo")
                    assert recorded(standin, "direction") == list(ALGORITHMS).index(problem.direction)
                named[problem.direction][name] = number
    assert named == {direction: {name: i for i, name in enumerate(names)} for direction, names in ALGORITHMS.items()}


def test_the_workspace_is_scratch_and_the_stream_is_that_of_the_operands(standin):
    problem = PROBLEMS[0]
    for name, nbytes in (("implicit_gemm", 0), ("gemm", 1005)):
        operands = launch(REGISTRY.kernels[f"conv/cudnn.{name}"], problem)
        assert [part.nbytes for part in operands.buffers] == ([nbytes + 1] if nbytes else [])
        assert all((part.view(np.uint8)[:nbytes] == 0xFF).all() for part in operands.buffers)
        assert ctypes.c_size_t.in_dll(standin, "standin_nbytes").value == nbytes
        assert ctypes.c_void_p.in_dll(standin, "standin_stream").value == 5


@pytest.mark.parametrize(("direction", "name"), MISSING)
def test_an_algorithm_that_cudnn_lacks_is_unsupported_with_its_status(direction, name, standin):
    problem = next(problem for problem in PROBLEMS if problem.direction == direction)
    status = MISSING[direction, name]
    with pytest.raises(Unsupported, match=rf"cudnnGetConvolution\w+WorkspaceSize returned {status}$"):
        REGISTRY.kernels[f"conv/cudnn.{name}"].setup(problem, HostOperands(problem))


@pytest.mark.parametrize(
    ("number", "error", "text"),
    [
        (3002, Unsupported, "cudnnConvolutionForward returned SHAPE"),
        (4004, MemoryError, "cudnnConvolutionForward returned ALLOCATION"),
        (2000, RuntimeError, "cudnnConvolutionForward returned BAD_PARAM"),
        (5000, RuntimeError, "cudnnConvolutionForward returned FAILED"),
    ],
)
def test_every_bad_status_of_a_run_raises_an_error(number, error, text, standin):
    run = REGISTRY.kernels["conv/cudnn.gemm"].setup(PROBLEMS[0], HostOperands(PROBLEMS[0]))
    ctypes.c_int.in_dll(standin, "standin_next_status").value = number
    with pytest.raises(error, match=f"^{text}$"):
        run()
    run()


def test_a_missing_library_gives_the_install_command(empty_caches, monkeypatch):
    monkeypatch.setattr(_cudnn, "library_path", lambda: "libcudnn_is_not_here.so.9")
    with pytest.raises(Unsupported, match=r"^found no libcudnn.so.9; pip install nvidia-cudnn-cu13$"):
        _cudnn.cudnn()


def test_fft_and_winograd_declare_fewer_operations_than_direct_convolution():
    large = REGISTRY.problem("conv/n8c64h64w64k128r9s9/f32/nchw/fprop")
    assert 0 < REGISTRY.kernels["conv/cudnn.fft"].executed(large) < large.flop
    small = REGISTRY.problem("conv/n1c8h8w8k8r3s3/f32/nchw/fprop")
    assert REGISTRY.kernels["conv/cudnn.winograd"].executed(small) == small.flop * 16 // 36


def test_the_real_library_accepts_the_descriptors_and_computes_the_same_output_size(empty_caches):
    try:
        api = _cudnn.cudnn()
    except Unsupported as missing:
        pytest.skip(str(missing))
    assert api.version.startswith("9.")
    assert api.status(3000) == "CUDNN_STATUS_NOT_SUPPORTED"
    size = [ctypes.c_int() for _ in range(4)]
    for problem in PROBLEMS:
        described = declared._descriptors(problem, FMA)
        pointers = [ctypes.byref(part) for part in size]
        handles = (described.convolution, described.x, described.w)
        assert api.cudnnGetConvolution2dForwardOutputDim(*handles, *pointers) == 0
        assert [part.value for part in size] == [problem.n, problem.k, problem.p, problem.q], problem.id
        assert _stored(api, described.x) == _strides(problem, "x")
        assert _stored(api, described.y) == _strides(problem, "y")


def _stored(api, tensor):
    """Return n, c, h, w and their strides from a descriptor of the library."""
    numbers = [ctypes.c_int() for _ in range(9)]
    assert api.cudnnGetTensor4dDescriptor(tensor, *map(ctypes.byref, numbers)) == 0
    return tuple(number.value for number in numbers[1:])


def _strides(problem, name):
    spec = next(spec for spec in problem.operands() if spec.name == name)
    view = logical(np.empty(spec.elements, np.uint8), spec)
    view = view.transpose(0, 3, 1, 2) if problem.layout == "nhwc" else view
    return (*view.shape, *view.strides)


PLANNED = {kernel.name: kernel for kernel in REGISTRY.kernels.values() if kernel.provider == "cudnn_frontend"}
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
    def __init__(self, **facts):
        self.facts = facts

    def _set(self, name, value):
        self.facts[name] = value
        return self

    set_output, set_data_type = partialmethod(_set, "output"), partialmethod(_set, "data_type")
    set_dim, set_stride = partialmethod(_set, "dim"), partialmethod(_set, "stride")


class Graph:
    def __init__(self, **options):
        Graph.last, self.options, self.steps, self.built = self, options, [], None

    def tensor(self, **facts):
        return Tensor(**facts)

    def conv_fprop(self, image, weight, **geometry):
        return self._convolve({"x": image, "w": weight}, "y", geometry)

    def conv_dgrad(self, loss, filter, **geometry):  # noqa: A002
        return self._convolve({"y": loss, "w": filter}, "x", geometry)

    def conv_wgrad(self, image, loss, **geometry):
        return self._convolve({"x": image, "y": loss}, "w", geometry)

    def _convolve(self, inputs, output, geometry):
        self.tensors, self.geometry = {**inputs, output: Tensor()}, geometry
        return self.tensors[output]

    def validate(self):
        self.steps.append("validate")

    def build_operation_graph(self):
        self.steps.append("build")

    def create_execution_plans(self, modes):
        self.steps.append("plans")
        self.allowed = dict(PLANS)

    def deselect_numeric_notes(self, notes):
        self.allowed = {name: of for name, of in self.allowed.items() if not of & {note.name for note in notes}}

    def select_numeric_notes(self, notes):
        self.allowed = {name: of for name, of in self.allowed.items() if of >= {note.name for note in notes}}

    def get_execution_plan_count(self):
        return len(PLANS)

    def build_plan_at_index(self, index):
        name = list(PLANS)[index]
        if name not in self.allowed:
            raise ValueError(f"{name} is barred")
        if name == "broken":
            raise NotSupportedError(name)
        self.built = index

    def get_plan_name_at_index(self, index):
        return list(PLANS)[index]

    def get_workspace_size(self):
        return 7 if self.built == list(PLANS).index("spectra") else 0

    def execute(self, addresses, workspace, handle):
        self.ran = addresses, workspace, handle


@pytest.fixture
def frontend(monkeypatch):
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


@pytest.mark.parametrize("name", CHOSEN)
def test_the_first_plan_with_the_notes_is_built(name, frontend):
    for direction in DIRECTIONS:
        problem = REGISTRY.problem(f"conv/n1c2h8w8k3r3s3/f32/nchw/{direction}")
        x = HostOperands(problem)
        assert PLANNED[name].refuses(problem) is None
        PLANNED[name].setup(problem, x)()
        assert x.chosen == {"plan": CHOSEN[name]}
        assert Graph.last.steps == ["validate", "build", "plans"]
        addresses, workspace, handle = Graph.last.ran
        assert addresses == {tensor: x.flat[operand].ctypes.data for operand, tensor in Graph.last.tensors.items()}
        assert [(part.shape, part.dtype) for part in x.buffers] == ([((4,), np.float16)] if name == "fft" else [])
        assert workspace == (x.buffers[0].ctypes.data if name == "fft" else None)
        assert (handle, Graph.last.options["handle"], frontend[-1]) == ("handle", "handle", ("handle", 5))


@pytest.mark.usefixtures("frontend")
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize(("dtype", "kind"), [("f32", "float"), ("f16", "half"), ("bf16", "bfloat16")])
def test_the_graph_describes_the_problem(layout, direction, dtype, kind):
    problem = REGISTRY.problem(f"conv/n2c4h9w8k6r3s2pad0-1x2stride2x1/{dtype}/{layout}/{direction}/dil1x3/g2")
    PLANNED["tensor_core"].setup(problem, HostOperands(problem))
    for spec in problem.operands():
        view = np.empty(spec.shape, np.uint8)
        view = view.transpose(0, 3, 1, 2) if layout == "nhwc" else view
        facts = Graph.last.tensors[spec.name].facts
        assert (facts["dim"], facts["stride"], facts["data_type"]) == (list(view.shape), list(view.strides), kind)
        assert facts.get("output", False) == (spec.role == "out")
    wanted = {"pre_padding": [0, 2], "post_padding": [1, 2], "stride": [2, 1], "dilation": [1, 3]}
    assert Graph.last.geometry == wanted
    kinds = {name.removesuffix("_data_type"): value for name, value in Graph.last.options.items() if name != "handle"}
    assert kinds == {"io": kind, "intermediate": "float", "compute": "float"}


@pytest.mark.usefixtures("frontend")
def test_no_plan_with_the_notes_is_unsupported(monkeypatch):
    monkeypatch.delitem(PLANS, "spectra")
    problem = REGISTRY.problem("conv/n1c2h8w8k3r3s3/f32/nchw/fprop")
    coarse = "TENSOR_CORE, DOWN_CONVERT_INPUTS, REDUCED_PRECISION_REDUCTION"
    text = f"^none of cuDNN's 7 plans has FFT and lacks {coarse}$"
    with pytest.raises(Unsupported, match=text):
        PLANNED["fft"].setup(problem, HostOperands(problem))


@pytest.mark.usefixtures("frontend")
def test_a_refusal_of_the_graph_api_is_unsupported_with_its_message(monkeypatch):
    def refuse(graph):
        raise NotSupportedError("no such convolution\nand more")

    monkeypatch.setattr(Graph, "build_operation_graph", refuse)
    problem = REGISTRY.problem("conv/n1c2h8w8k3r3s3/f32/nchw/fprop")
    with pytest.raises(Unsupported, match=r"^no such convolution$"):
        PLANNED["fma"].setup(problem, HostOperands(problem))
