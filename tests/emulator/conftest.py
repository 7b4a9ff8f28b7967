"""All tests here need a compiler: without one they are skipped with the reason, or fail if CI is set."""

import pytest

from kernelmark.bench.emulator.build import missing_tool
from support.tools import needed


@pytest.fixture(autouse=True, scope="session")
def toolchain() -> None:
    """Skip with the reason and the install command; in CI a skip would be a hole, so there it is an error."""
    needed(missing_tool())
