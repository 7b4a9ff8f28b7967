"""For `watch`: report on each version, choose the version to compare the next one with, and store a history."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from kernelmark.bench.emulator.build import HostCompileError
from kernelmark.bench.emulator.sweep import EmulatedCase
from kernelmark.bench.measure.compile import cuda_sources, with_includes
from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.measure.stats import Interval
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.kernel import CudaKernel, Tile
from kernelmark.bench.plan.limits import H100, DeviceLimits
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.operation import Problem
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.status import Status
from kernelmark.bench.plan.tiles import tile_text
from kernelmark.bench.record.store import Store
from kernelmark.bench.record.versions import WATCH, KernelVersion, VersionRatio
from kernelmark.bench.report.contest import APART, paired
from kernelmark.bench.report.format import count, digits, seconds, size, spread
from kernelmark.bench.report.layout import TableColumn, paragraph, table
from kernelmark.bench.tune.inspect import COLUMNS, InspectRow, cells, launch_rows
from kernelmark.bench.tune.profile.counted import Counts, counted_kernel, counts_of
from kernelmark.bench.tune.watch.emulator import bugs, emulate, verdict
from kernelmark.bench.tune.watch.versions import Files, Version, VersionTiming, compare


def change_table(now: Counts, before: Counts | None) -> str:
    """Return a table of a version's totals, with the old value next to each changed one."""
    old = dict(_figures(before or now))
    lines = [(name, _changed(new, old[name])) for name, new in _figures(now)]
    ran = sum(launch.run_blocks for launch in now.launches)
    blocks = sum(launch.blocks for launch in now.launches)
    of = f"all of {blocks:,} blocks" if ran == blocks else f"{ran:,} of {blocks:,} blocks, which represent all"
    return table((TableColumn("counted"), TableColumn(of)), lines)


def _figures(counts: Counts) -> Iterator[tuple[str, str]]:
    total = counts.total
    yield "warp instructions", f"{total.warp_instructions:,}"
    yield "multiply-adds", "unknown" if total.fma is None else f"{total.fma:,}"
    yield "active lanes", digits(total.active_lanes / max(total.warp_instructions, 1))
    yield "sectors", _of_least(total.sectors, total.least_sectors)
    yield "wavefronts", _of_least(total.wavefronts, total.least_wavefronts)
    yield "to and from L2", size(counts.block_bytes_read + counts.block_bytes_written)


def _of_least(number: int, least: int) -> str:
    return f"{number:,}, {number / least:.2f}x ideal" if least else "0"


def resource_table(rows: Sequence[InspectRow], before: Sequence[InspectRow]) -> str:
    """Return a table with a column for each launch, and old values next to changed ones. Sizes are in bytes."""
    now, known = cells(rows), dict(zip((row.entry for row in before), cells(before), strict=True))
    pairs = [(new, known.get(row.entry, new)) for row, new in zip(rows, now, strict=True)]
    lines = [
        [column.header, *(_changed(new[place], old[place]) for new, old in pairs)]
        for place, column in enumerate(COLUMNS)
        if column.header not in ("kernel and tile", "arch")
    ]
    return table([TableColumn("launch"), *(TableColumn(row.entry, wraps=12) for row in rows)], lines)


def _changed(new: str, old: str) -> str:
    return new if new == old else f"{new} (was {old})"


def time_table(rows: Sequence[Measurement], names: Mapping[str, str], problem: Problem) -> str:
    """Return a table that compares the current version (first row) with each other kernel, from samples taken in turn.

    names: the printed names of versions. Below the table are the kernels without a time, with reasons.
    """
    columns = (
        TableColumn("kernel"),
        TableColumn("time", "right"),
        TableColumn("95 %", "right", spare=2),
        TableColumn("GFLOP/s" if problem.flop else "GB/s", "right", spare=1),
        TableColumn("this version against it", wraps=24),
    )
    lines = [
        (
            names.get(row.kernel, row.kernel),
            seconds(row.interval.median),
            spread(row.interval.median, row.interval.low, row.interval.high),
            digits((problem.flop or problem.traffic_bytes) / row.interval.median * 1e-9),
            "" if row is rows[0] else _against(row, rows[0]),
        )
        for row in rows
        if row.status == Status.OK and row.interval
    ]
    failed = (
        f"{row.status}: {names.get(row.kernel, row.kernel)}: {row.reason}" for row in rows if row.status != Status.OK
    )
    return "\n".join([*([table(columns, lines)] if lines else []), *map(paragraph, failed)])


def _against(other: Measurement, present: Measurement) -> str:
    """Return `1.05x [1.03, 1.07] faster`, or `1.05x [0.99, 1.1] tie` if the interval includes 1."""
    if other.job != present.job:
        return APART
    ratio = paired([other.samples], [present.samples])
    return f"{ratio} {ratio.side}" if ratio else ""


@dataclass
class Tried:
    """A version that was tried. beside: the version to compare it with. against: its failures, in words.

    judged: whether it was verified, on a device or in the emulator. rows: all rows of its job, the version's row first.
    """

    version: Version
    against: list[str] = field(default_factory=list)
    judged: bool = False
    done: bool = False
    beside: Version | None = None
    launches: Sequence[InspectRow] = ()
    rows: Sequence[Measurement] = ()

    @property
    def interval(self) -> Interval | None:
        """Return the version's median time in its job with its interval, or None."""
        return self.rows[0].interval if self.rows and self.rows[0].status == Status.OK else None

    @property
    def good(self) -> bool:
        return self.done and not self.against

    @property
    def state(self) -> str:
        if not self.done:
            return "interrupted"
        return f"FAIL, {' and '.join(self.against)}" if self.against else "PASS" if self.judged else "not verified"


@dataclass
class WatchSession:
    """Versions of a kernel on a problem. comparison: None without a GPU. vs: the version to compare with, if given."""

    registry: Registry
    kernel: CudaKernel
    problem: Problem
    arch: str
    comparison: VersionTiming | None
    device: DeviceLimits = H100
    vs: Version | None = None
    tried: list[Tried] = field(default_factory=list)
    counts: dict[Version, Counts] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.beside = self.vs
        if self.vs:
            self._resources(self.vs)  # raises if it does not compile

    @property
    def good(self) -> bool:
        return bool(self.tried) and self.tried[-1].good

    def look(self, version: Version) -> Iterator[str]:
        """Yield the parts of the report on a version. The next version is compared with the last one that passed."""
        tried = Tried(version, beside=self.beside)
        self.tried.append(tried)
        yield from map(version.told, self._looked_at(tried))
        tried.done = True
        if tried.good and self.vs is None:
            self.beside = version

    def _looked_at(self, tried: Tried) -> Iterator[str]:
        try:
            tried.launches = self._resources(tried.version)
        except UsageError as error:
            tried.against.append("does not compile")
            yield f"FAIL: {error}"
            return
        yield resource_table(tried.launches, self._resources(self.beside) if self.beside else [])
        if self.comparison:
            yield from self._timed(tried, self.comparison)
        judgement = self._emulated(tried)
        if tried.judged and not tried.against:  # a version that hangs is not run again
            yield self._counted(tried.version)
        yield judgement

    def _resources(self, version: Version) -> list[InspectRow]:
        try:
            return launch_rows(self._of(version), [(self.problem, self.tile)], self.arch, self.device)
        except UsageError as error:
            raise UsageError(version.told(str(error))) from None

    @property
    def tile(self) -> Tile:
        return self.kernel.default_tile(self.problem, self.device)

    def _of(self, version: Version) -> CudaKernel:
        return replace(self.kernel, source=str(version.source))

    def _timed(self, tried: Tried, comparison: VersionTiming) -> Iterator[str]:
        try:
            rows = compare(comparison, tried.version, self.beside)
        except UsageError as error:
            yield f"not timed: {error}"
            return
        names = {of: v.name for of, v in zip(comparison.ids, filter(None, (tried.version, self.beside)), strict=False)}
        tried.rows, tried.judged = rows, rows[0].status == Status.OK
        yield time_table(rows, names, self.problem)
        if not tried.judged:
            tried.against.append(rows[0].status)
            yield f"FAIL: {rows[0].status} on {self.problem.id}"

    def _emulated(self, tried: Tried) -> str:
        emulated = emulate(self.registry, self._of(tried.version), self.problem, self.device)
        if emulated.skipped:
            return f"not {'emulated:' if self.comparison else 'verified: there is no GPU, and'} {emulated.skipped}"
        tried.judged = True
        if emulated.refused:
            tried.against.append("refused by the emulator")
        elif reports := bugs(emulated.findings):
            tried.against.append(count(len(reports), "report"))
        return verdict(emulated)

    def _counted(self, version: Version) -> str:
        try:
            before = self._counts(self.beside) if self.beside else None
            return change_table(self._counts(version), before)
        except (HostCompileError, UsageError) as error:
            return f"not counted: {error}"

    def _counts(self, version: Version) -> Counts:
        if version not in self.counts:
            case = EmulatedCase(counted_kernel(self._of(version)), self.problem, self.tile, self.device)
            self.counts[version] = counts_of(case)
        return self.counts[version]

    def summary(self) -> str:
        """Return a summary: the number of versions, the best version that passed, and the verdict on the last."""
        if not self.tried:
            return "no version was tried"
        good = [tried for tried in self.tried if tried.good]
        lines = [f"{count(len(self.tried), 'version')} tried, {len(good)} passed"]
        if timed := [(tried.interval.median, tried.version.name) for tried in good if tried.interval]:
            time_s, name = min(timed)
            lines.append(f"best: {name}, {seconds(time_s)} (its own median, not measured in turn)")
        elif good:
            lines.append(f"last that passed: {good[-1].version.name}")
        last = self.tried[-1]
        return "\n".join([*lines, f"last: {last.version.name}, {last.state}"])


class Log:
    """The history of the session's kernel on its problem."""

    def __init__(self, store: Store, session: WatchSession) -> None:
        self._store, self._session = store, session
        self._numbers: dict[int, int] = {}

    def add(self, files: Files) -> None:
        """Add the version that the session tried last. files: the saved contents. Raises UsageError."""
        tried = self._session.tried[-1]
        folder = tried.version.source.parent
        included = with_includes(tried.version.source, cuda_sources()).items()
        # contents as saved, since includes are renamed in the copies
        sources = {path.name: files.get(path.name, text) if path.parent == folder else text for path, text in included}
        self._numbers[tried.version.number] = self._store.add_version(self._version(tried), sources)

    def _version(self, tried: Tried) -> KernelVersion:
        session, rows, launches = self._session, tried.rows, tried.launches
        interval = tried.interval
        first = rows[0] if interval else None
        return KernelVersion(
            kernel=session.kernel.base_id,
            problem=session.problem.id,
            saved_at=datetime.now(UTC).isoformat(timespec="seconds"),
            by=WATCH,
            verdict=tried.state,
            right=False if tried.against else True if tried.judged else None,
            tile=tile_text(vars(session.tile)),
            device=first.device_name if first else "",
            mode=Mode.COLD if first else "",
            arch=session.arch,
            registers=max((launch.registers for launch in launches), default=None),
            spill_bytes=max((launch.spill_bytes for launch in launches), default=None),
            time_s=interval.median if interval else None,
            low=interval.low if interval else None,
            high=interval.high if interval else None,
            compared=tuple(filter(None, (self._compared(tried, row) for row in rows[1:]))) if first else (),
        )

    def _compared(self, tried: Tried, other: Measurement) -> VersionRatio | None:
        """Return the version's speed relative to another kernel of its job; None if they were not sampled in turn."""
        is_in_turn = other.status == Status.OK and other.job == tried.rows[0].job
        ratio = paired([other.samples], [tried.rows[0].samples]) if is_in_turn else None
        if ratio is None:
            return None
        comparison = self._session.comparison
        if (before := tried.beside) is None or comparison is None or other.kernel != comparison.ids[1]:
            return VersionRatio(ratio.median, ratio.low, ratio.high, other.kernel)
        number = self._numbers.get(before.number)
        return VersionRatio(ratio.median, ratio.low, ratio.high, "" if number else before.name, number)
