"""How the command ends if something goes wrong, as a shell sees it: one line and the right exit status."""

import fcntl
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernelmark.bench.plan.text import MOST
from support.processes import at_work_in, command

MAIN = "from kernelmark.bench.cli import main; main()"
#: The command, with a part of it that raises an unexpected exception.
BROKEN = "from kernelmark.bench.cli import listing, main\ndef fails(*_):\n    raise {}\nlisting.kernels = fails\nmain()"


def called(code: str, *words: str, folder: Path, **options):
    variables = os.environ | {"XDG_DATA_HOME": str(folder), "TMPDIR": str(folder)}
    options = {"stderr": subprocess.PIPE, **options}
    return subprocess.run([sys.executable, "-c", code, *words], cwd=folder, env=variables, text=True, **options)


@pytest.mark.parametrize("error", ["KeyError('x' * 5000)", "RecursionError('deep')", "type('Bad', (Exception,), {'__str__': lambda self: 1 / 0})()"])  # fmt: skip # noqa: E501
def test_a_defect_exits_3_in_one_line_that_names_a_file_with_the_traceback(tmp_path, error) -> None:
    done = called(BROKEN.format(error), "list", folder=tmp_path, stdout=subprocess.PIPE)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (3, "")
    assert line.startswith("kernelmark: defect: ")
    assert len(line) <= MOST
    report = Path(re.findall(r"\S+$", line)[0]).read_text()
    assert "Traceback" in report
    assert "in fails" in report


ENVIRONMENT = {
    "MemoryError": "memory: none is left for this command; `ulimit -a` shows the limits",
    "ImportError('x.so: failed to map segment from shared object')": "memory: none is left for this command; ",
    "OverflowError('timestamp too large')": "the clock of this machine: is set past the range of Python's times, ",
    "ValueError('Key backend: ')": "MPLBACKEND: is None, expected a backend of Matplotlib; unset it",
}


@pytest.mark.parametrize(("error", "said"), ENVIRONMENT.items())
def test_what_the_environment_makes_fail_is_no_defect(tmp_path, monkeypatch, error, said) -> None:
    monkeypatch.delenv("MPLBACKEND", raising=False)
    done = called(BROKEN.format(error), "list", folder=tmp_path, stdout=subprocess.PIPE)
    assert (done.returncode, done.stderr.startswith(f"kernelmark: {said}")) == (2, True)


@pytest.mark.parametrize(
    ("code", "stream", "status", "said"),
    [
        (MAIN, "stdout", 0, ""),
        # Earlier output is still buffered then, and the interpreter would fail to write it when it exits.
        (BROKEN.replace("raise", "print('a row'); raise").format("KeyboardInterrupt"), "stdout", 130, "\n"),
        (BROKEN.format("KeyboardInterrupt"), "stderr", 130, None),
    ],
    ids=["whole", "interrupted", "without a word"],
)
def test_a_reader_that_has_gone_is_no_failure(tmp_path, monkeypatch, code, stream, status, said) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    read, write = os.pipe()
    os.close(read)
    done = called(code, "list", folder=tmp_path, **{"stdout": subprocess.DEVNULL, stream: write})
    os.close(write)
    assert (done.returncode, done.stderr) == (status, said)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_is_printed_is_written_to_its_end_or_refused(tmp_path, monkeypatch, small_disk, unbuffered) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    whole = called(MAIN, "list", folder=tmp_path, stdout=subprocess.PIPE).stdout
    read, write = os.pipe()
    os.set_blocking(write, False)
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    listing = subprocess.Popen([sys.executable, "-c", MAIN, "list"], stdout=write)
    os.close(write)
    with os.fdopen(read) as pipe:
        assert (pipe.read(), listing.wait()) == (whole, 0)
    with (small_disk("8k") / "list").open("w") as out:
        done = called(MAIN, "list", folder=tmp_path, stdout=out)
    assert (done.returncode, done.stderr) == (2, "kernelmark: standard output: No space left on device\n")


LIST, NONE = "list --json", "verify copy/m4n4/f32 --kernels no/such"
#: The code of a plug-in, a command, and the beginning of its line. The last three lines name the plug-in: one has an
#: exception whose message cannot be formed, the others replace the function that prints JSON.
UNRULY = {
    "closes": ("sys.stdout.close()", LIST, "a plug-in closed standard output or standard error; "),
    "takes": ("sys.stdout = None", NONE, "no kernel matches"),
    "closes-error": ("sys.stderr.close()", NONE, ""),
    "clears": ("sys.modules.clear(); sys.path.clear()", NONE, "no kernel matches"),
    "mute": (
        "class Mute(Exception):\n    def __str__(self):\n        raise self\nraise Mute",
        LIST,
        "plugin {}/mine.py, line 5: Mute: a message that cannot be formed\n",
    ),
    "json": (
        "import msgspec\ndef fails(*_, **__):\n    return 1 // 0\nmsgspec.json.format = fails",
        LIST,
        "plugin {}/mine.py, line 4: ZeroDivisionError: integer division or modulo by zero\n",
    ),
    "exit": (
        "import msgspec\ndef leaves(*_, **__):\n    raise SystemExit(0)\nmsgspec.json.format = leaves",
        LIST,
        "plugin {}/mine.py, line 4: SystemExit: 0\n",
    ),
}


@pytest.mark.parametrize(("text", "words", "said"), UNRULY.values(), ids=UNRULY)
def test_a_plugin_that_raises_or_takes_what_is_not_its_own_costs_one_line(tmp_path, monkeypatch, text, words, said):
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    (tmp_path / "mine.py").write_text(f"import sys\n{text}\n")
    done = called(MAIN, *words.split(), "--plugin", "mine.py", folder=tmp_path, stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", bool(said))
    assert not said or done.stderr.startswith(f"kernelmark: {said.format(tmp_path)}")


#: The command, interrupted in a finaliser, from which nothing is raised.
IN_A_FINALISER = """\
import time
from kernelmark.bench.cli import listing, main
class Last:
    def __del__(self):
        raise KeyboardInterrupt
def kernels(*_):
    Last()
    time.sleep(10)
    return []
listing.kernels = kernels
main()
"""


#: The command, interrupted again while it reports the first interrupt.
TWICE = """\
import os, signal
from kernelmark.bench.cli import ending, listing, main
def interrupt(*_):
    os.kill(os.getpid(), signal.SIGINT)
listing.kernels = ending._flush = interrupt
main()
"""


@pytest.mark.parametrize("code", [IN_A_FINALISER, TWICE], ids=["finaliser", "twice"])
def test_an_interrupt_that_cannot_be_raised_ends_the_command_without_a_traceback(tmp_path, code) -> None:
    done = called(code, "list", folder=tmp_path, stdout=subprocess.PIPE)
    assert (done.returncode, done.stderr.strip()) == (130, "")


#: A plug-in that starts a process in a session of its own, which closes the streams that a reader would wait for.
LEAVES = "import os, time\nif os.fork() == 0:\n    os.setsid(), os.closerange(0, 3), time.sleep(60)\n"


def test_what_a_plugin_left_running_is_ended_and_a_shells_own_process_is_not(tmp_path) -> None:
    (tmp_path / "leaves.py").write_text(LEAVES)
    code = "import os, subprocess\nquiet = {'stdout': -3, 'stderr': -3}\n"
    code += "print(subprocess.Popen(['sleep', '60'], **quiet).pid, flush=True)\n"
    code += f"os.execl('{sys.executable}', '{sys.executable}', '-c', '{MAIN}', 'list', '--plugin', 'leaves.py')"
    done = called(code, folder=tmp_path, stdout=subprocess.PIPE)
    shell_pid = int(done.stdout.split()[0])
    try:
        assert done.returncode == 0, done.stderr
        assert command(shell_pid).startswith("sleep")
        assert at_work_in(tmp_path) == [command(shell_pid)]
    finally:
        os.kill(shell_pid, 9)


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
sys.addaudithook(hook)
try:
    import kernelmark.__main__ as command
    command.main()
finally:
    words or os.write(2, b"%d" % seen)
"""


def started(*words: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", AT_AN_IMPORT, *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_an_interrupt_while_modules_are_imported_is_one_line_at_most() -> None:
    _, counted = started().communicate()
    imports, points = int(counted), 6
    runs = [started(5 + i * (imports - 5) // points) for i in range(points)]
    endings = [(*run.communicate(), run.returncode) for run in runs]
    # Click prints an empty line if it handles the interrupt, which may come while the command imports modules.
    assert set(endings[1:]) <= {("", "kernelmark: interrupted\n", 130), ("", "\n", 130)}
    assert endings[0] == ("", "", -2)


RUN = "$KM run copy/m4n4/f32 --max-time 0.01 --no-ceilings --threads 1 --db r.db --kernels copy/num"
#: A shell's commands, the exit status, and the beginning of the last line, which is on standard error if it is 2.
AROUND = {
    "removed": ("mkdir d; cd d; rmdir ../d; $KM list", 2, "kernelmark: the folder of this shell has been removed; "),
    "no-home": ("$ALONE $KM runs", 2, "kernelmark: results: user 54321 has no home, and HOME is not set; set XDG_"),
    "no-cache": (f"chmod 777 .; $ALONE {RUN}ba.streaming | grep ^1.row", 0, "1 row: 1 ok"),
    "no-data": ("XDG_DATA_HOME=/proc $KM run s", 2, "kernelmark: /proc/kernelmark/results.db: cannot be used as a s"),
    "no-process": (
        f"chmod 777 .; $ALONE bash -c 'ulimit -u 2; {RUN}py.copyto' 2>&1 >/dev/null | tail -1 >&2",
        2,
        "kernelmark: a worker cannot be started: Resource temporarily unavailable; `ulimit -a` shows the limits",
    ),
    "no-files": (f"ulimit -n 8; {RUN}py.copyto 2>&1 >/dev/null | tail -1 >&2", 2, "kernelmark: "),
    "shadows-early": ("echo > signal.py; PYTHONPATH=.:$PYTHONPATH $KM list", 2, "kernelmark: /"),
    "shadows": ("echo 1/0 > statistics.py; PYTHONPATH=.:$PYTHONPATH $KM run s", 2, "kernelmark: /"),
    "numba": (f"NUMBA_NUM_THREADS=0 {RUN}py.copyto", 2, "kernelmark: NUMBA_NUM_THREADS: is 0, expected at least 1; "),
    "no-proc": (f"unshare -m bash -c 'mount --bind . /proc; {RUN}py.copyto' | grep ^1.row", 0, "1 row: 1 ok"),
    "full": ("$KM list >/dev/full", 2, "kernelmark: standard output: No space left on device"),
    "full-error": ("$KM list 2>/dev/full >/dev/null && { $KM nothing 2>/dev/full || echo $?; }", 0, "2"),
    "full-error-interrupted": ('$PYTHON -c "$INTERRUPTED" list 2>/dev/full || echo $?', 0, "130"),
    "closed-error": (f"{RUN}py.copyto 2>&- | grep ^run", 0, "run "),
    "closed": (f"{RUN}py.copyto <&- >&- 2>&- && echo ended", 0, "ended"),
    "changed": (
        "mkdir d; echo 'import os; os.chdir(os.path.dirname(__file__))' > d/m.py; echo > n.py;"
        f"{RUN}py.copyto --plugin d/m.py --plugin n.py --csv out.csv --report page && ls -d out.csv page",
        0,
        "page",
    ),
    "damaged": (
        r"mkdir x-1.dist-info; printf 'Name: x\nVersion: \377\n' | tee x-1.dist-info/METADATA > "
        "x-1.dist-info/entry_points.txt; PYTHONPATH=.:$PYTHONPATH $KM list | tail -1",
        0,
        "",
    ),
}


#: The scripts that run only with --all, since they measure.
LEFT = ("no-cache", "no-proc", "changed")


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name in LEFT)) for name in AROUND])
def test_what_surrounds_the_command_is_one_line_or_no_fault(tmp_path, name) -> None:
    script, status, last = AROUND[name]
    if ("$ALONE" in script or "mount" in script) and os.geteuid():
        pytest.skip("needs root, to become a user without a home or to hide a folder")
    user = 54321 + os.getpid() % 1000  # of this worker alone, since a limit of processes counts all of a user's
    alone = f"env -u HOME -u XDG_DATA_HOME -u XDG_CACHE_HOME setpriv --reuid {user} --clear-groups"
    able = "--inh-caps=+dac_read_search --ambient-caps=+dac_read_search"
    variables = {"PYTHON": sys.executable, "KM": f"{sys.executable} -m kernelmark", "ALONE": f"{alone} {able}"}
    variables = os.environ | variables | {"INTERRUPTED": BROKEN.format("KeyboardInterrupt")}
    shell = ["bash", "-o", "pipefail", "-c", script]
    done = subprocess.run(shell, cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    lines = (done.stderr if status else done.stdout).splitlines()
    assert lines[-1].startswith(last.replace("54321", str(user)))
    assert not status or len(lines) == 1
