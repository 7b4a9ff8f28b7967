"""FFTW's plans: what planning has learnt is kept, and no file that is found in its place does harm."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelmark.kernels._fftw as fftw

pyfftw = pytest.importorskip("pyfftw")


@pytest.fixture
def wisdom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], fftw.Wisdom]:
    """Begins a process anew, as far as FFTW's memory goes."""

    def begin() -> fftw.Wisdom:
        pyfftw.forget_wisdom()
        started = fftw.Wisdom(tmp_path / "cache" / "wisdom.json")
        monkeypatch.setattr(fftw, "_wisdom", lambda: started)
        return started

    begin()
    return begin


def arrays(n: int = 96) -> tuple[Any, Any]:
    return pyfftw.empty_aligned((4, n), "c8", n=64), pyfftw.empty_aligned((4, n), "c8", n=64)


def facts(n: int = 96, **options: Any) -> dict[str, str]:
    return fftw.plan(*arrays(n), (1,), **options).facts


def test_a_plan_is_new_once_and_found_by_later_processes(wisdom: Callable[[], Any]) -> None:
    assert facts() == {"rigour": "FFTW_MEASURE", "wisdom": "new"}
    assert facts() == {"rigour": "FFTW_MEASURE", "wisdom": "new"}  # the next operands of the same job
    wisdom()
    assert facts() == {"rigour": "FFTW_MEASURE", "wisdom": "found"}
    assert facts(n=100)["wisdom"] == facts(inverse=True)["wisdom"] == "new"


def test_what_cannot_be_planned_in_time_says_so_and_is_not_tried_again(
    wisdom: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fftw, "PLANNING_S", 1e-6)
    assert facts(n=4096) == {"rigour": "FFTW_ESTIMATE", "wisdom": "none"}
    monkeypatch.setattr(fftw, "PLANNING_S", 5.0)
    assert facts(n=4096) == {"rigour": "FFTW_ESTIMATE", "wisdom": "none"}


DAMAGED = ["", "{", "null", "3", '"abc"', "[]", "[1, 2, 3]", '["a", "b"]', '["(fftw-3.3.5 fftw", "(", ""]', "\x00\xff"]


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_file_is_ignored_and_replaced(text: str, wisdom: Callable[[], Any], tmp_path: Path) -> None:
    file = tmp_path / "cache" / "wisdom.json"
    file.parent.mkdir()
    file.write_text(text, "latin-1")
    wisdom()
    assert facts()["wisdom"] == "new"
    wisdom()
    assert facts()["wisdom"] == "found"
    assert [part[:5] for part in json.loads(file.read_text())] == ["(fftw"] * 3


def test_a_truncated_file_is_ignored_and_replaced(wisdom: Callable[[], Any], tmp_path: Path) -> None:
    facts()
    file = tmp_path / "cache" / "wisdom.json"
    file.write_text(file.read_text()[:-40])
    wisdom()
    assert facts()["wisdom"] == "new"
    wisdom()
    assert facts()["wisdom"] == "found"


def test_a_folder_that_refuses_costs_only_time(wisdom: Callable[[], Any], tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file in the folder's place")
    wisdom()
    assert facts() == {"rigour": "FFTW_MEASURE", "wisdom": "new"}


def test_what_another_process_wrote_meanwhile_is_kept(wisdom: Callable[[], Any], tmp_path: Path) -> None:
    other = wisdom()
    wisdom()
    facts(n=96)
    pyfftw.forget_wisdom()
    source, target = arrays(100)
    options = {"axes": (1,), "direction": "FFTW_FORWARD", "threads": 1}
    other.learn(source, target, options, ())
    wisdom()
    assert (facts(n=96)["wisdom"], facts(n=100)["wisdom"]) == ("found", "found")
    assert not list((tmp_path / "cache").glob(".writing-*"))


LEARN = """
import numpy as np, sys
import pyfftw
from kernelmark.kernels._fftw import plan
for n in range(int(sys.argv[1]), int(sys.argv[1]) + 8):
    plan(pyfftw.empty_aligned((2, n), "c8", n=64), pyfftw.empty_aligned((2, n), "c8", n=64), (1,))
"""


def test_processes_at_once_leave_a_whole_file(wisdom: Callable[[], Any], tmp_path: Path) -> None:
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    writers = [subprocess.Popen([sys.executable, "-c", LEARN, str(first)], env=env) for first in (10, 20, 30)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    (file,) = (tmp_path / "kernelmark").iterdir()
    assert pyfftw.import_wisdom(tuple(part.encode() for part in json.loads(file.read_text())))[:2] == (True, True)


def test_the_file_belongs_to_this_pyfftw_and_this_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(fftw, "_cpu", lambda: " Some CPU @ 2.0GHz/é")
    started = fftw._wisdom.__wrapped__()
    started.write()
    (file,) = (tmp_path / "kernelmark").iterdir()
    assert file.name.startswith(f"fftw-wisdom-{pyfftw.__version__}-")
    assert file.name.endswith("-Some-CPU-2.0GHz-.json")


@pytest.mark.parametrize("threads", [1, 2])
def test_plans_transform_what_their_arrays_hold_later(threads: int, wisdom: Callable[[], Any]) -> None:
    source, target = np.empty((3, 8, 6, 2), "f4"), np.empty((3, 8, 6, 2), "f4")
    planned = fftw.plan(fftw.as_complex(source), fftw.as_complex(target), (1, 2), threads=threads, inverse=True)
    source[...] = np.random.default_rng(0).uniform(-1, 1, source.shape)
    planned.execute()
    expected = np.fft.ifft2(fftw.as_complex(source).astype("c16"), norm="forward")
    np.testing.assert_allclose(fftw.as_complex(target), expected, atol=1e-4)
