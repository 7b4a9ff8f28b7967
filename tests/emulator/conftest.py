"""Nothing here runs without a compiler: then each test is skipped with the reason, and fails where CI is set."""

import os

import pytest

from bench.emulator.build import missing_tool


@pytest.fixture(autouse=True, scope="session")
def toolchain() -> None:
    """Skip with the reason and the install command; in CI a skip would be a hole, so there it is an error."""
    reason = missing_tool()
    if reason and os.environ.get("CI"):
        pytest.fail(f"{reason} (CI is set, so that this is no skip)")
    if reason:
        pytest.skip(reason)
