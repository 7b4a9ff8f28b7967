"""The start of the command, while its modules are imported."""

import subprocess
import sys

import pytest

#: Calls the command, and interrupts it when this many modules have been imported; without a number, counts them.
AT_AN_IMPORT = """\
import os, signal, sys
words, seen = sys.argv[1:], 0
def hook(event, values):
    global seen
    if event == "import":
        seen += 1
        if words and seen == int(words[0]):
            os.kill(os.getpid(), signal.SIGINT)
sys.argv[1:] = ["list"]
from kernelmark.bench.cli import main
sys.addaudithook(hook)
try:
    main()
finally:
    words or os.write(2, b"%d" % seen)
"""


def started(*words: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", AT_AN_IMPORT, *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("points", [4, pytest.param(20, marks=pytest.mark.long)])
def test_an_interrupt_while_modules_are_imported_is_one_line(points: int) -> None:
    _, counted = started().communicate()
    imports = int(counted)
    runs = [started(1 + i * (imports - 1) // points) for i in range(points)]
    endings = [(*run.communicate(), run.returncode) for run in runs]
    # Click prints an empty line where it takes the interrupt: while the command imports what it needs.
    assert set(endings) == {("", "kernelmark: interrupted\n", 130), ("", "\n", 130)}
    assert endings[0][1].strip()
