"""The documentation: its site builds, its tables agree with the code, its commands run, its examples hold."""

import re
import shutil
import tomllib
import typing
from contextlib import suppress
from dataclasses import replace
from itertools import product

import pytest

from kernelmark.bench.cli import listing, shared
from kernelmark.bench.emulator.build import missing_tool
from kernelmark.bench.emulator.sweep import EmulatedCase, complaints, entries
from kernelmark.bench.measure.present import module_missing
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.modes import TIMED, Mode
from kernelmark.bench.plan.status import AGAINST, Status
from kernelmark.bench.record.columns import COLUMNS
from support.pages import DOCS, EXTENDING, PAGES, ROOT, SMALL, apply_changes, commands, reduced, save_files
from support.texts import csv_rows
from support.tools import needed


@pytest.fixture
def play(tmp_path, python_in, called, registry):
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "cuda").symlink_to(ROOT / "cuda")

    def run(program, *words):
        if program == "kernelmark":
            return called(*words)
        if program == "python":
            done = python_in(ROOT, *words)
        else:
            done = python_in(tmp_path, "-m", "pytest", "--pyargs", "kernelmark.bench", *words)
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.mark.long
@pytest.mark.parametrize(
    "page", [page for page in PAGES if page != EXTENDING and commands(page.read_text())], ids=lambda page: page.name
)
def test_every_command_of_a_page_runs(page, play, tmp_path):
    text = page.read_text()
    save_files(text, tmp_path)
    for words in dict.fromkeys(tuple(reduced(command)) for command in commands(text)):
        status, *printed = play(*words)
        assert status == 0, "\n".join([" ".join(words), *printed])


def table(page, *first):
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


def test_every_column_is_described_in_order_with_the_unit_of_its_name():
    rows = table("columns.md", "column", "unit", "meaning", "empty")
    assert [row[0] for row in rows] == list(COLUMNS)
    assert all(meaning and empty for _, _, meaning, empty in rows)
    units = {row[0]: row[1] for row in rows}
    ends = {"_bytes": "bytes", "_mhz": "MHz", "_w": "W", "_j": "J", "_flop": "flop", "gflop_per_s": "GFLOP/s"}
    for end, unit in {**ends, "gbyte_per_s": "GB/s"}.items():
        assert {units[name] for name in COLUMNS if name.endswith(end)} == {unit}
    assert {units[name] for name in COLUMNS if re.search(r"_s_|(?<!_per)_s$", name)} == {"s"}
    assert {units[name] for name in COLUMNS if "_pct" in name} == {"%"}


def test_the_dimensions_and_storage_types_of_every_operation_are_named():
    documented = {op: names.split() for op, names in table("columns.md", "operation", "dimensions")}
    axes = {op: problem.axes() for op, problem in discover().operations.items()}
    assert documented == {op: [name for name in dims if name not in ("dtype", "layout")] for op, dims in axes.items()}
    for op, part, values, _ in table("problems.md", "operation", "part"):
        if part == "storage type":
            assert tuple(values.split()) == typing.get_args(axes[op]["dtype"]), op


def test_every_suite_is_named_once():
    named = [name for _, names in table("suites.md", "kind", "suites") for name in names.split()]
    assert sorted(named) == [row.suite for row in listing.suites()]


def test_every_status_and_every_exit_code_is_described():
    rows = table("statuses.md", "status", "what happened", "goes against the kernel")
    assert [(name, meaning) for name, meaning, _ in rows] == [(status, status.meaning) for status in Status]
    assert {name for name, _, against in rows if against == "yes"} == AGAINST
    codes = (shared.OK, shared.AGAINST, shared.USAGE, shared.DEFECT, shared.INTERRUPTED)
    assert [int(row[0].partition(",")[0]) for row in table("statuses.md", "code", "meaning")] == list(codes)


def test_every_mode_is_listed_and_every_timed_one_is_explained():
    (modes,) = (row[2] for row in table("columns.md", "column", "unit") if row[0] == "mode")
    assert set(re.findall(r"\w+", modes)) >= set(Mode)
    for page in (DOCS / "measurement.md", DOCS / "glossary.md"):
        assert [mode for mode in TIMED if f"`{mode}`" not in page.read_text()] == [], page


def test_every_environment_variable_that_is_read_is_documented():
    read = re.compile(r'environ(?:\.get|\.setdefault)?[(\[]"([A-Z_]+)"')
    files = [file for folder in ("bench", "kernels") for file in (ROOT / folder).rglob("*.py")]
    variables = {name for file in files for name in read.findall(file.read_text())}
    assert variables - set(re.findall(r"`([A-Z_]+)`", (DOCS / "environment.md").read_text())) == set()


def test_every_extra_is_described():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {name for row in table("environment.md", "extra", "brings") for name in row[0].split(", ")}
    assert named - {"(none)", "docs"} == set(project["optional-dependencies"]) - {"docs"}


def test_every_path_in_contributing_exists_and_every_target_of_make_is_listed():
    named = re.findall(r"`((?:bench|kernels|cuda|tests|tools|docs)/[^`\s]*)`", (ROOT / "CONTRIBUTING.md").read_text())
    assert len(named) > 40
    assert [path for path in named if not any(ROOT.glob(path.rstrip("/")))] == []
    (phony,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = {row[0] for row in table("../CONTRIBUTING.md", "command", "what it does")}
    assert {f"make {name}" for name in phony.split()} - named == {"make clean"}


def is_id(registry, text):
    for variant in ("", "/NN", "/in"):
        with suppress(UsageError):
            if registry.problem(text + variant).id == text + variant:
                return True
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_ids_on_a_page_are_valid(page):
    registry = discover()
    ops = "|".join(registry.operations)
    words = re.findall(rf"(?<![\w/.])((?:{ops})/[^\s`'\"|)\]]+)", page.read_text())
    problems = [word for word in words if re.match(r"\w+/[a-z]\d+[^/]*/\w", word)]
    kernels = [
        word for word in words if re.fullmatch(r"\w+/[a-z]\w*\.\w+", word) and not word.endswith((".cu", ".cuh", ".py"))
    ]
    assert [text for text in problems if not is_id(registry, text)] == []
    assert [text for text in kernels if text not in registry.kernels and "mine." not in text] == []


LAYOUTS = ("NN", "NT", "TN", "TT")
OPTIONS = ("", "/beta1", "/alpha-0.5/beta2", "/batch3", "/lda+3/ldb+1/ldc+2", "/alpha2/beta-1/batch2/lda+1/ldb+5/ldc+3")


@pytest.fixture
def kernel(registry, tmp_path):
    needed(missing_tool())
    save_files((DOCS / "adding-a-kernel.md").read_text(), tmp_path)
    return discover((str(tmp_path / "product.py"),)).kernels["gemm/cuda.product"]


def refusals(kernel, problems):
    cases = [EmulatedCase(kernel, problem, kernel.tile_for(problem)) for problem in problems]
    return [line for case in cases for line in complaints(case, entries(cases))]


def test_the_product_of_the_page_is_right_for_every_problem(kernel, registry):
    problems = [registry.problem(f"gemm/m9n35k5/f32/{layout}{more}") for layout, more in product(LAYOUTS, OPTIONS)]
    assert refusals(kernel, problems) == []


CHANGES = (
    ("offset<op_a>(row, i, lda)", "offset<op_a>(row, i, op_a == Op::N ? k : m)"),
    ("beta == 0.0f ? alpha * sum : alpha * sum + beta * *c", "alpha * sum + beta * *c"),
    ("b += blockIdx.z * stride_b", "b += blockIdx.z * k * n"),
)
LONG = [pytest.param(*change, marks=pytest.mark.long) for change in CHANGES[1:]]


@pytest.mark.parametrize(("right", "wrong"), [CHANGES[0], *LONG])
def test_a_product_that_ignores_padding_beta_or_batch_is_detected(kernel, registry, tmp_path, right, wrong):
    text = (tmp_path / "product.cu").read_text()
    assert right in text
    (tmp_path / "broken.cu").write_text(text.replace(right, wrong))
    broken = replace(kernel, source=str(tmp_path / "broken.cu"))
    assert refusals(broken, [registry.problem(f"gemm/m9n35k5/f32/NT{more}") for more in OPTIONS])


def test_a_product_of_more_blocks_than_a_grid_has_is_unsupported(kernel, registry):
    assert "blocks along y" in kernel.supports(registry.problem(f"gemm/m{65535 * 8 + 1}n1k1/f32/NN"))
    assert "batch" in kernel.supports(registry.problem("gemm/m1n1k1/f32/NN/batch65536"))


@pytest.fixture
def extended(tmp_path, python_in):
    """Return a function that applies a section of EXTENDING to a copied tree, runs its commands, and returns rows."""

    def run(*words):
        done = python_in(tmp_path, "-m", "kernelmark", *words)
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout

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
        for command in commands(section):
            run(*reduced(command)[1:])
        return csv_rows(run("export", "--format", "csv"))

    return extend


@pytest.mark.long
def test_an_operation_of_a_plug_in_is_verified_timed_and_compared(extended):
    rows = extended("Add an operation")
    assert {row["problem"] for row in rows} == {"gemv/m1000n777/f32", "gemv/m31n100003/f32"}
    assert {row["kernel"] for row in rows} == {"gemv/numpy.matmul", "gemv/mine.einsum"}
    assert {row["status"] for row in rows} == {"ok"}
    assert all(row["speedup"] for row in rows if row["kernel"] == "gemv/mine.einsum")
    assert all(float(row["gflop_per_s"]) > 0 for row in rows)
    assert [row["n"] for row in rows if row["m"] == "31"] == ["100003", "100003"]


@pytest.mark.long
def test_a_new_figure_is_drawn_and_on_the_page(extended, tmp_path):
    extended("Add a figure")
    report = tmp_path / "out" / "report"
    assert {path.suffix for path in (report / "figures").glob("setup-gemm.*")} == {".svg", ".pdf"}
    assert "Set-up time: gemm" in (report / "index.html").read_text()


@pytest.mark.long
def test_a_new_column_is_in_the_csv_and_in_a_store_of_the_previous_version(extended, kernelmark, tmp_path):
    assert kernelmark("run", "gemm/m8n8k8/f32/NT", "--kernels", "*/numpy.matmul", "--no-ceilings").returncode == 0
    stored = extended("Add a column or a metric")
    rows = csv_rows(tmp_path / "rows.csv")
    assert {row["status"] for row in rows} == {"ok"}
    assert all(int(row["preempted"]) >= 0 for row in rows)
    assert [row["preempted"] for row in stored] == [row["preempted"] for row in rows]


@pytest.mark.long
def test_a_new_mode_has_timed_rows_and_a_description(extended, python_in, tmp_path):
    assert {(row["mode"], row["status"]) for row in extended("Add a mode")} == {("evicted", "ok")}
    assert python_in(tmp_path, "-m", "kernelmark", "report", "--out", "report").returncode == 0
    assert "In evicted mode all caches are emptied" in (tmp_path / "report" / "method.txt").read_text()
