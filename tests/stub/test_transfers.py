"""Transfers to a GPU and between GPUs, on the stub driver: copies, sums on the host, sums by peers and NCCL."""

import re

import pytest

from kernelmark.bench.measure.operands import GUARD_BYTES
from kernelmark.bench.plan.discovery import discover
from stub.library import on_stub

BOTH_WAYS = ("pageable", "pinned", "managed")
COPIES = (*BOTH_WAYS, "write_combined", "staged", "pipelined")
OVERLAPPED = ("transfer/cuda.overlapped", "transfer/n2503/f32/h2d/work1")
#: Kernels and problems; transfers of more than 4 KiB are divided, and use each slot of pinned memory several times.
VERIFIED = {
    **{f"{name} h2d": (f"transfer/cuda.{name}", "transfer/n1031/f32/h2d") for name in COPIES},
    **{f"{name} d2h": (f"transfer/cuda.{name}", "transfer/n1031/bf16/d2h") for name in BOTH_WAYS},
    **{f"{name} bidir": (f"transfer/cuda.{name}", "transfer/n7/f64/bidir") for name in BOTH_WAYS},
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
def runs(tools, folder):
    calls = {f"{kernel} {problem}": ("stub.jobs:summed", kernel, problem) for kernel in KERNELS for problem in PROBLEMS}
    calls |= {"enough": ("stub.jobs:summed", *SUM, 4 * NBYTES), "little": ("stub.jobs:summed", *SUM, 4 * NBYTES - 4)}
    calls |= {name: ("stub.jobs:transferred", *case) for name, case in VERIFIED.items()}
    calls["agreed"] = ("stub.jobs:agreed", "transfer/cuda.mapped")
    calls |= {name: ("stub.jobs:verified", *case) for name, case in HAND_WRITTEN.items()}
    calls |= {
        "timed overlapped": ("stub.jobs:timed_once", *OVERLAPPED),
        "timed bidir": ("stub.jobs:timed_once", "transfer/cuda.pinned", "transfer/n1031/f32/bidir"),
        "one GPU": ("stub.jobs:transferred", "transfer/cuda.peer", "transfer/n7/f32/p2p"),
        "no node": ("stub.jobs:transferred", "transfer/cuda.managed", "transfer/n7/f32/h2d/node1023"),
        "much": ("stub.jobs:locked", "pinned", 12_000),
        "managed much": ("stub.jobs:locked", "managed", 12_000),
    }
    return on_stub(calls, folder)


def test_a_kernel_on_the_hosts_memory_is_compared_with_the_emulator(runs):
    (line,) = runs["agreed"].value
    assert line.startswith("agree on copy.cu/transfer/n1/")


@pytest.mark.parametrize("name", [*VERIFIED, *HAND_WRITTEN])
def test_every_element_arrives(runs, name):
    assert (*runs[name].outcome, runs[name].violations) == ("ok", "", [], [])


@pytest.mark.parametrize("name", ["timed overlapped", "timed bidir"])
def test_work_on_other_streams_is_joined_to_the_timed_stream(runs, name):
    lines = [line.split() for line in runs[name].log if line.startswith(("cuMemcpy", "cuEventRecord", "cuStreamWait"))]
    begun, joined = set(), set()  # pairs: the event's stream, the waiting stream
    for i, words in enumerate(lines):
        if words[0] == "cuStreamWaitEvent" and lines[i - 1][:2] == ["cuEventRecord", words[1]]:
            pair = lines[i - 1][-1], words[-1]
            if i + 1 < len(lines) and lines[i + 1][0].startswith("cuMemcpy") and lines[i + 1][-1] == pair[1]:
                begun.add(pair)
            joined.add(pair)
    assert any((side, timed) in joined for timed, side in begun)


def test_pinned_and_managed_memory_are_allocated_as_such(runs):
    calls = {name: {line.split()[0] for line in runs[name].log} for name in ("pinned h2d", "managed h2d")}
    assert "cuMemHostAlloc" in calls["pinned h2d"]
    assert {"cuMemAllocManaged", "cuMemAdvise_v2"} <= calls["managed h2d"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("one GPU", r"this needs 2 GPUs that can read each other's memory; this process sees 1"),
        ("no node", r"NUMA node 1023 does not exist; nodes of this machine: .*"),
    ],
)
def test_a_missing_gpu_or_numa_node_is_unsupported(runs, name, reason):
    assert runs[name].value["status"] == "unsupported"
    assert re.fullmatch(reason, runs[name].value["reason"])


def test_memory_beyond_a_quarter_of_the_hosts_is_refused_before_it_is_locked(runs):
    expected = "expected at most 1.64e-05 GB, a quarter of the host's memory"
    assert runs["much"].value == f"pinned memory: 2.4e-05 GB would be page-locked; {expected}"
    assert sum(line.startswith("cuMemHostAlloc") for line in runs["much"].log) == 1
    assert runs["managed much"].value == ""


PROBLEMS = ("aggregate/w3n1031/f32", "aggregate/w2n70/f64/update/ef")
KERNELS = ("aggregate/cuda.host_serial", "aggregate/cuda.host_parallel")
SUM = (KERNELS[0], "aggregate/w3n1031/f32")
NBYTES = 4 * 1031 * 4


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_gradients_that_cross_to_the_host_are_summed(runs, kernel, problem):
    run = runs[f"{kernel} {problem}"]
    assert {status for status, _, _ in run.value.values()} == {"ok"}
    assert run.violations == []


def test_kernels_of_one_job_share_their_operands(runs):
    allocated = re.findall(r"^cuMemAlloc_v2 of (\d+)", "\n".join(runs[" ".join(SUM)].log), re.MULTILINE)
    guarded = [str(operand.nbytes + 2 * GUARD_BYTES) for operand in discover().problem(SUM[1]).operands()]
    assert sorted(nbytes for nbytes in allocated if nbytes in guarded) == sorted(guarded)


def test_a_sum_that_locks_more_than_a_quarter_of_the_hosts_memory_is_oom(runs):
    assert runs["enough"].value[KERNELS[0]] == ["ok", "", NBYTES]  # locked memory counts as scratch
    status, reason, _ = runs["little"].value[KERNELS[0]]
    assert status == "oom"
    assert reason.startswith("pinned memory: 1.65e-05 GB would be page-locked; expected at most ")
    assert runs["little"].value["aggregate/cuda.device"][0] == "ok"


STRATEGIES = ("p2p.device", "p2p.stripes", "p2p.tree", "p2p.ring")
#: Problems with stripes of unequal lengths, with fewer stripes than GPUs, and with weights returned to all GPUs.
STRIPED = ("w3n1031/f32", "w4n17/f32/ef", "w4n1056/f32/update")
RING = ("stub.jobs:between_gpus", "aggregate/p2p.ring", "aggregate/w3n1031/f32")
CALLS = {
    **{f"{name} {RING[2]}": (RING[0], f"aggregate/{name}", RING[2]) for name in ("p2p.ring", "p2p.stripes")},
    **{f"nccl {name}": (RING[0], f"aggregate/nccl.{name}", RING[2]) for name in ("allreduce", "reduce")},
    "nccl step": (RING[0], "aggregate/nccl.reduce", "aggregate/w3n1031/f32/update"),
    "nccl two": (RING[0], "aggregate/nccl.allreduce", "aggregate/w2n33/f64/ef"),
    "peer": (RING[0], "transfer/cuda.peer", "transfer/n1031/bf16/p2p"),
}
LONG = {
    **{f"{name} {p}": (RING[0], f"aggregate/{name}", f"aggregate/{p}") for name in STRATEGIES for p in STRIPED},
    "two": (RING[0], "aggregate/p2p.tree", "aggregate/w2n33/f64/ef"),
    "graph": (RING[0], "aggregate/p2p.tree", RING[2], "graph"),
    "cold": (RING[0], "aggregate/p2p.stripes", RING[2], "cold"),
}
#: Kernels with wrong sums, or that write to memory that they must not change.
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
PEERS = "this needs 5 GPUs that can read each other's memory; this process sees 4"
NO_STEP = "aggregate/nccl.allreduce has no update path; it has sum"
NO_NCCL = "CuPy finds no NCCL (libnccl.so.2); pip install 'kernelmark[nccl]'"
REFUSED = {
    "too few": ((*RING[:2], "aggregate/w5n70/f32"), PEERS),
    "no step": ((RING[0], "aggregate/nccl.allreduce", "aggregate/w2n70/f32/update"), NO_STEP),
    "no nccl": ((RING[0], "aggregate/nccl.allreduce", RING[2]), NO_NCCL),
}


@pytest.fixture(scope="module")
def peers(tools, tmp_path_factory):
    return on_stub(CALLS, tmp_path_factory.mktemp("stub"), KM_STUB_DEVICES="4", KM_STUB_NCCL="1")


@pytest.fixture(scope="module")
def long_runs(tools, tmp_path_factory):
    return on_stub(LONG, tmp_path_factory.mktemp("stub"), KM_STUB_DEVICES="4")


@pytest.mark.parametrize("name", CALLS)
def test_operands_on_several_gpus_are_summed_and_copied(peers, name):
    assert (*peers[name].outcome, peers[name].violations) == ("ok", "", [], [])


@pytest.mark.long
@pytest.mark.parametrize("name", LONG)
def test_every_strategy_sums_in_every_mode(long_runs, name):
    assert (*long_runs[name].outcome, long_runs[name].violations) == ("ok", "", [], [])


@pytest.mark.long
def test_each_gpu_sums_its_part_on_its_own_stream(long_runs):
    streams = {"device": 1, "stripes": 4, "tree": 2, "ring": 4}
    for name, count in streams.items():
        log = "\n".join(long_runs[f"p2p.{name} w4n1056/f32/update"].log)
        assert len(set(re.findall(r"^cuLaunchKernelEx \S+ on (0x\w+):", log, re.MULTILINE))) == count


def test_no_handle_is_left_when_the_process_ends(peers):
    assert peers["end"].violations == []


def test_access_is_enabled_once_for_each_pair_of_gpus(peers):
    grants = [line for run in peers.values() for line in run.log if line.startswith("cuCtxEnablePeerAccess of")]
    assert len(grants) == len(set(grants)) == 6  # ordered pairs of three GPUs


def test_a_row_names_the_missing_gpus_path_or_library(tools, tmp_path):
    refused = on_stub({name: call for name, (call, _) in REFUSED.items()}, tmp_path, KM_STUB_DEVICES="4")
    for name, (_, reason) in REFUSED.items():
        assert refused[name].outcome == ("unsupported", reason, [])


@pytest.mark.long
def test_gpus_that_cannot_use_each_others_memory_are_named(tools, tmp_path):
    run = on_stub({"apart": RING}, tmp_path, KM_STUB_DEVICES="4", KM_STUB_APART="1")["apart"]
    reason = "GPU 0 cannot read the memory of GPU 1; `nvidia-smi topo -p2p r` shows which can"
    assert run.outcome == ("unsupported", reason, [])


@pytest.mark.long
def test_operands_on_several_gpus_are_verified_on_each(tools, tmp_path):
    (tmp_path / "cheats.py").write_text(CHEATS)
    names, rest = ("forgets", "spoils", "hurries"), (RING[2], "verify", str(tmp_path / "cheats.py"))
    calls = {name: (RING[0], f"aggregate/mine.{name}", *rest) for name in names}
    outcomes = on_stub(calls, tmp_path, KM_STUB_DEVICES="3")
    assert [outcomes[name].value["status"] for name in names] == ["wrong"] * 3
    assert outcomes["spoils"].value["reason"] == "changed its input g"
    assert outcomes["forgets"].value["reason"].startswith("s")
