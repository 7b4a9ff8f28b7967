"""The command `merge`: the stores of shards become one."""

from contextlib import closing
from pathlib import Path

import click

from kernelmark.bench.cli.options import db_option


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@db_option
def merge(files: tuple[Path, ...], db: Path | None) -> None:
    """Merge the stores of shards: their rows become one run.

    The result goes into the store --db; runs that are not sharded are copied. Files may be given in any order, and
    merged again or later. Shards and problems that are missing are listed.
    """
    from kernelmark.bench.record.merge import merge_files
    from kernelmark.bench.record.store import Store, default_store
    from kernelmark.bench.report.shards import merged_lines

    target = db or default_store()
    found = merge_files(target, files)
    with closing(Store(target, create=False)) as store:
        for line in merged_lines(store, found, _problems):
            click.echo(line)


def _problems(plan: dict[str, object], missing: list[int]) -> dict[int, list[str]]:
    """Return the problems of shards that are missing, by planning again. Raises UsageError where it cannot."""
    import msgspec

    from kernelmark.bench.plan.case import Plan
    from kernelmark.bench.plan.discovery import discover
    from kernelmark.bench.plan.errors import UsageError
    from kernelmark.bench.plan.shards import group_of
    from kernelmark.bench.plan.shards_owners import owners
    from kernelmark.bench.run.asked import jobs_asked, suites_asked

    try:
        asked = msgspec.convert(plan, Plan)
    except msgspec.ValidationError as error:
        raise UsageError(f"the plan is damaged: {error}") from None
    registry = discover(asked.plugins, asked.timeout_s)
    suites = suites_asked(asked, registry)
    if [suite.digest for suite in suites] != plan.get("suite_digests"):
        raise UsageError(f"the suite {', '.join(asked.suites)} is another one here")
    jobs = jobs_asked(suites, registry, asked)
    assert asked.shard
    found = owners(jobs, asked.shard.count, registry)
    problems: dict[int, dict[str, None]] = {index: {} for index in missing}
    for planned in jobs:
        owner = found[group_of(planned.job.problems[0])]
        if owner in problems:
            problems[owner].update(dict.fromkeys(planned.job.problems))
    return {index: list(own) for index, own in problems.items()}


COMMANDS = (merge,)
