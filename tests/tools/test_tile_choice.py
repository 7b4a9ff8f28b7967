"""What choices of a tile cost: planted times are fitted again, and every way to choose is judged by them."""

import re

import pytest

from kernelmark.bench.plan.suites import find_suite
from kernelmark.kernels.conv.fft._tiling import cuts
from kernelmark.kernels.conv.fft.cpu import work
from report_rows import begin, put

TOOL, SUITE = "tile_choice", "train-fft-tiles"
SUITES = {"conv/pyfftw.tiled": SUITE, "conv/numba.fft_tiled": "train-numba-fft-tiles"}
KERNEL, SIDE_64 = "conv/pyfftw.tiled", "conv/pyfftw.tiled@HEIGHT=64,WIDTH=64"
#: Seconds of each part of the work, unlike those in the kernel.
SECONDS = (1e-10, 5e-12, 3e-11, 2e-6)


def seconds(problem, side):
    return sum(each * part for each, part in zip(SECONDS, work(cuts(problem, (side, side))), strict=True))


@pytest.fixture
def planted(store, registry):
    """Times by `SECONDS` alone; the kernel that chooses by itself takes a quarter longer than the fastest tile."""

    def plant(count=None, kernels=None, suite=SUITE):
        begin(store)
        for entry in list(find_suite(suite, registry).entries())[:count]:
            took = {}
            for name in entry.kernels[1:]:
                kernel = registry.named(name)
                if kernel.refuses(entry.problem) is None:
                    took[kernel.id] = seconds(entry.problem, kernel.tile["HEIGHT"])
            took[entry.kernels[0]] = 1.25 * min(took.values())
            for kernel, median in took.items():
                if kernels is None or kernel in kernels:
                    put(store, entry.problem.id, kernel, median, taken=[median] * 10)

    return plant


@pytest.mark.parametrize("kernel", SUITES)
def test_planted_seconds_are_found_and_every_way_is_judged_by_them(tool, store, planted, capsys, kernel):
    planted(suite=SUITES[kernel])
    assert tool.main(["--db", str(store.path), "--kernel", kernel]) == 0
    printed = capsys.readouterr().out
    assert "r1: 72 problems of " in printed
    shares = {way: found for way, *found in re.findall(r"(?m)^(\w.*?)  +(\S+) \[(\S+), (\S+)\] +(\S+)", printed)}
    assert shares["its own choice"] == ["0.800", "0.800", "0.800", "0.80"]
    assert shares["a refitted model"] == ["1.000", "1.000", "1.000", "1.00"]
    assert 0.6 < float(shares["a selector (alone)"][0]) < 1
    assert 0.6 < float(shares["a selector (taught)"][0]) < 1
    name = "SECONDS" if kernel == KERNEL else "STRAIGHT_SECONDS"
    found = re.search(rf"(?m)^{name} = \((.*)\)$", printed)[1].split(", ")
    assert [float(value) for value in found] == pytest.approx(SECONDS, rel=0.01)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 9}, "run r1: has times on 9 problems, expected at least 60; `kernelmark run {suite}` has more"),
        ({"kernels": [SIDE_64]}, f"run r1: has no time of {KERNEL}; `kernelmark run {{suite}}` measures its tiles"),
        (None, "{suite}: no run in {path} has a time for it; `kernelmark run {suite}` makes one"),
    ],
)
def test_a_store_that_lacks_rows_is_one_line(tool, store, planted, options, message, capsys):
    if options is not None:
        planted(**options)
    assert tool.main(["--db", str(store.path)]) == 2
    expected = message.replace("{suite}", SUITE).replace("{path}", str(store.path))
    assert capsys.readouterr().err == f"tile_choice: {expected}\n"


def test_the_suite_of_implicit_gemm_has_the_tiles_that_it_chooses_from(registry):
    kernels = {name for entry in find_suite("train-implicit-tiles", registry).entries() for name in entry.kernels}
    implicit = registry.kernels["conv/cuda.implicit"]
    preferred = {(tile["BM"], tile["BN"]) for tile in implicit.prefer.tiles}
    pinned = [registry.named(name).tile for name in kernels - {implicit.id}]
    assert {(tile["BM"], tile["BN"]) for tile in pinned} == preferred
