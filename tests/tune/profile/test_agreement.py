"""The emulator's counts against machine code: literal ones that agree, that differ, and that cannot be compared."""

import msgspec
import pytest

from kernelmark.bench.tune.profile.counted import Counts, LineCounts
from kernelmark.bench.tune.profile.machine import agreement
from kernelmark.bench.tune.profile.sass import Code, LaunchCode, Sass

WARPS, TRIPS = 8, 100
LOOP = Code(100, {"FFMA": 80, "LDS": 4, "LDGSTS": 2}, {"LDS 128": 4, "LDGSTS 32": 2}, {"FFMA": 80}, 100, 3)
ALL = Code(200, {"FFMA": 80, "LDS": 8, "LDGSTS": 6}, {"LDS 128": 8, "LDGSTS 32": 6}, {"FFMA": 80}, 200, 5)
FUNCTION = LaunchCode("k", 1, 32 * WARPS, 0, 32, 0, 1, ALL, LOOP, (0, 16))


def sass(*functions: LaunchCode) -> Sass:
    return Sass("gemm/cuda.k", "p", "", "sm_90a", "compiler", "nvdisasm", functions)


def counts(trips: int = TRIPS, **others: object) -> Counts:
    by_loop = {"fma": 80 * trips * WARPS, "loads": {"shared 16": 4 * trips * WARPS}}
    total = LineCounts("", 0, **{**by_loop, "copies": {"copy 4": 2 * trips * WARPS}, **others})  # type: ignore[arg-type]
    return Counts("gemm/cuda.k", "p", "", "sm_90a", (), (), total, 0, 0, None, None, (), 0, ())


def test_counts_of_the_loop_times_its_trips_agree() -> None:
    found = agreement(counts(), sass(FUNCTION))
    assert (found.trips, found.differing, found.reason) == (TRIPS * WARPS, (), "")


@pytest.mark.parametrize("number", [-8, 12])
def test_what_a_warp_does_outside_of_the_loop_is_no_difference(number: int) -> None:
    loads = {"shared 16": (4 * TRIPS + number) * WARPS}
    assert agreement(counts(loads=loads), sass(FUNCTION)).differing == ()


@pytest.mark.parametrize(
    ("counted", "named"),
    [
        (
            {"loads": {"shared 16": 5 * TRIPS * WARPS}},
            "5.00 LDS of 16 bytes counted a trip, the machine code has 4",
        ),
        ({"loads": {"shared 8": 8 * TRIPS * WARPS}}, "8.00 LDS of 8 bytes counted a trip, the machine code has 0"),
        ({"copies": {}}, "0.00 LDGSTS of 4 bytes counted a trip, the machine code has 2"),
    ],
)
def test_another_number_or_width_in_the_loop_is_source_level(counted: dict[str, object], named: str) -> None:
    found = agreement(counts(**counted), sass(FUNCTION))
    assert named in found.differing
    assert found.words.startswith("Source level: in the main loop")


def test_few_trips_two_functions_and_loops_without_ffma_are_not_compared() -> None:
    assert "a warp makes 15.0 trips" in agreement(counts(15), sass(FUNCTION)).reason
    assert "2 functions are launched" in agreement(counts(), sass(FUNCTION, FUNCTION)).reason
    assert "no main loop of FFMA" in agreement(counts(), sass(msgspec.structs.replace(FUNCTION, loop=None))).reason
    assert "no main loop of FFMA" in agreement(counts(fma=None), sass(FUNCTION)).reason
