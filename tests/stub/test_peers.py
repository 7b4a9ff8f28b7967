"""Kernels on several GPUs, on the stub driver: operands on each, copies and sums between them, NCCL by a stand-in."""

import re
from pathlib import Path
from typing import Any

import pytest

from stub.library import Run, on_stub

STRATEGIES = ("p2p.device", "p2p.stripes", "p2p.tree", "p2p.ring")
#: Stripes of unequal lengths, fewer of them than GPUs, and weights that go back to all.
PROBLEMS = ("w3n1031/f32", "w4n17/f32/ef", "w4n1056/f32/update")
SUM = ("stub.jobs:between_gpus", "aggregate/p2p.ring", "aggregate/w3n1031/f32")
CALLS = {
    **{f"{name} {SUM[2]}": (SUM[0], f"aggregate/{name}", SUM[2]) for name in ("p2p.ring", "p2p.stripes")},
    **{f"nccl {name}": (SUM[0], f"aggregate/nccl.{name}", SUM[2]) for name in ("allreduce", "reduce")},
    "nccl step": (SUM[0], "aggregate/nccl.reduce", "aggregate/w3n1031/f32/update"),
    "nccl two": (SUM[0], "aggregate/nccl.allreduce", "aggregate/w2n33/f64/ef"),
    "peer": (SUM[0], "transfer/cuda.peer", "transfer/n1031/bf16/p2p"),
}
LONG = {
    **{f"{name} {p}": (SUM[0], f"aggregate/{name}", f"aggregate/{p}") for name in STRATEGIES for p in PROBLEMS},
    "two": (SUM[0], "aggregate/p2p.tree", "aggregate/w2n33/f64/ef"),
    "graph": (SUM[0], "aggregate/p2p.tree", SUM[2], "graph"),
    "cold": (SUM[0], "aggregate/p2p.stripes", SUM[2], "cold"),
}
#: Kernels whose sums are not right, or that write where they must not.
CHEATS = """
from kernelmark import kernel
from kernelmark.kernels._gpus import between
from kernelmark.kernels._launches import in_turn
from kernelmark.kernels.aggregate.peers import P2P, device

MINE = {**P2P, "provider": "mine"}
STREAMS = []


@kernel("aggregate", **MINE)
def forgets(problem, x):
    return between(0, x.s, 2, x.g[2], x.stream)


@kernel("aggregate", **MINE)
def spoils(problem, x):
    return in_turn(device(problem, x), between(1, x.g[1], 0, x.g[0], x.stream))


@kernel("aggregate", **MINE)
def hurries(problem, x):
    import cupy

    with cupy.cuda.Device(1):
        STREAMS.append(cupy.cuda.Stream(non_blocking=True))
    return in_turn(device(problem, x), between(0, x.s, 1, x.g[1], STREAMS[-1]))
"""
REFUSED = {
    "too few": (*SUM[:2], "aggregate/w5n70/f32"),
    "no step": (SUM[0], "aggregate/nccl.allreduce", "aggregate/w2n70/f32/update"),
    "no nccl": (SUM[0], "aggregate/nccl.allreduce", SUM[2]),
}


@pytest.fixture(scope="module")
def runs(tools: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    return on_stub(CALLS, tmp_path_factory.mktemp("stub"), KM_STUB_DEVICES="4", KM_STUB_NCCL="1")


@pytest.fixture(scope="module")
def long_runs(tools: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    return on_stub(LONG, tmp_path_factory.mktemp("stub"), KM_STUB_DEVICES="4")


def status_of(run: Run) -> tuple[Any, ...]:
    return run.value["status"], run.value["reason"], run.value["complaints"], run.violations


@pytest.mark.parametrize("name", CALLS)
def test_what_lies_on_several_gpus_is_summed_and_copied(runs: dict[str, Run], name: str) -> None:
    assert status_of(runs[name]) == ("ok", "", [], [])


@pytest.mark.long
@pytest.mark.parametrize("name", LONG)
def test_every_strategy_sums_in_every_mode(long_runs: dict[str, Run], name: str) -> None:
    assert status_of(long_runs[name]) == ("ok", "", [], [])


@pytest.mark.long
def test_each_gpu_sums_what_it_owns_on_a_stream_of_its_own(long_runs: dict[str, Run]) -> None:
    streams = {"device": 1, "stripes": 4, "tree": 2, "ring": 4}
    for name, count in streams.items():
        log = "\n".join(long_runs[f"p2p.{name} w4n1056/f32/update"].log)
        assert len(set(re.findall(r"^cuLaunchKernelEx \S+ on (0x\w+):", log, re.MULTILINE))) == count


def test_nothing_is_left_when_the_process_ends(runs: dict[str, Run]) -> None:
    assert runs["end"].violations == []


def test_every_gpu_can_use_the_others_memory_and_is_asked_once(runs: dict[str, Run]) -> None:
    asked = [line for run in runs.values() for line in run.log if line.startswith("cuCtxEnablePeerAccess of")]
    assert len(asked) == len(set(asked)) == 6  # three GPUs


def test_what_is_missing_is_named_in_the_row(tools: None, tmp_path: Path) -> None:
    found = on_stub(REFUSED, tmp_path, KM_STUB_DEVICES="4")
    assert [run.value["status"] for name, run in found.items() if name != "end"] == ["unsupported"] * 3
    assert found["too few"].value["reason"] == (
        "this takes 5 GPUs that can read each other's memory, this process sees 4"
    )
    assert found["no step"].value["reason"] == "aggregate/nccl.allreduce has no update path; it has sum"
    assert found["no nccl"].value["reason"] == ("CuPy finds no NCCL (libnccl.so.2); pip install 'kernelmark[nccl]'")


@pytest.mark.long
def test_gpus_that_cannot_use_each_others_memory_are_named(tools: None, tmp_path: Path) -> None:
    found = on_stub({"apart": SUM}, tmp_path, KM_STUB_DEVICES="4", KM_STUB_APART="1")["apart"].value
    assert (found["status"], found["reason"]) == (
        "unsupported",
        "GPU 0 cannot read the memory of GPU 1; `nvidia-smi topo -p2p r` shows which can",
    )


@pytest.mark.long
def test_operands_on_several_gpus_are_verified_on_each(tools: None, tmp_path: Path) -> None:
    (tmp_path / "cheats.py").write_text(CHEATS)
    names = ("forgets", "spoils", "hurries")
    calls = {name: (SUM[0], f"aggregate/mine.{name}", SUM[2], "verify", str(tmp_path / "cheats.py")) for name in names}
    found = on_stub(calls, tmp_path, KM_STUB_DEVICES="3")
    assert [found[name].value["status"] for name in names] == ["wrong"] * 3
    assert found["spoils"].value["reason"] == "changed its input g"
    assert found["forgets"].value["reason"].startswith("s")
