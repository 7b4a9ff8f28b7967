"""Choose and order the tests: --all includes those marked long, and --benchmark-only excludes all of tests/."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

#: The variables with which workers start, for tests that measure in their own process.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")
os.environ.setdefault("GOMP_SPINCOUNT", "30000")
#: Tests that wait or build for minutes run first, then tests that take seconds. The many short tests of kernels and the
#: emulator run last, when idle workers of pytest-xdist take unstarted tests from busy ones.
FIRST = ("tests/stub/", "tests/test_docs.py", "tests/test_", "tests/tune/", "tests/run/", "tests/tools/")
LAST = ("tests/kernels/", "tests/emulator/")
#: The number of this session's tests that only `make test-all` runs.
LEFT = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --all."""
    parser.addoption("--all", action="store_true", help="run the tests that are marked long, too")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not collect tests/ under --benchmark-only, so that its tests are not listed as skipped."""
    ours = collection_path.is_relative_to(config.rootpath / "tests")
    return True if ours and config.getoption("benchmark_only", False) else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests marked long, unless --all or a test's own name is given, and order the others."""
    named = any("::" in word for word in config.args)
    long = [] if config.option.all or named else [item for item in items if item.get_closest_marker("long")]
    left = set(long)
    items[:] = sorted((item for item in items if item not in left), key=_turn)
    config.stash[LEFT] = len(long)
    config.hook.pytest_deselected(items=long)


def _turn(item: pytest.Item) -> int:
    turns = (turn for turn, start in enumerate(FIRST) if item.nodeid.startswith(start))
    return next(turns, len(FIRST)) + item.nodeid.startswith(LAST)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the number of omitted tests from a worker of pytest-xdist to the process that prints it."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left"] = session.config.stash.get(LEFT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Receive the number of omitted tests from a worker of pytest-xdist; all workers send the same number."""
    node.config.stash[LEFT] = getattr(node, "workeroutput", {}).get("left", 0)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print each reason for skips with its number of tests, and the number of tests that were left out."""
    skipped = terminalreporter.stats.get("skipped", ())
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count} skipped: {reason}")
    if left := config.stash.get(LEFT, 0):
        terminalreporter.write_line(f"make test-all runs {left} more tests")
