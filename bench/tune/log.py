"""What `tune` keeps in the history of a kernel: the tile that it adopted, beside the sources as they are now."""

from kernelmark.bench.record.store import Store
from kernelmark.bench.record.versions import TUNE, KernelVersion, VersionRatio
from kernelmark.bench.report.format import row_time
from kernelmark.bench.tune.race import RaceOutcome
from kernelmark.bench.tune.static import arch_here
from kernelmark.bench.tune.use import sources_of


def log_adopted(store: Store, verdict: RaceOutcome) -> None:
    """Add the tile that a race has adopted to the history of its kernel on the problem; nothing where there is none."""
    row, tile = verdict.adopted, verdict.raced.decision.best
    if row is None or tile is None:
        return
    kernel, ratio = verdict.subject.kernel, verdict.raced.decision.ratios[tile]
    used = store.resources(verdict.raced.tunes.search).get(row.case)
    time_s, low, high = row_time(row)
    version = KernelVersion(
        kernel=kernel.base_id,
        problem=row.problem,
        saved_at=row.started_at,
        by=TUNE,
        verdict="PASS, adopted",
        right=True,
        tile=tile,
        device=row.device_name,
        mode=row.mode,
        threads=row.threads,
        arch=arch_here(kernel) if used else "",
        registers=used.registers if used else None,
        spill_bytes=used.spill_bytes if used else None,
        time_s=time_s,
        low=low,
        high=high,
        processes=row.processes,
        run=row.run_id,
        compared=(VersionRatio(ratio.median, ratio.low, ratio.high, kernel.base_id),),
    )
    store.add_version(version, sources_of(kernel))
