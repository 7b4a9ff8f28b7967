"""Scripts of `tools/` as modules."""

from collections.abc import Callable
from types import ModuleType

import pytest

import scripts


@pytest.fixture(scope="session")
def script() -> Callable[[str], ModuleType]:
    """A script by its name."""
    return scripts.script
