"""What bench and kernels call of the packages of a GPU fits the signatures that `make conformance` has recorded."""

import ast
import re
from functools import partial
from typing import Any

import pytest

from fake_gpu import REGISTRY, device_arrays
from kernelmark.kernels.gemm import _cublas
from scripts import TOOLS, script

CALLS, READER, TYPES, BINDING = map(script, ("gpu_calls", "gpu_reader", "gpu_types", "gpu_binding"))
RECORD = BINDING.recorded()
NAMES = RECORD["names"]
USES = CALLS.all_uses()
DECLARED = script("gpu_ctypes").declared()
#: A change of a module, and what is then complained of.
PLANTED = {
    "misspelled name": (
        *("bench/measure/tensormap.py", "driver.cuLaunchKernelEx(", "driver.cuLaunchKernelExx("),
        "cuda.bindings.driver.cuLaunchKernelExx: it is not recorded",
    ),
    "an argument more": (
        *("bench/measure/launch.py", "core.Stream.from_handle(stream.ptr)", "core.Stream.from_handle(stream.ptr, 0)"),
        "cuda.core.Stream.from_handle(handle) is called with 2 arguments without a name, expected at most 1",
    ),
    "an argument less": ("bench/measure/launch.py", "value, function.handle, driver", "value, driver", "lacks dev"),
    "unknown keyword": ("bench/measure/launch.py", "shmem_size=", "shared_size=", "has no parameter shared_size"),
    "a keyword for an argument without one": (
        *("bench/measure/launch.py", "from_cubin(code)", "from_cubin(module=code)"),
        "",
    ),
    "wrong enum member": (
        *("bench/measure/tensormap.py", "PROMOTION_L2_256B", "PROMOTION_L2_512B"),
        "CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_512B: it is not recorded",
    ),
    "wrong enum": (
        *("bench/measure/cuda.py", "driver.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE", "driver.CUresult.CUDA_SUCCESS"),
        "is given CUresult for limit, expected CUlimit",
    ),
    "wrong attribute by name": (
        *("bench/measure/cuda.py", 'limit("L2_CACHE_SIZE")', 'limit("L2_SIZE")'),
        "CU_DEVICE_ATTRIBUTE_L2_SIZE: it is not recorded",
    ),
    "a node too many": (
        *("bench/measure/launched.py", "cuGraphGetNodes(graph, count)", "cuGraphGetNodes(graph, count, 0)"),
        "is called with 3 arguments without a name, expected at most 2",
    ),
    "wrong field of a node": (
        *("bench/measure/launched.py", "params.blockDimZ", "params.blockZ"),
        "CUDA_KERNEL_NODE_PARAMS.blockZ: it is not recorded",
    ),
    "wrong field": ("bench/measure/tensormap.py", "config.gridDimX", "config.gridDimW", "CUlaunchConfig.gridDimW: it"),
    "wrong number for ctypes": (
        *("bench/measure/tensormap.py", "(c_uint32 * 3)(1, 1, 1),", ""),
        "is called with 11 arguments, expected 12",
    ),
    "wrong number for ctypes, of images": (
        *("bench/measure/tensormap.py", "(c_uint32 * 4)(1, *wanted.stride[::-1], 1),", ""),
        "is called with 14 arguments, expected 15",
    ),
    "wrong method of CuPy": (
        "bench/measure/timing.py",
        "self._stop.synchronize()",
        "self._stop.wait()",
        "Event.wait: it",
    ),
    "an argument less of CuPy": ("kernels/copy/cuda.py", "DeviceToDevice, stream", "DeviceToDevice", "lacks stream"),
    "wrong keyword of PyCUDA": (
        "bench/measure/launch_pycuda.py",
        "prepare(",
        "prepare(types=",
        "has no parameter types",
    ),
    "an argument less of cuBLASLt": (
        *("kernels/gemm/_cublaslt.py", "handle(), product.product, *layouts", "product.product, *layouts"),
        "lacks return_algo_count",
    ),
    "an argument more of cuBLASLt": (
        *("kernels/gemm/cublaslt.py", "(beta, c, described.c, c, described.c)", "(beta, c, c, described.c, c, 0)"),
        "cublasLt.matmul(light_handle, compute_desc, alpha, a, adesc, b, bdesc, beta, c, cdesc, d, ddesc",
    ),
    "wrong attribute of cuBLASLt": (
        *("kernels/gemm/_cublaslt.py", "MatmulDescAttribute.TRANSB", "MatmulDescAttribute.TRANS_B"),
        "MatmulDescAttribute.TRANS_B: it is not recorded",
    ),
    "wrong function of NVML": (
        *("bench/measure/nvml.py", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetPower"),
        "pynvml.nvmlDeviceGetPower: it is not recorded",
    ),
    "wrong note of cuDNN": (
        *("kernels/conv/vendor/cudnn_frontend.py", '"TENSOR_CORE", "DOWN', '"TENSOR_CORES", "DOWN'),
        "cudnn.numerical_note.TENSOR_CORES: it is not recorded",
    ),
    "wrong keyword of cuDNN": (
        *("kernels/conv/vendor/cudnn_frontend.py", "space, handle=", "space, handles="),
        "has no parameter handles",
    ),
}


def test_every_use_fits_its_recorded_signature() -> None:
    assert list(BINDING.complaints(USES, NAMES)) == []


def test_what_ctypes_declares_is_the_headers_prototype() -> None:
    assert list(BINDING.differences(DECLARED, NAMES)) == []
    sgemm = "libcublas.cublasSgemm_v2"
    planted = {sgemm: DECLARED[sgemm].replace("i32, pointer", "i64, pointer", 1)}
    (found,) = BINDING.differences(planted, NAMES)
    assert found.startswith(f"{sgemm}: ctypes has (pointer, i32, i32, i32, i32, i64, pointer")


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_mistake_is_found(planted: str) -> None:
    file, old, new, expected = PLANTED[planted]
    text = (READER.ROOT / file).read_text()
    assert old in text
    found = list(BINDING.complaints(CALLS.uses_of(file, text.replace(old, new, 1)), NAMES))
    assert any(expected in line for line in found) if expected else not found


def test_a_result_whose_type_is_not_known_is_an_error() -> None:
    with pytest.raises(CALLS.Untyped, match=r"m\.py:2: cupy\.asarray\(\)\? has no type in gpu_types\.TYPES"):
        CALLS.uses_of("m.py", "import cupy\ncupy.asarray(1).fill(0)\n")


def test_a_name_that_is_put_together_of_unknown_values_is_an_error() -> None:
    with pytest.raises(CALLS.Untyped, match=r"m\.py:2: gpu_types\.DYNAMIC has no values of f'a\{b\}'"):
        CALLS.uses_of("m.py", "import cupy\ngetattr(cupy, f'a{b}')\n")


def test_every_declared_type_stands_for_an_expression_of_its_module() -> None:
    trees = {file: ast.parse((READER.ROOT / file).read_text()) for file, _ in (*TYPES.PLACES, *TYPES.DYNAMIC)}
    nodes = [(file, node) for file, tree in trees.items() for node in ast.walk(tree) if isinstance(node, ast.expr)]
    assert {*TYPES.PLACES, *TYPES.DYNAMIC} <= {(file, ast.unparse(node)) for file, node in nodes}


def test_what_is_recorded_is_what_is_used_and_none_of_it_is_unbound() -> None:
    assert NAMES.keys() == {use.name for use in USES} | DECLARED.keys()
    hows = {bound["how"] for bound in NAMES.values()}
    assert hows <= {
        *("signature", "docstring", "header's prototype", "trial call", "enumeration", "value", "attribute", "class"),
        "exception",
    }


def test_signatures_are_recorded_of_the_versions_that_are_pinned() -> None:
    pinned = re.findall(r"^([\w-]+)==(\S+)$", (TOOLS / "data" / "gpu-packages.txt").read_text(), re.MULTILINE)
    assert {name: RECORD["versions"].get(name) for name, _ in pinned} == dict(pinned)
    assert RECORD["versions"]["pycuda"].startswith("2026.")


class Api:
    """Stands for nvmath's bindings: each routine has its name."""

    def __getattr__(self, name: str) -> Any:
        routine = partial(print)
        routine.name = name  # type: ignore[attr-defined]
        return routine


@pytest.mark.parametrize("batch", ["", "/batch8"])
@pytest.mark.parametrize(
    "name",
    [
        name
        for name, k in REGISTRY.kernels.items()
        if k.module == "kernelmark.kernels.gemm.cublas" and "none" in k.domain["grouping"]
    ],
)
def test_cublas_gets_as_many_arguments_as_its_bindings_take(
    name: str, batch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = REGISTRY.kernels[name]
    problem = REGISTRY.problem(f"gemm/m8n16k24/{kernel.domain['dtype'][0]}/NT{batch}")
    if kernel.refuses(problem):
        pytest.skip(f"{name} takes no {problem.id}")
    monkeypatch.setattr(_cublas, "handle_of", lambda x: _cublas._CuBlas(Api(), 1, None))
    launch: Any = kernel.setup(problem, device_arrays(problem))
    name = f"nvmath.bindings.cublas.{launch.func.name}"
    use = READER.Use(name, "", (0, 0, 0, 0), READER.Arguments(len(launch.args), (), False))
    assert list(BINDING.complaints([use], NAMES)) == []
