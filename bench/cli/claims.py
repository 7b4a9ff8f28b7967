"""The command `claims`: verdicts on the founding claims, from a run or from what this machine measured."""

import sys
from contextlib import closing
from pathlib import Path

import click

from kernelmark.bench.cli.options import AGAINST, INTERRUPTED, OK, db_option, file_option, run_argument


@click.command()
@run_argument
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@file_option("--csv", "csv_path", text="Also write a row for each number to this file.")
@click.option(
    "--prices",
    "prices_path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="TOML: what an hour of each device costs. [default: the founding texts' figures]",
)
@click.option("--only", metavar="ID,..", help="Test only these claims.")
@db_option
def claims(
    run_id: str | None,
    as_json: bool,
    csv_path: Path | None,
    prices_path: Path | None,
    only: str | None,
    db: Path | None,
) -> None:
    """Test the founding claims on measured rows.

    Each claim is confirmed, refuted or neither. With RUN, only the rows of that run count. Without RUN, the latest cold
    rows of this machine count, and what is missing is measured first, in about ten minutes.
    """
    from kernelmark.bench.claims import catalog, claims_rows, prices, views
    from kernelmark.bench.claims.experiments import Measured, measure_missing
    from kernelmark.bench.plan.discovery import discover
    from kernelmark.bench.record.store import Store, default_store
    from kernelmark.bench.report.export import check_writable, write_text
    from kernelmark.bench.report.layout import paragraph

    wanted = tuple(name.strip() for name in only.split(",")) if only is not None else ()
    chosen, paid, registry = catalog.claims(wanted), prices.load_prices(prices_path), discover()
    if csv_path is not None:
        check_writable(csv_path)
    with closing(Store(db or default_store(), create=run_id is None)) as store:
        if run_id is None:
            found = measure_missing(store, chosen, registry, lambda line: click.echo(paragraph(line), err=True))
        else:
            found = Measured([store.find_run(run_id)["run_id"]])
        if prices_path is not None:
            prices.check_known(paid, prices_path, store, found.run_ids)
        answers = claims_rows(store, found.run_ids, registry, paid, wanted, here=run_id is None)
    if as_json:
        views.write_json(answers, sys.stdout)
    else:
        click.echo(views.heading(answers, found.run_ids, run_id is None) + "\n\n" + views.render(answers))
    if csv_path is not None:
        write_text(csv_path, lambda out: views.write_csv(answers, out))
    if not found.finished:
        sys.exit(INTERRUPTED)
    sys.exit(AGAINST if found.against else OK)


COMMANDS = (claims,)
