"""Kernels that crash or hang their process, or take all memory, in real processes: each costs one row."""

import os
import re
import signal
from itertools import count
from unittest.mock import Mock

import msgspec
import pytest

from kernelmark.bench.measure import memory
from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.plan.case import Budget, Job, WorkerKey
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.run import crashes
from kernelmark.bench.run.crashes import Wary
from support.plugins import FAULTS
from support.processes import complaints, gone, wait_for
from support.runs import QUICK, SMALL, TIMEOUT_S

#: The note on a row whose kernel was measured again alone. On a disturbed machine, rows also have other notes.
ALONE = "measured alone"


def statuses(rows):
    return {row.kernel.partition(".")[2]: (row.status, row.reason) for row in rows}


def test_kernels_that_end_their_process_cost_a_row_each_and_the_others_are_measured_again(measure):
    rows = measure("honest", "segv_in_set_up", "aborts", "exits", "segv_in_sampling", "prints")
    assert statuses(rows) == {
        "honest": ("ok", ""),
        "segv_in_set_up": ("crashed", "set-up: SIGSEGV"),
        "aborts": ("crashed", "verification: SIGABRT: cannot go on"),
        "exits": ("crashed", "verification: the process ended with status 3"),
        "segv_in_sampling": ("crashed", "sampling: SIGSEGV"),
        "prints": ("ok", ""),
    }
    assert [row.attempt for row in rows] == [5, 2, 3, 4, 5, 5]  # 1 + the workers lost before
    assert [len(row.entropy) for row in rows] == [32, 0, 32, 32, 32, 32]  # drawn after set-up
    for row in rows:
        assert (len(row.samples) >= 6) == (row.interval is not None) == (row.status == "ok")
        assert ALONE not in row.disturbed
    assert rows[-1].over_baseline is not None  # measured in turn with the baseline in the end


REPLACES = """
from types import FunctionType
import numpy
from kernelmark import kernel

real = numpy.matmul

def nothing(*ignored):
    pass

def wrapped(it):
    from scipy._lib._util import _rename_parameter
    return _rename_parameter("old", "new")(it)

{at_import}

@kernel("gemm", provider="mine", device="cpu", dtypes=("f32",), layouts=("NN",))
def multiplied(problem, x):
    "Multiplies."
    import scipy.fft, wave
    {in_set_up}
    return lambda: real(x.a, x.b, out=x.c)
"""
#: Imports an empty module in place of SciPy's module `cluster`.
SHADOWS = """
import scipy
from pathlib import Path
from unittest.mock import Mock

Path(__file__).with_name("cluster.py").touch()
scipy.__path__.insert(0, str(Path(__file__).parent))
import scipy.cluster
"""
#: The code that a plug-in runs when imported and when its kernel is set up, and the functions that are then replaced.
REPLACED = [
    ("import scipy.fft; scipy.fft.rfft2 = numpy.matmul = nothing", "", "numpy.matmul, scipy.fft.rfft2"),
    ("", "numpy.matmul = nothing", "numpy.matmul"),
    ("numpy.mine = nothing", "wave.open = nothing", ""),
    ("numpy.poly1d.deriv = nothing", "", "numpy.poly1d.deriv"),
    # On import, torch._dynamo wraps torch.manual_seed in this way.
    ("import scipy.linalg; scipy.linalg.norm = wrapped(scipy.linalg.norm)", "", ""),
    ("import scipy.linalg; scipy.linalg.norm = wrapped(nothing)", "", "scipy.linalg.norm"),
    ("nothing.__name__ = 'numpy.matmul'; numpy.matmul = nothing", "", "numpy.matmul"),
    ("numpy.poly1d.deriv = FunctionType(nothing.__code__, vars(numpy.lib._polynomial_impl))", "", "numpy.poly1d.deriv"),
    ("numpy.rot90.__wrapped__.__code__ = nothing.__code__", "", "numpy.lib._function_base_impl.rot90"),
    ("", "import builtins; builtins.breakpoint = nothing", "builtins.breakpoint"),
    ("import sys; sys.modules['scipy.fft'] = numpy", "", "scipy.fft"),
    (SHADOWS, "", "scipy.cluster"),
]
#: Prints the functions that each plug-in has replaced, each in its own fork, since replacements are not undone.
FORKS = """
import math, os, sys
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.replaced import replaced

discover()
for plugin in sys.argv[1:]:
    if os.fork() == 0:
        discover((plugin,), math.inf).kernels["gemm/mine.multiplied"].setup(None, None)
        os.write(1, f"{replaced()}\\n".encode())
        os._exit(0)
    os.wait()
"""


def test_what_a_plug_in_has_replaced_is_named(tmp_path, python_in):
    paths = [tmp_path / f"replaces_{number}.py" for number in range(len(REPLACED))]
    for path, (at_import, in_set_up, _) in zip(paths, REPLACED, strict=True):
        path.write_text(REPLACES.format(at_import=at_import, in_set_up=in_set_up))
    done = python_in(tmp_path, "-c", FORKS, *map(str, paths))
    assert done.stdout.splitlines() == [replaced for *_, replaced in REPLACED], done.stderr


@pytest.mark.parametrize(("at_import", "in_set_up", "replaced"), REPLACED[:3])
def test_our_kernels_run_without_a_plug_in_that_replaces_what_they_call(
    workers, tmp_path, at_import, in_set_up, replaced
):
    plugin = tmp_path / "replaces.py"
    plugin.write_text(REPLACES.format(at_import=at_import, in_set_up=in_set_up))
    kernels = ("gemm/numpy.matmul", "gemm/mine.multiplied")
    job = Job(("gemm/m9n8k7/f32/NN",), kernels, Mode.HOT, (str(plugin),), 0, Budget(0.01), 1, kernels[0])
    rows = workers.run(job, WorkerKey("cpu", 1))
    assert [(row.kernel, row.status) for row in rows] == [(name, "ok") for name in kernels]
    note = f"our kernels were measured without the plug-ins, which had replaced {replaced}" if replaced else ""
    assert all(note in row.disturbed and ("plug-ins" in row.disturbed) == bool(replaced) for row in rows)
    assert (rows[0].job == rows[1].job) == (rows[1].over_baseline is not None) == (not replaced)


SILENT = "verification: the process does not answer, but has not ended"
#: Kernels that lose their worker, each with its status and a part of its reason.
LOSES = {
    "raises_interrupt": ("crashed", "KeyboardInterrupt"),
    "closes_all_files": ("crashed", SILENT),
    "writes_into_the_pipe": ("crashed", SILENT),
    "forks_in_set_up": ("crashed", f"set-up: {crashes.FORKED}"),
    "forks_in_sampling": ("crashed", f"sampling: {crashes.FORKED}"),
    "begins_a_reply": ("timeout", ""),
}


def test_a_kernel_that_loses_its_worker_costs_a_row_and_harms_no_other(measure, monkeypatch):
    monkeypatch.setattr("kernelmark.bench.run.child.EXIT_S", 0.5)
    *bad, good = measure(*LOSES, "honest", timeout_s=TIMEOUT_S)
    assert good.status == "ok"
    for row, (status, reason) in zip(bad, LOSES.values(), strict=True):
        assert row.status == status, row
        assert reason in row.reason


def test_a_kernel_is_blamed_for_a_kill_at_the_third_attempt(measure):
    bad, good = measure("killed_by_a_stranger", "honest")
    assert (bad.status, bad.attempt, good.status) == ("crashed", 3, "ok")
    assert "verification: SIGKILL" in bad.reason


@pytest.mark.long
def test_a_kernel_whose_process_is_killed_twice_is_measured_all_the_same(measure, told):
    base, victim = measure("honest", "killed_twice")
    assert (base.status, victim.status, victim.attempt) == ("ok", "ok", 3)
    assert ALONE in victim.disturbed  # it was suspected after the second kill


def test_a_kernel_that_hangs_is_a_timeout_that_says_where(measure, monkeypatch):
    monkeypatch.setattr(crashes, "SLOW_FACTOR", 2)
    rows = measure("hangs_in_set_up", "hangs_in_verification", "honest", "hangs_in_sampling", timeout_s=TIMEOUT_S)
    by_kernel = statuses(rows)
    assert by_kernel.pop("honest") == ("ok", "")
    for stage, limit in (("set-up", 2 * TIMEOUT_S), ("verification", TIMEOUT_S), ("sampling", TIMEOUT_S)):
        reason = f"{stage} took more than {limit:g} s; see --timeout"
        assert by_kernel[f"hangs_in_{stage.replace('-', '_')}"] == ("timeout", reason)
    assert [row.attempt for row in rows] == [1, 2, 4, 3]


def test_one_of_our_kernels_that_hangs_beside_a_plug_in_s_is_measured_alone(workers):
    kernels = ("copy/numpy.copyto", "copy/bad.lets_ours_hang")
    job = Job((SMALL,), kernels, Mode.HOT, (FAULTS,), 0, Budget(0.02), 1, kernels[0], timeout_s=TIMEOUT_S)
    ours, culprit = workers.run(job, WorkerKey("cpu", 1))
    assert (ours.status, ours.attempt, culprit.status) == ("ok", 2, "ok")
    assert f"{ALONE}, since with other kernels the worker was lost (verification took more than" in ours.disturbed


def test_the_victim_of_a_corrupted_process_is_measured_alone_and_says_so(measure):
    culprit, victim = measure("corrupts", "reads")
    assert (culprit.status, victim.status, victim.reason) == ("ok", "ok", "")
    assert f"{ALONE}, since with other kernels the worker was lost (verification: SIGSEGV)" in victim.disturbed
    assert (victim.over_baseline, victim.attempt) == (None, 2)


@pytest.mark.parametrize(
    ("status", "victim"),
    [
        ("wrong", "wrong_beside_spoils"),
        ("failed", "raises_beside_spoils"),
        ("mistrusted", "traces_beside_spoils"),
    ],
)
def test_the_victim_of_another_kernel_is_judged_again_alone_before_it_is_blamed(measure, status, victim):
    spoils, suffers, honest = measure("spoils", victim, "honest")
    assert (spoils.status, suffers.status, honest.status) == ("ok", "ok", "ok")
    assert f"measured alone, since with other kernels it was {status}: " in suffers.disturbed
    assert ALONE not in spoils.disturbed + honest.disturbed
    assert suffers.entropy != honest.entropy == spoils.entropy


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs a CPU in addition to the kernel's")
@pytest.mark.parametrize("name", ["another_cpu", "another_cpu_by_a_daemon"])
def test_a_kernel_that_works_on_cpus_beyond_its_own_is_marked_and_has_no_ratio(measure, name):
    honest, another, prints = measure("honest", name, "prints")
    assert re.search(r"ran on CPUs beyond its own: \d+(,|-)", another.disturbed)
    assert another.affinity != honest.affinity
    assert (another.status, another.over_baseline) == ("ok", None)
    assert prints.over_baseline is not None
    assert "beyond" not in honest.disturbed + prints.disturbed


def test_a_worker_in_which_threads_run_on_gets_no_other_job(measure, told):
    pids = []
    for kernels in ["tells"], ["tells", "leaves_a_thread_running"], ["tells"]:
        measure(*kernels)
        pids.append(told.read_text())
    assert pids[0] == pids[1] != pids[2]


def test_threads_that_a_kernel_leaves_running_disturb_all_rows_of_its_job(measure):
    named = r"threads that calls left running used \d\.\d+ CPUs during \d+ % of the sampling"
    for rows, expected in [(measure("honest", "prints"), False), (measure("honest", "leaves_a_thread_running"), True)]:
        assert [row.status for row in rows] == ["ok", "ok"]
        assert [bool(re.search(named, row.disturbed)) for row in rows] == [expected] * 2


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs a CPU for each of two threads")
def test_a_kernel_of_one_thread_that_works_on_two_is_marked_and_has_no_ratio(workers):
    names = ("honest", "helped", "helped_later", "hardly_helped")
    kernels = tuple(f"copy/bad.{name}" for name in names)
    job = Job((SMALL,), kernels, Mode.HOT, (FAULTS,), 0, Budget(0.02), 2, kernels[0])
    rows = workers.run(job, WorkerKey("cpu", 2))
    assert [(row.status, row.threads, row.threads_used) for row in rows] == [("ok", 1, n) for n in (1, 2, 2, 1)]
    note = "ran on more threads than its own: 2 instead of 1"
    assert [note in row.disturbed for row in rows] == [False, True, True, False]
    assert [row.over_baseline is not None for row in rows] == [False, False, False, True]


def test_a_kernel_that_is_wrong_alone_too_keeps_its_row(measure):
    wrong, honest = measure("wrong", "honest")
    assert (wrong.status, wrong.disturbed, honest.status, wrong.job) == ("wrong", "", "ok", honest.job)


def test_a_job_is_not_blamed_for_what_an_earlier_one_left_behind(measure):
    measure("corrupts")
    (victim,) = measure("reads")
    assert (victim.status, victim.attempt) == ("ok", 2)
    assert ALONE not in victim.disturbed


def test_a_worker_that_was_killed_while_it_waited_harms_no_job(measure, told):
    measure("tells")
    os.kill(worker := int(told.read_text()), signal.SIGKILL)
    wait_for(lambda: gone(worker))
    first, second = measure("honest", "prints")
    assert (first.status, second.status) == ("ok", "ok")
    assert ALONE not in second.disturbed


def test_a_device_that_fails_for_good_costs_a_row_and_the_others_get_a_fresh_process(measure):
    base, sticky, other = measure("fake.base", "fake.sticky", "fake.other")
    error = "cudaErrorIllegalAddress: an illegal memory access was encountered"
    assert {(row.status, row.reason, row.attempt) for row in (base, other)} == {("ok", "", 2)}
    assert (sticky.status, sticky.reason, sticky.attempt) == ("crashed", error, 2)


def test_ids_that_do_not_exist_are_refused_in_the_workers_words(measure, complaint):
    assert "copy/m0n5/f32" in complaint(lambda: measure("honest", problems=("copy/m0n5/f32",)))


def test_no_worker_can_be_started_where_nothing_can_be_written(measure, complaint, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    assert "set TMPDIR to another folder" in complaint(lambda: measure("honest"))


def test_a_run_with_crashes_exits_1_and_prints_of_kernels_keep_out_of_its_tables(kernelmark):
    kernels = ("--kernels", "copy/bad.segv", "--kernels", "copy/bad.prints", "--kernels", "copy/bad.aborts")
    done = kernelmark("run", SMALL, *QUICK, *kernels)
    assert done.returncode == 1
    assert "\n3 rows: 2 crashed, 1 ok\n" in done.stdout
    assert "\ncrashed: copy/bad.segv: verification: SIGSEGV\n" in done.stdout
    assert "what a kernel prints" not in done.stdout
    assert set(complaints(done.stderr)) == {"what a kernel prints", "cannot go on"}


KEY = WorkerKey("cuda", 1)


def pool_of(answer):
    """Return a mock of the workers, which answers with `answer(kernel)` and records its calls."""

    def rows(job, key):
        return [msgspec.structs.replace(answer(kernel), problem=job.problems[0]) for kernel in job.kernels]

    return Mock(side_effect=rows)


def job(problem, *kernels):
    return Job((problem,), kernels, Mode.HOT, (), 0, Budget(), 1)


def test_a_kernel_that_hangs_on_two_problems_is_left_out_of_the_third():
    hangs = {"status": "timeout", "reason": "sampling took more than 5 s"}
    pool = pool_of(lambda kernel: Measurement(kernel=kernel, **(hangs if kernel == "b" else {})))
    wary = Wary(pool)
    for problem in ("p", "q"):
        wary(job(problem, "a", "b", "c"), KEY)
    assert [row.status for row in wary(job("r", "a", "b", "c"), KEY)] == ["ok", "timeout", "ok"]
    assert pool.call_args.args[0].kernels == ("a", "c")
    (row,) = wary(job("s", "b"), KEY)
    assert row.reason == "left out after 2 lost workers: timeout on q: sampling took more than 5 s"
    assert (pool.call_count, wary.left_out) == (3, {"b": "timeout on q: sampling took more than 5 s"})


@pytest.mark.parametrize(
    ("status", "attempt", "calls"), [("crashed", 1, 2), ("crashed", 2, 1), ("wrong", 1, 3), ("failed", 1, 3)]
)
def test_a_crash_that_was_tried_again_has_cost_two_workers_and_a_wrong_result_none(status, attempt, calls):
    pool = pool_of(lambda kernel: Measurement(kernel=kernel, status=status, reason="why", attempt=attempt))
    wary = Wary(pool)
    for problem in "pqr":
        wary(job(problem, "a"), KEY)
    assert (pool.call_count, bool(wary.left_out)) == (calls, calls < 3)


@pytest.mark.parametrize(
    ("status", "reason"), [("timeout", "reference took more than 5 s"), ("crashed", "check: SIGSEGV (/usr/lib/libc)")]
)
def test_no_kernel_is_left_out_because_of_code_of_the_operation(status, reason):
    pool = pool_of(lambda kernel: Measurement(kernel=kernel, status=status, reason=reason, attempt=2))
    wary = Wary(pool)
    for problem in "pqr":
        wary(job(problem, "a", "b"), KEY)
    assert wary.left_out == {}


def test_a_kernel_that_an_earlier_run_left_out_is_not_called():
    pool = Mock()
    (row,) = Wary(pool, {"a": "crashed on p: SIGSEGV"})(job("q", "a"), KEY)
    assert not pool.called
    assert (row.status, row.reason) == ("crashed", "left out after 2 lost workers: crashed on p: SIGSEGV")


def test_a_kernel_that_takes_the_last_of_the_memory_is_oom(measure, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 200_000_000)
    monkeypatch.setattr(memory, "whole_bytes", lambda: 10_000_000_000)
    bad, good = measure("fills_memory", "honest")
    assert (bad.status, good.status) == ("oom", "ok")
    assert re.fullmatch(r"verification: the process used 0\.[234]\d* GB, 0\.2 GB are left", bad.reason)


def test_a_kernel_that_meets_the_end_of_the_memory_that_another_leaked_is_measured_alone(measure, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 400_000_000)
    monkeypatch.setattr(memory, "whole_bytes", lambda: 20_000_000_000)
    culprit, victim = measure("leaks_memory", "borrows_memory")
    assert (culprit.status, victim.status, victim.reason) == ("ok", "ok", "")
    assert f"{ALONE}, since with other kernels the worker was lost (verification: the process used" in victim.disturbed


def test_a_worker_is_looked_at_sooner_where_memory_is_short():
    assert crashes.next_look_s(None) == crashes.next_look_s(100e9) == crashes.POLL_S
    assert crashes.SOONEST_S < crashes.next_look_s(1e9) < crashes.POLL_S
    assert (crashes.next_look_s(-1.0), crashes.floor_bytes(100_000_000_000)) == (crashes.SOONEST_S, 3e9)
    assert crashes.floor_bytes(1_000_000_000) == crashes.LEAST_FLOOR_BYTES


def test_what_the_system_killed_for_memory_is_oom(measure, monkeypatch):
    monkeypatch.setattr(memory, "kills_by_system", count().__next__)
    bad, good = measure("killed_by_a_stranger", "honest")
    assert (bad.status, bad.reason) == ("oom", "verification: killed by the system for lack of memory")
    assert good.status == "ok"
