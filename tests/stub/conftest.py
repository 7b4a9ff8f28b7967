"""The tests of the stub driver need a C++ compiler, cuda-core and NVRTC; without one of them they are skipped."""

import os

import pytest

from kernelmark.bench.emulator.build import HostCompileError
from stub.library import is_built, pycuda_folder
from support.emulated import host_compiler

BUILDS = "python -m pytest --all tests/stub/test_pycuda.py"


@pytest.fixture(scope="session")
def tools(cuda_compiler):
    host_compiler()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("stub")


@pytest.fixture(scope="session")
def pycuda(tools, request):
    """Return the folder of PyCUDA. The short test run skips instead of building it; in CI, a failed build fails."""
    ci = bool(os.environ.get("CI"))
    if not (is_built() or ci or request.config.option.all):
        pytest.skip(f"PyCUDA is not built for the stub driver; this takes minutes, once: {BUILDS}")
    try:
        return pycuda_folder()
    except HostCompileError as error:
        if ci:
            raise
        pytest.skip(f"PyCUDA does not build here: {str(error).splitlines()[-1]}")
