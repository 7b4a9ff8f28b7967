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


def test_a_kernel_of_one_launch_is_named_alone_whatever_its_tiles():
    assert names(row("k<2>", "a"), row("k<4>", "b")) == ["conv/cuda.k", "conv/cuda.k"]
