"""All tests here need a compiler: without one they are skipped with the reason, or fail if CI is set."""

import pytest

from kernelmark.bench.emulator.build import missing_tool
from support.tools import needed


@pytest.fixture(autouse=True, scope="session")
def toolchain() -> None:
    """Skip all tests if a tool is missing, with the reason and the command that installs it; in CI, fail."""
    needed(missing_tool())
