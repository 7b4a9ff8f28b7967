"""A store that cannot grow ends the run in one line, and keeps the rows."""

import sys
from pathlib import Path

import pytest

from support.processes import complaints
from support.runs import KERNELS, PROBLEMS, WORDS, all_are_there_and_ok, visible

LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_a_file_that_may_not_grow_ends_the_run_in_one_line_and_keeps_the_rows(folder: Path, python_in) -> None:
    script = str(Path(sys.executable).with_name("kernelmark"))
    stopped(folder, python_in(folder, "-c", LIMITED, script, *WORDS))


@pytest.mark.long
def test_a_full_disk_ends_the_run_in_one_line_and_keeps_the_rows(folder: Path, small_disk, kernelmark_in) -> None:
    small_disk("400k")
    words = [word if word != "r.db" else "disk/r.db" for word in WORDS]
    run_id, kept = stopped(folder, kernelmark_in(folder, *words), "disk/r.db")
    small_disk("8m")
    done = kernelmark_in(folder, "run", "--resume", run_id, "--db", "disk/r.db")
    assert (done.returncode, complaints(done.stderr)) == (0, [])
    assert all_are_there_and_ok(folder / "disk/r.db")
    assert kept.items() <= visible(folder / "disk/r.db").items()


def stopped(folder: Path, done, db: str = "r.db"):
    """Id and rows of a run that could not be written to its end."""
    assert done.returncode == 2, done.stderr
    (line,) = complaints(done.stderr)
    assert f"{db}: cannot be written: " in line
    assert "rows recorded so far are safe" in line
    kept = visible(folder / db)
    assert 0 < len(kept) < PROBLEMS * len(KERNELS)
    return done.stdout.split()[1], kept
