"""The hooks for pytest-benchmark: each case is a test item, and each measured time advances a virtual clock.

Nothing is measured unless `bench/test_bench.py` is collected under `--benchmark-only`.
"""

import argparse
from copy import copy
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.options import OPTIONS, Option
from kernelmark.bench.plan.status import AGAINST, Status

if TYPE_CHECKING:  # loaded only by sessions that measure
    from kernelmark.bench.pytest_session import BenchmarkItem, Bridge


class VirtualClock:
    """A timer for pytest-benchmark that advances by the samples that kernelmark measured."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def __repr__(self) -> str:
        return "kernelmark.device_time"


VIRTUAL_CLOCK = VirtualClock()
#: The options' values if none is given.
DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(("km_suite", "km_db", "km_csv")),
    **{f"km_{option.field}": [] if option.many else option.default for option in OPTIONS},
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options with the prefix `--km-`, since other plug-ins use the short names."""
    group = parser.getgroup("kernelmark")
    suite_help = "Suite, TOML file or problem id; may be repeated. [default: smoke and founding]"
    group.addoption("--km-suite", action="append", metavar="SUITE", help=suite_help)
    group.addoption("--km-db", metavar="FILE", help="The store. [default: $XDG_DATA_HOME/kernelmark/results.db]")
    group.addoption("--km-csv", metavar="FILE", help="Write the run's rows to this CSV file at the end.")
    for option in OPTIONS:
        _add(group, option)


def pytest_configure(config: pytest.Config) -> None:
    """Set the options' defaults, in case these hooks were loaded only after pytest had parsed the command line."""
    for name, value in DEFAULTS.items():
        if not hasattr(config.option, name):
            setattr(config.option, name, copy(value))
    if _given(config) and not config.pluginmanager.has_plugin("benchmark"):
        complaint = "options --km-... need pytest-benchmark, which is missing or switched off"
        raise pytest.UsageError(f"kernelmark: {complaint}; pip install 'kernelmark[pytest]'")


def _given(config: pytest.Config) -> bool:
    return any(config.getoption(name) != value for name, value in DEFAULTS.items())


def _add(group: pytest.OptionGroup, option: Option) -> None:
    dest = f"km_{option.field}"
    keywords: dict[str, Any] = {"dest": dest, "help": option.text.replace("%", "%%")}
    if isinstance(option.default, bool):
        name = f"--km-no-{option.name}" if option.default else f"--km-{option.name}"
        group.addoption(name, action="store_false" if option.default else "store_true", **keywords)
        return

    def read(text: str) -> Any:
        try:
            return option.parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    if option.choices:
        keywords["choices"] = option.choices
    if option.many:
        keywords["action"] = "append"
    group.addoption(f"--km-{option.name}", type=read, default=DEFAULTS[dest], metavar=option.metavar, **keywords)


#: Options of pytest-benchmark that shape or need its table, with their defaults; any other value requests the table.
_ASKING: dict[str, Any] = {
    "benchmark_columns": None,
    "benchmark_sort": "min",
    "benchmark_group_by": "group",
    "benchmark_name": "normal",
    "benchmark_time_unit": None,
    "benchmark_compare": [],
    "benchmark_compare_fail": None,
    "benchmark_histogram": [],
    "benchmark_cprofile": None,
    "benchmark_verbose": False,
}
_BRIDGE = pytest.StashKey["Bridge"]()
_REFUSED = pytest.StashKey[UsageError]()


def _bridge(config: pytest.Config) -> "Bridge":
    from kernelmark.bench.pytest_session import Bridge

    if _BRIDGE not in config.stash:
        config.stash[_BRIDGE] = Bridge(config)
    return config.stash[_BRIDGE]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one item per case, for every test that takes `km_case`."""
    if "km_case" in metafunc.fixturenames:
        cases: list[Any] = []
        try:
            cases = list(_bridge(metafunc.config).cases())
        except UsageError as error:  # raised from here, it would be shown with a traceback
            metafunc.config.stash[_REFUSED] = error
        metafunc.parametrize("km_case", cases, ids=[case.id for case in cases])


def pytest_collection_finish(session: pytest.Session) -> None:
    """Drop deselected contenders; end the session with one line if options are bad."""
    if _REFUSED in session.config.stash:
        raise pytest.UsageError(f"kernelmark: {session.config.stash[_REFUSED]}")
    if _BRIDGE in session.config.stash:
        from kernelmark.bench.pytest_session import BenchmarkItem

        items = [item for item in session.items if isinstance(item, pytest.Function) and hasattr(item, "callspec")]
        params = [item.callspec.params.get("km_case") for item in items]
        session.config.stash[_BRIDGE].select([case for case in params if isinstance(case, BenchmarkItem)])
        _leave_histograms_out(session.config)
        _require_stored(session.config)


def _require_stored(config: pytest.Config) -> None:
    """Refuse --benchmark-compare-fail without an earlier session; pytest-benchmark would refuse it after measuring."""
    benchmarks: Any = getattr(config, "_benchmarksession", None)
    if benchmarks is None or not config.getoption("benchmark_compare_fail"):
        return
    stored = benchmarks.storage.load(*[benchmarks.compare] * isinstance(benchmarks.compare, str))
    if not benchmarks.compare or next(iter(stored), None) is None:
        needed = f"needs --benchmark-compare and an earlier session, and {benchmarks.storage} has none"
        complaint = f"--benchmark-compare-fail: {needed}; run one with --benchmark-autosave"
        raise pytest.UsageError(f"kernelmark: {complaint}")


_NOTE = pytest.StashKey[str]()


def _leave_histograms_out(config: pytest.Config) -> None:
    """Draw no histograms if their package is missing, since pytest-benchmark would end with a traceback."""
    from kernelmark.bench.measure.present import module_missing

    if config.getoption("benchmark_histogram") and (reason := module_missing("pygal")):
        config.stash[_NOTE] = f"--benchmark-histogram: {reason}"
        config.option.benchmark_histogram = []
        benchmarks: Any = config.pluginmanager.get_plugin("pytest-benchmark")
        benchmarks.histogram = False


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_benchmark_group_stats(config: pytest.Config) -> Any:
    """Remove kernelmark's cases from pytest-benchmark's table unless an option needs them; the summary has them."""
    groups = yield
    if any(config.getoption(name) != default for name, default in _ASKING.items()):
        return groups
    others = [
        (name, [case for case in some if str(case["options"]["timer"]) != repr(VIRTUAL_CLOCK)]) for name, some in groups
    ]
    return [(name, some) for name, some in others if some]


@pytest.fixture
def km_measure(request: pytest.FixtureRequest) -> Any:
    """Measure a case and pass its time to pytest-benchmark."""
    bridge = _bridge(request.config)

    def measure(case: "BenchmarkItem", benchmark: Any) -> None:
        try:
            result, times_s = bridge.row(case)
        except UsageError as error:
            pytest.exit(f"kernelmark: {error}", returncode=int(pytest.ExitCode.USAGE_ERROR))
        if result.status in AGAINST:
            pytest.fail(f"{result.status}: {result.kernel} on {result.problem}: {result.reason}", pytrace=False)
        if result.status != Status.OK:
            pytest.skip(f"{result.status}: {result.reason}")
        samples = iter(times_s)

        def advance() -> None:
            VIRTUAL_CLOCK.now_s += next(samples)

        benchmark.group = f"{result.problem} {result.mode}"
        benchmark.extra_info.update(msgspec.to_builtins(result))
        benchmark.params = case.params  # otherwise pytest-benchmark writes repr(case) into its JSON
        benchmark.pedantic(advance, rounds=len(times_s))

    return measure


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the tables with GFLOP/s and speedup, which pytest-benchmark's table lacks."""
    bridge = config.stash.get(_BRIDGE, None)
    if bridge is None and _given(config) and _REFUSED not in config.stash:
        remedy = "add --pyargs kernelmark.bench --benchmark-only"
        terminalreporter.write_line(f"kernelmark: --km-... given but no case collected; {remedy}")
    if bridge is None or bridge.opened is None:
        return
    _, session = bridge.opened
    terminalreporter.section(f"kernelmark run {session.run_id}")
    terminalreporter.write_line("\n\n".join(bridge.summary()))
    if note := config.stash.get(_NOTE, ""):
        terminalreporter.write_line(f"\n{note}")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Close the run and write its CSV file."""
    bridge = session.config.stash.get(_BRIDGE, None)
    if bridge is not None:
        bridge.finish(interrupted=exitstatus == pytest.ExitCode.INTERRUPTED)
