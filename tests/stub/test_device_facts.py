"""A device's clock, streams and memory, each fact in a process on the stub driver."""

import ast
from pathlib import Path

import pytest

from stub.library import on_stub

FUNCTIONS = ast.parse(Path(__file__).with_name("device_facts.py").read_text()).body
FACTS = [node.name for node in FUNCTIONS if isinstance(node, ast.FunctionDef) and not node.args.args]


@pytest.fixture(scope="module")
def runs(tools, folder):
    return on_stub({fact: ("stub.device_facts:holds", fact) for fact in FACTS}, folder, KM_STUB_DEVICES="3")


@pytest.mark.parametrize("fact", FACTS)
def test_a_fact_holds(runs, fact):
    assert runs[fact].value == ""
    assert runs[fact].violations == []
