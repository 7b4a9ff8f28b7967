"""The folder tools/, and skipping tests if a tool is missing on this machine."""

import os
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"


def needed(missing):
    """Skip a test or module with the reason `missing`, unless it is empty; in CI, fail instead."""
    if missing and os.environ.get("CI"):
        pytest.fail(f"{missing} (an error, since CI is set)")
    if missing:
        pytest.skip(missing, allow_module_level=True)
