"""A child that hangs or dies costs the answer that it was at, and no other."""

from pathlib import Path
from typing import Any

import pytest

from kernelmark.bench.measure.timing import now
from kernelmark.bench.run.printed import MOST
from kernelmark.bench.run.watched import Lost, answers

MODULE = """
import os, sys, time

HELD = []
ACTS = {
    "hang": lambda: time.sleep(1000),
    "exit": lambda: os._exit(3),
    "abort": os.abort,
    "raise": lambda: [][0],
    "hold": lambda: HELD.append(Handle()),
    "print": lambda: print("what a library prints, without a newline", end=""),
    "endless line": lambda: [print("x" * 10**6, end="") for _ in range(30)],
    "lines": lambda: [print("line " + "x" * 995) for _ in range(10**4)],
    "complain": lambda: (print("out of luck", file=sys.stderr, flush=True), os._exit(4)),
}


class Handle:
    def __del__(self):
        raise RuntimeError("the device is lost")


def replies(names):
    for name in names:
        ACTS.get(name, lambda: None)()
        yield {"name": name, "process": os.getpid()}
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "asked.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "asked"


def ask(module: str, *questions: str, silence_s: float = 60.0) -> dict[str, Any]:
    return dict(answers(module, questions, silence_s, now() + 120))


def test_one_child_answers_all_in_order(module: str) -> None:
    found = ask(module, "a", "print", "b")
    assert [answer["name"] for answer in found.values()] == ["a", "print", "b"]
    assert len({answer["process"] for answer in found.values()}) == 1


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        ("exit", "the process ended with status 3"),
        ("abort", "SIGABRT"),
        ("raise", "the process ended with status 1: IndexError: list index out of range (asked.py, line 9)"),
        ("complain", "the process ended with status 4: out of luck"),
    ],
)
def test_a_child_that_ends_costs_one_answer(module: str, act: str, reason: str) -> None:
    found = ask(module, "a", act, "b")
    assert found[act] == Lost(reason)
    assert found["a"]["process"] != found["b"]["process"]


def test_a_child_that_raises_shows_one_line_whatever_it_holds(module: str, capfd: Any) -> None:
    ask(module, "hold", "raise")
    assert capfd.readouterr().err == "IndexError: list index out of range (asked.py, line 9)\n"


@pytest.mark.parametrize("act", ["endless line", "lines"])
def test_of_what_a_child_prints_before_an_answer_64_kb_are_shown(module: str, act: str, capsys: Any) -> None:
    assert ask(module, "a", act, "b")[act]["name"] == act
    assert MOST <= len(capsys.readouterr().err) < MOST + 200


def test_a_child_that_is_silent_is_ended(module: str) -> None:
    found = ask(module, "hang", "b", silence_s=3.0)
    assert found["hang"].reason.startswith("ended after 3 s without an answer")
    assert found["b"]["name"] == "b"


def test_what_was_not_begun_by_the_end_is_left_out(module: str) -> None:
    assert list(answers(module, ["a"], 60.0, now() - 1)) == []
    found = dict(answers(module, ["hang", "b"], 60.0, now() + 1))
    assert list(found) == ["hang"]


def test_a_stop_ends_the_child(module: str) -> None:
    asked: list[str] = []

    def stop() -> bool:
        asked.append("")
        return len(asked) > 2

    assert list(dict(answers(module, ["hang", "b"], 60.0, now() + 60, stop))) == ["hang"]
