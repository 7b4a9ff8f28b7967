"""The leads of all contests of a run at once."""

from collections import defaultdict
from collections.abc import Iterable

from kernelmark.bench.record.reader import Reader
from kernelmark.bench.record.records import Groups
from kernelmark.bench.report.contest import Contest, faster


def know_leads(found: Iterable[Contest], store: Reader, run_id: str) -> None:
    """Form the leads of a run's contests from one pass over its rows: a question for each would take far longer."""
    waiting: dict[str, list[Contest]] = defaultdict(list)
    for c in found:
        for r in c.ranked[:2] if len(c.ranked) > 1 else ():
            waiting[r.case].append(c)
    halves: dict[int, Groups] = {}
    for case, groups in store.all_by_process(run_id, waiting):
        for c in waiting[case]:
            half = halves.pop(id(c), None)
            if half is None:
                halves[id(c)] = groups
                continue
            one, other = c.ranked[:2]
            pair = (half, groups) if case == one.case else (groups, half)
            c.known[one.case, other.case] = faster(store, one, other, pair)
