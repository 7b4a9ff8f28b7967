"""Finding kernels: plug-ins and entry points."""

import shutil
from pathlib import Path

import pytest

from kernelmark.bench.plan.discovery import discover, load_plugin

ROOT = Path(__file__).resolve().parents[2]
KERNEL = """\
from kernelmark import kernel

@kernel("gemm", provider="mine", device="cpu")
def other(problem, x):
    '''Another.'''
"""


@pytest.fixture
def plugin(tmp_path):
    path = tmp_path / "mine.py"

    def of(text):
        path.write_text(text)
        return path

    return of


def test_a_plugin_registers_its_kernels(registry, plugin):
    load_plugin(plugin(KERNEL))
    assert registry.kernels["gemm/mine.other"].label == "Another."


def test_a_plugin_loaded_twice_registers_once(registry, plugin):
    path = plugin(KERNEL)
    load_plugin(path)
    load_plugin(path.parent / ".." / path.parent.name / path.name)
    assert "gemm/mine.other" in registry.kernels


def test_two_plugins_of_one_file_name_both_load(registry, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "same.py").write_text(KERNEL.replace("other", name))
        load_plugin(tmp_path / name / "same.py")
    assert {"gemm/mine.a", "gemm/mine.b"} <= set(registry.kernels)


BROKEN = {
    "syntax_error": (KERNEL + "def (:\n", 6, "invalid syntax"),
    "import_error": (KERNEL + "import no_such_module\n", 6, "no_such_module"),
    "exception": (KERNEL + "\n\n1 / 0\n", 8, "ZeroDivisionError"),
    "message_of_two_lines": (KERNEL + "raise ValueError('one\\ntwo')\n", 6, "ValueError: one"),
    "exit": (KERNEL + "raise SystemExit(0)\n", 6, "SystemExit"),
    "name_that_is_taken": (KERNEL.replace("mine", "numpy").replace("other", "matmul"), 3, "registered twice"),
    "unknown_axis": (KERNEL.replace("device=", "places=('in',), device="), 3, "places is unknown, expected one of"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_plugin_names_file_and_line_and_registers_nothing(registry, plugin, complaint, case):
    text, number, found = BROKEN[case]
    path, before = plugin(text), dict(registry.kernels)
    line = complaint(lambda: discover((str(path),)))
    assert line.startswith(f"plugin {path}, line {number}: ")
    assert found in line
    assert registry.kernels == before


def test_a_plugin_that_was_mended_loads(registry, plugin, complaint):
    path = plugin(BROKEN["exception"][0])
    complaint(lambda: load_plugin(path))
    load_plugin(plugin(KERNEL))
    assert "gemm/mine.other" in registry.kernels


@pytest.mark.parametrize(("name", "found"), [("absent.py", "there is no such file"), ("a.txt", "must end in .py")])
def test_what_is_no_python_file_is_no_plugin(tmp_path, complaint, name, found):
    (tmp_path / "a.txt").write_text(KERNEL)
    line = complaint(lambda: load_plugin(tmp_path / name))
    assert line.startswith(f"plugin {tmp_path / name}: ")
    assert found in line


@pytest.fixture
def checkout(tmp_path):
    """A copy of the sources, to be broken."""
    for name in ("bench", "kernels"):
        shutil.copytree(ROOT / name, tmp_path / "src" / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "kernelmark", tmp_path / "src" / "kernelmark", symlinks=True)
    return tmp_path / "src"


@pytest.mark.parametrize(("text", "number"), [("import no_such_module\n", 1), ("\ndef (:\n", 2)])
@pytest.mark.parametrize("name", ["mine.py", "idea/mine.py"])
def test_a_broken_file_among_the_kernels_is_named_with_its_line(checkout, refused, name, text, number):
    path = checkout / "kernelmark" / "kernels" / "copy" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    assert refused("list", PYTHONPATH=str(checkout)).startswith(f"kernelmark: {path}, line {number}: ")


@pytest.mark.parametrize("name", ["_mine.py", "idea/_mine.py", "_idea/mine.py"])
def test_files_and_folders_that_begin_with_an_underscore_are_not_discovered(checkout, kernelmark, name):
    path = checkout / "kernels" / "copy" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("import no_such_module\n")
    assert kernelmark("list", PYTHONPATH=str(checkout)).returncode == 0


def install(folder, module):
    """Write a distribution with an entry point, as pip would install it."""
    info = folder / "mine-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[kernelmark.kernels]\nmine = mine_kernels\n")
    (folder / "mine_kernels.py").write_text(module)


def test_an_installed_packages_kernels_are_found_by_their_entry_point(tmp_path, kernelmark):
    install(tmp_path / "site", KERNEL)
    done = kernelmark("list", "--op", "gemm", PYTHONPATH=str(tmp_path / "site"))
    assert done.returncode == 0
    assert "gemm/mine.other" in done.stdout


def test_a_broken_entry_point_is_named_with_its_file_and_line(tmp_path, refused):
    install(tmp_path / "site", "\nimport no_such_module\n")
    line = refused("list", PYTHONPATH=str(tmp_path / "site"))
    assert line.startswith(
        f"kernelmark: entry point mine (mine_kernels): {tmp_path / 'site' / 'mine_kernels.py'}, line 2"
    )
