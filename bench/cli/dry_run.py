"""What `run --list` and `run --dry-run` print, which measure nothing."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click


def print_list(plan: Any, jobs: Sequence[Any], registry: Any) -> None:
    """Print the comparison groups of a run or a shard, with their problems and cases."""
    from kernelmark.bench.plan.shards import group_of
    from kernelmark.bench.report.layout import Column, table

    groups: dict[str, list[Any]] = {}
    for planned in jobs:
        groups.setdefault(group_of(planned.job.problems[0]), []).append(planned)
    columns = (Column("comparison group"), Column("problems", wraps=40), Column("cases", "right"))
    cells = []
    for group, own in groups.items():
        problems = dict.fromkeys(name.removeprefix(group + "/") for planned in own for name in planned.job.problems)
        cells.append((group, ", ".join(problems), str(_cases(own, registry))))
    if cells:
        click.echo(table(columns, cells, titled=True) + "\n")
    click.echo(_total(plan, len(groups), len(jobs), _cases(jobs, registry)))


def print_estimate(plan: Any, jobs: Sequence[Any], registry: Any, db: Path) -> None:
    """Print what a run or a shard would take: jobs, machine-hours and bytes, and on what each stands."""
    from kernelmark.bench.measure.machine import machine
    from kernelmark.bench.plan.shards import group_of
    from kernelmark.bench.record.store import Store
    from kernelmark.bench.report.estimate import estimate
    from kernelmark.bench.report.layout import paragraph

    store = Store(db, create=False) if db.is_file() else None
    try:
        found = estimate(store, jobs, plan, machine(), registry)
    finally:
        if store is not None:
            store.close()
    groups = {group_of(planned.job.problems[0]) for planned in jobs}
    click.echo(_total(plan, len(groups), len(jobs), _cases(jobs, registry)))
    for line in (*_hours(found), _bytes(found, _cases(jobs, registry), db)):
        click.echo(paragraph(line))


def _cases(jobs: Sequence[Any], registry: Any) -> int:
    from kernelmark.bench.plan.case import case_count

    return case_count(jobs, registry)


def _total(plan: Any, groups: int, jobs: int, cases: int) -> str:
    from kernelmark.bench.report.format import count

    whole = f" of {plan.shard.cases}" if plan.shard else ""
    what = f"shard {plan.shard}: " if plan.shard else ""
    processes = f", in {plan.processes} processes each" if plan.processes > 1 else ""
    return f"{what}{count(groups, 'comparison group')}, {count(jobs, 'job')}, {cases}{whole} cases{processes}"


def _hours(found: Any) -> Iterator[str]:
    from kernelmark.bench.report.format import count

    known = found.cases - found.unknown
    if known:
        span = f" [{_hour(found.low_s)}, {_hour(found.high_s)}]" if len(found.runs) > 1 else ""
        runs = ", ".join(found.runs[-3:]) + (f" and {len(found.runs) - 3} more" if len(found.runs) > 3 else "")
        alone = "" if span else "; one run has no interval"
        yield (
            f"machine-hours: {_hour(found.seconds)}{span} for {known} of {found.cases} cases, computed from what jobs "
            f"took in {count(len(found.runs), 'run')} on this machine: {runs}{alone}"
        )
    if found.unknown:
        what = f"{found.unknown} of {found.cases} cases: no complete run of them on this machine, asked for alike"
        if found.bound_s is None:
            yield f"machine-hours: unknown for {what}, nor has it a measured ceiling that could bound them"
        else:
            yield (
                f"machine-hours: unknown for {what}; one call of each, at the highest measured ceilings, is "
                f"{_hour(found.bound_s)}: a bound, computed from nominal work"
            )


def _bytes(found: Any, cases: int, db: Path) -> str:
    from kernelmark.bench.report.format import size

    if found.row_bytes is None:
        return f"store: unknown, {db} has no row whose size could be measured"
    total = size(round(cases * found.row_bytes))
    return f"store: {total}, computed from {cases} rows of {size(round(found.row_bytes))}, as those of {db} take"


def _hour(seconds: float) -> str:
    return f"{seconds / 3600:.2g} h"
