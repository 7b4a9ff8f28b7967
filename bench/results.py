"""The rows of a run as objects, for notebooks and programs: `kernelmark.load`."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.record.columns import Result
from kernelmark.bench.record.store import Store, default_store
from kernelmark.bench.record.table import Coded, Floats, Table
from kernelmark.bench.report.anonymity import hidden
from kernelmark.bench.report.format import factor, row_time, seconds, spread
from kernelmark.bench.report.layout import TableColumn, table

#: The maximum number of rows that a notebook shows.
SHOWN = 100
_COLUMNS = tuple(map(TableColumn, ("problem", "kernel", "mode", "threads", "time", "95 %", "speedup", "status")))


class RowRatio(NamedTuple):
    """The speed of a row over the speed of another row, from samples taken in turn. low, high: the 95 % interval.

    against: the baseline of the row's problem, or a variant of the problem (the column `against`).
    """

    problem: str
    kernel: str
    against: str
    ratio: float
    low: float | None
    high: float | None


class Samples(Mapping[str, Sequence[float]]):
    """The samples of each case, in seconds per call, in the order in which they were taken; read from the store."""

    def __init__(self, db: Path, run_id: str, rows: Sequence[Result]) -> None:
        self._db, self._run_id, self._rows = db, run_id, rows

    def __getitem__(self, case: str) -> Sequence[float]:
        with Store(self._db, create=False) as store:
            if not store.has(self._run_id, case):
                raise KeyError(case)
            return store.samples(self._run_id, case)

    def __iter__(self) -> Iterator[str]:
        return (row.case for row in self._rows)

    def __len__(self) -> int:
        return len(self._rows)


class Results:
    """A run: its rows, whose attributes are the columns of docs/columns.md, its samples by case, and its ratios."""

    def __init__(self, db: Path, run_id: str, run_table: Table) -> None:
        self.run_id, self._table = run_id, run_table
        self.rows = run_table.rows
        self.samples = Samples(db, run_id, run_table.rows)

    @property
    def ratios(self) -> list[RowRatio]:
        """Return each row's speedup over its baseline, and its ratio to a variant of its problem, such as NT to NN."""
        columns, ratios = self._table.columns, []
        for against, ratio in (("baseline", "speedup"), ("against", "ratio")):
            names = ("problem", "kernel", against, ratio, f"{ratio}_ci95_low", f"{ratio}_ci95_high")
            every = zip(*(columns[name] for name in names), strict=True)
            ratios += [RowRatio(*values) for values in every if values[3] is not None]
        return ratios

    def to_pandas(self) -> Any:
        """Return a DataFrame: the columns of CSV, with the dimensions of the problems last."""
        try:
            import pandas as pd
        except ImportError:
            raise UsageError("to_pandas: pandas is not installed; pip install pandas") from None
        import numpy as np

        def column(values: Sequence[Any], codes: Any) -> Any:
            if any(isinstance(value, str) for value in values):  # pandas' string type would store each cell separately
                return pd.Series(np.array(values, object)[np.asarray(codes)], dtype=object, copy=False)
            return pd.Series(pd.array(values).take(np.asarray(codes)), copy=False)

        def series(name: str, coded: Coded | Floats) -> Any:
            if isinstance(coded, Floats):
                return np.array(coded.numbers, float)
            return column([hidden(name, value) for value in coded.values], coded.codes)

        dims = self._table.dims
        others = dict.fromkeys(name for known in dims.values for name in known if name not in self._table.columns)
        columns = {name: series(name, coded) for name, coded in self._table.columns.items()}
        columns |= {name: column([known.get(name) for known in dims.values], dims.codes) for name in others}
        return pd.DataFrame(columns, copy=False)

    def _repr_html_(self) -> str:
        cells = [_cells(row) for row in self.rows[:SHOWN]]
        more = f"<p>and {len(self.rows) - SHOWN} more rows</p>" if len(self.rows) > SHOWN else ""
        return f"<p>run {self.run_id}</p>{table(_COLUMNS, cells, 'html')}{more}"

    def __repr__(self) -> str:
        return f"<run {self.run_id}: {len(self.rows)} rows>"


def _cells(row: Result) -> list[str]:
    median, low, high = row_time(row)
    time = [seconds(median), spread(median, low, high)] if median else ["", ""]
    speedup = factor(row.speedup, row.speedup_ci95_low, row.speedup_ci95_high) if row.speedup else ""
    status = f"{row.status}: {row.reason}" if row.reason else row.status
    return [row.problem, row.kernel, row.mode, str(row.threads), *time, speedup, status]


def load(run: str | None = None, db: str | Path | None = None) -> Results:
    """Return a run, given its id, its name or a prefix of either; by default the latest. Raises UsageError."""
    path = Path(db) if db is not None else default_store()
    with Store(path, create=False) as store, store.snapshot():
        run_id = store.find_run(run)["run_id"]
        return Results(store.path, run_id, store.table(run_id))
