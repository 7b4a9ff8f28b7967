"""Bounds of machine code: the least time of a loop, and how counts and bounds agree."""

import msgspec
import pytest

from kernelmark.bench.tune.profile.counted import Counts, LineCounts
from kernelmark.bench.tune.profile.machine import (
    DEVICES,
    Published,
    TimeBound,
    Work,
    agreement,
    bounds,
    published,
    render,
    tensor_type,
    unlike,
)
from kernelmark.bench.tune.profile.sass import Code, LaunchCode, Sass, lanes

WARPS, TRIPS = 8, 100
COUNTED_LOOP = Code(100, {"FFMA": 80, "LDS": 4, "LDGSTS": 2}, {"LDS 128": 4, "LDGSTS 32": 2}, {"FFMA": 80}, 100, 3)
ALL = Code(200, {"FFMA": 80, "LDS": 8, "LDGSTS": 6}, {"LDS 128": 8, "LDGSTS 32": 6}, {"FFMA": 80}, 200, 5)
FUNCTION = LaunchCode("k", 1, 32 * WARPS, 0, 32, 0, 1, ALL, COUNTED_LOOP, (0, 16))


def sass_of(*functions: LaunchCode) -> Sass:
    return Sass("gemm/cuda.k", "p", "", "sm_90a", "compiler", "nvdisasm", functions)


def counts(trips: int = TRIPS, **others: object) -> Counts:
    by_loop = {"fma": 80 * trips * WARPS, "loads": {"shared 16": 4 * trips * WARPS}}
    total = LineCounts("", 0, **{**by_loop, "copies": {"copy 4": 2 * trips * WARPS}, **others})  # type: ignore[arg-type]
    return Counts("gemm/cuda.k", "p", "", "sm_90a", (), (), total, 0, 0, None, None, (), 0, ())


def test_counts_of_the_loop_times_its_trips_agree() -> None:
    found = agreement(counts(), sass_of(FUNCTION))
    assert (found.trips, found.differing, found.reason) == (TRIPS * WARPS, (), "")


@pytest.mark.parametrize("number", [-8, 12])
def test_what_a_warp_does_outside_of_the_loop_is_no_difference(number: int) -> None:
    loads = {"shared 16": (4 * TRIPS + number) * WARPS}
    assert agreement(counts(loads=loads), sass_of(FUNCTION)).differing == ()


@pytest.mark.parametrize(
    ("counted", "named", "unbounded"),
    [
        (
            {"loads": {"shared 16": 5 * TRIPS * WARPS}},
            "5.00 LDS of 16 bytes counted per trip, the machine code has 4",
            ["5.00 LDS of 16 bytes counted per trip, the machine code has 4"],
        ),
        (
            {"loads": {"shared 8": 8 * TRIPS * WARPS}},
            "8.00 LDS of 8 bytes counted per trip, the machine code has 0",
            [
                "8.00 LDS of 8 bytes counted per trip, the machine code has 0",
                "loads of 8 bytes counted, the machine code has 16",
            ],
        ),
        ({"copies": {}}, "0.00 LDGSTS of 4 bytes counted per trip, the machine code has 2", []),
    ],
)
def test_another_number_or_width_in_the_loop_is_source_level(
    counted: dict[str, object], named: str, unbounded: list[str]
) -> None:
    found = agreement(counts(**counted), sass_of(FUNCTION))
    assert named in found.differing
    assert found.words.startswith("Source level: in the main loop")
    assert list(unlike(counts(**counted), sass_of(FUNCTION), found)) == unbounded


def test_few_trips_two_functions_and_loops_without_ffma_are_not_compared() -> None:
    assert "a warp makes 15.0 trips" in agreement(counts(15), sass_of(FUNCTION)).reason
    assert "2 functions are launched" in agreement(counts(), sass_of(FUNCTION, FUNCTION)).reason
    assert "no main loop of FFMA" in agreement(counts(), sass_of(msgspec.structs.replace(FUNCTION, loop=None))).reason
    assert "no main loop of FFMA" in agreement(counts(fma=None), sass_of(FUNCTION)).reason


DEVICE = Published("two", 90, 2, 1e9, 128, {"bf16.f32": 1e12}, 1e9, "a test", l2_bytes=64)
LOOP = Code(100, {"FFMA": 80, "LDS": 20}, {"LDS 128": 20}, {"FFMA": 80}, 100, 3)


def sass(loop: Code | None = LOOP, blocks: int = 4, held: int = 1) -> Sass:
    return sass_of(LaunchCode("k", blocks, 256, 0, 32, 0, held, loop or LOOP, loop, (0, 16) if loop else None))


def test_each_limit_is_formed_as_if_the_others_were_infinite() -> None:
    work = Work(multiply_adds=2_560_000, wavefronts=4_000, l2_bytes=6_400_000, dram_bytes=3_000_000)
    found = bounds(work, sass(), DEVICE)
    assert found.times == pytest.approx(
        {
            "issue slots": 2_560_000 / 32 / 0.8 / 4 / 2 / 1e9,
            "FFMA": 2_560_000 / 128 / 2 / 1e9,
            "shared memory": 4_000 / 2 / 1e9,
            "L2": 6_400_000 / 64 / 1e9,
            "DRAM": 3e-3,
        }
    )
    assert (found.limiting, found.time_s) == ("DRAM", 3e-3)


def test_blocks_that_do_not_fill_the_last_wave_lengthen_what_a_multiprocessor_does() -> None:
    even, odd = (bounds(Work(2_560_000, dram_bytes=1), sass(blocks=blocks), DEVICE) for blocks in (4, 3))
    assert (even.waves, even.tail, odd.waves, odd.tail) == (2.0, 1.0, 1.5, pytest.approx(4 / 3))
    assert odd.times["FFMA"] == pytest.approx(even.times["FFMA"] * 4 / 3)
    assert odd.times["DRAM"] == even.times["DRAM"]


def test_fewer_blocks_than_multiprocessors_leave_the_others_idle() -> None:
    assert bounds(Work(2_560_000), sass(blocks=1), DEVICE).tail == 2.0


def test_tensor_cores_bind_by_the_type_of_the_loop() -> None:
    loop = Code(10, {"HMMA": 5}, {}, {"HMMA.16816.F32.BF16": 5}, 10, 0)
    found = bounds(Work(1_000_000), sass(loop), DEVICE)
    assert found.times["tensor cores"] == pytest.approx(2e-6)
    assert "FFMA" not in found.times


def test_what_is_not_published_or_not_counted_bounds_nothing() -> None:
    b200 = published("b200", "sm_100")
    assert bounds(Work(1_000_000), sass(), b200).times == {}
    assert bounds(Work(1_000_000, dram_bytes=8), sass(), b200).times == pytest.approx({"DRAM": 1e-12})
    assert bounds(Work(0), sass(None), DEVICE) == TimeBound("two", {}, 2.0, 1.0)
    assert TimeBound("two", {}, None, None).limiting is None


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("FFMA", 32),
        ("FFMA2", 64),
        ("HMMA.16816.F32.BF16", 2048),
        ("HMMA.1688.F32.TF32", 1024),
        ("HGMMA.64x256x16.F32.BF16", 65536),
        ("DMMA.884", 256),
        ("DMMA.16x8x4", 512),
    ],
)
def test_lanes_are_the_multiply_adds_of_one_warp_instruction(opcode: str, expected: int) -> None:
    assert lanes(opcode) == expected


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("HMMA.16816.F32", "f16.f32"),
        ("HMMA.16816.F16", "f16.f16"),
        ("HMMA.16816.F32.BF16", "bf16.f32"),
        ("HMMA.1688.F32.TF32", "tf32.f32"),
        ("QGMMA.64x256x32.F32.E4M3.E5M2", "fp8.f32"),
        ("IGMMA.64x256x32.S8.S8", "s8.s32"),
        ("IMMA.16832.S8.S8", "s8.s32"),
        ("DMMA.16x8x4", "f64.f64"),
        ("FFMA", None),
    ],
)
def test_the_type_of_tensor_cores_is_read_from_the_opcode(opcode: str, expected: str | None) -> None:
    assert tensor_type(Code(1, {}, {}, {opcode: 1}, 1, 0)) == expected


def test_published_peaks_of_fp32_follow_from_multiprocessors_and_clock() -> None:
    peaks = {"h100-sxm": 66.9, "h100-pcie": 51.2, "h200": 66.9, "a100": 19.5, "rtx4090": 82.6, "l40s": 91.6}
    for name, device in DEVICES.items():
        assert device.source
        assert (device.multiprocessors is None) == (device.clock_hz is None) == (name not in peaks)
        if device.multiprocessors and device.clock_hz:
            found = 2 * device.multiply_adds * device.multiprocessors * device.clock_hz / 1e12
            assert found == pytest.approx(peaks[name], abs=0.06)


def test_the_table_begins_with_the_limiting_one() -> None:
    shown = render(TimeBound("H100 SXM5", {"FFMA": 1e-3, "DRAM": 2e-3}, 1.0, 1.0)).splitlines()
    assert "least time on H100 SXM5" in shown[0]
    assert [line.split()[0] for line in shown[2:]] == ["DRAM", "FFMA"]
    assert shown[2].rstrip().endswith("limiting")
