"""The commit that a run's code is of."""

import os
import subprocess
from functools import lru_cache
from pathlib import Path

import kernelmark


@lru_cache
def git_commit() -> str:
    """Return the commit of the checkout that kernelmark runs from, `-dirty` after it where files differ.

    A tree that was copied without its `.git` has the commit that KERNELMARK_COMMIT names, otherwise its version.
    """
    root = Path(kernelmark.__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return os.environ.get("KERNELMARK_COMMIT") or f"kernelmark {kernelmark.__version__}"

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("-dirty" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return f"kernelmark {kernelmark.__version__}"
