"""The tests of the stub driver need a C++ compiler, cuda-core and NVRTC; without one of them they are skipped."""

import os
from pathlib import Path

import pytest

from bench.emulator import missing_tool
from bench.emulator.build import CompileError
from stub.pycuda_build import is_built, pycuda_folder

BUILDS = "python -m pytest --all tests/stub/test_pycuda.py"


@pytest.fixture(scope="session")
def tools(cuda_compiler: str) -> None:
    if reason := missing_tool():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def pycuda(tools: None, request: pytest.FixtureRequest) -> Path:
    """Return the folder of PyCUDA. The short suite does not build it; in CI it is an error where it is not built."""
    ci = bool(os.environ.get("CI"))
    if not (is_built() or ci or request.config.option.all):
        pytest.skip(f"PyCUDA is not built for the stub driver; this takes minutes, once: {BUILDS}")
    try:
        return pycuda_folder()
    except CompileError as error:
        if ci:
            raise
        pytest.skip(f"PyCUDA does not build here: {str(error).splitlines()[-1]}")
