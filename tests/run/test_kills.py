"""Kernels, workers and runs that are killed: no row is lost or doubled, and no process or shared memory is left."""

import os
import random
import re
import signal
import subprocess
import time
from contextlib import suppress
from multiprocessing.util import spawnv_passfds
from pathlib import Path

import pytest

from kernelmark.bench.run.family import _tracks, below
from support.processes import at_work_in, complaints, gone, wait_for
from support.runs import PROBLEMS, SUITE, TIMEOUT_S, WORDS, all_are_there_and_ok, query, visible

#: The number of kills, which the variable can change; 100 kills take a few minutes.
KILLS = int(os.environ.get("KERNELMARK_KILLS", "8"))
#: Enough rows for all kills: on a loaded machine, a row or two are measured between two kills.
MEASURED = max(PROBLEMS, 2 * KILLS)


@pytest.mark.long
def test_kills_at_random_cost_no_row_and_leave_no_process(folder, start):
    path, dice = folder / "r.db", random.Random(6)
    acknowledged = {}
    (folder / "s.toml").write_text(SUITE.format(MEASURED))
    run = start(*WORDS)
    for kill in range(KILLS):
        wanted = len(acknowledged) + dice.randint(kill == 0, max(1, 100 // KILLS))
        wait_for(lambda wanted=wanted, run=run: len(visible(path)) >= wanted or run.poll() is not None, 60.0)
        acknowledged |= visible(path)
        time.sleep(dice.uniform(0, 0.05))
        assert run.poll() is None, f"was over before kill {kill}: {run.communicate()}"
        if dice.random() < 0.5:
            if members := below(run.pid):  # keepers and workers
                with suppress(ProcessLookupError):
                    os.kill(dice.choice(members).pid, signal.SIGKILL)
            continue
        run.send_signal(dice.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)))
        run.communicate()
        ((run_id,),) = query(path, "SELECT run_id FROM run")
        now = visible(path)
        assert acknowledged.items() <= now.items()
        acknowledged = now
        run = start("run", "--resume", run_id, "--db", "r.db")
    _, err = run.communicate()
    assert (run.returncode, complaints(err)) == (0, [])
    assert all_are_there_and_ok(path, MEASURED)
    assert acknowledged.items() <= visible(path).items()
    wait_for(lambda: at_work_in(folder) == [])


def test_what_a_kernel_has_started_ends_with_it_and_keeps_nobody_waiting(measure, told):
    bad, good = measure("leaves_a_child", "honest")
    assert (bad.status, bad.reason, good.status) == ("crashed", "verification: the process ended with status 3", "ok")
    wait_for(lambda: gone(int(told.read_text())))


@pytest.mark.parametrize("name", ["leaves_a_daemon", pytest.param("leaves_a_daemon_and_hangs", marks=pytest.mark.long)])
def test_what_has_left_group_and_session_and_lost_its_parent_ends_too(workers, measure, told, name):
    bad, good = measure(name, "honest", timeout_s=TIMEOUT_S)
    assert (bad.status, good.status) == ("timeout" if name.endswith("hangs") else "ok", "ok")
    workers.close()
    assert gone(int(told.read_text()))


@pytest.mark.parametrize("name", ["starts_80", pytest.param("starts_80_and_hangs", marks=pytest.mark.long)])
def test_a_kernel_that_starts_too_many_processes_is_named_and_they_end(measure, told, name):
    bad, good = measure(name, "honest")
    assert (bad.status, good.status) == ("crashed", "ok")
    assert re.search(r": the worker has started \d+ processes, expected at most 65$", bad.reason)  # more may follow
    assert gone(int(told.read_text()))


@pytest.mark.long
def test_what_a_kernel_that_crashes_has_shared_is_removed_from_memory(measure, told):
    bad, _ = measure("shares_memory", "honest")
    assert bad.reason.startswith("verification: the process ended with status 3")
    assert not Path("/dev/shm", told.with_suffix(".name").read_text()).exists()


def test_a_resource_tracker_is_known_while_its_program_is_being_loaded():
    for _ in range(20):
        words = ["sh", "-c", "kill -STOP $$", "multiprocessing.resource_tracker"]
        pid = spawnv_passfds(b"/bin/sh", words, ())
        assert _tracks(pid)
        os.kill(pid, signal.SIGKILL)
        assert os.waitpid(pid, 0)[0] == pid
        assert not _tracks(pid)


def test_no_worker_outlives_a_run_that_is_killed(hanging):
    run, worker = hanging
    assert not gone(worker)
    run.kill()
    wait_for(lambda: gone(worker))


def test_no_worker_outlives_a_second_interrupt(hanging):
    run, worker = hanging
    for _ in range(10):  # two signals at once count as one
        run.send_signal(signal.SIGINT)
        try:
            run.wait(1)
        except subprocess.TimeoutExpired:
            continue
        break
    assert (run.returncode, complaints(run.communicate()[1])) == (130, [])
    wait_for(lambda: gone(worker))
