"""The command `selftest`."""

from itertools import count

import click

from kernelmark.bench.cli.progress import show_line
from kernelmark.bench.cli.shared import AGAINST, OK
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.text import indented
from kernelmark.bench.report.layout import paragraph
from kernelmark.bench.selftest import checks
from kernelmark.bench.selftest.finding import Checks, table


@click.command()
@click.option(
    "--quick",
    is_flag=True,
    help="Run only the checks durations, clocks, adversaries and ratio, in three to five minutes.",
)
@click.option("--only", metavar="CHECK,..", help="Run only these checks.")
@click.option(
    "--adversaries",
    is_flag=True,
    help="Run only cheating kernels and wrong results, and print which check catches each.",
)
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    help="Try each cheating kernel and wrong result with this many different draws of the operands' values.",
)
@click.option("--json", "prints_json", is_flag=True, help="Print JSON.")
def selftest(quick: bool, only: str | None, adversaries: bool, seeds: int | None, prints_json: bool) -> None:
    """Test how far timings on this machine can be trusted.

    Measures known durations, kernels that cheat, the coverage of intervals and false alarms, and compares each result
    with a bound. The exit status is 1 if a bound is missed. Takes about half an hour, during which the machine should
    do nothing else.
    """
    if adversaries and (only or quick):
        other = "--quick" if quick else f"--only {only}"
        raise UsageError(f"--adversaries {other}: each chooses the checks; leave one out")
    names = checks.chosen(",".join(checks.ADVERSARIES) if adversaries else only, quick)
    left_out = [name for name in checks.NAMES if name not in names]
    total, done = checks.jobs(names, seeds), count(1)
    show_line(f"[0/{total}]")
    findings = list(checks.run(names, lambda: show_line(f"[{next(done)}/{total}]"), seeds))
    show_line("")
    if prints_json:
        click.echo(indented(Checks(findings, left_out)))
    else:
        click.echo(table(findings))
        if left_out:
            click.echo("\n" + paragraph(f"not run: {', '.join(left_out)}"))
    raise SystemExit(AGAINST if any(finding.holds is False for finding in findings) else OK)
