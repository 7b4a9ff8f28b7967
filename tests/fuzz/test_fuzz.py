"""Every input that once broke the command, a few that are new, and the judge's own rules."""

import json
import signal
import subprocess
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import fuzz.__main__
from fuzz import hanging
from fuzz.campaign import Fault, Lane, Report
from fuzz.execute import Found, Outcome
from fuzz.files import make_samples
from fuzz.hanging import Watch
from fuzz.inputs import Damage, Entry, File, Input, Kill, Step, digest, read, write
from fuzz.judge import faults
from fuzz.kept import SHOWN
from processes import wait_for

CORPUS = sorted(Path(__file__).with_name("corpus").glob("*.json"))
GOOD = Outcome(0, "", "", [])
LEAVES = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(60)\nos._exit(2)\n"


@pytest.fixture(scope="module")
def lane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    folders = make_samples(tmp_path_factory.mktemp("samples")), tmp_path_factory.mktemp("fuzz")
    made = Lane(*folders, limit_s=60.0, quick=True)  # other tests use the processors meanwhile
    yield made
    made.close()


def wrong(lane: Lane, given: Input) -> list[str]:
    return [fault.words for fault in lane.tried(given, 0, Report([], Counter(), Counter()))]


def test_no_input_of_the_corpus_breaks_the_command_again(lane: Lane) -> None:
    broken = {path.stem: wrong(lane, entry.input) for path in CORPUS if not (entry := read(path)).unsolved}
    assert {name: words for name, words in broken.items() if words} == {}


def test_no_input_of_thirty_drawn_ones_breaks_the_command(lane: Lane) -> None:
    report = lane.batch(seed=1, most=30)
    assert [fault.words for fault in report.faults] == []
    assert report.commands.total() >= 30


def test_one_seed_draws_the_same_inputs(lane: Lane, monkeypatch) -> None:
    drawn: list[Input] = []
    monkeypatch.setattr(lane, "tried", lambda one, *_: drawn.append(one) or [])
    for seed in (3, 3, 4):
        lane.batch(seed, 20)
    assert drawn[:20] == drawn[20:40] != drawn[40:]


def test_a_campaign_goes_on_where_it_was_left() -> None:
    def drawn(start: int, inputs: int) -> list[tuple[int, int]]:
        pool = SimpleNamespace(submit=lambda _, *batch: batch)
        asked = Namespace(replay=None, seed=3, start=start, inputs=inputs)
        return list(fuzz.__main__._submitted(pool, asked))

    assert drawn(0, 120) == [*drawn(0, 100), *drawn(100, 20)]


def test_a_batch_repeats_no_input(lane: Lane, monkeypatch) -> None:
    drawn: list[str] = []
    monkeypatch.setattr(lane, "tried", lambda one, *_: drawn.append(digest(one)) or [])
    lane.batch(5, 40)
    assert len(drawn) == len(set(drawn)) == 40


def test_a_smaller_input_with_a_fault_of_the_same_kind_is_found(lane: Lane, monkeypatch) -> None:
    def tried(one: Input, seed: int, _: Report) -> list[Fault]:
        return [Fault(one, "hang", seed)] if one.steps[0].words[:1] == ("import",) else []

    monkeypatch.setattr(lane, "tried", tried)
    large = Fault(Input((Step(("import", *map(str, range(50)))),)), "hang", 1)
    small = lane.smallest(large)
    assert small.kind == large.kind
    assert len(small.given.steps[0].words) < 10


@pytest.mark.parametrize("fresh", [False, True])
def test_a_step_has_the_exit_status_and_the_streams_of_a_process(lane: Lane, fresh: bool) -> None:
    plugin = {"mine.py": File("import os\nos._exit(7)")}
    assert wrong(lane, Input((Step(("list", "--plugin", "mine.py"), fresh=fresh),), plugin)) == ["exit 7: "]
    assert wrong(lane, Input((Step(("nothing",), refused=True, fresh=fresh),))) == []
    assert wrong(lane, Input((Step(("list",), refused=True, fresh=fresh),))) == ["not refused: exit 0: "]


@pytest.mark.long
def test_what_a_step_leaves_running_is_found_and_ended(lane: Lane) -> None:
    found, *_ = wrong(lane, Input((Step(("list", "--plugin", "mine.py")),), {"mine.py": File(LEAVES)}))
    assert found.startswith("left running: ")


@pytest.mark.long
def test_a_step_that_hangs_is_ended(lane: Lane, monkeypatch) -> None:
    monkeypatch.setattr(lane._server, "_limit_s", 0.5)
    (found,) = wrong(lane, Input((Step(("list", "--plugin", "mine.py")),), {"mine.py": File("while True: pass")}))
    assert found.startswith("hang: ")


@pytest.mark.parametrize(
    ("code", "slowdown", "hangs"),
    [("input()", 1.0, True), ("input()", 1e9, False), ("while True: pass", 1e9, True)],
)
def test_a_step_is_not_blamed_for_a_machine_that_is_slow(monkeypatch, code: str, slowdown: float, hangs: bool) -> None:
    monkeypatch.setattr(hanging, "slowdown", lambda: slowdown)
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as step:
        watch = Watch(step.pid, 0.05)
        wait_for(lambda: watch.look() > 0.05 and (hanging.processor_s(step.pid) > 0.05 or code == "input()"))
        assert watch.is_over() == hangs
        step.kill()


def test_the_time_in_which_all_were_stopped_does_not_count(monkeypatch) -> None:
    times = iter([0.0, 0.5, 100.0, 100.25])
    monkeypatch.setattr(hanging, "now", lambda: next(times))
    watch = Watch(1, 10.0)
    assert [watch.look() for _ in range(3)] == [0.5, 1.5, 1.75]


def test_a_control_takes_as_long_as_it_uses_a_processor_at_least() -> None:
    assert hanging.slowdown() > 0.9


ROW = {"problem": "copy/m1n5/f32", "kernel": "copy/numpy.copyto", "mode": "cold", "threads": 1, "isa": ""}
ROW |= {"status": "ok", "reason": "", "time_s_median": 1.0}


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ([ROW], [ROW, {**ROW, "problem": "copy/m2n5/f32"}], ""),
        ([ROW], [ROW], "rows are missing: 1 of 2"),
        ([ROW, ROW], [ROW, ROW], "a row is doubled: 2 rows of 1 cases"),
        ([ROW], [{**ROW, "time_s_median": 2.0}], "a row was lost or changed by what followed"),
        ([ROW], [{**ROW, "problem": "copy/m2n5/f32"}], "a row was lost or changed by what followed"),
        ([{**ROW, "status": "crashed", "reason": "SIGKILL"}], [], "a kill cost a row: copy/m1n5/f32 "),
    ],
)
def test_what_a_kill_costs_is_a_fault(before: list[object], after: list[object], said: str) -> None:
    shown = [
        Outcome(0, json.dumps({"run": {"cases_planned": 2, "cases_done": len(rows)}, "results": rows}), "", [])
        for rows in (before, after)
    ]
    killed = Step(("run",), kill=Kill(signal.SIGKILL, 0.1))
    given = Input((killed, Step(SHOWN), Step(("run", "--resume", "mine")), Step(SHOWN)))
    found = faults(given, Found([Outcome(-9, "", "", []), shown[0], GOOD, shown[1]], [], []))
    assert any(words.startswith(said) for words in found) if said else found == []


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (Outcome(3, "", "kernelmark: defect: KeyError", []), "exit 3: kernelmark: defect: KeyError"),
        (Outcome(-11, "", "", []), "SIGSEGV: "),
        (Outcome(1, "", "Traceback (most recent call last):\n  KeyError: 1", []), "traceback:   KeyError: 1"),
        (Outcome(0, "", "", [], hung=True), "hang: goes on"),
        (Outcome(0, "", "", [], hung=True, interrupted=True), "hang: goes on after an interrupt"),
        (Outcome(0, "", "", ["sleep 60"]), "left running: sleep 60"),
        (Outcome(2, "", f"kernelmark: {'x' * 300}", []), "a line of 312 characters: "),
        (Outcome(2, "", "kernelmark: one\nkernelmark: two", []), "2 lines: kernelmark: one | kernelmark: two"),
        (Outcome(2, "", "kernelmark: one\nmore of it", []), "2 lines: kernelmark: one | more of it"),
        (Outcome(2, "usage", "", []), "refused without a word: usage"),
        (Outcome(0, "", "UserWarning: x", []), "warning: UserWarning: x"),
    ],
)
def test_each_fault_is_named(outcome: Outcome, said: str) -> None:
    found = faults(Input((Step(("show",)),)), Found([outcome], [], []))
    assert [words for words in found if words.startswith(said)]


@pytest.mark.parametrize(
    "outcome",
    [GOOD, Outcome(2, "", "kernelmark: one\n", []), Outcome(130, "", "[1/2] x\n[2/2] y", []), Outcome(1, "", "", [])],
)
def test_a_command_that_ends_as_it_should_has_no_fault(outcome: Outcome) -> None:
    assert faults(Input((Step(("show",)),)), Found([outcome], [], [])) == []


def test_a_signal_that_was_sent_is_no_fault() -> None:
    killed = Outcome(-9, "", "", [])
    assert faults(Input((Step(("run",), kill=Kill(signal.SIGKILL, 0.1)),)), Found([killed], ["x"], ["y"])) == []


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ("out.csv", []),
        ("new/place/out.csv", []),
        ("table.tex", []),
        ("table-gemm.tex", []),
        ("other", ["file left or changed: other"]),
        ("rows.db", ["file left or changed: rows.db"]),
    ],
)
def test_files_that_were_not_asked_for_are_a_fault(changed: str, found: list[str]) -> None:
    words = ("export", "--csv=out.csv", "-o", "table.tex", "--out", "new/place")
    assert faults(Input((Step(words),)), Found([GOOD], [changed], [])) == found


def test_an_input_is_the_same_when_it_is_read_again(tmp_path: Path) -> None:
    files = {"a\udcff": File("é\udcff\0"), "b": File(sample="rows.db", damage=(Damage("flip", 0.5, 3),))}
    entry = Entry("words", Input((Step(("run", "\udcff"), kill=Kill(9, 0.5, True)),), files))
    assert read(write(tmp_path / "e.json", entry)) == entry
