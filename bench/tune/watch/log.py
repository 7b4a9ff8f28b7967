"""What `watch` keeps of a version in the history of a kernel: what was found, and the files as they were saved."""

from datetime import UTC, datetime

from kernelmark.bench.measure.compile import cuda_sources, with_includes
from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.status import Status
from kernelmark.bench.plan.tiles import tile_text
from kernelmark.bench.record.store import Store
from kernelmark.bench.record.versions import WATCH, KernelVersion, VersionRatio
from kernelmark.bench.report.contest import paired
from kernelmark.bench.tune.watch.session import Tried, WatchSession
from kernelmark.bench.tune.watch.source import Files, Version


class Log:
    """The history of the session's kernel on its problem, to which versions are added as they are tried."""

    def __init__(self, store: Store, session: WatchSession) -> None:
        self._store, self._session = store, session
        self._numbers: dict[int, int] = {}

    def add(self, files: Files) -> None:
        """Add the version that the session has looked at last; files: as they were saved. Raises UsageError."""
        tried = self._session.tried[-1]
        sources = _sources(tried.version, files)
        self._numbers[tried.version.number] = self._store.add_version(self._version(tried), sources)

    def _version(self, tried: Tried) -> KernelVersion:
        session, rows, launches = self._session, tried.rows, tried.launches
        own = rows[0] if tried.time_s is not None else None
        interval = own.interval if own else None
        return KernelVersion(
            kernel=session.kernel.base_id,
            problem=session.problem.id,
            saved_at=datetime.now(UTC).isoformat(timespec="seconds"),
            by=WATCH,
            verdict=tried.state,
            right=False if tried.against else True if tried.judged else None,
            tile=tile_text(vars(session.tile)),
            device=own.device_name if own else "",
            mode=Mode.COLD if own else "",
            arch=session.arch,
            registers=max((launch.registers for launch in launches), default=None),
            spill_bytes=max((launch.spill_bytes for launch in launches), default=None),
            time_s=interval.median if interval else None,
            low=interval.low if interval else None,
            high=interval.high if interval else None,
            compared=tuple(filter(None, (self._compared(tried, row) for row in rows[1:]))) if own else (),
        )

    def _compared(self, tried: Tried, other: Measurement) -> VersionRatio | None:
        """Return how the version stands to another of its job; None where that was not sampled in turn with it."""
        present = tried.rows[0]
        if other.status != Status.OK or other.job != present.job:
            return None
        if (ratio := paired([other.samples], [present.samples])) is None:
            return None
        if (before := tried.beside) is None or other.kernel != self._session.previous_id:
            return VersionRatio(ratio.median, ratio.low, ratio.high, other.kernel)
        number = self._numbers.get(before.number)
        return VersionRatio(ratio.median, ratio.low, ratio.high, "" if number else before.name, number)


def _sources(version: Version, files: Files) -> dict[str, bytes]:
    """Return the file and what it includes; of the copies the contents before their includes were renamed."""
    folder = version.source.parent
    found = with_includes(version.source, cuda_sources()).items()
    return {path.name: files.get(path.name, text) if path.parent == folder else text for path, text in found}
