"""pytest-benchmark's side of kernelmark: a case is an item, the device's time drives a virtual clock.

Inert unless `bench/test_bench.py` is collected under `--benchmark-only`.
"""

import argparse
import math
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.plan.errors import UsageError
from bench.plan.modes import TIMED, Mode
from bench.plan.status import AGAINST, Status

DEFAULT_SUITES = ["smoke", "founding"]


#: Problem, thread count and instruction set: what contenders share.
Group = tuple[str, int, str]


class VirtualClock:
    """A timer for pytest-benchmark that advances by the samples which kernelmark has measured."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        return self._now

    def __repr__(self) -> str:
        return "kernelmark.device_time"

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += seconds


VIRTUAL_CLOCK = VirtualClock()


class Case(msgspec.Struct, frozen=True):
    """One item: a kernel in a job that it shares with the other contenders."""

    planned: Any
    kernel: str

    @property
    def group(self) -> Group:
        return self.planned.job.problem, self.planned.job.threads, self.planned.job.isa

    @property
    def id(self) -> str:
        """`gemm/numpy.matmul|m64n64k64/f32/NT|t2`, as it stands in the item's name; `|avx2` if asked for."""
        job = self.planned.job
        problem = job.problem.partition("/")[2]
        return f"{self.kernel}|{problem}|t{job.threads}" + (f"|{job.isa}" if job.isa else "")


def _above_zero(text: str) -> float:
    """A number of seconds above 0. Raises what the parser of options turns into one line."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"is {text}, expected a number above 0")
    return value


def _at_least_zero(text: str) -> float:
    """A number of seconds. Raises what the parser of options turns into one line."""
    value = float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"is {text}, expected a number, 0 or more")
    return value


def _count(text: str) -> int:
    """An integer above 0. Raises what the parser of options turns into one line."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"is {text}, expected an integer above 0")
    return value


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, each with the prefix `--km-`, since other projects own the short names."""
    group = parser.getgroup("kernelmark")
    suite_help = f"suite, TOML file or problem id; may be repeated [{' and '.join(DEFAULT_SUITES)}]"
    group.addoption("--km-suite", action="append", metavar="SUITE", help=suite_help)
    group.addoption("--km-kernels", action="append", default=[], metavar="GLOB", help="only kernels whose id matches")
    group.addoption("--km-device", choices=["auto", "cpu", "cuda"], default="auto", help="where to measure [auto]")
    group.addoption("--km-plugin", action="append", default=[], metavar="FILE.py", help="a file that registers kernels")
    group.addoption("--km-db", metavar="FILE", help="the store [$XDG_DATA_HOME/kernelmark/results.db]")
    group.addoption("--km-mode", choices=TIMED, default=Mode.COLD.value, help="caches, or CUDA graphs [cold]")
    group.addoption("--km-threads", metavar="N,..", help="CPU thread counts [all]")
    group.addoption("--km-isa", metavar="SET,..", help="instruction sets: sse, avx, avx2, avx512 [the libraries']")
    group.addoption("--km-no-ceilings", action="store_true", help="do not measure this machine's limits")
    group.addoption("--km-max-time", type=_above_zero, metavar="S", help="seconds a case [2, or the suite's]")
    group.addoption(
        "--km-timeout", type=_above_zero, default=60.0, metavar="S", help="seconds for one call of a kernel [60]"
    )
    group.addoption("--km-processes", type=_count, default=1, metavar="N", help="fresh processes a case [1]")
    spread_help = "seconds at least from one of those processes to the next [60]"
    group.addoption("--km-spread", type=_at_least_zero, default=60.0, metavar="S", help=spread_help)
    group.addoption("--km-share-gpu", action="store_true", help="measure although another run is using the GPU")
    group.addoption("--km-csv", metavar="FILE", help="write the run's rows here at the end")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A plain `pytest` runs no benchmark."""
    ours = collection_path.name == "test_bench.py" and collection_path.parent == Path(__file__).parent
    return True if ours and not config.getoption("benchmark_only", False) else None


class Bridge:
    """The run behind a pytest session: plans at collection, measures at the first item of a group."""

    def __init__(self, config: pytest.Config) -> None:
        from bench.measure.device import choose_devices, cpu_count
        from bench.measure.isa import choose_isas
        from bench.plan.case import Plan, thread_counts
        from bench.plan.discovery import discover
        from bench.plan.suites import find_suite, full_name
        from bench.report.export import check_writable

        names = config.getoption("km_suite") or DEFAULT_SUITES
        threads = config.getoption("km_threads")
        self._db = config.getoption("km_db")
        self._csv = Path(config.getoption("km_csv")) if config.getoption("km_csv") else None
        self._plan = Plan(
            devices=choose_devices(config.getoption("km_device")),
            kernels=tuple(config.getoption("km_kernels")),
            mode=Mode(config.getoption("km_mode")),
            threads=thread_counts("--km-threads", threads) if threads else (cpu_count(),),
            isas=choose_isas(config.getoption("km_isa")),
            plugins=tuple(str(Path(plugin).absolute()) for plugin in config.getoption("km_plugin")),
            max_time_s=config.getoption("km_max_time"),
            ceilings=not config.getoption("km_no_ceilings"),
            timeout_s=config.getoption("km_timeout"),
            processes=config.getoption("km_processes"),
            spread_s=config.getoption("km_spread"),
            suites=tuple(map(full_name, names)),
            share_gpu=config.getoption("km_share_gpu"),
        )
        self.registry = discover(self._plan.plugins)
        self._suites = [find_suite(name, self.registry) for name in names]
        if self._csv is not None:
            check_writable(self._csv)
        self._planned: dict[Group, Any] = {}
        self._rows: dict[str, Any] = {}
        self._held = ExitStack()
        self.store: Any = None
        self.session: Any = None

    def cases(self) -> Iterator[Case]:
        """Every case of the suites once, in their order."""
        from bench.plan.case import jobs

        seen: set[tuple[Group, str]] = set()
        for planned in jobs(self._suites, self.registry, self._plan):
            for kernel in planned.job.kernels:
                case = Case(planned, kernel)
                if (case.group, kernel) not in seen:
                    seen.add((case.group, kernel))
                    yield case

    def select(self, cases: list[Case]) -> None:
        """Which contenders are left after `-k`, `--deselect` and the like."""
        kernels: dict[Group, list[str]] = {}
        for case in cases:
            kernels.setdefault(case.group, []).append(case.kernel)
            self._planned.setdefault(case.group, case.planned)
        for group, names in kernels.items():
            planned = self._planned[group]
            job = msgspec.structs.replace(planned.job, kernels=tuple(dict.fromkeys(names)))
            self._planned[group] = msgspec.structs.replace(planned, job=job)

    def row(self, case: Case) -> tuple[Any, list[float]]:
        """Result and samples of a case; its group is measured when the first one asks.

        With several processes all groups are, since each process is a pass over all of them.
        """
        from bench.plan.case import case_of

        key = case_of(case.planned.job, self.registry.kernels[case.kernel])
        if key not in self._rows:
            self._begin()
            groups = [case.group] if self._plan.processes == 1 else list(self._planned)
            self._measure([self._planned[group] for group in groups])
        return self._rows[key], self.store.samples(self.session.run_id, key)

    def _measure(self, planned: list[Any]) -> None:
        from bench.run.session import run_passes

        def keep(result: Any) -> None:
            self._rows[result.case] = result

        run = run_passes
        run(self.session, lambda: planned, self.registry, self._plan, keep, lambda text: None, lambda: False)

    def _begin(self) -> None:
        from bench.measure.lock import exclusive
        from bench.record.store import Store, default_store
        from bench.run.pool import Workers
        from bench.run.session import Session

        if self.session is None:
            self.store = Store(Path(self._db) if self._db else default_store())
            self._held.enter_context(exclusive(self._plan.devices, self._plan.share_gpu))
            workers = self._held.enter_context(Workers())
            self.session = Session(self.store, self._suites, self._plan, workers.run)

    def finish(self) -> None:
        """Write the CSV file and close the run."""
        from bench.report.export import write_file

        self._held.close()
        if self.session is not None:
            self.session.finish()
            if self._csv is not None:
                write_file(self.store, self.session.run_id, "csv", self._csv)


_BRIDGE = pytest.StashKey[Bridge]()
_REFUSED = pytest.StashKey[UsageError]()


def _bridge(config: pytest.Config) -> Bridge:
    if _BRIDGE not in config.stash:
        config.stash[_BRIDGE] = Bridge(config)
    return config.stash[_BRIDGE]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One item a case, for whatever test takes `km_case`."""
    if "km_case" in metafunc.fixturenames:
        cases: list[Case] = []
        try:
            cases = list(_bridge(metafunc.config).cases())
        except UsageError as error:  # raised from here, it would be shown with a traceback
            metafunc.config.stash[_REFUSED] = error
        metafunc.parametrize("km_case", cases, ids=[case.id for case in cases])


def pytest_collection_finish(session: pytest.Session) -> None:
    """Contenders that were deselected do not run; bad options end the session in one line."""
    if _REFUSED in session.config.stash:
        raise pytest.UsageError(f"kernelmark: {session.config.stash[_REFUSED]}")
    if _BRIDGE in session.config.stash:
        items = [item for item in session.items if isinstance(item, pytest.Function) and hasattr(item, "callspec")]
        params = [item.callspec.params.get("km_case") for item in items]
        session.config.stash[_BRIDGE].select([case for case in params if isinstance(case, Case)])


@pytest.fixture
def km_measure(request: pytest.FixtureRequest) -> Any:
    """Measures a case and hands its time to pytest-benchmark."""
    bridge = _bridge(request.config)

    def measure(case: Case, benchmark: Any) -> None:
        try:
            result, found = bridge.row(case)
        except UsageError as error:
            pytest.exit(f"kernelmark: {error}", returncode=int(pytest.ExitCode.USAGE_ERROR))
        if result.status in AGAINST:
            pytest.fail(f"{result.status}: {result.kernel} on {result.problem}: {result.reason}", pytrace=False)
        if result.status != Status.OK:
            pytest.skip(f"{result.status}: {result.reason}")
        samples = iter(found)
        benchmark.group = f"{result.problem} {result.mode}"
        benchmark.extra_info.update(msgspec.to_builtins(result))
        benchmark.pedantic(lambda: VIRTUAL_CLOCK.advance(next(samples)), rounds=len(found))

    return measure


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The table with GFLOP/s and speedup, for which pytest-benchmark's own has no columns."""
    bridge = config.stash.get(_BRIDGE, None)
    if bridge is None or bridge.session is None:
        return
    from bench.report.pages import run_page

    run_id = bridge.session.run_id
    terminalreporter.section(f"kernelmark run {run_id}")
    terminalreporter.write_line("\n\n".join(filter(None, run_page(bridge.store, run_id, 1))))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Close the run and write its CSV file."""
    bridge = session.config.stash.get(_BRIDGE, None)
    if bridge is not None:
        bridge.finish()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Give the store back."""
    bridge = config.stash.get(_BRIDGE, None)
    if bridge is not None and bridge.store is not None:
        bridge.store.close()
