"""A run beside a busy process of the test's own: the noise is in plain sight wherever the run is shown."""

import csv
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kernelmark.bench.measure.cpu import cpu_count
from kernelmark.bench.measure.disturbance import was_noisy

WORDS = (
    "run",
    "gemm/m256n256k256/f32/NT",
    "--kernels",
    "gemm/numpy.*",
    "--mode",
    "hot",
    "--max-time",
    "0.1",
    "--fail-noisy",
)
SPIN = "while True: pass"


@pytest.fixture
def busy() -> Iterator[None]:
    """Processes that do nothing but take time, one for each processor."""
    others = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(cpu_count())]
    yield
    for other in others:
        other.kill()
        other.wait()


@pytest.mark.long
def test_planted_noise_shows_on_the_terminal_the_page_in_latex_and_in_csv(busy, kernelmark, tmp_path) -> None:
    done = kernelmark(*WORDS, "--csv", "rows.csv", "--report", "page")
    assert done.returncode == 1, done.stderr
    with (tmp_path / "rows.csv").open() as file:
        noisy = {
            row["kernel"].removeprefix("gemm/"): row["disturbed"]
            for row in csv.DictReader(file)
            if was_noisy(row["disturbed"])
        }
    assert any("others took" in disturbed for disturbed in noisy.values())  # one row may have had its CPUs for itself
    assert f"NOISY: {len(noisy)} of " in done.stdout
    assert set(re.findall(r"(numpy\.\w+) +~", done.stdout)) == set(noisy)
    page = (tmp_path / "page" / "index.html").read_text()
    assert 'class="badge noisy"' in page
    latex = "".join(path.read_text() for path in (tmp_path / "page" / "tables").rglob("*.tex"))
    assert r"$\sim$" in latex
    assert "disturbed" in latex
