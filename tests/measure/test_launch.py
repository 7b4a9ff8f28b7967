"""Launching: arguments as C types, what is refused before a launch, and what a launch hands to the driver.

No GPU is needed: cupy, cuda.core and the driver are stood for by a record of what they were asked.
"""

import ctypes
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench.measure import launch, launch_pycuda
from bench.measure.compile import compile_cubin
from bench.measure.launch import c_scalar, cuda_launch
from bench.measure.tensormap import encode, packed
from bench.plan.discovery import discover
from bench.plan.errors import Unsupported, UsageError
from bench.plan.kernel import CudaKernel, KernelCall, TensorMap

REGISTRY = discover()
KERNELS = {kernel.id: kernel for kernel in REGISTRY.kernels.values() if isinstance(kernel, CudaKernel)}
TILED = KERNELS["gemm/cuda.tiled"]
CLUSTERED = KERNELS["gemm/cuda.wgmma_persistent"]
PADDED = REGISTRY.problem("gemm/m40n50k60/f32/NT/ldb+4")
HALVES = REGISTRY.problem("gemm/m520n264k72/bf16/NN/batch9/lda+8/alpha2")
SYMBOL = "_Z11sgemm_tiledILi32EL2Op0ELS0_1EEvPKfS2_Pfjjjffjjjxxx"


def test_scalars_have_their_c_types() -> None:
    assert [type(c_scalar(value, "k")) for value in (3, 0.5, np.int64(2**40))] == [np.int32, np.float32, np.int64]


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 1e39, None])
def test_a_scalar_that_fits_no_c_type_is_refused(value: Any) -> None:
    with pytest.raises(UsageError, match=r"^k: argument"):
        c_scalar(value, "k")


class Gpu:
    """Stands for cupy, cuda.core and the driver's functions: keeps a record of what was loaded, encoded, launched."""

    def __init__(self, capability: str) -> None:
        self.loaded: list[bytes] = []
        self.launched: list[tuple[Any, ...]] = []
        self.encoded: list[tuple[Any, ...]] = []
        self.driven: list[tuple[Any, Any, int]] = []
        self.refuses = False
        device = SimpleNamespace(id=0, compute_capability=capability, attributes={}, set_current=lambda: None)
        cupy, core = ModuleType("cupy"), ModuleType("cuda.core")
        cupy.cuda = SimpleNamespace(Device=lambda: device)  # type: ignore[attr-defined]
        core.Device = lambda number: device  # type: ignore[attr-defined]
        core.LaunchConfig = lambda **options: options  # type: ignore[attr-defined]
        core.Stream = SimpleNamespace(from_handle=lambda pointer: pointer)  # type: ignore[attr-defined]
        core.ObjectCode = SimpleNamespace(from_cubin=self.load)  # type: ignore[attr-defined]
        core.launch = lambda *arguments: self.launched.append(arguments)  # type: ignore[attr-defined]
        self.modules = {"cupy": cupy, "cuda.core": core}

    def load(self, code: bytes) -> Any:
        self.loaded.append(code)
        return SimpleNamespace(get_kernel=lambda symbol: SimpleNamespace(symbol=symbol, handle=4711))

    def encode(self, *arguments: Any) -> tuple[Any, Any]:
        """A descriptor whose bytes all tell how many there were before."""
        from cuda.bindings import driver

        descriptor = driver.CUtensorMap()
        ctypes.memset(descriptor.getPtr(), len(self.encoded), 128)
        self.encoded.append(arguments)
        status = driver.CUresult.CUDA_ERROR_INVALID_VALUE if self.refuses else driver.CUresult.CUDA_SUCCESS
        return status, descriptor

    def drive(self, *arguments: Any) -> tuple[Any]:
        from cuda.bindings import driver

        self.driven.append(arguments[:3])
        return (driver.CUresult.CUDA_ERROR_INVALID_VALUE if self.refuses else driver.CUresult.CUDA_SUCCESS,)


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch, cuda_compiler: str) -> Gpu:
    """A device of compute capability 9.0; what the tests launch is compiled before cuda.core is replaced."""
    from cuda.bindings import driver

    import cuda

    for kernel, problem in ((TILED, PADDED), (CLUSTERED, HALVES)):
        tile = kernel.tile_for(problem)
        assert tile is not None
        compile_cubin(kernel.source, [kernel.calls(problem, tile)[0][0]], "sm_90a")
    gpu = Gpu("90")
    for name, module in gpu.modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(cuda, "core", gpu.modules["cuda.core"], raising=False)
    monkeypatch.setattr(driver, "cuTensorMapEncodeTiled", gpu.encode)
    monkeypatch.setattr(driver, "cuLaunchKernelEx", gpu.drive)
    monkeypatch.setattr(driver, "cuKernelSetAttribute", lambda *_: (driver.CUresult.CUDA_SUCCESS,))
    launch._cuda_core_kernel.cache_clear()
    return gpu


def operands(**pointers: int) -> Any:
    """Operands at these addresses, on stream 99."""
    arrays = {name: SimpleNamespace(data=SimpleNamespace(ptr=pointer)) for name, pointer in pointers.items()}
    return SimpleNamespace(stream=SimpleNamespace(ptr=99), **arrays)


def device_arrays(problem: Any, base: int = 4096) -> Any:
    """Operands of the problem as a GPU would hold them, bfloat16 in 16-bit integers, from this address on."""
    arrays = {}
    for index, operand in enumerate(problem.operands()):
        dtype = np.dtype(np.uint16)
        rows = operand.shape[-2]
        strides = (rows * operand.ld * 2, operand.ld * 2, 2)[-len(operand.shape) :]
        pointer = SimpleNamespace(ptr=base + index * 2**20)
        arrays[operand.name] = SimpleNamespace(
            data=pointer, shape=operand.shape, ndim=len(operand.shape), strides=strides, dtype=dtype
        )
    return SimpleNamespace(stream=SimpleNamespace(ptr=99), **arrays)


def test_the_closure_launches_what_the_plan_says(hopper: Gpu) -> None:
    run = cuda_launch(TILED, PADDED, operands(a=1024, b=2048, c=3072))
    assert hopper.launched == []
    run()
    run()
    stream, config, kernel, *arguments = hopper.launched[0]
    assert (stream, kernel.symbol) == (99, SYMBOL)
    assert config == {"grid": (2, 2, 1), "block": (32, 32, 1), "shmem_size": 0}
    assert arguments == [1024, 2048, 3072, 40, 50, 60, 1.0, 0.0, 60, 64, 50, 2400, 3200, 2000]
    assert hopper.launched[1] == hopper.launched[0]


def test_the_operand_sets_of_a_case_share_one_loaded_kernel(hopper: Gpu) -> None:
    for base in (0, 16**5):
        cuda_launch(TILED, PADDED, operands(a=base + 16, b=base + 32, c=base + 48))
    assert len(hopper.loaded) == 1


def test_a_device_below_the_kernels_architecture_is_unsupported(hopper: Gpu) -> None:
    with pytest.raises(Unsupported, match=r"needs compute capability 10\.0, this is 9\.0"):
        cuda_launch(replace(TILED, min_arch=100), PADDED, operands(a=16, b=32, c=48))


def test_a_later_device_that_lacks_the_kernels_instructions_is_unsupported(hopper: Gpu) -> None:
    hopper.modules["cupy"].cuda.Device().compute_capability = "100"
    with pytest.raises(Unsupported, match="wgmma_persistent has instructions of sm_90a alone, this is sm_100"):
        cuda_launch(CLUSTERED, HALVES, device_arrays(HALVES))


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_an_operand_off_16_bytes_is_unsupported_before_anything_is_launched(hopper: Gpu, name: str) -> None:
    pointers = {"a": 1024, "b": 2048, "c": 3072} | {name: 5004}
    with pytest.raises(Unsupported, match=rf"operand {name} lies at address 5004, expected a multiple of 16 bytes"):
        cuda_launch(TILED, PADDED, operands(**pointers))
    cuda_launch(replace(TILED, alignment=4), PADDED, operands(**pointers))
    assert hopper.launched == []


@pytest.mark.parametrize(
    ("kernel", "what"),
    [(replace(TILED, cooperative=True), "cooperative kernels"), (CLUSTERED, "clusters")],
)
def test_pycuda_refuses_what_it_cannot_launch(hopper: Gpu, kernel: CudaKernel, what: str) -> None:
    problem, x = (HALVES, device_arrays(HALVES)) if kernel is CLUSTERED else (PADDED, operands(a=16, b=32, c=48))
    with pytest.raises(Unsupported, match=f"PyCUDA launches no {what}"):
        cuda_launch(kernel, problem, x, "pycuda")


def test_pycuda_refuses_tensor_maps() -> None:
    call = KernelCall(1, 1, (TensorMap("a", (8, 8)),))
    assert launch_pycuda.beyond_pycuda(TILED, call) == "tensor maps"
    assert launch_pycuda.beyond_pycuda(TILED, KernelCall(1, 1, ("a", 3))) is None


def test_a_launcher_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="launcher 'opencl'; expected one of cuda-core, pycuda"):
        cuda_launch(TILED, PADDED, operands(), "opencl")


def test_cuda_core_counts_a_grid_in_clusters(hopper: Gpu) -> None:
    def plan(problem: Any, tile: Any) -> list[KernelCall]:
        return [replace(call, grid=(6, 5, 4), cluster=3) for call in TILED.plan(problem, tile)]

    cuda_launch(replace(TILED, plan=plan), PADDED, operands(a=16, b=32, c=48))()
    config = hopper.launched[0][1]
    assert (config["grid"], config["cluster"]) == ((2, 5, 4), (3, 1, 1))


def test_a_cooperative_grid_that_is_not_resident_as_a_whole_is_unsupported(hopper: Gpu) -> None:
    together = replace(TILED, cooperative=True)  # 2 x 2 blocks of 1024 threads, two of which a multiprocessor holds
    hopper.modules["cupy"].cuda.Device().attributes["MultiProcessorCount"] = 1
    with pytest.raises(Unsupported, match=r"synchronises 4 blocks, of which the device's 1 multiprocessors hold 2$"):
        cuda_launch(together, PADDED, operands(a=16, b=32, c=48))
    hopper.modules["cupy"].cuda.Device().attributes["MultiProcessorCount"] = 2
    cuda_launch(together, PADDED, operands(a=16, b=32, c=48))


def test_a_grid_of_broken_clusters_is_refused(hopper: Gpu) -> None:
    def plan(problem: Any, tile: Any) -> list[KernelCall]:
        return [replace(call, grid=(7, 5), cluster=2) for call in TILED.plan(problem, tile)]

    with pytest.raises(UsageError, match=r"a grid of \(7, 5\) blocks has no whole clusters of 2"):
        cuda_launch(replace(TILED, plan=plan), PADDED, operands(a=16, b=32, c=48))


def shown(array: Any) -> Any:
    """A host array as if it lay on a device, at address 32."""
    return SimpleNamespace(
        data=SimpleNamespace(ptr=32), shape=array.shape, ndim=array.ndim, strides=array.strides, dtype=array.dtype
    )


def numbers(values: Any) -> list[int]:
    """Of what the bindings wrap."""
    return [int(value) for value in values]


def test_a_tensor_map_has_columns_rows_and_products_from_the_array_as_it_lies(hopper: Gpu) -> None:
    cuda_launch(CLUSTERED, HALVES, device_arrays(HALVES))
    (kind, rank, address, sizes, pitches, box, steps, interleave, swizzle, promotion, fill), b, c = hopper.encoded
    assert (kind.name, rank, address) == ("CU_TENSOR_MAP_DATA_TYPE_BFLOAT16", 3, 4096)
    assert numbers(sizes) == [72, 520, 9]
    assert numbers(pitches) == [160, 520 * 160]
    assert (numbers(box), numbers(steps)) == ([64, 128, 1], [1, 1, 1])
    assert swizzle.name == "CU_TENSOR_MAP_SWIZZLE_128B"
    assert [x.name.rpartition("_")[2] for x in (interleave, promotion, fill)] == ["NONE", "256B", "NONE"]
    assert numbers(b[3]) == [264, 72, 9]
    assert (c[2], numbers(c[5])) == (4096 + 2 * 2**20, [64, 64, 1])


def test_a_matrix_without_a_batch_is_one_layer(hopper: Gpu) -> None:
    problem = REGISTRY.problem("gemm/m24n16k40/bf16/NN")
    encode(TensorMap("a", (8, 8)), device_arrays(problem).a, "k")
    ((_, _, _, sizes, pitches, _, _, _, swizzle, _, _),) = hopper.encoded
    assert (numbers(sizes), numbers(pitches)) == ([40, 24, 1], [80, 24 * 80])
    assert swizzle.name == "CU_TENSOR_MAP_SWIZZLE_NONE"


def test_the_products_of_a_batch_lie_as_far_apart_as_the_array_says(hopper: Gpu) -> None:
    array = np.zeros((3, 50, 32), np.float16)[:, :40, :24]
    encode(TensorMap("a", (8, 8)), shown(array), "k")
    assert (numbers(hopper.encoded[0][3]), numbers(hopper.encoded[0][4])) == ([24, 40, 3], [64, 50 * 64])


@pytest.mark.parametrize(
    ("dtype", "tf32", "element"),
    [
        ("f2", False, "FLOAT16"),
        ("u2", False, "BFLOAT16"),
        ("f4", False, "FLOAT32"),
        ("f4", True, "TFLOAT32"),
        ("f8", False, "FLOAT64"),
    ],
)
def test_the_elements_of_a_tensor_map_are_those_of_the_array(hopper: Gpu, dtype: str, tf32: bool, element: str) -> None:
    encode(TensorMap("a", (8, 8), tf32=tf32), shown(np.zeros((16, 16), dtype)), "k")
    assert hopper.encoded[0][0].name == f"CU_TENSOR_MAP_DATA_TYPE_{element}"


def test_a_tensor_that_the_tma_cannot_address_is_unsupported(hopper: Gpu) -> None:
    with pytest.raises(Unsupported, match="rows of a begin at address 4104 every 160 bytes, expected multiples of 16"):
        cuda_launch(CLUSTERED, HALVES, device_arrays(HALVES, base=4104))
    odd = device_arrays(REGISTRY.problem("gemm/m8n8k7/bf16/NN"))
    with pytest.raises(Unsupported, match="every 14 bytes"):
        encode(TensorMap("a", (8, 8)), odd.a, "k")
    assert hopper.encoded == []


def test_what_the_driver_does_not_encode_is_told_with_its_status(hopper: Gpu) -> None:
    hopper.refuses = True
    with pytest.raises(UsageError, match=r"encodes no TensorMap\(operand='a'.*CUDA_ERROR_INVALID_VALUE"):
        cuda_launch(CLUSTERED, HALVES, device_arrays(HALVES))


def test_a_launch_with_tensor_maps_hands_each_parameter_by_value(hopper: Gpu) -> None:
    run = cuda_launch(CLUSTERED, HALVES, device_arrays(HALVES))
    run()
    run()
    (config, function, parameters), again = hopper.driven
    assert again[2] == parameters
    assert int(function) == 4711
    assert (config.gridDimX, config.gridDimY, config.gridDimZ) == (108, 1, 1)
    assert (config.blockDimX, config.blockDimY, config.blockDimZ) == (384, 1, 1)
    assert (config.sharedMemBytes, int(config.hStream), config.numAttrs) == (230400, 99, 1)
    (attribute,) = config.attrs
    assert attribute.id.name == "CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION"
    assert (attribute.value.clusterDim.x, attribute.value.clusterDim.y, attribute.value.clusterDim.z) == (2, 1, 1)
    sizes = [128] * 3 + [8] + [4] * 7 + [8]
    addresses = (ctypes.c_void_p * len(sizes)).from_address(parameters)
    held = [ctypes.string_at(address, size) for address, size in zip(addresses, sizes, strict=True)]
    assert [set(descriptor) for descriptor in held[:3]] == [{0}, {1}, {2}]
    assert np.frombuffer(held[3], np.uint64) == 4096 + 2 * 2**20
    assert [int(np.frombuffer(value, np.int32)[0]) for value in held[4:8]] == [520, 264, 72, 9]
    assert [float(np.frombuffer(value, np.float32)[0]) for value in held[8:10]] == [2.0, 0.0]
    assert np.frombuffer(held[10], np.int32) == 264
    assert np.frombuffer(held[11], np.int64) == 520 * 264


def test_a_launch_that_the_driver_refuses_is_an_error(hopper: Gpu) -> None:
    run = cuda_launch(CLUSTERED, HALVES, device_arrays(HALVES))
    hopper.refuses = True
    with pytest.raises(RuntimeError, match="CUDA_ERROR_INVALID_VALUE"):
        run()


def test_packed_parameters_are_as_wide_as_their_c_types() -> None:
    assert [value.size for value in packed([2**40, np.int32(7), np.float32(0.5), np.int64(3)])] == [8, 4, 4, 8]
