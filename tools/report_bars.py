"""What the project promises of reports, measured: rows of (promise, found, holds) for `make bars`.

Stores of synthetic rows are reported by a process; the page of the larger one is filtered in a headless Chromium.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from browser import browser_missing, chromium
from report_rows import many
from throughput_bars import main
from took import Took, kernelmark

FEW, MANY = 10_000, 100_000
LONGEST_S, LARGEST_BYTES = 20.0, 500e6
LARGEST_PAGE_BYTES, SLOWEST_FILTER_S = 20e6, 0.2
#: Each on top of the others: what a reader asks for until few rows are left, and all of them again.
FILTERS = (("kernel", "k3"), ("problem", "NT"), ("mode", "cold"), ("problem", "m10"), ("kernel", ""), ("problem", ""))
FILTER = """
const input = document.getElementById('filter-' + arguments[0]);
input.value = arguments[1];
const began = performance.now();
input.dispatchEvent(new Event(input.tagName === 'SELECT' ? 'change' : 'input'));
document.body.offsetHeight;
return performance.now() - began;
"""


def report_bars() -> Iterator[tuple[str, str, bool]]:
    """Seconds and memory of a report of 10,000 rows; size and filters of a page of 100,000."""
    with tempfile.TemporaryDirectory() as folder:
        found, _ = reported(Path(folder), FEW)
        promise = f"report: {FEW} rows in {LONGEST_S:g} s and {LARGEST_BYTES * 1e-6:g} MB"
        yield promise, str(found), found.wall_s <= LONGEST_S and found.peak_bytes <= LARGEST_BYTES
        found, page = reported(Path(folder), MANY)
        size, promise = page.stat().st_size, f"report: a page of {MANY} rows under {LARGEST_PAGE_BYTES * 1e-6:g} MB"
        yield promise, f"{size * 1e-6:.1f} MB ({found})", size < LARGEST_PAGE_BYTES
        yield filtering(page)


def reported(folder: Path, count: int) -> tuple[Took, Path]:
    """Return what a report of `count` rows took, and its page."""
    from kernelmark.bench.record.store import Store

    store = Store(folder / f"{count}.db")
    many(store, count)
    store.close()
    out = folder / str(count)
    return kernelmark("report", "--db", str(store.path), "--out", str(out)), out / "index.html"


def filtering(page: Path) -> tuple[str, str, bool]:
    """The slowest of the filters, the sorted table laid out again after each."""
    promise = f"report: {MANY} rows filter in {SLOWEST_FILTER_S * 1e3:g} ms"
    if missing := browser_missing():
        return promise, f"not measured: {missing}", False
    with chromium() as browser:
        browser.get(page.as_uri())
        times = [browser.execute_script(FILTER, name, value) * 1e-3 for name, value in FILTERS for _ in range(3)]
        browser.execute_script("document.querySelector('th[data-name=time_s_median] button').click()")
        times += [browser.execute_script(FILTER, name, value) * 1e-3 for name, value in FILTERS]
    found = f"median {median(times) * 1e3:.0f} ms, slowest {max(times) * 1e3:.0f} ms"
    return promise, found, max(times) < SLOWEST_FILTER_S


if __name__ == "__main__":
    main(report_bars)
