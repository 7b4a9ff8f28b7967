"""What a version of a kernel counts beside the version before, as `kernelmark watch` shows it."""

from collections.abc import Iterator

from kernelmark.bench.report.format import digits, size
from kernelmark.bench.report.layout import TableColumn, table
from kernelmark.bench.tune.profile.counted import Counts


def change_table(now: Counts, before: Counts | None) -> str:
    """Return the totals of a version; what differs from the version before shows the old value."""
    old = dict(_figures(before or now))
    cells = [(name, new if new == old[name] else f"{new} (was {old[name]})") for name, new in _figures(now)]
    ran = sum(launch.run_blocks for launch in now.launches)
    blocks = sum(launch.blocks for launch in now.launches)
    of = f"all of {blocks:,} blocks" if ran == blocks else f"{ran:,} of {blocks:,} blocks, which stand for all"
    return table((TableColumn("counted"), TableColumn(of)), cells)


def _figures(counts: Counts) -> Iterator[tuple[str, str]]:
    total = counts.total
    yield "warp instructions", f"{total.warp_instructions:,}"
    yield "multiply-adds", "unknown" if total.fma is None else f"{total.fma:,}"
    yield "active lanes", digits(total.active_lanes / max(total.warp_instructions, 1))
    yield "sectors", _of_least(total.sectors, total.least_sectors)
    yield "wavefronts", _of_least(total.wavefronts, total.least_wavefronts)
    yield "to and from L2", size(counts.block_bytes_read + counts.block_bytes_written)


def _of_least(found: int, least: int) -> str:
    return f"{found:,}, {found / least:.2f}x the least" if least else "0"
