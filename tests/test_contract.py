"""The interface that users rely on: commands, options, ids and columns may be added, but not removed or moved."""

import json
from pathlib import Path
from typing import Any

import click
import pytest

from kernelmark.bench.cli.commands import cli
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.suites import suite_names
from kernelmark.bench.record.columns import COLUMNS

#: As of schema 4; a script may depend on each name, so only a major version removes one.
PROMISED: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "contract.json").read_text())


def _options(command: click.Command) -> set[str]:
    return {"/".join(p.opts + p.secondary_opts) if isinstance(p, click.Option) else str(p.name) for p in command.params}


@pytest.mark.parametrize("name", sorted(PROMISED["commands"]))
def test_command_keeps_its_options(name: str) -> None:
    assert set(PROMISED["commands"][name]) <= _options(cli.commands[name])


def test_promised_columns_come_first_in_their_order_and_promised_ids_exist() -> None:
    promised = PROMISED["columns"]
    assert list(COLUMNS[: len(promised)]) == promised
    registry = discover()
    assert set(PROMISED["kernels"]) <= set(registry.kernels)
    assert set(PROMISED["operations"]) <= set(registry.operations)
    assert set(PROMISED["suites"]) <= set(suite_names())
