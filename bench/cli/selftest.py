"""The command `kernelmark selftest`."""

import sys
from typing import Any

import click

from bench.cli.options import AGAINST, OK


@click.command()
@click.option("--quick", is_flag=True, help="Known durations, cheats and the ratio alone: three minutes at most.")
@click.option("--only", metavar="CHECK,..", help="Only these checks.")
@click.option("--adversaries", is_flag=True, help="Only kernels that cheat and wrong results, and what catches each.")
@click.option("--seeds", type=click.IntRange(min=1), help="On how many draws each adversary is tried.")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
def selftest(quick: bool, only: str | None, adversaries: bool, seeds: int | None, json_: bool) -> None:
    """What this machine's measurements are worth: known durations, cheats, coverage, false alarms, each with its bound.

    Exit status 1 where a bound is missed. Takes about half an hour, on a machine that should do nothing else.
    """
    from bench.plan.errors import UsageError
    from bench.report.layout import paragraph
    from bench.selftest import checks
    from bench.selftest.finding import as_json, table

    if adversaries and (only or quick):
        raise UsageError(f"--adversaries {'--quick' if quick else f'--only {only}'}: each chooses the checks; take one")
    names = checks.chosen(",".join(checks.ADVERSARIES) if adversaries else only, quick)
    left_out = [name for name in checks.NAMES if name not in names]
    findings = _with_progress(names, seeds)
    if json_:
        click.echo(as_json(findings, left_out))
    else:
        click.echo(table(findings))
        if left_out:
            click.echo("\n" + paragraph(f"not run: {', '.join(left_out)}"))
    sys.exit(AGAINST if any(finding.holds is False for finding in findings) else OK)


def _with_progress(names: tuple[str, ...], seeds: int | None) -> list[Any]:
    """The findings, with a bar on a terminal and nothing in a pipe."""
    from tqdm import tqdm

    from bench.selftest import checks

    with tqdm(total=checks.jobs(names, seeds), unit=" job", disable=not sys.stderr.isatty(), leave=False) as bar:
        return list(checks.run(names, bar.update, seeds))


COMMANDS = (selftest,)
