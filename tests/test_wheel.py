"""The wheel holds everything, below one name, and runs outside the repository."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from kernelmark.bench.emulator.build import missing_tool

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that a wheel of this checkout was unpacked into."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", folder, ROOT], check=True, capture_output=True, cwd=folder)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        wheel.extractall(folder / "site")
    return folder / "site"


def _run(installed: Path, code: str, **settings: str) -> str:
    env = {**os.environ, **settings, "PYTHONPATH": str(installed), "XDG_DATA_HOME": str(installed.parent / "data")}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=installed.parent, env=env).stdout


def test_every_cu_file_travels(installed: Path) -> None:
    ours = {path.relative_to(ROOT / "cuda") for path in (ROOT / "cuda").rglob("*.cu*")}
    folder = installed / "kernelmark" / "cuda"
    assert {path.relative_to(folder) for path in folder.rglob("*.cu*")} == ours


def test_every_module_and_suite_travels(installed: Path) -> None:
    for folder, pattern in (("bench", "*.py"), ("kernels", "*.py"), ("bench/plan/suites", "*.toml")):
        ours = {path.relative_to(ROOT) for path in (ROOT / folder).rglob(pattern)}
        assert ours
        assert all((installed / "kernelmark" / path).is_file() for path in ours)


def test_it_measures_outside_the_repository(installed: Path) -> None:
    code = (
        "import sys, kernelmark; words = 'gemm/m8n8k8/f32/NT --mode hot --no-ceilings --max-time 0.02'.split();"
        "sys.argv = ['kernelmark', 'run', *words];"
        "print(kernelmark.__file__); from kernelmark.bench.cli import main; main()"
    )
    out = _run(installed, code)
    assert str(installed / "kernelmark") in out
    assert "numpy.matmul" in out


def test_every_source_of_the_emulator_travels(installed: Path) -> None:
    files = (ROOT / "bench/emulator").rglob("*")
    ours = [path.relative_to(ROOT) for path in files if path.suffix in (".h", ".hpp", ".cpp")]
    assert ours
    assert all((installed / "kernelmark" / path).is_file() for path in ours)


def test_it_emulates_outside_the_repository(installed: Path) -> None:
    if reason := missing_tool():
        pytest.skip(reason)
    source = installed / "kernelmark" / "cuda" / "transpose" / "naive.cu"
    code = (
        f"import sys; sys.argv = ['kernelmark', 'watch', {str(source)!r}, 'transpose/m33n17/f32/out', '--once'];"
        "from kernelmark.bench.cli import main; main()"
    )
    assert "PASS: no races or memory errors" in _run(installed, code, CUDA_VISIBLE_DEVICES="")
