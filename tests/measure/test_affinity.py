"""Which CPUs a worker keeps to, and which threads work."""

import os
import sys
import threading
from pathlib import Path

import pytest

from kernelmark.bench.measure import affinity
from kernelmark.bench.measure.affinity import cpus_in, listed, spread, thread_times, working_threads
from kernelmark.bench.plan.case import Budget, Job, WorkerKey
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.run.pool import Workers

linux = pytest.mark.skipif(sys.platform != "linux", reason="pinning and /proc/self/task are Linux's")


@pytest.fixture
def topology(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A machine by its cores and its nodes, as the kernel lists them."""

    def build(cores: list[str], nodes: list[str]) -> None:
        for core in cores:
            for cpu in cpus_in(core):
                (tmp_path / f"cpu{cpu}/topology").mkdir(parents=True)
                (tmp_path / f"cpu{cpu}/topology/core_cpus_list").write_text(f"{core}\n")
        for number, node in enumerate(nodes):
            (tmp_path / f"node{number}").mkdir()
            (tmp_path / f"node{number}/cpulist").write_text(f"{node}\n")
        monkeypatch.setattr(affinity, "CPUS", tmp_path)
        monkeypatch.setattr(affinity, "NODES", tmp_path)

    return build


TWO_NODES = (["0,4", "1,5", "2,6", "3,7"], ["0-1,4-5", "2-3,6-7"])


@pytest.mark.parametrize(
    ("count", "cpus"), [(1, [0]), (2, [0, 1]), (3, [0, 1, 2]), (4, [0, 1, 2, 3]), (5, [0, 1, 2, 3, 4]), (8, range(8))]
)
def test_cores_come_before_second_threads_and_a_nodes_cores_before_the_next_nodes(topology, count, cpus):
    topology(*TWO_NODES)
    assert spread(range(8), count) == list(cpus)


def test_the_node_with_most_room_comes_first(topology):
    topology(*TWO_NODES)
    assert spread({0, 2, 3, 6}, 2) == [2, 3]


def test_what_may_not_be_used_is_not_chosen(topology):
    topology(*TWO_NODES)
    assert spread({4, 5, 6}, 2) == [4, 5]


def test_a_machine_that_tells_nothing_of_itself_is_taken_in_order(topology):
    topology([], [])
    assert spread({3, 1, 2}, 2) == [1, 2]


@pytest.mark.parametrize(("cpus", "text"), [({0, 1, 2, 3, 8}, "0-3,8"), ({5}, "5"), ({1, 3, 4}, "1,3-4"), (set(), "")])
def test_cpus_are_listed_as_the_kernel_lists_them(cpus, text):
    assert listed(cpus) == text
    assert cpus_in(text) == cpus


@linux
def test_only_threads_that_worked_count(monkeypatch):
    stop = threading.Event()
    waiting = threading.Thread(target=stop.wait)
    waiting.start()
    before = thread_times()
    sum(range(3 * 10**6))
    stop.set()
    waiting.join()
    assert working_threads(before) == 1
    monkeypatch.setattr(affinity, "TASKS", Path("/nowhere"))
    assert working_threads(before) is None


def _measure(problem: str, kernel: str, threads: int, max_time_s: float = 0.02):
    job = Job((problem,), (kernel,), Mode.HOT, (), 0, Budget(max_time_s), threads)
    with Workers() as workers:
        (row,) = workers.run(job, WorkerKey("cpu", threads))
    assert row.status == "ok", row.reason
    return row


@linux
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs to leave one out")
def test_a_worker_keeps_to_as_many_cpus_as_it_has_threads_and_its_row_says_which():
    usable = os.sched_getaffinity(0)
    one = _measure("gemm/m256n256k256/f32/NN", "gemm/numpy.matmul", 1)
    assert one.affinity == listed(spread(usable, 1))
    assert one.threads_used == 1
    # On a busy machine the second thread may get no CPU in a few milliseconds of warming up.
    more = [_measure("gemm/m512n512k512/f32/NN", "gemm/numpy.matmul", len(usable), 0.4) for _ in range(3)]
    assert {row.affinity for row in more} == {listed(usable)}
    assert 1 < max(row.threads_used for row in more) <= len(usable)


@linux
def test_pinning_takes_along_the_threads_that_were_there_before(python_in, tmp_path):
    script = (
        "import os, threading\n"
        "from kernelmark.bench.measure.affinity import pin\n"
        "stop = threading.Event()\n"
        "thread = threading.Thread(target=stop.wait)\n"
        "thread.start()\n"
        "pin(1)\n"
        "print(len(os.sched_getaffinity(0)), len(os.sched_getaffinity(thread.native_id)))\n"
        "stop.set()\n"
    )
    assert python_in(tmp_path, "-c", script).stdout == "1 1\n"
