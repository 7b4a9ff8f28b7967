"""A run to add rows to, runs as LaTeX, pdflatex, and a browser."""

import io
import shutil
import subprocess

import pytest

from browser import browser_missing, chromium
from kernelmark.bench.record.store import Run
from kernelmark.bench.report.latex import write_latex
from support.pages import DOCUMENT, EVERY
from support.rows import begin, result
from support.tools import needed

SIUNITX, BEGIN = r"\usepackage{siunitx}", r"\begin{document}"


@pytest.fixture
def begun(store):
    """A store with a run that has no rows yet."""
    begin(store)
    return store


@pytest.fixture
def latex(store):
    """Adds rows, one a keyword set, and gives the LaTeX of the run."""
    environment = {"kernelmark": "0.1.0"}
    store.begin(Run("r", {"cpu": f"Some {EVERY}"}, "2026", ("s",), "", environment, "c0ffee1234567", {}))

    def of(*found):
        for i, values in enumerate(found):
            known = {"run_id": "r", "suite": "s", "device_name": "d", "threads": 2, "problem": "gemm/m8n9k7/f32/NT"}
            store.add(result(**{**known, "kernel": f"gemm/a.k{i}", **values}), {}, [], None)
        out = io.StringIO()
        write_latex(store, ["r"], out)
        return out.getvalue()

    return of


@pytest.fixture
def compiled(tmp_path):
    """The log of a compiled page with the table on it. Without LaTeX the call skips the test, in CI it fails it."""

    def of(table):
        missing = "pdflatex is not there; apt-get install texlive-latex-base texlive-latex-recommended"
        needed(None if shutil.which("pdflatex") else missing)
        wanted = SIUNITX * table.partition("\n")[0].endswith(SIUNITX)
        if wanted:
            found = subprocess.run(["kpsewhich", "siunitx.sty"], capture_output=True).returncode == 0
            needed(None if found else "siunitx is not there; apt-get install texlive-science")
        (tmp_path / "table.tex").write_text(table)
        (tmp_path / "page.tex").write_text(DOCUMENT.replace(BEGIN, wanted + BEGIN))
        words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=60)
        assert done.returncode == 0, done.stdout[-2000:]
        assert (tmp_path / "page.pdf").is_file()
        return done.stdout

    return of


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium. Without one the test is skipped, in CI it fails."""
    needed(browser_missing())
    with chromium() as driver:
        yield driver
