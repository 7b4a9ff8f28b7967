"""Helpers for processes, as /proc shows them, for their standard error, for waiting, and for writing files."""

import time
from contextlib import suppress
from pathlib import Path


def gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter if it ends after opening
        return True


def wait_for(condition, seconds=30.0):
    """Poll until the condition holds, since no event announces it."""
    stop = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < stop, "the condition did not become true"
        time.sleep(0.01)


def command(pid):
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode()
    return ""


def at_work_in(folder):
    """Return the command lines of the processes that have this working folder."""
    commands = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and (entry / "cwd").readlink() == folder:
                commands.append(command(int(entry.name)))
    return commands


def complaints(stderr):
    """Return the non-empty lines of standard error, without the progress lines that a pipe gets for each job."""
    return [line for line in stderr.splitlines() if line.strip() and not line.startswith("[")]


def refusal(done):
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    return line


def write_files(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{text}\n")
