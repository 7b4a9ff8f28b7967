"""What the sides of an FFT's tiles cost: planted times are fitted again, and choices are judged by them."""

import re

import pytest

from bench.plan.suites import find_suite
from kernels.conv.fft._tiling import cuts
from kernels.conv.fft.cpu import work
from report_rows import begin, put

TOOL = "fft_sides"
#: Seconds of each part of the work, unlike those in the kernel.
SECONDS = (1e-10, 5e-12, 3e-11, 2e-6)


def seconds(problem, side):
    return sum(each * part for each, part in zip(SECONDS, work(cuts(problem, (side, side))), strict=True))


@pytest.fixture
def planted(store, registry):
    """Times by `SECONDS` alone; the kernel that chooses by itself takes a quarter longer than the fastest tile."""

    def plant(count=None, kernels=None):
        begin(store)
        for entry in list(find_suite("train-tiles", registry).entries())[:count]:
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


def test_planted_seconds_are_found_and_every_way_is_judged_by_them(tool, store, planted, capsys):
    planted()
    assert tool.main(["--db", str(store.path)]) == 0
    printed = capsys.readouterr().out
    assert "r1: 72 problems of " in printed
    shares = {way: found for way, *found in re.findall(r"(?m)^(\w.*?)  +(\S+) \[(\S+), (\S+)\] +(\S+)", printed)}
    assert shares["the model"] == ["0.800", "0.800", "0.800", "0.80"]
    assert shares["the model, refitted"] == ["1.000", "1.000", "1.000", "1.00"]
    assert 0.6 < float(shares["a tree, alone"][0]) < 1
    assert 0.6 < float(shares["a tree, taught"][0]) < 1
    found = re.search(r"(?m)^SECONDS = \((.*)\)$", printed)[1].split(", ")
    assert [float(value) for value in found] == pytest.approx(SECONDS, rel=0.01)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 9}, "run r1: has times on 9 problems, expected at least 60; `kernelmark run train-tiles` has more"),
        ({"kernels": ["conv/pyfftw.tiled@HEIGHT=64,WIDTH=64"]}, "run r1: has no time of conv/pyfftw.tiled; `kernelmark "
         "run train-tiles` measures it and its tiles"),
        (None, "train-tiles: no run in {path} has a time for it; `kernelmark run train-tiles` makes one"),
    ],
)  # fmt: skip
def test_a_store_that_lacks_rows_is_one_line(tool, store, planted, options, message, capsys):
    if options is not None:
        planted(**options)
    assert tool.main(["--db", str(store.path)]) == 2
    assert capsys.readouterr().err == f"fft_sides: {message}\n".replace("{path}", str(store.path))
