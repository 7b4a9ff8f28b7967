"""Machine code that is kept for the next process is that of the present source."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba")

import numba

from kernelmark.kernels._numba import part
from support.kernels import compiled_by

ROOT = Path(__file__).parents[2]
CALLEE = """
from kernelmark.kernels._numba import jit

@jit
def one():
    return {value}
"""
CALLER = """
from kernelmark.kernels._numba import jit
from kernelmark.kernels._callee import one

@jit
def answer():
    return one() + 1
"""


@pytest.fixture
def answer(tmp_path: Path):
    """What a compiled function returns in a process of its own, where the one that it calls returns `value`."""
    shutil.copytree(ROOT / "bench", tmp_path / "bench")
    shutil.copytree(ROOT / "kernelmark", tmp_path / "kernelmark", symlinks=True)
    (tmp_path / "kernels").mkdir()
    for name in ("__init__.py", "_numba.py", "_host.py"):
        shutil.copy(ROOT / "kernels" / name, tmp_path / "kernels")
    (tmp_path / "kernels" / "_caller.py").write_text(CALLER)

    def run(value: int) -> int:
        (tmp_path / "kernels" / "_callee.py").write_text(CALLEE.format(value=value))
        env = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", "from kernelmark.kernels._caller import answer; print(answer())"]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
        return int(done.stdout)

    run.cache = tmp_path / "cache" / "kernelmark" / "numba"  # type: ignore[attr-defined]
    return run


def test_a_function_is_compiled_anew_where_one_that_it_calls_has_changed(answer) -> None:
    assert answer(10) == 11
    assert answer(20) == 21


def test_what_is_compiled_is_kept_and_what_is_a_month_old_is_removed(answer) -> None:
    answer(10)
    (folder,) = answer.cache.iterdir()
    assert list(folder.rglob("*.nbc"))
    os.utime(folder, (0, 0))
    answer(20)
    assert folder not in list(answer.cache.iterdir())


@part
def _next(value):
    return value + 1


def test_a_part_is_compiled_only_within_its_caller() -> None:
    after = numba.njit(lambda value: _next(value) + _next(2 * value))
    compiled = compiled_by(lambda: after(1))
    assert {event.data["dispatcher"] for _, event in compiled} == {after}
    assert after(3) == 11
