"""Launching without a GPU: arguments as C types, tensor maps and refusals. tests/stub has the calls of cuda.core."""

from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest

from kernelmark.bench.measure import launch, tensormap
from kernelmark.bench.measure.compile import compile_cubin
from kernelmark.bench.measure.cubin import Resources
from kernelmark.bench.measure.launch import c_scalar, cuda_launch, programs, shared_settings
from kernelmark.bench.measure.tensormap import encode, launch_with_structs, packed
from kernelmark.bench.plan.errors import Unsupported, UsageError
from kernelmark.bench.plan.kernel import Im2colMap, KernelCall, TensorMap, Tile
from kernelmark.bench.plan.limits import H100, TYPICAL
from support.cuda import CLUSTERED, HALVES, PADDED, REGISTRY, TILED, device_arrays, operands, planned


@pytest.fixture
def hopper(monkeypatch, cuda_compiler):
    """A fake device of compute capability 9.0, which records tensor maps and launches."""
    from cuda.bindings import driver

    gpu = SimpleNamespace(limits=H100, launched=[], encoded=[])
    monkeypatch.setattr(launch, "present_limits", lambda: gpu.limits)
    monkeypatch.setitem(launch._LAUNCHERS, "cuda-core", lambda *words: gpu.launched.append(words))
    for name in ("encode_tiled", "encode_im2col"):
        encode = lambda descriptor, *words: gpu.encoded.append(words) or driver.CUresult.CUDA_SUCCESS  # noqa: E731
        monkeypatch.setattr(tensormap, name, lambda encode=encode: encode)
    return gpu


def test_scalars_have_their_c_types():
    assert [type(c_scalar(value, "k")) for value in (3, 0.5, np.int64(2**40))] == [np.int32, np.float32, np.int64]


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 1e39, None])
def test_a_scalar_that_fits_no_c_type_is_refused(value):
    with pytest.raises(UsageError, match=r"^k: argument"):
        c_scalar(value, "k")


def test_programs_compiled_ahead_are_those_that_a_launch_compiles(hopper, monkeypatch):
    noted = Mock(wraps=compile_cubin)
    monkeypatch.setattr(launch, "compile_cubin", noted)
    cuda_launch(TILED, PADDED, operands(a=1024, b=2048, c=3072))
    compiled = [(call.args[0], call.args[1], call.args[3]) for call in noted.call_args_list]
    assert programs([(TILED, [PADDED, PADDED]), (TILED, [PADDED])], H100) == compiled


def test_what_a_device_does_not_take_is_not_compiled_ahead():
    assert programs([(CLUSTERED, [HALVES])], TYPICAL[100]) == []
    assert programs([(TILED, [HALVES])], H100) == []


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_an_operand_off_16_bytes_is_unsupported_before_anything_is_launched(hopper, name):
    pointers = {"a": 1024, "b": 2048, "c": 3072} | {name: 5004}
    with pytest.raises(Unsupported, match=rf"operand {name} lies at address 5004, expected a multiple of 16 bytes"):
        cuda_launch(TILED, PADDED, operands(**pointers))
    assert hopper.launched == []
    cuda_launch(replace(TILED, alignment=4), PADDED, operands(**pointers))


TAKING_99_KIB = planned(TILED, shared_bytes=99 * 1024)  # dynamic shared memory, in addition to static
#: 2 x 2 blocks of 1024 threads; a multiprocessor holds two such blocks.
COOPERATIVE = replace(TILED, cooperative=True)


@pytest.mark.parametrize(
    ("kernel", "limits", "error", "reason"),
    [
        (replace(TILED, min_arch=100), H100, Unsupported, r"needs compute capability 10\.0; this GPU has 9\.0"),
        (CLUSTERED, TYPICAL[100], Unsupported, "wgmma_persistent.* instructions that only sm_90a has; this is sm_100"),
        (COOPERATIVE, replace(H100, multiprocessors=1), Unsupported, "4 blocks, but .* 1 multiprocessors hold only 2$"),
        (TAKING_99_KIB, replace(H100, block_shared_bytes=101376), Unsupported, r"needs 109\d{3} bytes .* has 101376$"),
        (planned(TILED, grid=(7, 5), cluster=2), H100, UsageError, r"grid of \(7, 5\) blocks cannot be.*clusters of 2"),
    ],
)
def test_a_launch_that_the_device_does_not_take_is_refused(hopper, kernel, limits, error, reason):
    hopper.limits = limits
    problem, x = (HALVES, device_arrays(HALVES)) if kernel is CLUSTERED else (PADDED, operands(a=16, b=32, c=48))
    with pytest.raises(error, match=reason):
        cuda_launch(kernel, problem, x)


def test_a_cooperative_grid_that_is_resident_as_a_whole_is_launched(hopper):
    hopper.limits = replace(H100, multiprocessors=2)
    cuda_launch(COOPERATIVE, PADDED, operands(a=16, b=32, c=48))


def test_a_launcher_that_is_none_is_refused():
    with pytest.raises(UsageError, match="launcher 'opencl'; expected one of cuda-core, pycuda"):
        cuda_launch(TILED, PADDED, operands(), "opencl")


def asked_for(dynamic, static=0, threads=256):
    used = Resources(32, static, 0, 0, 0, 1024)
    return shared_settings(KernelCall(1, threads, (), dynamic), used, H100)


def test_static_shared_memory_counts_towards_what_a_block_must_ask_for():
    assert "MAX_DYNAMIC_SHARED_SIZE_BYTES" not in asked_for(48 * 1024 - 64, 64)
    assert asked_for(48 * 1024 - 64, 65)["MAX_DYNAMIC_SHARED_SIZE_BYTES"] == 48 * 1024 - 64


def test_blocks_that_share_a_multiprocessor_ask_for_the_whole_carve_out():
    assert asked_for(34 * 1024) == {"PREFERRED_SHARED_MEMORY_CARVEOUT": 100}  # six blocks
    assert asked_for(34 * 1024, threads=1024) == {"PREFERRED_SHARED_MEMORY_CARVEOUT": 100}  # two blocks
    assert asked_for(24 * 1024, threads=1024) == asked_for(0) == {}  # two blocks, within the default of 48 KiB


def test_a_plan_sees_the_present_device(hopper):
    seen = []

    def plan(problem, tile, device):
        seen.append((tile.SMS, device))
        return TILED.plan(problem, Tile(T=tile.T), device)

    tunables = {"T": (32,), "SMS": (lambda device: device.multiprocessors,)}
    hopper.limits = replace(H100, multiprocessors=114)
    cuda_launch(replace(TILED, plan=plan, tunables=tunables), PADDED, operands(a=16, b=32, c=48))
    assert set(seen) == {(114, hopper.limits)}


def shown(array):
    """Return an object that describes a host array as a device array at address 32."""
    return SimpleNamespace(data=SimpleNamespace(ptr=32), shape=array.shape, strides=array.strides, dtype=array.dtype)


def numbers(values):
    return [int(value) for value in values]


def test_a_tensor_map_has_columns_rows_and_products_from_the_array_as_it_lies(hopper):
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


def test_rows_may_be_any_axes_and_what_is_left_is_the_third_dimension(hopper):
    array = np.zeros((5, 3, 2, 8), np.float16)
    for rows in ((0,), (0, 1, 2)):
        encode(TensorMap("a", (8, 8), rows=rows), shown(array), "k")
    filters, pixels = hopper.encoded
    assert (numbers(filters[3]), numbers(filters[4])) == ([8, 5, 6], [96, 16])
    assert (numbers(pixels[3]), numbers(pixels[4])) == ([8, 30, 1], [16, 480])


IMAGES = Im2colMap("a", (128, 64), lower=(-1, -2), upper=(0, 3), stride=(2, 1), swizzle="128B")


def test_a_map_of_images_has_its_axes_and_corners_innermost_first(hopper):
    encode(IMAGES, shown(np.zeros((5, 4, 3, 8), np.float16)), "k")
    ((kind, rank, address, sizes, pitches, lower, upper, channels, pixels, steps, *_, swizzle, _, _),) = hopper.encoded
    assert (kind.name, rank, address) == ("CU_TENSOR_MAP_DATA_TYPE_FLOAT16", 4, 32)
    assert (numbers(sizes), numbers(pitches)) == ([8, 3, 4, 5], [16, 48, 192])
    assert (numbers(lower), numbers(upper), numbers(steps)) == ([-2, -1], [3, 0], [1, 1, 2, 1])
    assert (channels, pixels, swizzle.name) == (64, 128, "CU_TENSOR_MAP_SWIZZLE_128B")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"lower": (0, -129)}, "a corner is -129, expected -128 to 127"),
        ({"upper": (128, 0)}, "a corner is 128, expected -128 to 127"),
        ({"stride": (1, 9)}, "a stride is 9, expected 1 to 8"),
        ({"box": (1025, 64)}, "a copy's number of pixels is 1025, expected 1 to 1024"),
        ({"box": (8, 257), "swizzle": "none"}, "a copy's number of channels is 257, expected 1 to 256"),
        ({"box": (8, 72)}, "a copy's row in bytes is 144, expected 16 to 128"),
        ({"box": (8, 20)}, "a row of a copy has 40 bytes, expected a multiple of 16"),
    ],
)
def test_a_map_of_images_beyond_the_tma_is_refused_in_one_line(hopper, changed, reason):
    with pytest.raises(UsageError, match=rf"^k: {reason}"):
        encode(replace(IMAGES, **changed), shown(np.zeros((5, 4, 3, 8), np.float16)), "k")
    assert hopper.encoded == []


def test_the_elements_of_a_tensor_map_are_those_of_the_array(hopper):
    elements = {"u1": "UINT8", "i1": "UINT8", "i4": "INT32", "f2": "FLOAT16", "u2": "BFLOAT16", "f8": "FLOAT64"}
    for dtype, tf32 in (*((dtype, False) for dtype in elements), ("f4", False), ("f4", True)):
        encode(TensorMap("a", (8, 8), tf32=tf32), shown(np.zeros((16, 16), dtype)), "k")
    found = [words[0].name.removeprefix("CU_TENSOR_MAP_DATA_TYPE_") for words in hopper.encoded]
    assert found == [*elements.values(), "FLOAT32", "TFLOAT32"]


def test_a_tensor_that_the_tma_cannot_address_is_unsupported(hopper):
    expected = "rows of a begin at address 4104, 160 bytes apart, expected multiples of 16"
    with pytest.raises(Unsupported, match=expected):
        cuda_launch(CLUSTERED, HALVES, device_arrays(HALVES, base=4104))
    odd = device_arrays(REGISTRY.problem("gemm/m8n8k7/bf16/NN"))
    with pytest.raises(Unsupported, match="14 bytes apart"):
        encode(TensorMap("a", (8, 8)), odd.a, "k")
    with pytest.raises(Unsupported, match="14 bytes apart"):
        encode(IMAGES, shown(np.zeros((5, 4, 3, 7), np.float16)), "k")
    assert hopper.encoded == []


def test_a_launch_that_the_driver_refuses_is_an_error(cuda_compiler, monkeypatch):
    from cuda.bindings import driver

    monkeypatch.setattr(driver, "cuLaunchKernelEx", lambda *_: (driver.CUresult.CUDA_ERROR_INVALID_VALUE,))
    with pytest.raises(RuntimeError, match="CUDA_ERROR_INVALID_VALUE, with 1 arguments"):
        launch_with_structs(0, KernelCall(1, 32, ()), [2**40], 0)()


def test_packed_parameters_are_as_wide_as_their_c_types():
    assert [value.size for value in packed([2**40, np.int32(7), np.float32(0.5), np.int64(3)])] == [8, 4, 4, 8]
