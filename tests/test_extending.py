"""docs/extending.md: each example, applied to a copy of the source tree, does what the page promises."""

import csv
import io
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.pages import EXTENDING, ROOT, SMALL, apply_changes, commands, reduced, save_files


class Copy(NamedTuple):
    """A copy of the source tree with the changes of one section."""

    folder: Path
    run: Callable[..., Any]

    def rows(self):
        """The rows of the latest run."""
        done = self.run("export", "--format", "csv")
        assert done.returncode == 0, done.stderr
        return list(csv.DictReader(io.StringIO(done.stdout)))


@pytest.fixture
def extended(tmp_path, python_in):
    """Apply a section of the page, by its heading, and run its commands."""

    def extend(heading):
        sections = re.split(r"^## ", EXTENDING.read_text(), flags=re.MULTILINE)
        (section,) = (text for text in sections if text.startswith(f"{heading}\n"))
        for name in ("bench", "kernels"):
            shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ROOT / "kernelmark", tmp_path / "kernelmark", symlinks=True)
        (tmp_path / "cuda").symlink_to(ROOT / "cuda")
        (tmp_path / "small.toml").write_text(SMALL)
        save_files(section, tmp_path)
        apply_changes(section, tmp_path)
        copy = Copy(tmp_path, lambda *words: python_in(tmp_path, "-m", "kernelmark", *words))
        for command in commands(section):
            done = copy.run(*reduced(command)[1:])
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return copy

    return extend


@pytest.mark.long
def test_an_operation_of_a_plug_in_is_verified_timed_and_compared(extended):
    rows = extended("Add an operation").rows()
    assert {row["problem"] for row in rows} == {"gemv/m1000n777/f32", "gemv/m31n100003/f32"}
    assert {row["kernel"] for row in rows} == {"gemv/numpy.matmul", "gemv/mine.einsum"}
    assert {row["status"] for row in rows} == {"ok"}
    assert all(row["speedup"] for row in rows if row["kernel"] == "gemv/mine.einsum")
    assert all(float(row["gflop_per_s"]) > 0 for row in rows)
    assert [row["n"] for row in rows if row["m"] == "31"] == ["100003", "100003"]


@pytest.mark.long
def test_a_figure_is_drawn_and_on_the_page(extended):
    report = extended("Add a figure").folder / "out" / "report"
    assert {path.suffix for path in (report / "figures").glob("setup-gemm.*")} == {".svg", ".pdf"}
    assert "Set-up time: gemm" in (report / "index.html").read_text()


@pytest.mark.long
def test_a_column_reaches_csv_and_a_store_of_the_version_before(extended, kernelmark, tmp_path):
    assert kernelmark("run", "gemm/m8n8k8/f32/NT", "--kernels", "*/numpy.matmul", "--no-ceilings").returncode == 0
    copy = extended("Add a column")
    rows = list(csv.DictReader((tmp_path / "rows.csv").read_text().splitlines()))
    assert {row["status"] for row in rows} == {"ok"}
    assert all(int(row["batch"]) >= 1 for row in rows)  # a busy machine may need no more than one call a sample
    assert [row["batch"] for row in copy.rows()] == [row["batch"] for row in rows]


@pytest.mark.long
def test_a_mode_times_rows_of_its_own(extended):
    copy = extended("Add a mode")
    rows = copy.rows()
    assert {(row["mode"], row["status"]) for row in rows} == {("evicted", "ok")}
    assert copy.run("report", "--out", "report").returncode == 0
    assert "In evicted mode all caches are emptied" in (copy.folder / "report" / "method.txt").read_text()
