"""Transfers: every kernel transfers every byte at any length; those between processes leave no process or memory."""

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kernelmark.bench.plan.case import Plan, jobs
from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.run.family import below
from kernelmark.kernels.transfer import worked
from support.kernels import REGISTRY, failures, referenced, set_up
from support.processes import gone, wait_for

WORKED = ("transfer/numba.serial", "transfer/numba.arrived", "transfer/numba.staged")
ON_CPU = [k for k in REGISTRY.kernels.values() if k.op == "transfer" and k.device == "cpu"]
PLAIN = [k.id for k in ON_CPU if k.outside(REGISTRY.problem("transfer/n1/f32/h2h")) is None]
pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="memory without a name takes Linux")


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("problem", ["n1/f64/h2h", "n1031/bf16/h2h", "n300007/f32/h2h/node0"])
def test_every_kernel_transfers_every_byte(problem, threads):
    assert failures(f"transfer/{problem}", *PLAIN, threads=threads) == {}


def test_work_is_a_sequence_of_multiply_adds():
    a = np.linspace(-1, 1, 11)
    stepped = a.copy()
    for _ in range(64):
        stepped = (1 - 2**-10) * stepped + 2**-11
    outputs = REGISTRY.problem("transfer/n11/f64/h2h/work64").reference({"a": a}, np.random.default_rng(0))
    assert np.allclose(outputs["b"], stepped, rtol=0, atol=1e-14)


@pytest.mark.parametrize("work", [1, 64, 4096])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_work_on_16_bits_is_done_in_fp32_and_rounded_once(dtype, work):
    problem, inputs, reference = referenced(f"transfer/n4096/{dtype}/h2h/work{work}")
    scale, shift, y = np.float32(1 - 2**-10), np.float32(2**-11), inputs["a"].astype(np.float32)
    steps = [y, *(y := scale * y + shift for _ in range(work))]
    results = {"right": steps[-1], "copied": steps[0], "half of it": steps[work // 2], "zeros": 0 * y}
    reasons = {
        name: problem.check({"b": y.astype(inputs["a"].dtype)}, reference, "fp32").reason for name, y in results.items()
    }
    assert [name for name, reason in reasons.items() if not reason] == ["right"]


def test_both_directions_are_checked():
    problem, values = REGISTRY.problem("transfer/n3/f32/bidir"), np.ones(3, np.float32)
    reference = problem.reference({"a": values, "c": values}, np.random.default_rng(0))
    assert problem.check({"b": values, "d": values}, reference, "exact").reason is None
    assert (problem.check({"b": values, "d": 2 * values}, reference, "exact").reason or "").startswith("d[0]")


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("problem", ["n1/f64/h2h/work4", "n1031/f32/h2h/work64", "n600011/f32/h2h/work1"])
def test_work_is_done_on_every_element_that_arrives(problem, threads):
    assert failures(f"transfer/{problem}", *WORKED, threads=threads) == {}


@pytest.mark.parametrize(("nbytes", "ahead"), [(4096, 1), (2**14, 2)])
def test_the_thread_that_copies_waits_for_the_one_that_works(monkeypatch, nbytes, ahead):
    monkeypatch.setattr(worked, "PIECE_BYTES", nbytes)
    monkeypatch.setattr(worked, "AHEAD", ahead)
    assert failures("transfer/n60011/f64/h2h/work4", "transfer/numba.staged") == {}


def test_one_step_of_the_work_left_out_is_wrong():
    problem, values = REGISTRY.problem("transfer/n100/f32/h2h/work64"), np.linspace(-1, 1, 100).astype(np.float32)
    less = REGISTRY.problem("transfer/n100/f32/h2h/work63").reference({"a": values}, np.random.default_rng(0))
    reference = problem.reference({"a": values}, np.random.default_rng(0))
    assert problem.check({"b": reference["b"].astype(np.float32)}, reference, "fp32").reason is None
    assert problem.check({"b": less["b"].astype(np.float32)}, reference, "fp32").reason


def test_the_baseline_of_work_is_the_serial_kernel():
    suite = find_suite("transfer/n1000/f32/h2h/work64", REGISTRY)
    (planned,) = jobs([suite], REGISTRY, Plan(("cpu",), threads=(2,)))
    assert planned.job.baseline == "transfer/numba.serial"
    assert set(planned.job.kernels) == set(WORKED)


def test_a_node_that_is_not_there_is_unsupported():
    reasons = failures("transfer/n1000/f32/h2h/node1023", "transfer/numpy.copyto", "transfer/process.pipe")
    assert len(reasons) == 2
    assert all(reason.startswith("unsupported: NUMA node 1023 does not exist; nodes") for reason in reasons.values())


def test_fresh_pages_are_returned_to_the_system_before_each_copy():
    from resource import RUSAGE_SELF, getrusage

    launch, operands, draw, _ = set_up("transfer/n300007/f32/h2h", "transfer/numpy.fresh_pages", threads=1)
    faults = []
    for _ in range(2):
        before = getrusage(RUSAGE_SELF).ru_minflt
        launch()
        faults.append(getrusage(RUSAGE_SELF).ru_minflt - before)
    assert min(faults) >= REGISTRY.problem("transfer/n300007/f32/h2h").traffic_bytes // os.sysconf("SC_PAGE_SIZE") - 2
    assert np.array_equal(operands.flat["a"], operands.flat["b"])
    assert operands.damage(draw) is None


@pytest.fixture
def helpers():
    """The helper processes that exist after a transfer by a pipe."""
    assert failures("transfer/n1000/f32/h2h", "transfer/process.pipe") == {}
    return helper_pids()


def helper_pids():
    children = (member.pid for member in below(os.getpid()))
    return {pid for pid in children if b"_helper.py" in Path(f"/proc/{pid}/cmdline").read_bytes()}


def kill(pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: all(map(gone, pids)), 60)


@pytest.mark.parametrize("way", ["shared", "readv", "pipe"])
def test_a_helper_that_is_killed_between_transfers_is_replaced(helpers, way):
    assert helpers
    kill(helpers)
    assert failures("transfer/n1031/f64/h2h", f"transfer/process.{way}", threads=1) == {}
    assert not helpers & helper_pids()


@pytest.mark.parametrize("way", ["shared", "readv", "pipe"])
def test_a_helper_that_is_killed_fails_the_transfer_with_a_message(way):
    launch, *_ = set_up("transfer/n300007/f32/h2h", f"transfer/process.{way}", threads=1)
    launch()
    kill(helper_pids())
    with pytest.raises(RuntimeError, match="the helper process ended with exit status -9 during a transfer"):
        launch()


def test_a_helper_unmaps_the_memory_of_earlier_transfers():
    def mapped():
        maps = (Path(f"/proc/{pid}/maps").read_text() for pid in helper_pids())
        return sum(text.count("memfd:kernelmark") for text in maps)

    assert failures("transfer/n1000/f32/h2h", "transfer/process.shared") == {}
    gc.collect()
    before = mapped()
    taken = set_up("transfer/n1000/f32/h2h", "transfer/process.shared", threads=1)
    assert mapped() > before
    del taken
    gc.collect()
    assert failures("transfer/n1000/f32/h2h", "transfer/process.shared") == {}  # the helper has unmapped it now
    gc.collect()
    assert mapped() <= before + 1


TRANSFERS_FOREVER = """
from tests_of_transfers import helper_pids, set_up
launch, *_ = set_up("transfer/n300007/f32/h2h", "transfer/process.shared", threads=1)
print(*helper_pids(), flush=True)
while True:
    launch()
"""


def test_the_helper_of_a_killed_worker_ends():
    code = TRANSFERS_FOREVER.replace("tests_of_transfers", Path(__file__).stem)
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    worker = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True
    )
    (pid,) = map(int, worker.stdout.readline().split())
    worker.kill()
    worker.communicate()
    wait_for(lambda: gone(pid), 60)


def baselines(problem):
    """Return each problem's baseline in the job that measures this problem when a GPU runs the suite `transfer`."""
    planned = jobs([find_suite("transfer", REGISTRY)], REGISTRY, Plan(("cpu", "cuda")))
    (job,) = (each.job for each in planned if problem in each.job.problems)
    return {name: job.baseline_of(name) for name in job.problems}


def test_baselines_on_a_gpu_depend_on_the_direction():
    assert baselines("transfer/n1024/f32/h2d") == {"transfer/n1024/f32/h2d": "transfer/cuda.pageable"}
    assert baselines("transfer/n51200000/f32/d2d") == {"transfer/n51200000/f32/d2d": "transfer/cuda.device"}


def test_on_a_gpu_work_alone_is_measured_in_turn_with_a_transfer_and_its_work():
    transferred, alone = (f"transfer/n51200000/f32/{way}/work64" for way in ("h2d", "d2d"))
    assert baselines(transferred) == {transferred: "transfer/cuda.serial", alone: None}
