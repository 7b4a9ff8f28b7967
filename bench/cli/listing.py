"""The command `list`: kernels and suites as rows."""

from collections.abc import Iterator, Sequence
from typing import Any

import click
import msgspec

from kernelmark.bench.cli.shared import Choice, plugin_option
from kernelmark.bench.measure.present import unavailable
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.files import read_toml
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.text import indented
from kernelmark.bench.report.format import count
from kernelmark.bench.report.layout import TableColumn, paragraph, table

KERNEL_COLUMNS = {
    "kernel": TableColumn("kernel"),
    "device": TableColumn("device", spare=2),
    "domain": TableColumn("takes", spare=3),
    "numerics": TableColumn("numerics", spare=1),
    "label": TableColumn("what it is", wraps=36),
}
SUITE_COLUMNS = {
    "suite": TableColumn("suite"),
    "title": TableColumn("title", wraps=32),
    "source": TableColumn("source", wraps=24),
}


class ListedKernel(msgspec.Struct, forbid_unknown_fields=True):
    """A kernel in the output of `list`. here: `yes` or `no`, whether it can run here. reason: why it cannot, or ""."""

    kernel: str
    device: str
    domain: str
    numerics: str
    here: str
    label: str
    reason: str


class ListedSuite(msgspec.Struct, forbid_unknown_fields=True):
    """A suite in the output of `list --suites`."""

    suite: str
    title: str
    source: str


@click.command("list")
@click.argument("operation", required=False, metavar="[OP]")
@click.option("--op", help="List only kernels of this operation.")
@click.option("--device", type=Choice(["cpu", "cuda"]), help="List only kernels for this device.")
@click.option("--suites", "only_suites", is_flag=True, help="List suites instead of kernels.")
@click.option("--all", "everything", is_flag=True, help="Also list kernels that cannot run here, with the reason.")
@click.option("--json", "prints_json", is_flag=True, help="Print JSON, with all kernels.")
@plugin_option
def list_command(
    operation: str | None,
    op: str | None,
    device: str | None,
    only_suites: bool,
    everything: bool,
    prints_json: bool,
    plugins: tuple[str, ...],
) -> None:
    """List the kernels that can run here, or the suites.

    With OP, only the kernels of that operation. With --all, also those that cannot run here, and why.
    """
    registry = discover(plugins)
    if None not in (operation, op):
        raise UsageError(f"list {operation}: --op {op} names an operation, too; omit one of them")
    wanted = op if operation is None else operation
    if wanted is not None:
        registry.problem_class(wanted, "--op" if operation is None else "list")
    if only_suites and (wanted or device):
        raise UsageError("--suites: lists all suites; leave it out, or leave out OP, --op and --device")
    if only_suites:
        listed = suites()
        click.echo(indented(listed) if prints_json else _table(SUITE_COLUMNS, listed))
    else:
        rows = kernels(registry, wanted, device)
        click.echo(indented(rows) if prints_json else render(rows, everything))


def kernels(registry: Registry, op: str | None = None, device: str | None = None) -> list[ListedKernel]:
    """Return a row for each kernel, sorted by id."""
    rows = []
    for kernel in sorted(registry.kernels.values(), key=lambda kernel: kernel.id):
        if op in (None, kernel.op) and device in (None, kernel.device):
            numerics = kernel.numerics
            assumed = registry.operations[kernel.op].assumed
            declared = {axis: values for axis, values in kernel.domain.items() if values != assumed.get(axis)}
            shown = numerics if isinstance(numerics, str) else "/".join((numerics or {"": "native"}).values())
            domain = " ".join(_values(axis, allowed) for axis, allowed in declared.items()) or "all"
            reason = unavailable(kernel) or ""
            here = "no" if reason else "yes"
            rows.append(ListedKernel(kernel.id, kernel.device, domain, shown, here, kernel.label, reason))
    return rows


def _values(axis: str, values: Sequence[Any]) -> str:
    """Return the values of an axis as text, such as `f32|f64`. Numbers follow the name of the axis: `work 1..64`."""
    if values == (None,):
        return f"no {axis}"
    if not all(isinstance(value, int | float) for value in values):
        return "|".join(map(str, values))
    return f"{axis} {values[0]:g}" + (f"..{values[-1]:g}" if len(values) > 1 else "")


def suites() -> list[ListedSuite]:
    """Return a row for each suite, without expanding suites into problems."""
    from kernelmark.bench.plan.suites import FOLDER, suite_names  # listing kernels starts faster without these

    tables = {name: read_toml(FOLDER / f"{name}.toml") for name in suite_names()}
    return [ListedSuite(name, read["title"], read["source"]) for name, read in tables.items()]


def render(rows: list[ListedKernel], everything: bool) -> str:
    """Return a table of the kernels that can run here, then each reason why others cannot, with its number of kernels.

    everything: also list the kernels that cannot run. They are always listed if no kernel can run.
    """
    if not rows:
        return "no kernel matches; `kernelmark list` without --op and --device shows all"
    here = [row for row in rows if not row.reason]
    return "\n\n".join(filter(None, [_table(KERNEL_COLUMNS, here), *_blocked(rows, everything or not here)]))


def _blocked(rows: list[ListedKernel], named: bool) -> Iterator[str]:
    for reason in dict.fromkeys(row.reason for row in rows if row.reason):
        blocked = [row for row in rows if row.reason == reason]
        more = "" if named else "; --all lists them"
        said = paragraph(f"{count(len(blocked), 'kernel')} cannot run here: {remedied(reason)}{more}")
        yield f"{said}\n{_table(KERNEL_COLUMNS, blocked)}" if named else said


def remedied(reason: str) -> str:
    """Return `cupy is not installed; how to fix it: pip install cupy` for a reason that ends with its remedy."""
    what, _, remedy = reason.partition("; ")
    return f"{what}; how to fix it: {remedy}" if remedy else what


def _table(columns: dict[str, TableColumn], rows: Sequence[object]) -> str:
    return table(list(columns.values()), [[getattr(row, name) for name in columns] for row in rows])
