"""Transfers between host and GPU on the stub driver: every kind of host memory, and streams that events join."""

from pathlib import Path

import pytest

from stub.library import Run, on_stub

COPIES = ("pageable", "pinned", "write_combined", "managed", "staged", "pipelined", "mapped")
OVERLAPPED = ("transfer/cuda.overlapped", "transfer/n2503/f32/h2d/work1")
#: Kernels and problems; more than 4 KiB go in pieces, through each slot of pinned memory several times.
VERIFIED = {
    **{f"{name} h2d": (f"transfer/cuda.{name}", "transfer/n1031/f32/h2d") for name in COPIES if name != "mapped"},
    **{
        f"{name} d2h": (f"transfer/cuda.{name}", "transfer/n1031/bf16/d2h")
        for name in ("pageable", "pinned", "managed")
    },
    **{
        f"{name} bidir": (f"transfer/cuda.{name}", "transfer/n7/f64/bidir")
        for name in ("pageable", "pinned", "managed")
    },
    "staged d2h": ("transfer/cuda.staged", "transfer/n2503/f32/d2h"),
    "pipelined d2h": ("transfer/cuda.pipelined", "transfer/n6503/f32/d2h"),
    "pipelined long": ("transfer/cuda.pipelined", "transfer/n6503/f32/h2d"),
    "device": ("transfer/cuda.device", "transfer/n1031/f16/d2d"),
    "serial": ("transfer/cuda.serial", "transfer/n1031/f64/h2d/work2"),
    "overlapped": OVERLAPPED,
    "graph overlapped": (*OVERLAPPED, "graph"),
    "on its node": ("transfer/cuda.pinned", "transfer/n1031/f32/h2d/node0"),
}
HAND_WRITTEN = {
    "mapped h2d": ("transfer/cuda.mapped", "transfer/n1031/f32/h2d"),
    "mapped d2h": ("transfer/cuda.mapped", "transfer/n33/f16/d2h"),
    "arrived": ("transfer/cuda.arrived", "transfer/n1031/f32/d2d/work2"),
}


@pytest.fixture(scope="module")
def runs(tools: None, folder: Path) -> dict[str, Run]:
    calls = {name: ("stub.jobs:transferred", *case) for name, case in VERIFIED.items()}
    calls["agreed"] = ("stub.jobs:agreed", "transfer/cuda.mapped")
    calls |= {name: ("stub.jobs:verified", *case) for name, case in HAND_WRITTEN.items()}
    calls |= {
        "timed overlapped": ("stub.jobs:timed_once", *OVERLAPPED),
        "timed bidir": ("stub.jobs:timed_once", "transfer/cuda.pinned", "transfer/n1031/f32/bidir"),
        "peer": ("stub.jobs:transferred", "transfer/cuda.peer", "transfer/n7/f32/p2p"),
        "no node": ("stub.jobs:transferred", "transfer/cuda.managed", "transfer/n7/f32/h2d/node1023"),
        "much": ("stub.jobs:locked", "pinned", 12_000),
        "managed much": ("stub.jobs:locked", "managed", 12_000),
    }
    return on_stub(calls, folder)


def test_a_kernel_on_the_hosts_memory_is_compared_with_the_emulator(runs: dict[str, Run]) -> None:
    (line,) = runs["agreed"].value
    assert line.startswith("agree on copy.cu/transfer/n1/")


@pytest.mark.parametrize("name", [*VERIFIED, *HAND_WRITTEN])
def test_every_element_arrives(runs: dict[str, Run], name: str) -> None:
    found = runs[name].value
    assert (found["status"], found["reason"], found["complaints"]) == ("ok", "", [])
    assert runs[name].violations == []


@pytest.mark.parametrize("name", ["timed overlapped", "timed bidir"])
def test_what_is_queued_beside_the_timed_stream_is_joined_to_it(runs: dict[str, Run], name: str) -> None:
    lines = [line.split() for line in runs[name].log if line.startswith(("cuMemcpy", "cuEventRecord", "cuStreamWait"))]
    begun, joined = set(), set()  # streams: of the event, and of what waits for it
    for i, words in enumerate(lines):
        if words[0] == "cuStreamWaitEvent" and lines[i - 1][:2] == ["cuEventRecord", words[1]]:
            pair = lines[i - 1][-1], words[-1]
            if i + 1 < len(lines) and lines[i + 1][0].startswith("cuMemcpy") and lines[i + 1][-1] == pair[1]:
                begun.add(pair)
            joined.add(pair)
    assert any((side, timed) in joined for timed, side in begun)


def test_the_kinds_of_memory_are_what_the_driver_is_asked_for(runs: dict[str, Run]) -> None:
    asked = {name: {line.split()[0] for line in runs[name].log} for name in ("pinned h2d", "managed h2d")}
    assert "cuMemHostAlloc" in asked["pinned h2d"]
    assert {"cuMemAllocManaged", "cuMemAdvise_v2"} <= asked["managed h2d"]


def test_between_gpus_one_is_too_few(runs: dict[str, Run]) -> None:
    found = runs["peer"].value
    assert found["status"] == "unsupported"
    assert found["reason"] == "this takes 2 GPUs that can read each other's memory, this process sees 1"


def test_a_node_that_is_not_there_is_unsupported(runs: dict[str, Run]) -> None:
    assert runs["no node"].value["status"] == "unsupported"
    assert runs["no node"].value["reason"].startswith("NUMA node 1023 is not there; nodes of this machine: ")


def test_memory_beyond_a_quarter_of_the_hosts_is_refused_before_it_is_locked(runs: dict[str, Run]) -> None:
    expected = "expected at most 1.64e-05 GB, a quarter of the host's memory"
    assert runs["much"].value == f"pinned memory: 2.4e-05 GB would be locked; {expected}"
    assert sum(line.startswith("cuMemHostAlloc") for line in runs["much"].log) == 1
    assert runs["managed much"].value == ""
