"""Scripts of `tools/` as modules."""

from types import ModuleType

import pytest

from support.tools import script


@pytest.fixture(scope="module")
def tool(request: pytest.FixtureRequest) -> ModuleType:
    """The script that a module of tests names as its TOOL."""
    return script(request.module.TOOL)
