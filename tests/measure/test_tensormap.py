"""Tensor maps: what is encoded of an array, what the TMA cannot address, and how a launch hands them over. No GPU."""

import ctypes
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kernelmark.bench.measure.launch import cuda_launch
from kernelmark.bench.measure.tensormap import encode, packed
from kernelmark.bench.plan.errors import Unsupported, UsageError
from kernelmark.bench.plan.kernel import Im2colMap, TensorMap
from support.cuda import CLUSTERED, HALVES, REGISTRY, Gpu, device_arrays


def shown(array: Any) -> Any:
    """A host array as if it lay on a device, at address 32."""
    return SimpleNamespace(
        data=SimpleNamespace(ptr=32), shape=array.shape, ndim=array.ndim, strides=array.strides, dtype=array.dtype
    )


def numbers(values: Any) -> list[int]:
    """Return the integers that the bindings wrap."""
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


def test_rows_may_be_any_axes_and_what_is_left_is_the_third_dimension(hopper: Gpu) -> None:
    array = np.zeros((5, 3, 2, 8), np.float16)
    for rows in ((0,), (0, 1, 2)):
        encode(TensorMap("a", (8, 8), rows=rows), shown(array), "k")
    filters, pixels = hopper.encoded
    assert (numbers(filters[3]), numbers(filters[4])) == ([8, 5, 6], [96, 16])
    assert (numbers(pixels[3]), numbers(pixels[4])) == ([8, 30, 1], [16, 480])


IMAGES = Im2colMap("a", (128, 64), lower=(-1, -2), upper=(0, 3), stride=(2, 1), swizzle="128B")


def test_a_map_of_images_has_its_axes_and_corners_innermost_first(hopper: Gpu) -> None:
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
        ({"box": (1025, 64)}, "a number of pixels in a copy is 1025, expected 1 to 1024"),
        ({"box": (8, 257), "swizzle": "none"}, "a number of channels in a copy is 257, expected 1 to 256"),
        ({"box": (8, 72)}, "a row of a copy in bytes is 144, expected 16 to 128"),
        ({"box": (8, 20)}, "a row of a copy has 40 bytes, expected a multiple of 16"),
    ],
)
def test_a_map_of_images_beyond_the_tma_is_refused_in_one_line(hopper: Gpu, changed: Any, reason: str) -> None:
    with pytest.raises(UsageError, match=rf"^k: {reason}"):
        encode(replace(IMAGES, **changed), shown(np.zeros((5, 4, 3, 8), np.float16)), "k")
    assert hopper.encoded == []


def test_images_whose_pixels_are_not_aligned_are_unsupported(hopper: Gpu) -> None:
    with pytest.raises(Unsupported, match="every 14 bytes, expected multiples of 16 for a tensor map"):
        encode(IMAGES, shown(np.zeros((5, 4, 3, 7), np.float16)), "k")


@pytest.mark.parametrize(
    ("dtype", "tf32", "element"),
    [
        ("u1", False, "UINT8"),
        ("i1", False, "UINT8"),
        ("i4", False, "INT32"),
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
    assert (config.sharedMemBytes, int(config.hStream), config.numAttrs) == (214016, 99, 1)
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


def test_a_descriptor_lies_where_the_header_of_the_driver_has_it_and_is_launched_from_there(hopper: Gpu) -> None:
    array = shown(np.zeros((16, 16), "f4"))
    encoded = [encode(TensorMap("a", (8, 8)), array, "k") for _ in range(20)]  # kept, or all lie at one address
    assert {descriptor.ctypes.data % 128 for descriptor in encoded} == {0}
    assert [value.ctypes.data for value in packed(encoded)] == [descriptor.ctypes.data for descriptor in encoded]


def test_packed_parameters_are_as_wide_as_their_c_types() -> None:
    assert [value.size for value in packed([2**40, np.int32(7), np.float32(0.5), np.int64(3)])] == [8, 4, 4, 8]
