"""The commands `run` and `verify`. They measure on this machine, on an executor's workers or on several GPUs."""

import re
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import IO, Any

import click
import msgspec

from kernelmark import __version__
from kernelmark.bench.cli import shared
from kernelmark.bench.cli.emulated import verify_emulated
from kernelmark.bench.cli.planned import RunRequest, asked_of, expanded_plan, plan_only, with_plugins
from kernelmark.bench.cli.progress import Detail, Display, print_end
from kernelmark.bench.measure.cuda import gpu_uuids
from kernelmark.bench.measure.host import Host, digests
from kernelmark.bench.measure.lock import exclusive, held_run
from kernelmark.bench.plan.case import Plan, case_count
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.options import OPTIONS, Option, above_zero
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.shards import parse_shard
from kernelmark.bench.plan.signals import ignore
from kernelmark.bench.plan.suites import full_name
from kernelmark.bench.record.store import Store, default_store, resuming
from kernelmark.bench.report.export import check_writable, write_file
from kernelmark.bench.report.runs import summary_of, write_run
from kernelmark.bench.run.asked import plan_asked
from kernelmark.bench.run.commit import git_commit
from kernelmark.bench.run.crashes import Workers
from kernelmark.bench.run.dispatch import Broker, Dispatch, first_answer
from kernelmark.bench.run.session import Session, plan_again, plan_of, run_jobs
from kernelmark.bench.run.station import Task

#: The remedy if another process is measuring the run.
_OWN_RUN = "start a run of your own"
#: A list to which a session is appended when it begins, with the number of cases of the complete run.
_Begun = list[tuple[Session, int]]


def _asks(options: Sequence[Option]) -> shared.Decorator:
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        function = click.option(
            "--blas",
            multiple=True,
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Also measure the GEMM of this library with a CBLAS interface, such as libblis.so; may be repeated.",
        )(function)
        text = "Give the run a name, which every argument RUN accepts instead of the id."
        named = shared.value_option("--name", kind=shared.Read(_parse_name), metavar="NAME", default="", text=text)
        text = "Draw the same operand values as this run; without SUITE, measure the same cases, too."
        function = named(shared.db_option(_detailed(function)))
        function = shared.run_option("--reproduce", text=text)(shared.json_option(function))
        for option in reversed(options):
            function = shared.plan_option(option)(function)
        return click.argument("suites", nargs=-1, metavar="SUITE...", shell_complete=shared.complete_suites)(function)

    return decorate


def _parse_name(text: str) -> str:
    """Return the name of a run, which cannot look like a run's id. Raises ValueError."""
    if text and not re.fullmatch(r"[^\W\d_][\w.+-]{0,59}", text):
        raise ValueError(f"is {text!r}, expected a letter, then letters, digits or . _ + -, at most 60 characters")
    return text


def _detailed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--verbose` and `--quiet`, which the command gets as `detail`."""

    @click.option("--verbose", is_flag=True, help="Print a table for each problem, as `show` does.")
    @click.option("--quiet", is_flag=True, help="Print only the verdict.")
    @wraps(function)
    def command(verbose: bool, quiet: bool, **options: Any) -> Any:
        if verbose and quiet:
            raise UsageError("--verbose and --quiet: contradict each other; omit one of them")
        detail = Detail.TABLES if verbose else Detail.QUIET if quiet else Detail.LINES
        return function(detail=detail, **options)

    return command


def _parse_gpus(text: str) -> tuple[int, ...]:
    """Return the numbers in ascending order without duplicates; an empty tuple for `all`. Raises ValueError."""
    if text == "all":
        return ()
    if not re.fullmatch(r"\d{1,3}(,\d{1,3})*", text):
        raise ValueError(f"is {text!r}, expected all, or numbers of GPUs separated by commas, such as 0,1")
    return tuple(sorted(set(map(int, text.split(",")))))


@click.command()
@_asks(OPTIONS)
@shared.file_option("--csv", "csv_path", text="Write the rows of the run to this file.")
@shared.run_option("--resume", text="Continue an interrupted run; without SUITE, use the run's suites.")
@click.option("--noisy-again", is_flag=True, help="With --resume: also remeasure problems with disturbed cases.")
@shared.folder_option(
    "--report", "report_to", text="Write the page of the run to this folder, as `report` does, but without PDFs."
)
@click.option(
    "--tuned",
    metavar="FILE",
    help="Use the tiles in this file from `tune`. Baselines keep their default tiles. auto: the file of this device.",
)
@click.option(
    "--select",
    metavar="FILE",
    help="Add a contender, OP/kernelmark.selected, that runs a selector's choice; auto: the selectors of this device.",
)
@click.option(
    "--shard",
    type=shared.Read(parse_shard),
    metavar="I/N",
    help="Measure part I of N. Other machines measure the other parts, and `kernelmark merge` joins them into one run.",
)
@click.option(
    "--executor",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="CONFIG.py",
    help="Measure on workers that Parsl starts; `config` in this file describes its executors.",
)
@click.option(
    "--start-timeout",
    "start_timeout_s",
    type=shared.Read(above_zero),
    default=300.0,
    metavar="S",
    help="Seconds that the executor may take to start its first worker. [default: 300]",
)
@click.option(
    "--devices",
    "gpus",
    type=shared.Read(_parse_gpus),
    metavar="all|N,..",
    help="Measure on several GPUs of this machine, with a worker for each; numbers as in nvidia-smi.",
)
@click.option("--list", "only_list", is_flag=True, help="Print what would be measured, and measure nothing.")
@click.option("--dry-run", is_flag=True, help="Print the kernels and the expected time and bytes, and measure nothing.")
@click.option("--fail-noisy", is_flag=True, help="Exit with 1 if other load disturbed a case.")
def run(
    csv_path: Path | None,
    json_to: IO[str] | None,
    report_to: Path | None,
    fail_noisy: bool,
    noisy_again: bool,
    only_list: bool,
    dry_run: bool,
    select: str | None,
    **options: Any,
) -> None:
    """Verify and time the kernels of each SUITE.

    A SUITE is a name (`kernelmark list --suites`), a TOML file or one problem id.
    """
    options = with_plugins(options, select)
    if noisy_again and options["resume"] is None:
        raise UsageError("--noisy-again: has no run to measure again; name one with --resume")
    if only_list or dry_run:
        if json_to is not None:
            raise UsageError("--json: prints the rows of a run, but --list and --dry-run measure none; leave one out")
        plan_only(asked_of(options), only_list, dry_run)
        return
    _measure(asked_of({**options, "noisy_again": noisy_again}), json_to, csv_path, report_to, fail_noisy)


@click.command()
@_asks([option for option in OPTIONS if not option.times])
@click.option("--emulated", is_flag=True, help="Emulate CUDA kernels in three orders of threads; store nothing.")
def verify(json_to: IO[str] | None, emulated: bool, **options: Any) -> None:
    """Verify the kernels of each SUITE without timing them.

    A SUITE is a name (`kernelmark list --suites`), a TOML file or one problem id.
    """
    options = with_plugins(options)
    if emulated:
        raise SystemExit(verify_emulated(asked_of(options)))
    _measure(asked_of({**options, "mode": Mode.VERIFY}), json_to)


def _measure(
    request: RunRequest,
    json_to: IO[str] | None,
    csv_path: Path | None = None,
    report_to: Path | None = None,
    fail_noisy: bool = False,
) -> None:
    """Measure, write the requested output, and exit. fail_noisy: exit with 1 if a case was disturbed."""
    with Store(request.db or default_store(), create=request.resume is None) as store:
        if request.resume is not None and not request.suites:
            request = request._replace(known=plan_of(store, request.resume))
        elif request.reproduce is not None:
            request = _reproducing(store, request, request.reproduce)
        if csv_path is not None:
            check_writable(csv_path)
        known = request.known
        elsewhere = request.executor or request.gpus is not None or (known and (known.executor or known.gpus))
        begun: _Begun = []
        try:
            registry, finished = (_run_elsewhere if elsewhere else _run_here)(store, request, begun)
            session, _ = begun[0]
            print_end(store, session.run_id, request.detail, request.resume is not None)
            if json_to is not None:
                write_run(store, session.run_id, json_to)
            if csv_path is not None:
                write_file(store, [session.run_id], "csv", csv_path)
            if report_to is not None:
                from kernelmark.bench.cli.report import write_folder  # slow to import, and few runs write a page

                page = write_folder(store, session.run_id, report_to, registry, pdf=False)
                if request.detail is not Detail.QUIET:
                    click.echo(f"\npage: {page}")
            noisy = fail_noisy and summary_of(store, session.run_id).noisy > 0
            store.require_in_place()
            if not finished:
                raise KeyboardInterrupt
        except KeyboardInterrupt:  # this covers all of the above, so that the last line is always printed
            ignore()
            if not begun:
                raise
            session, planned = begun[0]
            done = session.tally.total()
            if done < planned:
                click.echo(f"\n{done} of {planned} cases done; {resuming(session.run_id, store.path)}")
            raise SystemExit(shared.INTERRUPTED) from None
    raise SystemExit(shared.AGAINST if session.against or noisy else shared.OK)


def _announce(session: Session, detail: Detail) -> None:
    if detail is not Detail.QUIET:
        click.echo(f"run {session.run_id}")


def _reproducing(store: Store, request: RunRequest, run_id: str) -> RunRequest:
    """Complete a request to reproduce a run. With SUITE, add the run's id and seed; otherwise use the run's plan.

    `--kernels`, if given, replaces the plan's kernels. Raises UsageError if no row of the run has `entropy`, the random
    bits from which operand values are drawn.
    """
    run = store.run(run_id)
    if not store.entropies(run.run_id):
        raise UsageError(f"--reproduce {run.run_id}: none of its rows has `entropy`; its values cannot be drawn again")
    if request.suites:
        again = {"reproduce": run.run_id, "seed": run.plan.get("seed", 0)}
        return request._replace(options={**request.options, **again})
    plan, options = plan_again(store, run.run_id), request.options
    mode = options["mode"] if options["mode"] == Mode.VERIFY else plan.mode
    return request._replace(known=msgspec.structs.replace(plan, mode=mode, kernels=options["kernels"] or plan.kernels))


def _run_here(store: Store, request: RunRequest, begun: _Begun) -> tuple[Registry, bool]:
    plan = request.known or plan_asked(request.suites, request.options)
    with Workers() as workers:
        workers.load(plan)
        plan, registry, chosen, expanded = expanded_plan(plan, request, store)
        planned = case_count(expanded, registry)
        display = Display(expanded, plan.processes, registry, request.detail, request.resume is not None)
        workers.progress = display
        with exclusive(plan.devices, plan.share_gpu), workers:
            again = request.resume, request.noisy_again
            session = Session(store, chosen, plan, workers.run, *again, name=request.name, planned=planned)
            begun.append((session, planned))
            _announce(session, request.detail)
            with held_run(store.path, session.run_id, _OWN_RUN), display:
                return registry, run_jobs(session, lambda: expanded, display.row, display)


def _run_elsewhere(store: Store, request: RunRequest, begun: _Begun) -> tuple[Registry, bool]:
    config, gpus = _who(request)
    with exclusive(("cuda",) if gpus else (), False, gpus), Broker(config, gpus) as broker:
        plan, host = _planned(request, broker, config, gpus)
        with Workers() as workers:
            workers.load(plan)
        plan, registry, chosen, expanded = expanded_plan(plan, request, store)
        planned = case_count(expanded, registry)
        display = Display(expanded, 1, registry, request.detail, request.resume is not None)
        facts = {"name": request.name, "planned": planned, **_recorded(store, request.resume, host)}
        session = Session(store, chosen, plan, None, request.resume, request.noisy_again, **facts)
        begun.append((session, planned))
        _announce(session, request.detail)
        with held_run(store.path, session.run_id, _OWN_RUN), display:
            return registry, Dispatch(session, store, broker).run(expanded, host, display.row, display)


def _who(request: RunRequest) -> tuple[str, tuple[str, ...]]:
    """Return the executor's file, or "", and the UUIDs of the chosen GPUs, or (). Raises UsageError."""
    if request.executor is not None and request.gpus is not None:
        remedy = "leave one out (an executor's worker has one GPU)"
        raise UsageError(f"--executor and --devices: each chooses the workers; {remedy}")
    if request.executor is not None:
        if request.tuned == "auto":
            complaint = "--tuned auto: means the file of this machine's device, but --executor measures elsewhere"
            raise UsageError(f"{complaint}; name a file")
        return _file(request.executor), ()
    present = gpu_uuids()
    if request.gpus is not None:
        return "", _chosen_gpus(request.gpus, present)
    known = request.known
    assert known is not None  # without these options the run continues on its earlier workers
    if missing := [gpu for gpu in known.gpus if gpu not in present]:
        which = f"--resume {request.resume}" if request.resume else f"--reproduce {request.reproduce}"
        raise UsageError(f"{which}: GPU {missing[0]} is missing; expected all GPUs of that run")
    return (_file(Path(known.executor)) if known.executor else ""), known.gpus


def _file(path: Path) -> str:
    if not path.is_file():
        raise UsageError(f"--executor {path}: no such file; expected one that defines `config`, see docs/cluster.md")
    return str(path.absolute())


def _planned(request: RunRequest, broker: Broker, config: str, gpus: tuple[str, ...]) -> tuple[Plan, Host]:
    """Return the plan, which the first worker makes for its own machine, and the host of that worker."""
    plan = request.known
    plugins = [str(Path(plugin).absolute()) for plugin in (plan.plugins if plan else request.options["plugins"])]
    here = Host("", git_commit(), __version__, plugins=digests(plugins))
    if plan is None:
        options = msgspec.to_builtins({**request.options, "plugins": plugins})
        made = first_answer(broker, Task(here, options=options), request.start_timeout_s).plan
        assert made is not None  # the plan was requested
        plan = msgspec.structs.replace(made, suites=tuple(map(full_name, request.suites)))
    plan = msgspec.structs.replace(plan, executor=config, gpus=gpus)
    return plan, first_answer(broker, Task(here, plan), request.start_timeout_s).host


def _recorded(store: Store, resume: str | None, host: Host) -> dict[str, Any]:
    """Return the machine and the environment to record for the run.

    A resumed run keeps its earlier facts except the versions, since its workers may now be on other hosts.
    """
    if resume is None:
        return {"machine": host.machine, "environment": host.environment}
    before = store.run(resume)
    alike = {name: host.environment[name] for name in ("kernelmark", "versions")}
    return {"machine": before.machine, "environment": {**before.environment, **alike}}


def _chosen_gpus(numbers: tuple[int, ...], present: list[str]) -> tuple[str, ...]:
    if missing := [number for number in numbers if number >= len(present)]:
        there = f"0 to {len(present) - 1}" if present else "none"
        raise UsageError(f"--devices: there is no GPU {missing[0]} here, expected {there}")
    if not present:
        raise UsageError("--devices: there is no GPU here; `kernelmark doctor` shows what is usable")
    return tuple(present[number] for number in numbers) or tuple(present)
