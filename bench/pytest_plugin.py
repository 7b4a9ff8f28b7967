"""The module that pytest loads in every project: it loads the hooks of `pytest_hooks` when they are asked for.

They are asked for by an option `--km-...`, by --help, and by `bench/test_bench.py` under --benchmark-only. Otherwise
this module is all that is imported, and nothing is set.
"""

import os
from pathlib import Path
from typing import Any

HOOKS = "kernelmark-hooks"
#: What collects kernelmark's cases; a link leads to it in a checkout.
_CASES = Path(__file__).with_name("test_bench.py")


def pytest_addoption(parser: Any, pluginmanager: Any) -> None:
    """Load the hooks, whose options are added with them, if the command line or the configuration asks for them."""
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
