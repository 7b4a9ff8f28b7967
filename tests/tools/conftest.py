"""Scripts of `tools/` as modules."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"


@pytest.fixture(scope="session")
def script() -> Callable[[str], ModuleType]:
    """A script by its name."""

    def load(name: str) -> ModuleType:
        sys.path.insert(0, str(TOOLS))
        try:
            return importlib.import_module(name)
        finally:
            sys.path.remove(str(TOOLS))

    return load
