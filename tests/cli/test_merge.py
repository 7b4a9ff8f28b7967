"""Shards as commands: what a run would take, what `merge` prints, and what is refused in one line."""

import re
import sqlite3
from contextlib import closing

import pytest

from kernelmark.bench.measure.ceiling import Ceiling
from kernelmark.bench.record.store import Store
from support.shards import measure, suite_file

QUICK = ("--mode", "hot", "--max-time", "0.01", "--no-ceilings", "--threads", "1", "--kernels", "copy/numpy.copyto")
SUITE = "[[sweep]]\nop = 'copy'\ndtype = ['f32', 'f64']\nn = 5\nm = [1, 2, 3, 4, 5]\n"


@pytest.fixture
def shards(tmp_path):
    """Two of three shards on the fake device, the second with another host and other ceilings; their paths."""
    suite = suite_file(tmp_path, range(1, 7))
    found = []
    for index, (host, rate) in enumerate((("one", 1e9), ("two", 2e9)), 1):
        path = tmp_path / f"{index}.db"
        run_id = measure(path, suite, f"{index}/3")
        with closing(Store(path)) as store:
            ceiling = Ceiling(
                "cpu", 2, "memory", "copy/m9n9/f32", "copy/k", "x", rate, 0.9 * rate, 1.1 * rate, rate, "1"
            )
            store.add_ceiling(run_id, ceiling)
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("UPDATE result SET host = ?", (host,))
            db.execute("UPDATE run SET environment = json_set(environment, '$.versions.numpy', ?)", (host,))
        found.append(str(path))
    return found


def test_a_merge_names_hosts_what_differs_and_what_is_missing(called, shards):
    printed = called("merge", *reversed(shards), "--db", "all.db").printed
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    assert re.fullmatch(r"run 3-shards-[0-9a-f]{8}: 2 of 3 shards, \d+ of 36 cases", lines[0])
    assert [line.split()[0] for line in lines if re.match(r"\d/3 \d", line)] == ["1/3", "2/3"]
    assert [line.split()[2] for line in lines if re.match(r"\d/3 \d", line)] == ["one", "two"]
    assert any(line.startswith("cpu memory x2 copy/m9n9/f32 1.00 GB/s 1 2.00 GB/s 2 2x [1.64, 2.44]") for line in lines)
    assert "not alike on all shards: environment.versions.numpy is one (1), two (2)" in lines
    assert "shard 3 of 3 is missing; merge what has been measured since" in lines
    assert any(re.match(r"3/3: copy/m\dn1/f", line) for line in lines)
    partial = called("show", "--db", "all.db").out
    assert "`kernelmark merge` adds shards that are missing or went on" in partial
    refused = called("run", "--resume", lines[0].split()[1].rstrip(":"), "--db", "all.db")
    assert refused.status == 2
    assert "is merged of shards" in refused.err


@pytest.mark.parametrize("columns", ["80", "100", "200"])
def test_what_a_merge_prints_is_no_wider_than_the_terminal(called, shards, monkeypatch, columns):
    for path in shards:
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("UPDATE result SET host = host || '-of-a-cluster-with-a-long-name.example.org'")
            db.execute("UPDATE run SET environment = json_set(environment, '$.versions.torch', hex(randomblob(60)))")
    monkeypatch.setenv("COLUMNS", columns)
    lines = called("merge", *shards, "--db", "all.db").out.splitlines()
    assert any("not alike on all shards" in line for line in lines)
    assert [line for line in lines if len(line) > int(columns) and len(line.split()) > 1] == []


def test_problems_that_cannot_be_planned_again_are_not_listed(called, shards, tmp_path):
    (tmp_path / "s.toml").unlink()
    done = called("merge", *shards, "--db", "all.db")
    assert done.status == 0
    assert "their problems are not known here" in " ".join(done.out.split())


def test_shards_measured_by_the_command_are_the_whole_suite(called, tmp_path):
    (tmp_path / "s.toml").write_text(SUITE)
    for shard in ("1/2", "2/2"):
        done = called("run", "s.toml", "--shard", shard, *QUICK, "--db", f"{shard[0]}.db")
        assert done.status == 0, done.err
    done = called("merge", "1.db", "2.db", "--db", "all.db")
    assert "2 of 2 shards, 10 of 10 cases" in done.out
    assert "missing" not in done.out
    assert re.search(r",host-[0-9a-f]{8},", called("export", "--db", "all.db").out)
    assert not re.search(r",host-[0-9a-f]{8},", called("export", "--identify", "--db", "all.db").out)


def test_what_a_run_or_a_shard_would_take_is_listed_without_a_store(called, tmp_path):
    (tmp_path / "s.toml").write_text(SUITE)
    listed = called("run", "s.toml", "--list", *QUICK, "--db", "none.db")
    assert (listed.status, listed.err) == (0, "")
    assert listed.out.splitlines()[-1] == "5 comparison groups, 10 jobs, 10 cases"
    groups = [line.split()[0] for line in listed.out.splitlines() if line.startswith("copy/")]
    parts = [called("run", "s.toml", "--list", "--shard", f"{i}/2", *QUICK).out.splitlines() for i in (1, 2)]
    assert sorted(line.split()[0] for part in parts for line in part if line.startswith("copy/")) == sorted(groups)
    assert [part[-1].partition(":")[0] for part in parts] == ["shard 1/2", "shard 2/2"]
    assert not (tmp_path / "none.db").exists()


def test_a_dry_run_gives_what_was_measured_and_counts_what_was_not(called, tmp_path):
    (tmp_path / "s.toml").write_text(SUITE)
    words = ("run", "s.toml", *QUICK, "--db", "r.db")
    unknown = " ".join(called(*words, "--dry-run").out.split())
    assert "machine-hours: unknown for 10 of 10 cases" in unknown
    assert "store: unknown" in unknown
    assert not (tmp_path / "r.db").exists()
    assert called(*words).status == 0
    known = " ".join(called(*words, "--dry-run").out.split())
    assert "h for 10 of 10 cases, computed from what jobs took in 1 run on this machine" in known
    assert "computed from 10 rows" in known
    assert called(*words).status == 0
    assert re.search(
        r"machine-hours: \S+ h \[\S+ h, \S+ h\] for 10 of 10 cases", " ".join(called(*words, "--dry-run").out.split())
    )
    other = " ".join(called(*words[:-2], "--db", "r.db", "--rel-ci", "0.5", "--dry-run").out.split())
    assert "machine-hours: unknown for 10 of 10 cases" in other


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("run", "s.toml", "--shard", "0/4"), "'0/4', expected I/N with I from 1 to N"),
        (("run", "s.toml", "--shard", "9/8"), "'9/8', expected I/N with I from 1 to N"),
        (("run", "s.toml", "--shard", "x"), "'x', expected I/N with I from 1 to N"),
        (("run", "--resume", "r", "--list"), "--resume: goes on with a run, and --list and --dry-run begin none"),
        (("merge", "none.db"), "none.db: there is no such file"),
        (("merge",), "Missing argument 'FILE...'"),
    ],
)
def test_bad_usage_is_one_line(called, tmp_path, words, found):
    (tmp_path / "s.toml").write_text(SUITE)
    assert found in called(*words).refusal
