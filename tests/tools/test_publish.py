"""`make publish`: what is measured again, what is refused, and what stands in the end; the files that docs promise."""

import json
import re
from unittest.mock import MagicMock

import pytest

import kernelmark
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.report.figures import kinds
from kernelmark.bench.report.publish import FILES, Report
from kernelmark.bench.report.run_data import RunData
from kernelmark.bench.tune.select.figure import CHOSEN_TITLE
from kernelmark.bench.tune.select.figure import TITLE as REGRET
from support import claims
from support.pages import DOCS, ROOT
from support.rows import begin, put
from support.tools import script

DISTURBED = "others took 0.98 CPUs during 60 % of the sampling"
TINY = ("--suites", "copy/m31n33/f32,copy/m33n31/f32", "--processes", "1", "--max-time", "0.01")
TOOL = "publish"


@pytest.fixture
def asked(tool, tmp_path):
    return lambda *words: tool._options(["--out", str(tmp_path / "reports"), *words])


@pytest.fixture(autouse=True)
def commit(tool, monkeypatch):
    """The commit of runs that tests put into the store is the present one."""
    monkeypatch.setattr(tool, "git_commit", lambda: "c0ffee1234567")


@pytest.mark.parametrize(("planned", "goes_on"), [(2, "r1"), (1, None)])
def test_a_run_that_was_cut_off_goes_on_and_one_that_is_done_is_not_measured_again(tool, store, planned, goes_on):
    begin(store, planned=planned)
    put(store, "copy/m8n8/f32", "copy/a.b")
    assert tool._unfinished(store.path) == goes_on


@pytest.mark.parametrize(
    ("planned", "current", "goes_on"), [(2, True, ""), (1, None, ""), (1, False, ""), (1, True, None)]
)
def test_a_run_of_another_commit_neither_goes_on_nor_answers_for_kernels_that_may_have_changed(
    tool, store, monkeypatch, planned, current, goes_on
):
    begin(store, planned=planned)
    put(store, "copy/m8n8/f32", "copy/a.b")
    monkeypatch.setattr(tool, "git_commit", lambda: "another")
    assert tool._unfinished(store.path, current=current) == goes_on


@pytest.mark.parametrize(("anyway", "goes_on"), [(False, "r1"), (True, None)])
def test_a_noisy_run_is_measured_again_unless_it_is_to_be_published(tool, store, anyway, goes_on):
    begin(store, planned=1)
    put(store, "copy/m8n8/f32", "copy/a.b", disturbed=DISTURBED)
    assert tool._unfinished(store.path, anyway) == goes_on


def test_without_a_run_all_is_measured(tool, store, tmp_path):
    assert tool._unfinished(store.path) == ""
    assert tool._unfinished(tmp_path / "none.db") == ""


@pytest.fixture
def called(tool, tmp_path, monkeypatch):
    """A call of `make publish` for a store that is named `results.db`, without figures."""
    monkeypatch.setattr(Report, "draw", lambda *_: [])
    place = ("--out", str(tmp_path / "reports"), "--db", str(tmp_path / "results.db"), "--minutes", "1")
    return lambda *words: tool.main([*place, *TINY, *words])


def noisy(store):
    begin(store)
    put(store, "copy/m8n8/f32", "copy/a.b", disturbed=DISTURBED)


def test_a_noisy_run_is_refused_before_anything_is_written(tool, store, called, tmp_path, monkeypatch):
    monkeypatch.setattr(tool, "measure", lambda *_, **__: 0)
    noisy(store)
    with pytest.raises(UsageError, match="publish: NOISY: 1 of 1 case"):
        called()
    assert not (tmp_path / "reports").exists()


def test_a_noisy_run_is_published_if_asked_for_with_that_on_top_and_what_is_left_below(
    store, called, tmp_path, monkeypatch
):
    claims.use(monkeypatch)
    noisy(store)
    called("--noisy-anyway")
    (page,) = (tmp_path / "reports").glob("*/README.md")
    lines = page.read_text().splitlines()
    assert lines[2].startswith("> **NOISY: 1 of 1 case")
    assert "## Experiments of claims that are left" in lines
    assert sum(line.endswith("; `make publish` goes on with it") for line in lines) == 3


def test_suites_are_measured_again_when_their_kernels_have_changed(tool, store, asked, monkeypatch):
    begin(store, planned=1)
    put(store, "copy/m8n8/f32", "copy/a.b")
    begun = MagicMock()
    begun.return_value.__enter__.return_value.wait.return_value = 0
    monkeypatch.setattr(tool.subprocess, "Popen", begun)
    for current in (True, False):
        tool.measure(store.path, asked(*TINY), 0.0, current)
    ((command,), _) = begun.call_args
    assert begun.call_count == 1
    assert "copy/m31n33/f32" in command
    assert "--resume" not in command


@pytest.mark.long
def test_a_tiny_report_is_measured_published_and_indexed_and_what_it_has_is_not_measured_again(
    called, tmp_path, monkeypatch
):
    claims.use(monkeypatch)
    monkeypatch.chdir(tmp_path)
    assert called("--noisy-anyway", "--minutes", "3") == 0
    (folder,) = (path for path in (tmp_path / "reports").iterdir() if path.is_dir())
    assert {path.name for path in folder.iterdir()} == set(FILES) - {"figures"}
    assert f"]({folder.name}/README.md)" in (tmp_path / "reports" / "README.md").read_text()
    before = (folder / "agenda.json").read_text(), (folder / "results.csv").read_text()
    answers = json.loads(before[0])["answers"]
    assert list(answers) == ["suites", "claim twice", "claim single", "claim dull"]
    page = (folder / "README.md").read_text()
    assert "Experiments of claims that are left" not in page
    assert answers["suites"]["run"] in page
    assert called("--noisy-anyway", "--minutes", "3") == 0
    assert ((folder / "agenda.json").read_text(), (folder / "results.csv").read_text()) == before


def test_docs_promise_the_files_that_a_report_has():
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", (DOCS / "index.md").read_text(), re.MULTILINE)
    assert dict(rows) == FILES


def test_figures_on_the_page_are_those_in_its_folder_and_small():
    most = script("figures").MOST_BYTES
    shown = set(re.findall(r"\(figures/([^)]+)\)", (DOCS / "figures.md").read_text()))
    assert shown == {path.name for path in (DOCS / "figures").iterdir()}
    assert [path.name for path in (DOCS / "figures").iterdir() if path.stat().st_size > most] == []


def test_the_page_of_figures_has_every_kind(store):
    begin(store)
    titles = {kind.title for kind in kinds(RunData(store, "r1"))} | {REGRET, CHOSEN_TITLE}
    assert set(re.findall(r"^## (.+)$", (DOCS / "figures.md").read_text(), re.MULTILINE)) == titles


def test_a_slim_figure_keeps_its_references():
    glyph = '<path id="DejaVuSans-6f" d="M 1.23456 2 "/>'
    svg = f'<g id="axes_1">\n  <g id="used">\n   {glyph}\n <use href="#DejaVuSans-6f"/>#used'
    slim = '<g>\n<g id="used">\n<path id="n6f" d="M 1.234 2 "/>\n<use href="#n6f"/>#used'
    assert script("figures").slim(svg) == slim


def test_the_citation_names_this_version():
    assert f"\nversion: {kernelmark.__version__}\n" in (ROOT / "CITATION.cff").read_text()
