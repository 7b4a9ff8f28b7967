"""Scripts of `tools/` as modules, and tools that a machine may lack."""

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"


def script(name: str) -> ModuleType:
    """A script by its name, with those beside it within its reach."""
    sys.path.insert(0, str(TOOLS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(TOOLS))


def needed(missing: str | None) -> None:
    """Skip a test, or a module, where something is missing, with the reason; in CI, where all is to be there, fail."""
    if missing and os.environ.get("CI"):
        pytest.fail(f"{missing} (an error, since CI is set)")
    if missing:
        pytest.skip(missing, allow_module_level=True)
