"""Find the commit of the running code."""

import os
import subprocess
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import kernelmark
from kernelmark.bench.plan.errors import UsageError

#: The file with the commit of a copy without `.git`. Git does not track the file, so it must be copied as well.
COMMIT_FILE = "build/commit"


@lru_cache
def git_commit() -> str:
    """Return the commit of the checkout that kernelmark runs from, with `-dirty` if files have changes.

    Changes in `reports/` are ignored. For a copy without `.git`, return KERNELMARK_COMMIT, or else the content of
    `build/commit`, or else the version. `build/commit` is not read if there is a `.git`, even if git is missing.
    """
    root, version = Path(kernelmark.__file__).resolve().parents[1], f"kernelmark {kernelmark.__version__}"
    if (root / ".git").exists():
        return _commit_of(root) or os.environ.get("KERNELMARK_COMMIT") or f"{version} (git names no commit)"
    written = ""
    with suppress(OSError, UnicodeDecodeError):
        written = (root / COMMIT_FILE).read_text().strip()
    return os.environ.get("KERNELMARK_COMMIT") or written or version


def write_commit_file(root: Path) -> str:
    """Write a checkout's commit to `build/commit`, for copies without `.git`, and return it. Raises UsageError."""
    if not (commit := _commit_of(root)):
        raise UsageError(f"{root}: git finds no commit here, expected a checkout; set KERNELMARK_COMMIT for a copy")
    try:
        (root / COMMIT_FILE).parent.mkdir(exist_ok=True)
        (root / COMMIT_FILE).write_text(f"{commit}\n")
    except OSError as error:
        raise UsageError(f"{root / COMMIT_FILE}: cannot be written: {error.strerror}") from None
    return commit


def _commit_of(root: Path) -> str:
    # In a hook, variables point git at the hook's repository; in a container, another user may own the checkout.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "--no-optional-locks", "-c", f"safe.directory={root}", "-C", str(root)]

    def git(*words: str) -> str:
        done = subprocess.run([*command, *words], env=variables, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        commit, changes = git("rev-parse", "HEAD"), git("status", "--porcelain", "-uno", "--", ".", ":!reports")
        return f"{commit}-dirty" if changes else commit
    except (OSError, subprocess.CalledProcessError):
        return ""
