"""The table of what kernels take of a multiprocessor."""

from bench.tune.inspect import InspectRow, render


def row(entry, tunables=""):
    identity = {"kernel": "conv/cuda.k", "tunables": tunables, "arch": "sm_80", "entry": entry, "problem": "p"}
    used = {"registers": 32, "static_shared_bytes": 0, "dynamic_shared_bytes": 0, "spill_bytes": 0, "stack_bytes": 0}
    fits = {"threads": 256, "blocks_per_sm": 8, "occupancy": 1.0, "limiter": "warps", "compiler": "c"}
    return InspectRow(**identity, **used, **fits)


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
