"""Published limits of NVIDIA GPUs, for bounds. Nothing here is measured or becomes part of a row.

NVIDIA publishes each figure: the number of multiprocessors, the highest boost clock at which it states a peak rate,
dense peak rates of tensor cores, and the bandwidth of the memory. Rates for each clock and multiprocessor come from the
CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions" and "Shared Memory": 4 warp schedulers, 32
banks of 4 bytes, so that a wavefront takes a clock. A figure that NVIDIA does not publish is None, and bounds nothing.
"""

import msgspec

from kernelmark.bench.plan.errors import UsageError, unknown

SCHEDULERS = 4  # of a multiprocessor, each of which issues one warp instruction a clock


class Published(msgspec.Struct, frozen=True):
    """One GPU. capability: compute capability times ten. multiply_adds: of FP32, per clock and multiprocessor.

    tensor: dense peak by type and width of the sums (`bf16.f32`), in flop a second. l2_bytes: bytes per clock that the
    L2 cache delivers. source: where the figures are published.
    """

    name: str
    capability: int
    multiprocessors: int | None
    clock_hz: float | None
    multiply_adds: int
    tensor: dict[str, float]
    dram_bytes_per_s: float
    source: str
    l2_bytes: int | None = None


def _sixteen_bits(flop_per_s: float, **others: float) -> dict[str, float]:
    """Return the rates of 16-bit operands, which depend on neither their type nor the sums', and the other rates."""
    same = dict.fromkeys(("f16.f32", "f16.f16", "bf16.f32"), flop_per_s)
    sums = {"f64": "f64", "s8": "s32"}
    return same | {f"{name}.{sums.get(name, 'f32')}": rate for name, rate in others.items()}


_HOPPER = "NVIDIA H100 Tensor Core GPU Architecture, white paper v1.04, tables 2 and 3"
_ADA = "NVIDIA Ada GPU Architecture, white paper v2.1, table 2"

_SXM = Published(
    name="H100 SXM5",
    capability=90,
    multiprocessors=132,
    clock_hz=1.98e9,
    multiply_adds=128,
    tensor=_sixteen_bits(989.4e12, tf32=494.7e12, fp8=1978.9e12, s8=1978.9e12, f64=66.9e12),
    dram_bytes_per_s=3.352e12,
    source=f"{_HOPPER}; tensor rates at 1830 MHz",
)
DEVICES = {
    "h100-sxm": _SXM,
    "h100-pcie": Published(
        name="H100 PCIe",
        capability=90,
        multiprocessors=114,
        clock_hz=1.755e9,
        multiply_adds=128,
        tensor=_sixteen_bits(756e12, tf32=378e12, fp8=1513e12, s8=1513e12, f64=51.2e12),
        dram_bytes_per_s=2.039e12,
        source=f"{_HOPPER}; tensor rates at 1620 MHz",
    ),
    "h200": msgspec.structs.replace(
        _SXM,
        name="H200 SXM",
        dram_bytes_per_s=4.8e12,
        source=f"NVIDIA H200 Tensor Core GPU, datasheet; the processor is that of {_HOPPER}",
    ),
    "a100": Published(
        name="A100 SXM4 80 GB",
        capability=80,
        multiprocessors=108,
        clock_hz=1.41e9,
        multiply_adds=64,
        tensor=_sixteen_bits(312e12, tf32=156e12, s8=624e12, f64=19.5e12),
        dram_bytes_per_s=2.039e12,
        source="NVIDIA A100 Tensor Core GPU Architecture, white paper v1.0, tables 1 and 4; datasheet, 80 GB",
        l2_bytes=5120,
    ),
    "rtx4090": Published(
        name="RTX 4090",
        capability=89,
        multiprocessors=128,
        clock_hz=2.52e9,
        multiply_adds=128,
        tensor=_sixteen_bits(165.2e12, tf32=82.6e12, fp8=330.3e12, s8=660.6e12) | {"f16.f16": 330.3e12},
        dram_bytes_per_s=1.008e12,
        source=_ADA,
    ),
    "l40s": Published(
        name="L40S",
        capability=89,
        multiprocessors=142,
        clock_hz=2.52e9,
        multiply_adds=128,
        tensor=_sixteen_bits(362.05e12, tf32=183e12, fp8=733e12, s8=733e12),
        dram_bytes_per_s=0.864e12,
        source="NVIDIA L40S, datasheet; its peak in FP32 is at 2520 MHz",
    ),
    "b200": Published(
        name="B200",
        capability=100,
        multiprocessors=None,
        clock_hz=None,
        multiply_adds=128,
        tensor=_sixteen_bits(2250e12, tf32=1100e12, fp8=4500e12),
        dram_bytes_per_s=8e12,
        source="NVIDIA Blackwell Architecture, technical brief, HGX B200; multiprocessors and clock are not published",
    ),
}


def published(name: str, arch: str) -> Published:
    """Return a device by its name, such as `h100-sxm`. Raises UsageError if unknown or of another architecture."""
    if name not in DEVICES:
        raise UsageError(f"device {name!r} {unknown(name, DEVICES)}")
    if not _is_of(DEVICES[name], arch):
        raise UsageError(f"device {name}: is sm_{DEVICES[name].capability}, not {arch}; set --arch to the device's")
    return DEVICES[name]


def usual(arch: str) -> Published | None:
    """Return the first device in this module with an architecture such as `sm_90a`, or None."""
    return next((device for device in DEVICES.values() if _is_of(device, arch)), None)


def _is_of(device: Published, arch: str) -> bool:
    return arch.removeprefix("sm_").rstrip("af") == str(device.capability)
