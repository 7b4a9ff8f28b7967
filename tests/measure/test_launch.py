"""Launching: arguments as C types, what is refused before a launch, and what a launch hands to cuda.core. No GPU."""

import ctypes
import struct
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kernelmark.bench.measure import launch, launch_pycuda
from kernelmark.bench.measure.compile import Cubin, compile_cubin
from kernelmark.bench.measure.cubin import Resources
from kernelmark.bench.measure.cuda import present_limits
from kernelmark.bench.measure.launch import c_scalar, cuda_launch, programs, shared_settings
from kernelmark.bench.plan.errors import Unsupported, UsageError
from kernelmark.bench.plan.kernel import CudaKernel, KernelCall, TensorMap, Tile
from kernelmark.bench.plan.limits import H100, TYPICAL
from support.cuda import CLUSTERED, HALVES, PADDED, TILED, Gpu, device_arrays, operands

SYMBOL = "_Z11sgemm_tiledILi32EL2Op0ELS0_1EEvPKfS2_Pfjjjffjjjxxx"


def test_scalars_have_their_c_types() -> None:
    assert [type(c_scalar(value, "k")) for value in (3, 0.5, np.int64(2**40))] == [np.int32, np.float32, np.int64]


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 1e39, None])
def test_a_scalar_that_fits_no_c_type_is_refused(value: Any) -> None:
    with pytest.raises(UsageError, match=r"^k: argument"):
        c_scalar(value, "k")


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


def test_programs_to_compile_ahead_are_those_that_a_launch_compiles(
    hopper: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = []

    def noted(*words: Any) -> Cubin:
        compiled.append((words[0], words[1], words[3]))
        return compile_cubin(*words)

    monkeypatch.setattr(launch, "compile_cubin", noted)
    cuda_launch(TILED, PADDED, operands(a=1024, b=2048, c=3072))
    assert programs([(TILED, [PADDED, PADDED]), (TILED, [PADDED])], H100) == compiled


def test_what_a_device_does_not_take_is_not_compiled_ahead() -> None:
    assert programs([(CLUSTERED, [HALVES])], TYPICAL[100]) == []
    assert programs([(TILED, [HALVES])], H100) == []


def test_the_operand_sets_of_a_case_share_one_loaded_kernel(hopper: Gpu) -> None:
    for base in (0, 16**5):
        cuda_launch(TILED, PADDED, operands(a=base + 16, b=base + 32, c=base + 48))
    assert len(hopper.loaded) == 1


def test_a_device_below_the_kernels_architecture_is_unsupported(hopper: Gpu) -> None:
    with pytest.raises(Unsupported, match=r"needs compute capability 10\.0, this is 9\.0"):
        cuda_launch(replace(TILED, min_arch=100), PADDED, operands(a=16, b=32, c=48))


def test_a_later_device_that_lacks_the_kernels_instructions_is_unsupported(hopper: Gpu) -> None:
    hopper.limits = TYPICAL[100]
    with pytest.raises(Unsupported, match=r"wgmma_persistent.* has instructions of sm_90a alone, this is sm_100"):
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


def planned(**changed: Any) -> CudaKernel:
    """The tiled kernel, whose launches have these fields."""
    return replace(TILED, plan=lambda p, t, device: [replace(call, **changed) for call in TILED.plan(p, t, device)])


#: A struct of 16 bytes, aligned to 8: after an address and an int, 4 bytes of padding come before it.
STRUCT = np.void((7, 2**40), np.dtype([("small", "u4"), ("large", "u8")], align=True))
TAKING_A_STRUCT = planned(args=("a", 5, STRUCT, 6))
TAKING_99_KIB = planned(shared_bytes=99 * 1024)  # of dynamic shared memory, besides its static one


def test_a_struct_is_handed_to_the_driver_by_value(hopper: Gpu) -> None:
    run = cuda_launch(TAKING_A_STRUCT, PADDED, operands(a=16))
    run()
    addresses = (ctypes.c_void_p * 4).from_address(hopper.driven[0][2])
    assert np.frombuffer(ctypes.string_at(addresses[2], 16), STRUCT.dtype)[0] == STRUCT
    assert hopper.launched == []


def test_pycuda_packs_a_struct_where_its_alignment_puts_it(hopper: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    formats: list[str] = []
    handed: list[bytes] = []

    def run(grid: Any, block: Any, stream: Any, *arguments: Any, shared_size: int) -> None:
        handed.append(struct.pack(formats[0], *arguments))

    function = SimpleNamespace(prepare=formats.append, prepared_async_call=run)
    monkeypatch.setattr(launch_pycuda, "pycuda_stream", lambda device: SimpleNamespace(handle=99))
    monkeypatch.setattr(launch_pycuda, "_pycuda_function", lambda code, symbol: function)
    cuda_launch(TAKING_A_STRUCT, PADDED, operands(a=16), "pycuda")()
    assert struct.unpack("=Qi4xI4xQi", handed[0]) == (16, 5, 7, 2**40, 6)


def test_pycuda_launches_on_its_own_stream_alone(hopper: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_pycuda, "pycuda_stream", lambda device: SimpleNamespace(handle=16))
    with pytest.raises(RuntimeError, match=r"PyCUDA launches on its stream 0x10 alone, not on 0x63"):
        cuda_launch(TILED, PADDED, operands(a=16, b=32, c=48), "pycuda")


def test_a_launcher_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="launcher 'opencl'; expected one of cuda-core, pycuda"):
        cuda_launch(TILED, PADDED, operands(), "opencl")


def test_cuda_core_counts_a_grid_in_clusters(hopper: Gpu) -> None:
    cuda_launch(planned(grid=(6, 5, 4), cluster=3), PADDED, operands(a=16, b=32, c=48))()
    config = hopper.launched[0][1]
    assert (config["grid"], config["cluster"]) == ((2, 5, 4), (3, 1, 1))


def test_a_cooperative_grid_that_is_not_resident_as_a_whole_is_unsupported(hopper: Gpu) -> None:
    together = replace(TILED, cooperative=True)  # 2 x 2 blocks of 1024 threads, two of which a multiprocessor holds
    hopper.limits = replace(H100, multiprocessors=1)
    with pytest.raises(Unsupported, match=r"synchronises 4 blocks, of which the device's 1 multiprocessors hold 2$"):
        cuda_launch(together, PADDED, operands(a=16, b=32, c=48))
    hopper.limits = replace(H100, multiprocessors=2)
    cuda_launch(together, PADDED, operands(a=16, b=32, c=48))


def asked_for(dynamic: int, static: int = 0, threads: int = 256) -> dict[str, int]:
    """Return what the shared memory of a launch asks of an H100's driver."""
    used = Resources(32, static, 0, 0, 0, 1024)
    return shared_settings(KernelCall(1, threads, (), dynamic), used, H100)


def test_static_shared_memory_counts_towards_what_a_block_must_ask_for() -> None:
    assert "MAX_DYNAMIC_SHARED_SIZE_BYTES" not in asked_for(48 * 1024 - 64, 64)
    assert asked_for(48 * 1024 - 64, 65)["MAX_DYNAMIC_SHARED_SIZE_BYTES"] == 48 * 1024 - 64


def test_blocks_that_share_a_multiprocessor_ask_for_the_whole_carve_out() -> None:
    assert asked_for(34 * 1024) == {"PREFERRED_SHARED_MEMORY_CARVEOUT": 100}  # six of them
    assert asked_for(34 * 1024, threads=1024) == {"PREFERRED_SHARED_MEMORY_CARVEOUT": 100}  # two
    assert asked_for(24 * 1024, threads=1024) == asked_for(0) == {}  # two, within the 48 KiB of the default


def test_static_and_dynamic_shared_memory_beyond_the_device_is_unsupported(hopper: Gpu) -> None:
    hopper.limits = replace(H100, block_shared_bytes=99 * 1024)
    with pytest.raises(Unsupported, match=r"needs 109\d{3} bytes of shared memory a block, the device has 101376$"):
        cuda_launch(TAKING_99_KIB, PADDED, operands(a=16, b=32, c=48))


def test_the_driver_is_told_what_shared_memory_a_launch_asks_for(hopper: Gpu) -> None:
    cuda_launch(CLUSTERED, HALVES, device_arrays(HALVES))
    (call,) = (call for _, call in CLUSTERED.calls(HALVES, CLUSTERED.tile_for(HALVES) or Tile()))
    assert dict(hopper.set) == {
        "MAX_DYNAMIC_SHARED_SIZE_BYTES": call.shared_bytes,
        "PREFERRED_SHARED_MEMORY_CARVEOUT": 100,
    }
    hopper.refuses = True
    with pytest.raises(Unsupported, match="the driver sets no MAX_DYNAMIC_SHARED_SIZE_BYTES of 101376: CUDA_ERROR_INV"):
        cuda_launch(TAKING_99_KIB, PADDED, operands(a=16, b=32, c=48))


def test_pycuda_sets_what_shared_memory_a_launch_asks_for(hopper: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, int] = {}
    function = SimpleNamespace(prepare=str, set_attribute=found.__setitem__, prepared_async_call=print)
    pycuda = ModuleType("pycuda.driver")
    names = ("MAX_DYNAMIC_SHARED_SIZE_BYTES", "PREFERRED_SHARED_MEMORY_CARVEOUT")  # of PyCUDA's function_attribute
    pycuda.function_attribute = SimpleNamespace(**{name: name for name in names})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pycuda.driver", pycuda)
    monkeypatch.setattr(launch_pycuda, "pycuda_stream", lambda device: SimpleNamespace(handle=99))
    monkeypatch.setattr(launch_pycuda, "_pycuda_function", lambda code, symbol: function)
    cuda_launch(TAKING_99_KIB, PADDED, operands(a=16, b=32, c=48), "pycuda")
    assert found == {"MAX_DYNAMIC_SHARED_SIZE_BYTES": 99 * 1024, "PREFERRED_SHARED_MEMORY_CARVEOUT": 100}


def test_the_limits_of_the_present_device_are_those_of_its_driver(hopper: Gpu) -> None:
    for limits in (*TYPICAL.values(), replace(H100, multiprocessors=114, l2_bytes=5)):
        hopper.limits = limits
        assert present_limits() == limits


def test_a_plan_sees_the_present_device(hopper: Gpu) -> None:
    seen = []

    def plan(problem: Any, tile: Any, device: Any) -> list[KernelCall]:
        seen.append((tile.SMS, device))
        return TILED.plan(problem, Tile(T=tile.T), device)

    tunables = {"T": (32,), "SMS": (lambda device: device.multiprocessors,)}
    hopper.limits = replace(H100, multiprocessors=114)
    cuda_launch(replace(TILED, plan=plan, tunables=tunables), PADDED, operands(a=16, b=32, c=48))
    assert set(seen) == {(114, hopper.limits)}


def test_a_grid_of_broken_clusters_is_refused(hopper: Gpu) -> None:
    with pytest.raises(UsageError, match=r"a grid of \(7, 5\) blocks has no whole clusters of 2"):
        cuda_launch(planned(grid=(7, 5), cluster=2), PADDED, operands(a=16, b=32, c=48))
