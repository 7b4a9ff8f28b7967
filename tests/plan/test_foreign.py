"""Foreign code in the planning process, which no other process watches: it ends with one line and exit status 2."""

import subprocess
import sys

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


def test_the_process_that_plans_is_ended_in_one_line_where_it_hangs_in_a_plugin() -> None:
    done = ran(OVERSEEN.format("import threading; threading.Event().wait()"))
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("kernelmark: plugin x.py: its import took more than 0.2 s (now at ")
    assert line.endswith("; --timeout allows more")


def test_the_process_that_plans_is_ended_where_code_in_c_holds_the_interpreter() -> None:
    holds = "import ctypes; ctypes.PyDLL(None).sleep(30)"
    done = ran(f"import kernelmark.bench.plan.foreign as foreign; foreign.GRACE_S = 0.1\n{OVERSEEN.format(holds)}")
    assert (done.returncode, done.stdout, done.stderr[:8]) == (1, "", "Timeout ")


def test_what_ends_in_time_goes_on_with_the_built_in_functions_that_it_has_replaced() -> None:
    done = ran(OVERSEEN.format("import builtins; builtins.print = None"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "went on\n", "")
