"""The tests of the stub driver need a C++ compiler, cuda-core and NVRTC; without one of them they are skipped."""

import pytest

from bench.emulator import missing_tool


@pytest.fixture(scope="session")
def tools(cuda_compiler: str) -> None:
    if reason := missing_tool():
        pytest.skip(reason)
