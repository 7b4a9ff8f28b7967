"""The agenda of a device: open tasks and their order, and three slots that answer all of them."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import agenda
import gpu
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.record.store import Store
from support.processes import at_work_in, wait_for

TESTS = Path(__file__).resolve().parents[1]
DEADLINE_S = 120


def task(name, value=1.0, seconds=1.0, digest="d", **more):
    return agenda.Task(**{"name": name, "kind": "time", "value": value, "seconds": seconds, "digest": digest, **more})


def test_a_slot_takes_the_tasks_that_fit_and_are_worth_most_per_second():
    tasks = [task("slow", 9, 10), task("quick", 2, 1), task("dull", 1, 4), task("long", 90, 99)]
    slot = agenda.slot(tasks, agenda.Agenda(), 12.0)
    assert [t.name for t in slot.chosen] == ["quick", "slow"]
    assert [t.name for t in slot.left] == ["long", "dull"]
    assert slot.seconds <= 12


def test_an_answer_closes_a_task_only_at_its_digest_and_one_without_a_digest_puts_it_last():
    agenda_ = agenda.Agenda()
    agenda.answer(agenda_, task("a"), "")
    assert not agenda.is_open(task("a"), agenda_)
    assert agenda.is_open(task("a", digest="other"), agenda_)
    agenda_.answers["a"] = agenda.Answer(digest="")
    assert [t.name for t in agenda.ordered([task("a"), task("b")], agenda_)] == ["b", "a"]


def test_a_task_that_fails_twice_at_one_digest_is_closed():
    agenda_, first = agenda.Agenda(), task("a")
    for expected in (True, False):
        agenda.answer(agenda_, first, "no luck", failed=True)
        assert agenda.is_open(first, agenda_) is expected


def test_a_task_is_expected_to_take_as_long_as_it_took():
    agenda_ = agenda.Agenda()
    agenda_.answers["a"] = agenda.Answer(digest="before", seconds=2.5)
    first, other = agenda.timed([task("a", seconds=5.0), task("b", seconds=5.0)], agenda_)
    assert (first.seconds, first.assumed) == (2.5, False)
    assert (other.seconds, other.assumed) == (5.0, True)


def test_a_kernel_is_left_out_until_the_task_that_lost_it_has_another_digest():
    agenda_, first, other = agenda.Agenda(), task("a"), task("b")
    agenda.leave_out(agenda_, [first], {"gemm/cuda.x": "crashed: no luck"})
    agenda.leave_out(agenda_, [other], {"gemm/cuda.x": "crashed: again"})
    assert agenda.left_out([first, other], agenda_) == {"gemm/cuda.x": "crashed: no luck"}
    assert agenda.left_out([other], agenda_)  # a slot without task `a` forgets nothing
    assert agenda.left_out([task("a", digest="new"), other], agenda_) == {}
    assert agenda_.left_out == {}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"schema": 7}', "its schema is 7, expected 1"),
        ('{"schema": 1, "device": "NVIDIA T4"}', "is for NVIDIA T4, expected NVIDIA H200"),
        ("[1]", "expected an agenda as `make gpu` writes it"),
        ('{"schema": 1, "answers": 3}', "expected an agenda as `make gpu` writes it"),
    ],
)
def test_an_agenda_that_is_invalid_or_cannot_be_written_is_refused_in_one_line(tmp_path, text, reason):
    (tmp_path / agenda.FILE).write_text(text)
    with pytest.raises(UsageError, match=r"agenda\.json") as raised:
        agenda.read(tmp_path, "NVIDIA H200")
    assert reason in str(raised.value)
    assert "\n" not in str(raised.value)
    with pytest.raises(UsageError, match="--out names another folder"):
        agenda.save(tmp_path / agenda.FILE, agenda.Agenda())


def test_tasks_of_one_kind_share_a_run_up_to_a_number_of_seconds():
    layers = [task(f"layer {i}", 9.0 - i, seconds=gpu.MOST_S / 2.5, kind="time") for i in range(4)]
    claim = task("claim", 7.5, seconds=1.0, kind="claim")
    slow = task("slow", 5.5, seconds=500.0, kind="time", processes=3)
    tasks = sorted([*layers, claim, slow], key=lambda task: -task.value)
    agenda_ = gpu.Agenda()
    names = [[task.name for task in batch] for batch in gpu._questions(tasks, agenda_)]
    assert names == [["layer 0", "layer 1"], ["claim"], ["layer 2", "layer 3"], ["slow"]]
    agenda.answer(agenda_, layers[1], "", failed=True)
    names = [[task.name for task in batch] for batch in gpu._questions(tasks, agenda_)]
    assert names == [["layer 0", "layer 2"], ["layer 1"], ["claim"], ["layer 3"], ["slow"]], "failed tasks run alone"


@pytest.mark.parametrize(("cut", "took"), [(False, [10.0]), (True, [0.0])])
def test_the_time_of_a_task_is_unknown_if_its_run_was_cut_off(tmp_path, monkeypatch, cut, took):
    monkeypatch.setattr(gpu.signal, "signal", lambda *_: None)
    measuring, agenda_ = gpu.Measuring(gpu._options(["--out", str(tmp_path)])), gpu.Agenda()
    question = gpu.Question(gpu.Settings(""), 0.0, (task("a", seconds=1.0), task("b")))
    measuring._take(question, gpu.Reply({"a": "done"}, cut=cut), 10.0, agenda_)
    assert [answer.seconds for answer in agenda_.answers.values()] == took


@pytest.mark.long
def test_a_plan_for_an_h200_fits_its_slot_and_begins_with_the_tasks_that_are_worth_most(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu, "_prepared", lambda tasks, limits: f"{sum(task.seconds for task in tasks):.1f}")
    monkeypatch.setattr(gpu, "MADE", tmp_path / "build" / "tasks.json")
    assert gpu.main(["--plan", "--out", str(tmp_path), "--deadline", "540"]) == 0
    out = capsys.readouterr().out
    assert 400 < float(out.splitlines()[-1]) <= 540
    assert "assumed: a first guess" in out
    places = [out.find(f"\n{name}") for name in ("verify ", "clocks", "founding ", "bar gemm/m1024n2048k26752/f32/")]
    assert -1 not in places
    assert places == sorted(places)
    made = json.loads(gpu.MADE.read_text())
    assert len({task["name"] for task in made["tasks"]}) == len(made["tasks"]) > 1000
    assert all(len(task["digest"]) == 20 for task in made["tasks"])


def test_a_dirty_tree_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu, "git_commit", lambda: "abc-dirty")
    assert gpu.main(["--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "make gpu: the tree has changes that are not committed; commit them, or measure with --dirty"
    ]
    assert not list(tmp_path.iterdir())


def begin(out, *words, **variables):
    path = os.pathsep.join(map(str, (TESTS.parent, TESTS, TESTS.parent / "tools")))
    rig = str(Path(__file__).with_name("agenda_rig.py"))
    command = [sys.executable, rig, "--out", str(out), "--deadline", str(DEADLINE_S), *words]
    env = {**os.environ, "PYTHONPATH": path, **variables}
    out.mkdir(exist_ok=True)
    return subprocess.Popen(command, env=env, cwd=out, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def use(out, *words, **variables):
    with begin(out, *words, **variables) as process:
        printed, _ = process.communicate(timeout=DEADLINE_S + 60)
    return process.returncode, printed


def answers(out):
    recorded: dict[str, dict[str, Any]] = json.loads((out / "a-fake" / "agenda.json").read_text())["answers"]
    return recorded


def rows(out):
    with Store(out / "a-fake" / "results.db", create=False) as store:
        return {run: [repr(record).encode() for record in store.records(run, samples=True)] for run in store.run_ids()}


@pytest.mark.long
def test_three_slots_answer_each_task_once_even_if_the_second_is_killed(tmp_path):
    with begin(tmp_path) as first:
        assert first.stdout is not None
        wait_for(lambda: (tmp_path / "a-fake" / "agenda.json").exists() and len(answers(tmp_path)) >= 4, 60)
        first.send_signal(signal.SIGTERM)  # ends the slot before all tasks are answered
        printed, _ = first.communicate(timeout=60)
        assert first.returncode == 143, printed
    after_first, first_rows = answers(tmp_path), rows(tmp_path)
    assert 4 <= len(after_first) < 8

    with begin(tmp_path) as second:
        time.sleep(random.Random(13).uniform(2.0, 6.0))
        second.kill()
    wait_for(lambda: not at_work_in(tmp_path), 30)
    after_second = answers(tmp_path)
    assert {name: after_second[name] for name in after_first} == after_first  # no answered task is measured again

    status, printed = use(tmp_path)
    assert status == 0, printed
    after_third, third_rows = answers(tmp_path), rows(tmp_path)
    assert {name: after_third[name] for name in after_second} == after_second
    assert len(after_third) == 8
    assert {answer["state"] for answer in after_third.values()} == {"done"}
    assert {run: third_rows[run] for run in first_rows} == first_rows
    assert all(third_rows[answer["run"]] for answer in after_third.values())

    page = (tmp_path / "a-fake" / "README.md").read_text()
    status, printed = use(tmp_path, "--only", "verify")
    assert (status, answers(tmp_path)) == (0, after_third), printed  # all tasks have an answer
    parts = [part for part in page.split("\n## ") if part.startswith(("Copy", "The agenda"))]
    assert len(parts) == 2
    assert all(part in (tmp_path / "a-fake" / "README.md").read_text() for part in parts)
    assert list(rows(tmp_path)) == list(third_rows)

    status, printed = use(tmp_path, AGENDA_CHANGED="copy/fake.other")
    changed = {name for name, answer in answers(tmp_path).items() if answer != after_third[name]}
    again = "copy copy/fake.other"
    assert changed == {"verify copy/fake.other", f"{again} copy/m3n5/f32", f"{again} copy/m7n2/f32"}


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("crash", "SIGABRT"),
        pytest.param("hang", "without an answer", marks=pytest.mark.long),
        pytest.param("raise", "ZeroDivisionError", marks=pytest.mark.long),
        pytest.param("exit", "the process ended with status 0", marks=pytest.mark.long),
    ],
)
def test_a_task_that_fails_is_named_with_the_reason_and_the_others_are_answered(tmp_path, fault, reason):
    bad, words = "copy copy/fake.base copy/m3n5/f32", ("--only", "copy/m3n5")  # two of the eight tasks
    variables = {"AGENDA_FAULT": bad, "AGENDA_WHAT": fault, "AGENDA_MOST": "1"}
    if fault == "crash":  # first with another task, which fails with it; the next slot tries each alone
        variables["AGENDA_MOST"] = "2"
        assert use(tmp_path, *words, **variables)[0] == 1
        together = {name for name, answer in answers(tmp_path).items() if answer["state"] == "failed"}
        assert together > {bad}
    status, printed = use(tmp_path, *words, **variables)
    assert status == 1, printed
    outcomes = answers(tmp_path)
    assert {name for name, answer in outcomes.items() if answer["state"] == "failed"} == {bad}
    assert reason in outcomes[bad]["text"]
    assert len(outcomes) == 2
    page = (tmp_path / "a-fake" / "README.md").read_text()
    assert f"{bad}: failed: " in page
    assert os.uname().nodename not in page
