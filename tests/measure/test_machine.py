"""The machine: the CPUs that a worker is pinned to, caches, memory, instruction sets, and the clock of the CPU."""

import gc
import os
import platform
import signal
import sys
import threading
from pathlib import Path
from unittest.mock import Mock

import pytest

from kernelmark.bench.measure import affinity, isa, memory
from kernelmark.bench.measure.affinity import (
    Spent,
    cpus_beyond,
    cpus_in,
    family_times,
    listed,
    spread,
    working_threads,
)
from kernelmark.bench.measure.cpu import Cpu, cpu_count, cpu_name, default_threads, known_llc_bytes
from kernelmark.bench.measure.isa import ISAS, choose_isas, environment
from kernelmark.bench.measure.machine import machine
from kernelmark.bench.measure.timing import CpuClock
from kernelmark.bench.plan.case import Budget, Job, Plan, WorkerKey, jobs
from kernelmark.bench.plan.errors import Unsupported
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.run.crashes import Workers
from support.processes import write_files
from support.runs import ONLY

linux = pytest.mark.skipif(sys.platform != "linux", reason="pinning and /proc/self/task exist only on Linux")


TWO_NODES = (["0,4", "1,5", "2,6", "3,7"], ["0-1,4-5", "2-3,6-7"])


@pytest.mark.parametrize(
    ("machine", "usable", "cpus"),
    [
        *((TWO_NODES, range(8), [*range(count)]) for count in (1, 2, 3, 4, 5, 8)),
        (TWO_NODES, {0, 2, 3, 6}, [2, 3]),  # the node with the most usable cores is first
        (TWO_NODES, {4, 5, 6}, [4, 5]),
        (([], []), {3, 1, 2}, [1, 2]),
    ],
)
def test_cores_of_a_node_come_before_those_of_the_next_and_second_threads_last(
    machine, usable, cpus, monkeypatch, tmp_path
):
    cores, nodes = machine
    write_files(tmp_path, {f"cpu{cpu}/topology/core_cpus_list": core for core in cores for cpu in cpus_in(core)})
    write_files(tmp_path, {f"node{number}/cpulist": node for number, node in enumerate(nodes)})
    monkeypatch.setattr(affinity, "CPUS", tmp_path)
    monkeypatch.setattr(affinity, "NODES", tmp_path)
    assert spread(usable, len(cpus)) == cpus


@pytest.mark.parametrize(("cpus", "text"), [({0, 1, 2, 3, 8}, "0-3,8"), ({5}, "5"), ({1, 3, 4}, "1,3-4"), (set(), "")])
def test_cpus_are_listed_as_the_kernel_lists_them(cpus, text):
    assert listed(cpus) == text
    assert cpus_in(text) == cpus


@linux
def test_only_threads_that_worked_count(monkeypatch):
    stop = threading.Event()
    waiting = threading.Thread(target=stop.wait)
    waiting.start()
    before = family_times()
    sum(range(3 * 10**6))
    stop.set()
    waiting.join()
    assert working_threads(before, 1e-3) == 1
    monkeypatch.setattr(affinity, "PROC", Path("/nowhere"))
    assert working_threads(before, 1e-3) is None


@linux
@pytest.mark.parametrize(
    ("spent", "cpus", "count"),
    [
        ([(9, 0), (9, 0)], 2, 2),
        ([(9, 0), (0.8, 0)], 2, 1),  # an idle thread woke briefly
        ([(10, 0), (2, 0)], 2, 2),
        ([(5, 0), (5, 0)], 2, 1),  # two threads in turn
        ([(5, 5), (5, 5)], 2, 2),  # two threads during other load
        ([(9, 0), *[(0.5, 0)] * 10], 2, 2),  # ten threads, one per operand set
        ([(2, 7), (0.1, 6)], 2, 1),
        ([(6, 3), (6, 3), (6, 3)], 2, 2),  # two pools on two CPUs
        ([(0.5, 0), (0.4, 0)], 2, 1),  # a kernel that sleeps
        ([(5, 5), (5, 5)], 1, 2),
    ],
)
def test_threads_count_that_have_worked_at_once(spent, cpus, count, monkeypatch):
    """spent: for each thread, the milliseconds out of ten in which it worked, and in which it waited for a CPU."""
    times = {str(task): Spent(*(round(ms * 1e6) for ms in each)) for task, each in enumerate(spent)}
    monkeypatch.setattr(affinity, "_times", lambda processes: times)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(cpus))
    assert working_threads({}, 10e-3) == count


def _measure(problem, threads, max_time_s=0.02):
    job = Job((problem,), ("gemm/numpy.matmul",), Mode.HOT, (), 0, Budget(max_time_s), threads)
    with Workers() as workers:
        (row,) = workers.run(job, WorkerKey("cpu", threads))
    assert row.status == "ok", row.reason
    return row


@linux
@pytest.mark.parametrize(("ns", "is_beyond"), [(9, True), (1, False)])
def test_threads_of_many_operand_sets_that_work_on_other_cpus_are_seen_together(ns, is_beyond, monkeypatch):
    tasks = [str(number) for number in range(3, 10)]
    monkeypatch.setattr(affinity, "family_times", lambda: {"2": Spent(100, 0), **dict.fromkeys(tasks, Spent(ns, 0))})
    monkeypatch.setattr(os, "sched_getaffinity", lambda task: {1} if str(task) in tasks else {0})
    assert cpus_beyond({}) == ({1} if is_beyond else set())


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs to leave one out")
def test_a_worker_keeps_to_as_many_cpus_as_it_has_threads_and_its_row_says_which():
    usable = os.sched_getaffinity(0)
    row = _measure("gemm/m256n256k256/f32/NN", 1)
    assert row.affinity == listed(spread(usable, 1))
    assert row.threads_used == 1
    for _ in range(3):  # on a busy machine the second thread may get no CPU in a few milliseconds of warming up
        more = _measure("gemm/m512n512k512/f32/NN", len(usable), 0.4)
        assert more.affinity == listed(usable)
        if more.threads_used > 1:
            break
    assert 1 < more.threads_used <= len(usable)


@linux
def test_pinning_takes_along_the_threads_that_were_there_before(python_in, tmp_path):
    script = (
        "import os, threading\n"
        "from kernelmark.bench.measure.affinity import pin\n"
        "thread = threading.Timer(1000, print)\n"
        "thread.start()\n"
        "pin(1)\n"
        "print(len(os.sched_getaffinity(0)), len(os.sched_getaffinity(thread.native_id)))\n"
        "thread.cancel()\n"
    )
    assert python_in(tmp_path, "-c", script).stdout == "1 1\n"


def test_the_variable_gives_the_size_and_without_it_a_cache_does(monkeypatch):
    monkeypatch.setenv("KERNELMARK_LLC_BYTES", "12345")
    assert known_llc_bytes.__wrapped__() == 12345
    monkeypatch.delenv("KERNELMARK_LLC_BYTES")
    assert known_llc_bytes.__wrapped__() >= 2**16


def test_the_last_level_caches_of_all_cpus_that_may_be_used_count_once_each(tmp_path, monkeypatch):
    """There are three complexes of two CPUs with one cache each; the process may use two complexes."""
    for number in range(6):
        complex_of = f"{number // 2 * 2}-{number // 2 * 2 + 1}"
        for index, level, size, shared in ((0, 1, "48K", number), (2, 2, "64M", number), (3, 3, "32M", complex_of)):
            cache = {"level": level, "size": size, "shared_cpu_list": shared}
            write_files(tmp_path / f"cpu{number}/cache/index{index}", cache)
    monkeypatch.delenv("KERNELMARK_LLC_BYTES")
    monkeypatch.setattr("kernelmark.bench.measure.cpu.CPUS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    assert known_llc_bytes.__wrapped__() == 2 * 32 * 2**20


@pytest.fixture
def control_groups(monkeypatch, tmp_path):
    for module in ("cpu", "memory"):
        monkeypatch.setattr(f"kernelmark.bench.measure.{module}.CGROUP", tmp_path / "groups")
    monkeypatch.setattr(memory, "OWN_GROUPS", tmp_path / "own")

    def written(files, membership="0::/\n"):
        (tmp_path / "own").write_text(membership)
        write_files(tmp_path / "groups", files)

    return written


@pytest.mark.parametrize(
    ("files", "threads"),
    [
        ({"group/cpu.max": "250000 100000"}, 2),
        ({"group/sub/cpu.max": "max 100000", "group/cpu.max": "50000 100000"}, 1),
        ({"cpu/group/sub/cpu.cfs_quota_us": "300000", "cpu/group/sub/cpu.cfs_period_us": "100000"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
    ],
)
def test_a_quota_of_the_control_groups_limits_the_default_threads(files, threads, control_groups, monkeypatch):
    control_groups(files, "4:cpu,cpuacct:/group/sub\n0::/group/sub\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert default_threads() == threads


@pytest.mark.parametrize("given", ["0", "-1", "8M", "1e6", " ", "1" * 30])
def test_what_is_no_size_is_refused(given, monkeypatch, complaint):
    monkeypatch.setenv("KERNELMARK_LLC_BYTES", given)
    want = f"KERNELMARK_LLC_BYTES: is {given!r}, expected an integer above 0, in bytes"
    assert complaint(known_llc_bytes.__wrapped__) == want


def test_every_cpu_empties_its_own_caches():
    device = Cpu()
    before = family_times()
    for _ in range(30):
        device.evict()
    assert working_threads(before, 1e-3) == cpu_count()


def test_memory_is_limited_by_the_control_group_whose_inactive_files_can_be_had(control_groups):
    control_groups({"memory.max": 1_000_000, "memory.current": 400_000, "memory.stat": "anon 300000"})
    assert memory.available_bytes() == 600_000
    control_groups({"memory.current": 900_000, "memory.stat": "anon 300000\ninactive_file 500000"})
    assert memory.available_bytes() == 600_000
    control_groups({"memory.max": "max"})
    free = memory.available_bytes()
    assert free is None or free > 600_000


def test_the_narrowest_limit_of_nested_control_groups_of_either_version_counts(control_groups):
    for folder, limit in (("memory", 10**9), ("memory/outer", 800_000), ("memory/outer/inner", 900_000)):
        files = {"memory.limit_in_bytes": limit, "memory.usage_in_bytes": 300_000, "memory.oom_control": "oom_kill 2"}
        control_groups({f"{folder}/{name}": text for name, text in files.items()}, "4:cpu,memory:/outer/inner\n0::/\n")
    kills = memory.kills_by_system()
    control_groups({"memory/outer/memory.oom_control": "under_oom 0\noom_kill 3"}, "4:cpu,memory:/outer/inner\n0::/\n")
    assert (memory.available_bytes(), memory.whole_bytes()) == (500_000, 800_000)
    assert memory.kills_by_system() == kills + 1


x86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="instruction sets are x86's")


@pytest.fixture
def cpu(monkeypatch, tmp_path):
    cpu_name()  # cached, so that it stays this CPU's name

    def build(flags, machine="x86_64"):
        (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nflags\t\t: fpu {flags} ht\n")
        monkeypatch.setattr(affinity, "CPUINFO", tmp_path / "cpuinfo")
        monkeypatch.setattr(platform, "machine", lambda: machine)

    return build


def test_words_are_taken_once_in_their_order_and_without_any_the_libraries_choose(cpu):
    cpu("sse4_2 avx avx2 fma")
    assert choose_isas("avx2, sse,avx2") == ("avx2", "sse")
    assert choose_isas(None) == ("",)
    assert environment("") == {}


def test_what_cannot_be_had_is_refused_in_one_line(cpu, complaint):
    cpu("sse4_2 avx")
    sets = "expected some of sse, avx, avx2, avx512, separated by commas"
    assert complaint(lambda: choose_isas("sse5")) == f"--isa sse5: unknown; {sets}"
    assert complaint(lambda: choose_isas("")).startswith("--isa '': unknown")
    assert complaint(lambda: choose_isas("sse,avx2")) == "--isa avx2: this CPU has no avx2 fma; it has sse, avx"
    cpu("sse4_2", machine="aarch64")
    assert complaint(lambda: choose_isas("sse")) == "--isa is for x86 CPUs, this one is aarch64; leave it out"


def test_a_run_records_the_sets_that_its_machine_has(cpu):
    cpu("sse4_2 avx avx2 fma")
    assert isa.isas_here() == ["sse", "avx", "avx2"]
    assert machine()["isas"] == ["sse", "avx", "avx2"]
    cpu("sse4_2", machine="aarch64")
    assert isa.isas_here() == []


def test_numpy_is_told_to_leave_only_what_it_would_choose_beyond_the_set(monkeypatch):
    monkeypatch.delenv("NPY_DISABLE_CPU_FEATURES", raising=False)
    features = ["SSE42", "AVX2", "X86_V3", "X86_V4", "AVX512_ICL"]
    monkeypatch.setattr(isa.np, "show_config", lambda mode: {"SIMD Extensions": {"found": features}})
    disabled = {name: environment(name).get("NPY_DISABLE_CPU_FEATURES") for name in ISAS}
    assert disabled == {
        "sse": "AVX2 X86_V3 X86_V4 AVX512_ICL",
        "avx": "AVX2 X86_V3 X86_V4 AVX512_ICL",
        "avx2": "X86_V4 AVX512_ICL",
        "avx512": None,
    }


def test_what_the_user_has_disabled_in_numpy_stays_disabled(monkeypatch):
    monkeypatch.setenv("NPY_DISABLE_CPU_FEATURES", "AVX512_ICL, AVX512_SPR")
    monkeypatch.setattr(isa.np, "show_config", lambda mode: {"SIMD Extensions": {"baseline": ["X86_V2"]}})
    assert environment("sse")["NPY_DISABLE_CPU_FEATURES"] == "AVX512_ICL AVX512_SPR"


CORES = {"sse": "Nehalem", "avx": "Sandybridge", "avx2": "Haswell", "avx512": "SkylakeX"}


@pytest.mark.parametrize("name", CORES)
def test_a_workers_libraries_keep_to_the_set_whatever_the_environment_says(name, monkeypatch, tmp_path):
    if name not in isa.isas_here():
        pytest.skip(f"this CPU has no {name}")
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Prescott")
    plugin = tmp_path / "asks.py"
    plugin.write_text(PLUGIN)
    kernels = ("gemm/numpy.matmul", "gemm/mine.asks")
    job = Job(("gemm/m64n64k64/f32/NN",), kernels, Mode.VERIFY, (str(plugin),), 0, Budget(0.01), 1, isa=name)
    with Workers() as workers:
        product, asking = workers.run(job, WorkerKey("cpu", 1, name))
    assert product.status == "ok", product.reason
    assert f" {CORES[name]} " in product.versions
    numpy_has, numba_has = asking.tunables.removeprefix('{"has":"').removesuffix('"}').split("|")
    beyond = ("AVX512", "X86_V4") if name == "avx2" else ("AVX2", "AVX512", "X86_V3", "X86_V4")
    assert name == "avx512" or not any(feature.startswith(beyond) for feature in numpy_has.split())
    assert numba_has == ISAS[name].llvm


def test_each_set_is_a_job_in_a_worker_of_its_own_and_gpus_have_none(registry):
    suite = find_suite("transpose/m8n8/f32/out", registry)
    plan = Plan(devices=("cpu", "cuda"), threads=(2,), isas=("", "sse", "avx2"))
    plain, sse, avx2 = jobs([suite], registry, plan)
    assert [(planned.job.isa, planned.key.isa) for planned in (plain, sse, avx2)] == [(x, x) for x in plan.isas]
    assert (plain.key.device, sse.key) == ("cuda", WorkerKey("cpu", 2, "sse"))
    assert any("/cuda." in kernel for kernel in plain.job.kernels)
    assert sse.job.kernels == tuple(k for k in plain.job.kernels if registry.kernels[k].device == "cpu")
    assert sse.job.baseline == "transpose/numpy.out"


@x86
def test_under_pytest_each_set_and_thread_count_is_an_item(python_in, tmp_path):
    chosen = ("--km-suite", "gemm/m8n8k8/f32/NN", "--km-kernels", "gemm/numpy.matmul")
    done = python_in(tmp_path, *ONLY, "--collect-only", *chosen, "--km-isa", "sse", "--km-threads", "1,2")
    items = [line.partition("[")[2] for line in done.stdout.splitlines() if "[" in line]
    assert items == [f"gemm/numpy.matmul|m8n8k8/f32/NN|t{threads}|sse]" for threads in (1, 2)]


PLUGIN = """\
import numpy as np
from kernelmark import kernel

@kernel("gemm", provider="mine", device="cpu", dtypes=("f32",))
def asks(problem, x):
    '''What NumPy and Numba generate code for.'''
    from numba.core.registry import cpu_target
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    x.chose(has=" ".join(found) + "|" + cpu_target.target_context.codegen().magic_tuple()[1])
    return lambda: np.matmul(x.a, x.b, out=x.c)
"""


def test_garbage_collection_is_off_in_a_sample_and_given_back_after_one_that_raises():
    seen = []
    with pytest.raises(ZeroDivisionError):
        CpuClock().time([lambda: seen.append(gc.isenabled()), lambda: 1 // 0])
    assert (seen, gc.isenabled()) == ([False], True)


def test_a_timer_that_a_call_starts_is_noticed_and_stopped_and_an_earlier_one_goes_on():
    clock = CpuClock()
    signal.setitimer(signal.ITIMER_PROF, 1000.0)
    clock.time([lambda: signal.setitimer(signal.ITIMER_REAL, 1000.0, 1.0)])
    assert (clock.left_signals, signal.getitimer(signal.ITIMER_REAL)[0]) == (True, 0.0)
    assert signal.setitimer(signal.ITIMER_PROF, 0.0)[0] > 900


def test_threads_that_the_system_refuses_are_no_fault_of_the_kernel(monkeypatch):
    monkeypatch.setattr("kernelmark.bench.measure.cpu.cpu_count", lambda: 2)
    monkeypatch.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
    with pytest.raises(Unsupported, match="emptying the caches of all CPUs: can't start new thread; `ulimit -u`"):
        Cpu().evict()
