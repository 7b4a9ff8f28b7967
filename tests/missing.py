"""What a test needs and a machine may lack."""

import os

import pytest


def needed(missing: str | None) -> None:
    """Skip the test where something is missing, with the reason; in CI, where all is to be there, it fails."""
    if missing and os.environ.get("CI"):
        pytest.fail(f"{missing} (an error, since CI is set)")
    if missing:
        pytest.skip(missing)
