"""Runs whose jobs are measured by stations, on two fake GPUs of one machine."""

from collections import Counter
from itertools import count
from unittest.mock import Mock

import msgspec
import pytest

from kernelmark.bench.measure.host import Host
from kernelmark.bench.plan.case import Budget, Job
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.record.store import Store
from kernelmark.bench.run import station
from kernelmark.bench.run.broker import TaskReply
from kernelmark.bench.run.station import StationRows, Task
from kernelmark.bench.run.station import measure as measured_by_station
from support.shards import GPUS, dispatch, measure, plan_of, rows, suite_file

#: The columns that a station adds to a row.
PLACES = {"host", "device_uuid"}


@pytest.fixture
def suite(tmp_path):
    return suite_file(tmp_path, range(1, 7))


@pytest.fixture(autouse=True)
def closed_station():
    """The station of this process, which stays open for further tasks, ends with each test."""
    yield
    if left := vars(station._local).pop("station", None):
        left.close()


class Unlucky:
    """A fake broker, which loses some groups `losses` times and measures the other groups in this process."""

    workers, state = 1, ""

    def __init__(self, losses):
        self._losses, self._answers, self._groups, self._numbers = Counter(losses), [], {}, count(1)

    def ask(self, task):
        group, number = self._groups.setdefault(task.jobs[0].job.problems, len(self._groups)), next(self._numbers)
        self._losses[group] -= 1
        lost = self._losses[group] >= 0
        reply = TaskReply(lost="WorkerLost") if lost else TaskReply(measured_by_station(msgspec.msgpack.encode(task)))
        self._answers.append((number, reply))
        return number

    def answer(self, within_s):
        return self._answers.pop(0)


def _sorted(records):
    return sorted(
        ({name: value for name, value in row.items() if name not in PLACES} for row in records),
        key=lambda row: (row["problem"], row["kernel"]),
    )


def test_rows_of_two_gpus_are_those_of_one_process_and_no_comparison_group_is_on_both(tmp_path, suite):
    measure(tmp_path / "home.db", suite)
    dispatch(tmp_path / "two.db", plan_of(suite), gpus=GPUS)
    on_two = rows(tmp_path / "two.db")
    assert _sorted(on_two) == _sorted(rows(tmp_path / "home.db"))
    assert {row["device_uuid"] for row in on_two} == set(GPUS)
    placed = {(row["problem"].split("/")[1], row["device_uuid"]) for row in on_two}
    assert len(placed) == len({group for group, _ in placed})


def test_processes_of_a_case_are_all_of_one_gpu(tmp_path):
    suite = suite_file(tmp_path, range(1, 3))
    dispatch(tmp_path / "two.db", plan_of(suite, processes=3, spread_s=0.0), gpus=GPUS)
    on_two = rows(tmp_path / "two.db")
    assert len(on_two) == 12
    assert {(row["processes"], row["interval"]) for row in on_two} == {(3, "between-processes")}


def test_a_group_that_lost_its_worker_is_measured_again_and_has_each_row_once(tmp_path, suite):
    dispatch(tmp_path / "r.db", plan_of(suite), broker=Unlucky({0: 2, 3: 1}))
    assert len(rows(tmp_path / "r.db")) == 36


def test_a_group_that_loses_its_worker_again_and_again_is_left_for_a_resume(tmp_path, suite, complaint):
    plan = plan_of(suite)
    line = complaint(lambda: dispatch(tmp_path / "r.db", plan, broker=Unlucky({2: 3})))
    assert line.startswith("1 comparison groups lost their worker 3 times: WorkerLost; rows recorded so far are safe: ")
    run_id = line.split()[line.split().index("--resume") + 1]
    assert len(rows(tmp_path / "r.db")) == 30
    dispatch(tmp_path / "r.db", plan, broker=Unlucky({}), resume=run_id)
    assert len(rows(tmp_path / "r.db", run_id)) == 36


def test_the_run_records_its_hosts_with_their_versions(tmp_path, suite):
    run_id = dispatch(tmp_path / "r.db", plan_of(suite), broker=Unlucky({}))
    store = Store(tmp_path / "r.db")
    (host,) = store.hosts(run_id)
    store.close()
    assert host.kernelmark
    assert host.commit
    assert host.versions["numpy"]
    assert host.machine["cpu"]


@pytest.mark.parametrize(
    ("expected", "line"),
    [
        (Host("", "c0ffee", ""), "its commit is "),
        (Host("", "", "0.0.1"), "kernelmark is "),
        (Host("", "", "", "3.9.0"), "Python is "),
        (Host("", "", "", versions={"numpy": "1.0"}), ", expected 1.0"),
        (Host("", "", "", plugins={"a.py": "0"}), "a.py is missing, expected 0"),
    ],
)
def test_a_host_with_other_versions_measures_nothing_and_names_them(suite, expected, line):
    task = msgspec.msgpack.encode(Task(expected, plan_of(suite, plugins=())))
    reply = msgspec.msgpack.decode(measured_by_station(task), type=StationRows)
    assert line in reply.refused
    assert not reply.rows
    assert reply.host.host


@pytest.mark.parametrize(
    ("problem", "kernel", "alone"),
    [
        ("copy/m3n5/f32", "copy/numpy.copyto", True),
        ("copy/m3n5/f32", "copy/cuda.vectorised", False),
        ("transfer/n33/f32/h2d", "transfer/cuda.pinned", True),
    ],
)
def test_a_job_has_its_host_to_itself_if_it_needs_it(suite, registry, monkeypatch, problem, kernel, alone):
    asked_for = []
    monkeypatch.setattr(station, "turn", asked_for.append)
    job_station = station.Station(plan_of(suite, plugins=(), devices=("cpu",)), "", Host("", "", ""))
    job_station._turn(Job((problem,), (kernel,), Mode.HOT, (), 0, Budget(), 1))
    job_station.close()
    assert asked_for == [alone]


def test_a_run_ends_in_one_line_where_its_broker_ends(tmp_path, suite):
    gone = Mock(workers=1, answer=Mock(side_effect=UsageError("the executor's process has ended")))
    with pytest.raises(UsageError, match=r"has ended; rows recorded so far are safe: `kernelmark run --resume "):
        dispatch(tmp_path / "r.db", plan_of(suite), broker=gone)
