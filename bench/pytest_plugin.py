"""The module that pytest loads in every project: it loads the hooks of `pytest_hooks` only when they are needed.

They are needed with an option `--km-...`, with --help, and for `bench/test_bench.py` under --benchmark-only. Otherwise
only this module is imported, and no option is added.
"""

import os
from pathlib import Path
from typing import Any

HOOKS = "kernelmark-hooks"
#: The test file that collects kernelmark's cases; in a checkout, paths to it may contain a link.
_CASES = Path(__file__).with_name("test_bench.py")


def pytest_addoption(parser: Any, pluginmanager: Any) -> None:
    """Load the hooks, which add their options, if the command line or the configuration asks for them."""
    if _is_asked_for(pluginmanager.get_plugin("pytestconfig")):
        _load(pluginmanager)


def pytest_ignore_collect(collection_path: Path, config: Any) -> bool | None:
    """Load the hooks if the cases are collected under --benchmark-only; a plain `pytest` collects none."""
    if collection_path.name != _CASES.name or not collection_path.samefile(_CASES):
        return None
    if not config.getoption("benchmark_only", False):
        return True
    _load(config.pluginmanager)
    return None


def _is_asked_for(config: Any) -> bool:
    words = [*config.invocation_params.args, *os.environ.get("PYTEST_ADDOPTS", "").split(), *config.getini("addopts")]
    named = any(str(word).startswith("--km-") or word in ("-h", "--help") for word in words)
    return named or hasattr(config.option, "km_suite")  # in a process of pytest-xdist, the options come as values


def _load(pluginmanager: Any) -> None:
    if not pluginmanager.has_plugin(HOOKS):
        from kernelmark.bench import pytest_hooks

        pluginmanager.register(pytest_hooks, HOOKS)
