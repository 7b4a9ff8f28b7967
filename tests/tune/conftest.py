"""A user's kernel in a folder, and sessions on it."""

import pytest

from bench.plan.discovery import discover
from bench.plan.limits import H100
from bench.tune.watch.contenders import with_tile
from bench.tune.watch.session import Session
from turned import PLUGIN, PROBLEM, SOURCE, version


@pytest.fixture
def folder(tmp_path):
    """A user's kernel: the source and the plug-in that declares it."""
    (tmp_path / "turned.cu").write_text(SOURCE)
    (tmp_path / "turned.py").write_text(PLUGIN)
    return tmp_path


@pytest.fixture
def opened(folder, registry):
    """Return a function that opens a session on that kernel, as without a GPU."""
    discover((str(folder / "turned.py"),))
    kernel, problem = registry.kernels["transpose/cuda.turned"], registry.problem(PROBLEM)

    def of(tile=None, **options):
        return Session(registry, with_tile(kernel, tile or {}, problem, H100), problem, "sm_90a", None, **options)

    return of


@pytest.fixture
def session(opened):
    return opened()


@pytest.fixture
def look(session, folder):
    """Return a function that saves a text as the next version and returns what the session prints."""
    numbers = iter(range(1, 10))
    return lambda text, **headers: "\n".join(session.look(version(folder, next(numbers), text, headers)))
