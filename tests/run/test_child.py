"""A child that hangs or dies loses only its current answer; part of its output is shown, as plain text."""

import os
import subprocess
import sys
import tempfile
from itertools import count

import msgspec
import pytest

from kernelmark.bench.measure.timing import now
from kernelmark.bench.run import child
from kernelmark.bench.run.child import MOST, Channel, Lost, answers, last_words, relay, trim
from support.texts import text_of

MODULE = """
import builtins, os, sys, time

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
    "replace": lambda: (setattr(builtins, "len", None), [][0]),
    "fork": lambda: os.fork() and time.sleep(1000),
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
def module(tmp_path, monkeypatch):
    (tmp_path / "asked.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "asked"


def ask(module, *questions, silence_s=60.0):
    return dict(answers(module, questions, silence_s, now() + 120))


def test_one_child_answers_all_in_order(module):
    answers = ask(module, "a", "print", "b")
    assert [answer["name"] for answer in answers.values()] == ["a", "print", "b"]
    assert len({answer["process"] for answer in answers.values()}) == 1


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        ("exit", "the process ended with status 3"),
        ("abort", "SIGABRT"),
        ("raise", "the process ended with status 1: IndexError: list index out of range (asked.py, line 9)"),
        ("replace", "the process ended with status 1: IndexError: list index out of range (asked.py, line 14)"),
        ("complain", "the process ended with status 4: out of luck"),
    ],
)
def test_a_child_that_ends_costs_one_answer(module, act, reason):
    answers = ask(module, "a", act, "b")
    assert answers[act] == Lost(reason)
    assert answers["a"]["process"] != answers["b"]["process"]


def test_a_child_that_raises_shows_one_line_whatever_it_holds(module, capfd):
    ask(module, "hold", "raise")
    assert capfd.readouterr().err == "IndexError: list index out of range (asked.py, line 9)\n"


@pytest.mark.parametrize("act", ["endless line", "lines"])
def test_of_what_a_child_prints_before_an_answer_64_kb_are_shown(module, act, capsys):
    assert ask(module, "a", act, "b")[act]["name"] == act
    assert MOST <= len(capsys.readouterr().err) < MOST + 200


def test_a_child_that_is_silent_is_ended(module):
    answers = ask(module, "hang", "b", silence_s=3.0)
    assert answers["hang"].reason.startswith("ended after 3 s without an answer")
    assert answers["b"]["name"] == "b"


def test_what_was_not_begun_by_the_end_is_left_out(module):
    assert list(answers(module, ["a"], 60.0, now() - 1)) == []
    assert list(dict(answers(module, ["hang", "b"], 60.0, now() + 1))) == ["hang"]


def test_a_stop_ends_the_child(module):
    looks = count()
    assert list(dict(answers(module, ["hang", "b"], 60.0, now() + 60, lambda: next(looks) > 1))) == ["hang"]


@pytest.fixture
def log():
    """A file for a process's output, as a worker has."""
    with tempfile.TemporaryFile() as file:
        yield file


def shown(log):
    return text_of(lambda out: relay(log, out))


def test_what_was_printed_is_passed_on_once_as_plain_text(log):
    os.write(log.fileno(), b"\x1b[31mone\x1b[0m\n\xfftwo\n")
    assert (shown(log), shown(log)) == ("one\n\ufffdtwo\n", "")
    os.write(log.fileno(), b"three\n")
    assert shown(log) == "three\n"


def test_more_than_is_shown_is_counted(log):
    os.write(log.fileno(), b"x" * (3 * MOST))
    assert shown(log) == "x" * MOST + f"\n(kernels printed {3 * MOST / 1e6:.3g} MB, of which 64 kB are shown)\n"


def test_a_worker_that_prints_on_takes_no_more_of_the_disk(log, monkeypatch):
    monkeypatch.setattr(child, "_GROWN", MOST)
    write = "import os; [os.write(1, b'first' if i == 0 else b'x' * 4096) for i in range({})]; os.write(1, b'\\nlast')"
    for _ in range(3):
        subprocess.run([sys.executable, "-c", write.format(64)], stdout=log, check=True)
        trim(log)
        assert os.fstat(log.fileno()).st_blocks * 512 <= 2 * MOST
    subprocess.run([sys.executable, "-c", write.format(1)], stdout=log, check=True)
    assert last_words(log) == "last"
    assert shown(log).startswith("firstxxx")


def test_the_last_words_are_one_plain_line_of_bounded_length(log):
    assert last_words(log) == ""
    os.write(log.fileno(), b"x" * (2 * MOST) + b"\n\x1b[31m" + b"cannot go on " * 1000 + b"\n \n")
    assert last_words(log) == ("cannot go on " * 1000)[:200]


def test_a_message_comes_with_its_number_and_its_process_once_it_is_whole():
    reads, writes = os.pipe()
    channel = Channel(reads, writes)
    channel.send(7, "x" * 1000)
    data = os.read(reads, 4096)
    os.write(writes, data[:500])
    assert channel.receive(0.0) is None
    os.write(writes, data[500:] + data)
    for message in (channel.receive(), channel.receive(0.0)):
        assert (message.number, message.pid, msgspec.msgpack.decode(message.body)) == (7, os.getpid(), "x" * 1000)
    channel.close()


def test_the_answer_of_another_process_is_refused(module, monkeypatch):
    monkeypatch.setattr(child, "EXIT_S", 0.5)
    answers = ask(module, "a", "fork", "b")
    assert (answers["fork"], answers["b"]["name"]) == (Lost("the process does not answer, but has not ended"), "b")
