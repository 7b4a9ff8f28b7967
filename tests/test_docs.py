"""The documentation: it builds without a warning, its tables agree with the code, and its commands run."""

import re
import subprocess
import tomllib
import typing
from itertools import pairwise

import pytest
from click.testing import CliRunner

from kernelmark.bench.cli import listing, options
from kernelmark.bench.cli.commands import cli
from kernelmark.bench.measure.present import module_missing
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.modes import TIMED, Mode
from kernelmark.bench.plan.status import AGAINST, Status
from kernelmark.bench.record.result import COLUMNS
from support.pages import DOCS, EXTENDING, PAGES, ROOT, SMALL, commands, reduced, save_files
from support.tools import needed


@pytest.fixture
def play(tmp_path, python_in, kernelmark_in):
    """Run a command of a page in this test's folder, which has what the pages speak of."""
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "cuda").symlink_to(ROOT / "cuda")

    def run(program, *words):
        if "--help" in words:
            done = CliRunner().invoke(cli, words)
            return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)
        if program == "kernelmark":
            return kernelmark_in(tmp_path, *words)
        if program == "python":
            return python_in(ROOT, *words)
        return python_in(tmp_path, "-m", "pytest", "--pyargs", "kernelmark.bench", *words)

    return run


@pytest.mark.long
@pytest.mark.parametrize(
    "page", [page for page in PAGES if page != EXTENDING and commands(page.read_text())], ids=lambda page: page.name
)
def test_every_command_of_a_page_runs(page, play, tmp_path):
    text = page.read_text()
    save_files(text, tmp_path)
    every = [tuple(reduced(command)) for command in commands(text)]
    for _, words in dict.fromkeys(pairwise([(), *every])):  # one that follows the same command again shows nothing new
        done = play(*words)
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"


def table(page, *first):
    """The cells of the rows of the table whose header begins so, without backticks."""
    lines = iter((DOCS / page).read_text().splitlines())
    start = "| " + " | ".join(first) + " |"
    for line in lines:
        if line.startswith(start):
            next(lines)
            rows = []
            while (line := next(lines, "")).startswith("|"):
                rows.append([cell.strip().replace("`", "") for cell in line.strip("|").split("|")])
            return rows
    raise AssertionError(f"{page} has no table that begins with {start}")


def test_the_site_builds_without_a_warning(tmp_path, python_in):
    needed(module_missing("mkdocs"))
    done = python_in(ROOT, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site"))
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    assert (tmp_path / "site" / "columns" / "index.html").is_file()


def test_every_column_is_described_in_its_place():
    rows = table("columns.md", "column", "unit", "meaning", "empty")
    assert [row[0] for row in rows] == list(COLUMNS)
    assert all(meaning and empty for _, _, meaning, empty in rows)


def test_the_unit_of_a_column_is_that_of_its_name():
    units = {row[0]: row[1] for row in table("columns.md", "column", "unit")}
    ends = {"_bytes": "bytes", "_mhz": "MHz", "_w": "W", "_j": "J", "_flop": "flop", "gflop_per_s": "GFLOP/s"}
    for end, unit in {**ends, "gbyte_per_s": "GB/s"}.items():
        assert {units[name] for name in COLUMNS if name.endswith(end)} == {unit}
    assert {units[name] for name in COLUMNS if re.search(r"_s_|(?<!_per)_s$", name)} == {"s"}
    assert {units[name] for name in COLUMNS if "_pct" in name} == {"%"}


def test_the_dimensions_of_every_operation_are_named():
    found = {op: names.split() for op, names in table("columns.md", "operation", "dimensions")}
    wanted = {
        op: [axis for axis in problem.axes() if axis not in ("dtype", "layout")]
        for op, problem in discover().operations.items()
    }
    assert found == wanted


def test_the_storage_types_of_an_operation_are_those_it_takes():
    for op, part, values, _ in table("problems.md", "operation", "part"):
        if part == "storage type":
            assert tuple(values.split()) == typing.get_args(discover().operations[op].axes()["dtype"]), op


def test_every_suite_is_named_with_its_title():
    assert table("suites.md", "suite", "what") == [[r.suite, r.title] for r in listing.suites()]


def test_every_status_is_described_in_its_own_words():
    rows = table("statuses.md", "status", "what happened", "goes against the kernel")
    assert [(name, meaning) for name, meaning, _ in rows] == [(status, status.meaning) for status in Status]
    assert {name for name, _, against in rows if against == "yes"} == AGAINST


def test_every_mode_is_explained_and_one_that_a_row_can_have():
    (modes,) = (row[2] for row in table("columns.md", "column", "unit") if row[0] == "mode")
    assert set(re.findall(r"\w+", modes)) >= set(Mode)
    for page in (DOCS / "measurement.md", DOCS / "glossary.md"):
        assert [mode for mode in TIMED if f"`{mode}`" not in page.read_text()] == [], page


def test_every_exit_code_is_explained():
    codes = (options.OK, options.AGAINST, options.USAGE, options.DEFECT, options.INTERRUPTED)
    assert [int(row[0]) for row in table("statuses.md", "code", "meaning")] == list(codes)


def test_every_variable_that_is_read_is_named():
    read = re.compile(r'environ(?:\.get|\.setdefault)?[(\[]"([A-Z_]+)"')
    files = [file for folder in ("bench", "kernels") for file in (ROOT / folder).rglob("*.py")]
    found = {name for file in files for name in read.findall(file.read_text())}
    named = set(re.findall(r"`([A-Z_]+)`", (DOCS / "environment.md").read_text()))
    assert found - named == set()


def test_every_extra_is_described():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {name for row in table("environment.md", "extra", "brings") for name in row[0].split(", ")}
    assert named - {"(none)", "docs"} == set(project["optional-dependencies"]) - {"docs"}


def test_every_file_and_folder_that_contributing_names_exists():
    named = re.findall(r"`((?:bench|kernels|cuda|tests|tools|docs)/[^`\s]*)`", (ROOT / "CONTRIBUTING.md").read_text())
    assert len(named) > 40
    assert [path for path in named if not any(ROOT.glob(path.rstrip("/")))] == []


def test_every_command_of_make_has_a_row_in_contributing():
    (phony,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = {row[0] for row in table("../CONTRIBUTING.md", "command", "what it does")}
    assert {f"make {name}" for name in phony.split()} - named == {"make clean"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_ids_on_a_page_are_ids(page):
    registry = discover()
    ops = "|".join(registry.operations)
    words = re.findall(rf"(?<![\w/.])((?:{ops})/[^\s`'|)]+)", page.read_text())
    problems = [word for word in words if re.match(r"\w+/[a-z]\d+[^/]*/\w", word)]
    kernels = [
        word for word in words if re.fullmatch(r"\w+/[a-z]\w*\.\w+", word) and not word.endswith((".cu", ".cuh", ".py"))
    ]
    assert [text for text in problems if registry.problem(text).id != text] == []
    assert [text for text in kernels if text not in registry.kernels and "mine." not in text] == []
