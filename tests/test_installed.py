"""An installed wheel and projects with packages `bench`, `kernels`, `cuda` and `tests` do not disturb each other."""

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest

from kernelmark.bench.emulator.build import missing_tool
from support.pages import DOCS, ROOT, save_files, valid
from support.processes import write_files
from support.texts import csv_rows
from support.tools import needed

packaging = pytest.importorskip("packaging.requirements", exc_type=ImportError)
NT = "gemm/m8n8k8/f32/NT"
QUICK = ("--mode", "hot", "--no-ceilings", "--max-time", "0.02", "--db", "r.db")
MINE = ("--kernels", "gemm/mine.*", "--kernels", "gemm/numpy.matmul")
#: A project with its own packages of our folders' names, which its tests and its plug-in use.
PROJECT = {
    "bench/__init__.py": "def two():\n    return 2\n",
    "bench/test_two.py": "from bench import two\n\n\ndef test_two():\n    assert two() == 2\n",
    "kernels/__init__.py": "",
    "kernels/numbers.py": "ANSWER = 42\n",
    "cuda/mine.py": "NAME = 'mine'\n",
    "random.py": "raise SystemExit('this is no module for others')\n",
    "tests/__init__.py": "",
    "tests/test_mine.py": """\
import os
import sys

from kernels.numbers import ANSWER


def test_mine():
    import bench
    import cuda.mine

    assert (ANSWER, bench.two(), cuda.mine.NAME) == (42, 2, "mine")


def test_kernelmark_is_one_small_module():
    ours = {name for name in sys.modules if name.split(".")[0] == "kernelmark"}
    assert ours <= {"kernelmark", "kernelmark.bench", "kernelmark.bench.pytest_plugin"}
    assert not {"numpy", "msgspec", "click"} & set(sys.modules)
    assert not {"OPENBLAS_THREAD_TIMEOUT", "GOMP_SPINCOUNT"} & set(os.environ)
""",
    "mine.py": """\
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from kernelmark import kernel
from kernels.numbers import ANSWER


@kernel("gemm", provider="mine", device="cpu", dtypes=("f32",), layouts=("NT",), modules=("numpy",))
def einsum(problem, x):
    '''NumPy einsum.'''
    assert ANSWER == 42 and os.environ["OPENBLAS_THREAD_TIMEOUT"] == "20"
    return lambda: np.einsum("mk,nk->mn", x.a, x.b, out=x.c)
""",
}
#: Packages that others have installed under the names of our folders.
OTHERS = {"bench.py": "MINE = True", "kernels/__init__.py": "MINE = True"}


class Installed:
    """A new environment with kernelmark in it, and a project."""

    def __init__(self, folder: Path) -> None:
        self.project, self._bin = folder / "project", folder / "env" / "bin"
        self.site = next((folder / "env" / "lib").glob("python*")) / "site-packages"
        write_files(self.project, PROJECT)

    def run(self, *words: str, folder: Path | None = None) -> str:
        """Run a program of the environment in the project's folder, or another; return its output. It must succeed."""
        path = f"{self._bin}:{os.environ['PATH']}"
        env = {"PATH": path, "XDG_DATA_HOME": str(self.project / "data"), "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "200"}
        settings = {name: value for name, value in os.environ.items() if not name.startswith(DROPPED)} | env
        command = [str(self._bin / words[0]), *words[1:]]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder or self.project, env=settings)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout


#: Beginnings of variables that this session sets for its tests, and that a user's environment does not have.
DROPPED = ("OPENBLAS_THREAD_TIMEOUT", "GOMP_SPINCOUNT", "PYTHONPATH", "PYTEST_", "CI")


def pip(*words: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", *words], check=True, capture_output=True)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("built")

    def of(suffix: str) -> Path:
        if not (package := next(folder.glob(f"*{suffix}"), None)):
            kind = "build_wheel" if suffix == ".whl" else "build_sdist"
            code = f"from hatchling.build import {kind}; {kind}({str(folder)!r})"
            subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=ROOT)
            package = next(folder.glob(f"*{suffix}"))
        return package

    return of


def requirements(extras: set[str]) -> Iterator[str]:
    left, seen = [("kernelmark", frozenset(extras))], set[tuple[str, frozenset[str]]]()
    while left:
        name, wanted = left.pop()
        for text in distribution(name).requires or ():
            dependency = packaging.Requirement(text)
            used = not dependency.marker or any(dependency.marker.evaluate({"extra": extra}) for extra in ("", *wanted))
            entry = dependency.name, frozenset(dependency.extras)
            if used and entry not in seen:
                seen.add(entry)
                left.append(entry)
    yield from sorted({name for name, _ in seen})


@pytest.fixture(scope="module")
def installed(built: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Return an environment with links to the dependencies of the core and of three extras, and to no others."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
    made = Installed(folder)
    for name in requirements({"pytest", "report", "compile"}):
        for top in {file.parts[0] for file in distribution(name).files or () if file.parts[0] != ".."}:
            place, target = made.site / top, Path(str(distribution(name).locate_file(top)))
            if not place.exists() and target.exists():
                place.symlink_to(target)
    write_files(made.site, OTHERS)
    script = folder / "env" / "bin" / "pytest"
    script.write_text(f"#!{script.with_name('python')}\nimport sys\nfrom pytest import main\nsys.exit(main())\n")
    script.chmod(0o755)
    python = folder / "env" / "bin" / "python"
    pip("--python", python, "install", "--no-deps", "--no-index", "--no-compile", built(".whl"))
    return made


def test_only_one_package_is_installed_and_those_of_others_are_unchanged(installed: Installed) -> None:
    (info,) = installed.site.glob("kernelmark-*.dist-info")
    owned = {line.partition("/")[0] for line in (info / "RECORD").read_text().splitlines() if line[:2] != ".."}
    assert owned == {"kernelmark", info.name}
    assert {name: (installed.site / name).read_text().rstrip() for name in OTHERS} == OTHERS
    code = "import bench, kernels; print(bench.MINE and kernels.MINE)"
    assert installed.run("python", "-P", "-c", code) == "True\n"


@pytest.mark.parametrize("program", [("pytest",), ("python", "-m", "pytest")], ids=" ".join)
def test_the_project_s_own_tests_pass(installed: Installed, program: tuple[str, ...]) -> None:
    (installed.project / "random.py").unlink(missing_ok=True)
    out = installed.run(*program, "-q", "-p", "no:cacheprovider", "bench", "tests")
    write_files(installed.project, PROJECT)
    assert "3 passed" in out


def test_cases_run_under_pytest_benchmark(installed: Installed) -> None:
    words = ("--pyargs", "kernelmark.bench", "--benchmark-only", "--km-suite", NT, "--km-kernels", "gemm/numpy.*")
    limits = ("--km-max-time", "0.02", "--km-no-ceilings", "--km-db", "p.db", "-p", "no:cacheprovider")
    out = installed.run("pytest", *words, *limits)
    assert "numpy.matmul" in out
    assert " passed" in out


def test_the_command_lists_measures_and_reports(installed: Installed) -> None:
    assert installed.run("kernelmark", "--version") == installed.run("python", "-P", "-m", "kernelmark", "--version")
    rows = json.loads(installed.run("kernelmark", "list", "--json"))
    assert {"gemm/numpy.matmul", "gemm/cuda.async"} <= {row["kernel"] for row in rows}
    out = installed.run("kernelmark", "run", NT, "--plugin", "mine.py", *QUICK, *MINE, "--report", "page")
    assert "mine.einsum" in out
    assert "2 rows: 2 ok" in out
    assert (installed.project / "page" / "index.html").stat().st_size > 10_000


@pytest.fixture
def journey(installed: Installed, tmp_path: Path) -> Callable[..., Path]:
    """Return a function that runs a script of tests/journeys with the installed commands, and returns its folder.

    At first, the folder has only the files that a page shows.
    """

    def of(name: str, page: str = "") -> Path:
        save_files((DOCS / page).read_text() if page else "", tmp_path)
        installed.run("/bin/sh", str(ROOT / "tests" / "journeys" / name), folder=tmp_path)
        return tmp_path

    return of


def test_an_author_gets_the_table_the_figure_and_the_csv_of_nt_over_nn(journey: Callable[..., Path]) -> None:
    folder = journey("paper.sh")
    compared = [row for row in csv_rows(folder / "ratios.csv") if row["problem"].endswith("/NT")]
    assert [row["against"] for row in compared] == [row["problem"].replace("/NT", "/NN") for row in compared]
    for row in compared:
        low, ratio, high = (float(row[name]) for name in ("ratio_ci95_low", "ratio", "ratio_ci95_high"))
        assert low <= ratio <= high
    table = (folder / "table.tex").read_text()
    assert r"problem & M & N & K & & \rotatebox{90}{numpy.matmul} \\" in table
    assert re.findall("^NT & (.*) & over NN & ", table, re.MULTILINE) == ["32 & 32 & 32", "64 & 64 & 64"]
    for kind in ("svg", "pdf"):
        assert list((folder / "page" / "figures").glob(f"ratio-gemm-nt-over-nn-*.{kind}"))


@pytest.mark.long
@pytest.mark.usefixtures("cuda_compiler")
def test_an_engineer_gets_from_the_docs_to_the_profile_of_a_cuda_kernel(journey: Callable[..., Path]) -> None:
    needed(missing_tool())
    folder = journey("plugin.sh", "adding-a-kernel.md")
    assert "PASS: no races or memory errors" in (folder / "watch.txt").read_text()
    inspected = valid((folder / "inspect.json").read_text(), "inspect")
    assert [row["tunables"] for row in inspected] == ['{"ROWS":8}', '{"ROWS":4}', '{"ROWS":16}']
    total = valid((folder / "profile.json").read_text(), "profile")["counts"]["total"]
    assert (total["loads"], total["stores"]) == ({"global 4": 33 * 3},) * 2  # three warps per row of 70 elements
    assert total["active_lanes"] == 2 * 33 * 70


@pytest.mark.long
@pytest.mark.usefixtures("cuda_compiler")
def test_a_maintainer_s_gates_pass_and_fail(journey: Callable[..., Path]) -> None:
    needed(missing_tool())
    folder = journey("gate.sh", "adding-a-kernel.md")
    assert [len(case["points"]) for case in valid((folder / "trend.json").read_text(), "trend")["cases"]] == [2]
    worse = (folder / "worse.txt").read_text()
    assert re.search(
        r"^transpose/cuda.turned: [\d,]+ sectors now, pinned [\d,]+; `kernelmark profile .* --update`", worse
    )


def test_the_wheel_and_the_sdist_have_every_file_that_is_used(built: Callable[[str], Path]) -> None:
    listed = subprocess.run(["git", "ls-files", "bench", "kernels", "cuda"], cwd=ROOT, capture_output=True, text=True)
    ours = {f"kernelmark/{name}" for name in listed.stdout.splitlines()}
    ours |= {f"kernelmark/{path.name}" for path in (ROOT / "kernelmark").glob("*.py")}
    with zipfile.ZipFile(built(".whl")) as wheel:
        assert {name for name in wheel.namelist() if ".dist-info/" not in name} == ours
    with tarfile.open(built(".tar.gz")) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert ours <= names
    assert not {name.partition("/")[0] for name in names} & {"bench", "kernels", "cuda", "tests", "tools", "reports"}


@pytest.mark.long
def test_an_sdist_builds_the_same_wheel(built: Callable[[str], Path], tmp_path: Path) -> None:
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, built(".tar.gz"))
    built_files, rebuilt_files = (zipfile.ZipFile(path).infolist() for path in (built(".whl"), *tmp_path.iterdir()))
    assert {file.filename: file.CRC for file in built_files} == {file.filename: file.CRC for file in rebuilt_files}


ALL = """\
import importlib, os, pkgutil, sys, kernelmark
from collections import defaultdict
from kernelmark.bench.plan.discovery import discover

discover()
for module in pkgutil.walk_packages(kernelmark.__path__, "kernelmark."):
    try:
        importlib.import_module(module.name)
    except ImportError:  # of a package that is not installed
        pass
names = defaultdict(set)
for name, module in list(sys.modules.items()):
    if getattr(module, "__file__", None) and name != "__main__":
        names[os.path.realpath(module.__file__)].add(module.__spec__.name if module.__spec__ else name)
print(len([file for file in names if file.startswith(os.getcwd() + os.sep)]))
print(sorted(map(sorted, (both for file, both in names.items() if file.startswith(os.getcwd()) and len(both) > 1))))
print(sorted({"bench", "kernels"} & set(sys.modules)))
"""


def test_no_module_is_loaded_under_two_names(python_in: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = python_in(ROOT, "-c", ALL)
    number, twice, bare = done.stdout.splitlines()
    assert int(number) > 400, done.stderr
    assert (twice, bare) == ("[]", "[]")
