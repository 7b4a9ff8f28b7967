"""Damage to the bytes of any file, and to what is in a store."""

from hypothesis import strategies as st

from fuzz.inputs import Damage
from kernelmark.bench.record.schema import SCHEMA_VERSION

_VALUES = (
    "'x'", "''", "-1", "0", "1e999", "-1e999", "x'ff00'", "CAST(x'ff' AS TEXT)", "9223372036854775807", "'[]'", "'{}'",
    "'null'", "NULL",
    "zeroblob(8)", "zeroblob(7)", "'NaN'", "'{\"a\": 1e999}'", "printf('%.*c', 100000, 'x')",
    "'a|b' || char(10) || char(27)", "1.5",
)  # fmt: skip
_COLUMNS = {
    "run": "run_id machine_id started_at finished_at suites command environment git_commit plan name planned",
    "result": "case op problem kernel device mode dtype numerics layout threads status reason samples time_s_median "
    "time_s_min time_s_ci95_low gflop_per_s roofline_pct baseline speedup started_at disturbed count interval job seed "
    "dims part_blob sample_blob",
    "ceiling": "device threads kind rate low best measured_at doubt clock_mhz",
    "machine": "facts",
    "layer": "network problem part count",
    "version": "kernel problem facts digest",
    "source": "digest files",
}
_VERSIONS = (-1, 0, 1, 4, 5, SCHEMA_VERSION - 1, SCHEMA_VERSION + 1, 99)
_STATEMENTS = (
    *(f"DROP TABLE {table}" for table in (*_COLUMNS, "ratio", "layer", "evidence", "pending")),
    *(f"DELETE FROM {table}" for table in _COLUMNS),
    *(f"PRAGMA user_version = {version}" for version in _VERSIONS),
    "ALTER TABLE result DROP COLUMN reason",
    "ALTER TABLE run RENAME COLUMN plan TO plans",
    "CREATE TRIGGER t BEFORE INSERT ON result BEGIN SELECT RAISE(FAIL, 'no'); END",
    "PRAGMA journal_mode = DELETE",
    "PRAGMA journal_mode = DELETE; PRAGMA encoding = 'UTF-16'; VACUUM",
)


def damages() -> st.SearchStrategy[tuple[Damage, ...]]:
    """Damage from outside, and from within as SQL."""
    at = st.floats(0, 1, exclude_max=True)
    columns = [(table, column) for table, names in _COLUMNS.items() for column in names.split()]
    updates = st.builds('UPDATE {0[0]} SET "{0[1]}" = {1}'.format, st.sampled_from(columns), st.sampled_from(_VALUES))
    sizes = st.sampled_from([1, 2, 7, 16, 100, 512, 4096, 10_000])
    one = st.one_of(
        st.builds(Damage, st.just("flip"), at, st.integers(0, 7)),
        st.builds(Damage, st.just("zero"), at, sizes),
        st.builds(Damage, st.just("cut"), at),
        st.builds(
            Damage,
            st.sampled_from(["over", "insert"]),
            at,
            text=st.sampled_from(["\udcff" * 64, "\0" * 16, "x" * 5000]),
        ),
        updates.map(lambda sql: Damage("sql", text=sql)),
        updates.map(lambda sql: Damage("sql", text=sql)),
        st.sampled_from(_STATEMENTS).map(lambda sql: Damage("sql", text=sql)),
    )
    return st.lists(one, min_size=1, max_size=3).map(tuple)
