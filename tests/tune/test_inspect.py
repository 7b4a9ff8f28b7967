"""The table of what kernels take of a multiprocessor."""

from kernelmark.bench.tune.inspect import render
from support.tuning import row as inspected


def row(entry, tunables=""):
    return inspected(kernel="conv/cuda.k", entry=entry, tunables=tunables)


def names(*rows):
    return [line.split("  ")[0].strip() for line in render(rows, "table").splitlines()[2:]]


def test_the_launches_of_a_kernel_are_distinguished_by_their_functions():
    assert names(row("filters<2>"), row("product<64, 4>")) == ["conv/cuda.k: filters", "conv/cuda.k: product"]


def test_a_kernel_of_one_launch_is_named_with_its_tile_alone():
    assert names(row("k<2>", '{"T":2}'), row("k<4>", '{"T":4,"S":1}')) == ["conv/cuda.k@T=2", "conv/cuda.k@T=4,S=1"]


def test_a_narrow_terminal_shows_the_name_above_the_resources(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    shown = render([row("k<2>", '{"T":2}')], "table").splitlines()
    assert shown[0] == "kernel and tile"
    assert shown[3] == "conv/cuda.k@T=2"
    assert shown[4].split() == ["sm_80", "32", "0", "8", "100%", "warps"]
    assert shown[5].startswith("  left out to fit: static, dynamic, stack, threads")
