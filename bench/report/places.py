"""Tables of a run's places (its hosts and their devices), and of the differences between their ceilings.

Every host and GPU of a run measures the same ceilings. They show how much two machines, or two devices with the same
name, differ.
"""

from collections.abc import Iterator, Mapping
from html import escape

from kernelmark.bench.measure.measurement import Ceiling, Need
from kernelmark.bench.record.reader import Reader
from kernelmark.bench.report.anonymity import NAMES, hidden
from kernelmark.bench.report.contest import Ratio
from kernelmark.bench.report.format import digits
from kernelmark.bench.report.layout import TableColumn, paragraph, table

_PLACES = (
    TableColumn("place", "right"),
    TableColumn("host"),
    TableColumn("device", wraps=32),
    TableColumn("uuid", spare=1),
    TableColumn("rows", "right"),
)


def places(store: Reader, run_id: str, style: str = "simple", identify: bool = True) -> Iterator[str]:
    """Yield tables of a run's hosts and devices and of their ceilings; none for a single host with one GPU.

    identify: show the names of hosts and devices, not hashes.
    """
    machines = store.machines(run_id)
    if len({m.host for m in machines}) < 2 and len({m.device_uuid for m in machines if m.device_uuid}) < 2:
        return
    best = best_ceilings(store, run_id)
    numbers = {at: i for i, at in enumerate(dict.fromkeys([*((m.host, m.device_uuid) for m in machines), *best]), 1)}
    cells = []
    for m in machines:
        at = m.host, m.device_uuid
        host, uuid = at if identify else map(hidden, NAMES, at)
        cells.append((str(numbers[at]), host, m.device, uuid, str(m.rows)))
    yield table(_PLACES, cells, style, titled=style == "simple")
    yield from apart({numbers[at]: by_need for at, by_need in best.items()}, "place", style)


def best_ceilings(store: Reader, run_id: str) -> dict[tuple[str, str], dict[Need, Ceiling]]:
    """Return the best value of each valid ceiling, by host and device UUID."""
    best: dict[tuple[str, str], dict[Need, Ceiling]] = {}
    for ceiling, doubt in store.ceilings(run_id):
        by_need = best.setdefault((ceiling.host, ceiling.device_uuid), {})
        if not doubt and ceiling.rate > (by_need[ceiling.need].rate if ceiling.need in by_need else 0):
            by_need[ceiling.need] = ceiling
    return best


def apart(best: Mapping[int, Mapping[Need, Ceiling]], what: str, style: str = "simple") -> Iterator[str]:
    """Yield a table of the ceilings that several shards or places have measured, then a sentence on how many are alike.

    best: the best ceilings of each shard or place, by its number. what: the word in the table, `shard` or `place`.
    """
    cells, unlike = [], list[str]()
    for need in dict.fromkeys(need for by_need in best.values() for need in by_need):
        ranked = sorted(
            ((by_need[need], number) for number, by_need in best.items() if need in by_need), key=lambda o: o[0].rate
        )
        if len(ranked) > 1:
            (low, low_of), (high, high_of) = ranked[0], ranked[-1]
            name = f"{need.device} {need.kind}" + (f" x{need.threads}" if need.device == "cpu" else "")
            over, under = (Ratio(ceiling.rate, ceiling.low, ceiling.high) for ceiling in (high, low))
            ratio = over.over(under)._replace(elsewhere=True)
            cells.append((name, need.problem, _rate(low), str(low_of), _rate(high), str(high_of), ratio.words))
            unlike += [name] * ratio.certain
    if cells:
        of = TableColumn(f"of {what}", "right", spare=1)
        ends = TableColumn("lowest", "right"), of, TableColumn("highest", "right"), of
        heads = TableColumn("ceiling"), TableColumn("on", spare=2), *ends, TableColumn("highest over lowest", wraps=24)
        yield table(heads, cells, style, titled=style == "simple")
        differ = f"; others: {', '.join(dict.fromkeys(unlike))}" if unlike else ""
        sentence = f"ceilings that agree everywhere: {len(cells) - len(unlike)} of {len(cells)}{differ}"
        yield f"<p>{escape(sentence)}</p>" if style == "html" else paragraph(sentence, rest="")


def _rate(ceiling: Ceiling) -> str:
    return f"{digits(ceiling.rate * 1e-9)} {ceiling.rate_unit}"
