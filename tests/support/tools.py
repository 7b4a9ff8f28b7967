"""The scripts' folder, and tools that a machine may lack."""

import os
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"


def needed(missing):
    """Skip a test, or a module, where something is missing, with the reason; in CI, where all is to be there, fail."""
    if missing and os.environ.get("CI"):
        pytest.fail(f"{missing} (an error, since CI is set)")
    if missing:
        pytest.skip(missing, allow_module_level=True)
