"""Foreign code that hangs outside of a kernel's calls, in real processes: `--timeout` applies there, too."""

import os
import re
import signal
import time
from pathlib import Path

import pytest

from kernelmark.bench.plan.case import Budget, Job, Plan, WorkerKey
from kernelmark.bench.plan.discovery import load_plugin
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.run import crashes
from kernelmark.bench.run.asked import jobs_asked, suites_asked
from kernelmark.bench.run.crashes import Workers
from kernelmark.bench.run.family import below
from support.plugins import FAULTS, UNRULY
from support.processes import complaints, wait_for
from support.runs import SMALL, query

#: Much longer than a call, which takes 3 ms.
TIMEOUT_S = 0.5


@pytest.fixture
def workers(monkeypatch):
    """Workers that apply the time limit of calls to all other foreign code, too."""
    monkeypatch.setattr(crashes, "SLOW_FACTOR", 1)
    monkeypatch.setattr(crashes, "LEAST_S", TIMEOUT_S)
    with Workers() as opened:
        yield opened


@pytest.fixture
def measure(workers):
    """Measure kernels of the operation `stall`; return status, reason and attempt by hanging method and kernel."""

    def of(*problems, kernels=("honest",), timeout_s=TIMEOUT_S):
        ids = tuple(f"stall/m8/f32{problem and '/'}{problem}" for problem in problems)
        names = tuple(f"stall/bad.{name}" for name in kernels)
        job = Job(ids, names, Mode.HOT, (UNRULY,), 0, Budget(0.02), 1, names[0], timeout_s=timeout_s)
        method_of = dict(zip(ids, problems, strict=True))
        rows = workers.run(job, WorkerKey("cpu", 1))
        return {(method_of[row.problem], row.kernel[10:]): (row.status, row.reason, row.attempt) for row in rows}

    return of


def reason(stage):
    return f"{stage} took more than {TIMEOUT_S:g} s; see --timeout"


def test_an_operation_that_hangs_costs_the_kernels_on_its_problem_a_row_each(measure):
    methods, kernels = ("reference", "operands", "check"), ("honest", "honest2")
    outcomes = measure(*methods, "", kernels=kernels)
    for method in methods:
        assert [outcomes[method, kernel][:2] for kernel in kernels] == [("timeout", reason(method))] * 2
    assert [outcomes["", kernel][:2] for kernel in kernels] == [("ok", "")] * 2


@pytest.mark.long
def test_what_a_kernel_declares_of_itself_has_the_time_of_its_set_up(measure):
    declared = ("executed", "supports", "valid")
    outcomes = measure("", kernels=("honest", *declared))
    assert outcomes["", "honest"] == ("ok", "", 4)
    assert [outcomes["", name][:2] for name in declared] == [("timeout", reason("set-up"))] * 3


@pytest.mark.long
def test_a_whole_job_has_a_limit_wherever_it_hangs(measure, monkeypatch):
    monkeypatch.setattr(crashes, "job_limit_s", lambda job: 3.0)
    expected = "timeout", "all kernels together took more than 3 s; see --timeout", 1
    assert measure("", kernels=("numerics",)) == {("", "numerics"): expected}


def test_the_limit_of_a_job_grows_with_its_contenders_and_what_a_call_may_take():
    def limit_s(timeout_s, *kernels):
        return crashes.job_limit_s(Job(("p",), kernels, Mode.HOT, (), 0, Budget(2.0), 1, timeout_s=timeout_s))

    assert limit_s(60.0, "a") == 60 * crashes.CALLS + 2 * crashes.BUDGETS
    assert limit_s(60.0, "a", "b") == 2 * limit_s(60.0, "a")
    assert limit_s(0.01, "a") == crashes.LEAST_JOB_S


def test_no_limit_counts_the_time_in_which_the_parent_was_stopped(measure, monkeypatch):
    """The clock jumps, as for a process that was stopped, while plug-ins are imported."""
    began, clock = time.monotonic(), crashes.now
    monkeypatch.setattr(crashes, "now", lambda: clock() + 1e6 * (time.monotonic() - began > 0.1))
    monkeypatch.setattr(Workers, "_again", lambda workers, worker, job, reply, stopped_s: reply)
    assert measure("", timeout_s=60.0) == {("", "honest"): ("ok", "", 1)}


def test_a_run_that_was_stopped_for_longer_than_a_call_may_take_measures_the_job_again(start, told, folder):
    quick = ("--mode", "hot", "--max-time", "0.01", "--no-ceilings", "--threads", "1", "--timeout", "2")
    run = start("run", SMALL, *quick, "--plugin", FAULTS, "--kernels", "copy/bad.tells_and_works", "--db", "r.db")
    wait_for(told.exists)
    stopped = [run.pid, *(member.pid for member in below(run.pid))]
    for number, seconds in ((signal.SIGSTOP, 2.5), (signal.SIGCONT, 0)):
        for pid in stopped:
            os.kill(pid, number)
        time.sleep(seconds)
    assert (run.wait(), complaints(run.communicate()[1])) == (0, [])
    (row,) = query(folder / "r.db", "SELECT * FROM result")
    assert (row["status"], row["attempt"]) == ("ok", 1)
    assert re.search(r"measured again, since kernelmark had been stopped for 2\.\d s", row["disturbed"])


#: The code of plug-ins whose import fails, and the error message of each.
IMPORTS = {
    "hangs": ("import time\ntime.sleep(1000)\n", ": import took more than 2 s; see --timeout"),
    "holds the interpreter": ("sum(iter(int, 1))\n", ": import took more than 2 s; see --timeout"),
    "crashes": ("import ctypes\nctypes.string_at(0)\n", ": import: SIGSEGV"),
    "exits": ("import os\nos._exit(0)\n", ": import: the process ended with status 0"),
    "is interrupted": ("raise KeyboardInterrupt\n", ", line 1: KeyboardInterrupt: "),
    "raises anything": ("raise BaseException('no')\n", ", line 1: BaseException: no"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name != "crashes")) for name in IMPORTS]
)
def test_a_plugin_whose_import_does_not_end_well_is_refused_before_this_process_loads_it(
    name, workers, monkeypatch, complaint, tmp_path
):
    monkeypatch.setattr(crashes, "LEAST_IMPORT_S", 2.0)
    text, refusal = IMPORTS[name]
    (tmp_path / "bad.py").write_text(text)
    plan = Plan(("cpu",), plugins=(str(tmp_path / "bad.py"),), timeout_s=TIMEOUT_S)
    assert complaint(lambda: workers.load(plan)) == f"plugin {tmp_path / 'bad.py'}{refusal}"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("flop", property(lambda problem: 1 // 0), "its size, work or traffic cannot be computed: ZeroDivisionError: "),
        ("flop", lambda problem: 8, r"flop is <bound method .*, expected a property with a number, 0 or more$"),
        ("bus_bytes", "x", "bus_bytes is 'x', expected a property with a number or None$"),
        ("dims", lambda problem: 3, r"dims\(\) returned 3, expected a dict from column names to numbers and str"),
    ],
)
def test_a_problem_whose_figures_cannot_be_had_is_refused(registry, monkeypatch, complaint, name, value, said):
    load_plugin(Path(UNRULY))
    monkeypatch.setattr(registry.operations["stall"], name, value, raising=False)
    plan = Plan(("cpu",), suites=("stall/m8/f32",))
    line = complaint(lambda: jobs_asked(suites_asked(plan, registry), registry, plan))
    assert re.match(f"stall/m8/f32: {said}", line)


#: The command, with a time limit of one second for planning.
HASTY = "from kernelmark.bench.plan import foreign as f; f.LEAST_S = 1.0; from kernelmark.bench.cli import main; main()"


@pytest.mark.long
def test_a_run_on_a_problem_whose_figures_hang_ends_in_one_line(python_in, tmp_path):
    done = python_in(tmp_path, "-c", HASTY, "run", "stall/m8/f32/flop", "--plugin", UNRULY, "--timeout", "0.5")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    expected = f"kernelmark: stall/m8/f32/flop: its size, work and traffic took more than 1 s (now at {UNRULY}, line "
    assert line.startswith(expected)


@pytest.mark.long
def test_a_plugin_that_hangs_where_no_worker_has_loaded_it_ends_the_command(python_in, tmp_path):
    (tmp_path / "bad.py").write_text("import time\ntime.sleep(1000)\n")
    hasty = "from kernelmark.bench.plan import discovery, foreign; foreign.LEAST_S = 0.5; "
    done = python_in(tmp_path, "-c", hasty + "discovery.discover(('bad.py',), 0.1)")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    path = tmp_path / "bad.py"
    assert line.startswith(f"kernelmark: plugin {path}: its import took more than 0.5 s (now at {path}, line 2); ")


#: A plug-in that replaces functions which a worker would call when it measures, if it looked them up late.
PATCHES = """
import gc, os, select, signal, sys, threading, time

def nonsense(*args, **kwargs):
    return 0.0

PATCHED = {
    time: "time sleep monotonic perf_counter process_time monotonic_ns perf_counter_ns time_ns",
    select: "select poll",
    os: "kill killpg getrusage times",
    signal: "raise_signal setitimer",
    threading: "Timer Event",
    gc: "isenabled disable enable",
}
for module, names in PATCHED.items() if sys.argv[0].endswith("run/worker.py") else ():
    for name in names.split():
        if hasattr(module, name):
            setattr(module, name, nonsense)
"""


def test_a_plugin_that_replaces_the_clock_and_the_signals_changes_no_result(kernelmark, tmp_path):
    (tmp_path / "patches.py").write_text(PATCHES)
    done = kernelmark(
        *("run", "copy/m64n64/f32", "--kernels", "copy/numpy.copyto", "--mode", "hot", "--max-time", "0.05"),
        *("--threads", "1", "--no-ceilings", "--plugin", "patches.py", "--db", "r.db", "--csv", "rows.csv"),
    )
    assert done.returncode == 0, done.stderr
    header, row = (line.split(",") for line in (tmp_path / "rows.csv").read_text().splitlines())
    columns = dict(zip(header, row, strict=False))
    assert columns["status"] == "ok"
    assert 1e-7 < float(columns["time_s_median"]) < 1e-3
