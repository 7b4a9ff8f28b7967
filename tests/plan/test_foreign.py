"""Foreign code in the process that plans, and that no other process watches: it is ended in one line, and exit 2."""

import subprocess
import sys
from pathlib import Path

import pytest

#: A process with a limit of a fifth of a second that runs this text within it.
OVERSEEN = """
from kernelmark.bench.plan import foreign
foreign.LEAST_S = 0.2
with foreign.overseen("plugin x.py: its import", 0.1):
    {}
print("went on")
"""


def ran(code: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """Python with this code, and nothing to read."""
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


PATCHED = "import os, sys, threading, time; os._exit = os.write = sys._current_frames = time.sleep = hang = input"


@pytest.mark.parametrize("text", ["threading.Event().wait()", f"{PATCHED}; threading.Event().wait()"])
def test_the_process_that_plans_is_ended_in_one_line_where_it_hangs_in_a_plugin(text: str) -> None:
    done = ran(OVERSEEN.format(f"import threading; {text}"))
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("kernelmark: plugin x.py: its import took more than 0.2 s (now at ")
    assert line.endswith("; --timeout allows more")


#: Code in C that does not release the interpreter.
HOLDS = "import ctypes; ctypes.PyDLL(None).sleep(30)"


def test_the_process_that_plans_is_ended_where_code_in_c_holds_the_interpreter() -> None:
    code = f"import kernelmark.bench.plan.foreign as foreign; foreign.GRACE_S = 0.1\n{OVERSEEN.format(HOLDS)}"
    done = ran(code)
    said = "kernelmark: plugin x.py: its import took more than 0.2 s; --timeout allows more\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


PLUGIN = """
from kernelmark.bench.plan.registry import REGISTRY
from kernelmark import Prefer, kernel, operation

def answers(problem):
    {declared}

def chooses(problem, tile, device):
    {preferred}

def counts(device):
    {counted}
    return 1

@kernel("copy", provider="bad", device="cpu", numerics="exact", supports=answers,
        tunables={{"T": (2, counts)}}, prefer=Prefer(({{"T": counts}},), chooses))
def odd(problem, x):
    return lambda: None

@operation("mine")
class Mine(REGISTRY.operations["copy"], frozen=True, kw_only=True):
    @classmethod
    def parse(cls, text):
        {read}

    @property
    def flop(self):
        {worked}
        return 1

    def dims(self):
        {sized}
        return {{}}
"""
#: Loads it, which may take longer than its calls may, and asks for what it declares.
DECLARED = """
import contextlib, sys
from pathlib import Path
from kernelmark.bench.plan import discovery, foreign
foreign.LEAST_S = 1.0
registry = discovery.discover()
discovery.overseen = lambda *_: contextlib.nullcontext()
discovery.load_plugin(Path(sys.argv[1]), 0.5)
registry.kernels["copy/bad.odd"].refuses(registry.problem("copy/m4n4/f32"))
problem = registry.problem("mine/m4n4/f32")
assert (problem.flop, problem.dims()) == (1, {})
print("went on")
"""


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("declared", "kernelmark: copy/bad.odd: supports took more than 1 s; --timeout allows more\n"),
        ("read", "kernelmark: mine: its reading of an id took more than 1 s; --timeout allows more\n"),
        ("preferred", "kernelmark: copy/bad.odd: prefer took more than 1 s; --timeout allows more\n"),
        pytest.param(
            *("counted", "kernelmark: copy/bad.odd: tunable T took more than 1 s; --timeout allows more\n"),
            marks=pytest.mark.long,
        ),
        ("worked", "kernelmark: mine: flop took more than 1 s; --timeout allows more\n"),
        pytest.param(
            *("sized", "kernelmark: mine: dims took more than 1 s; --timeout allows more\n"),
            marks=pytest.mark.long,
        ),
        ("", ""),
    ],
)
def test_what_a_plugin_declares_ends_the_command_where_it_hangs(tmp_path: Path, place: str, said: str) -> None:
    passes = dict.fromkeys(("declared", "preferred", "counted", "worked", "sized"), "pass")
    acts = {**passes, "read": "return super().parse(text)", place: HOLDS}
    (tmp_path / "mine.py").write_text(PLUGIN.format(**acts))
    done = ran(DECLARED, str(tmp_path / "mine.py"))
    assert (done.returncode, done.stderr, done.stdout) == ((2, said, "") if said else (0, "", "went on\n"))


def test_a_call_within_what_is_overseen_does_not_end_the_process_a_second_time() -> None:
    code = "foreign.limited(__import__('time').sleep, 'x: its call', 0.1)(30)"
    done = ran(OVERSEEN.format(code))
    (line,) = done.stderr.splitlines()
    assert line.startswith("kernelmark: plugin x.py: its import took more than 0.2 s")


def test_what_ends_in_time_goes_on() -> None:
    done = ran(OVERSEEN.format("pass"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "went on\n", "")
