"""Merged shards equal the undivided run, on a fake device; shards that do not belong together are refused."""

import itertools
import sqlite3
from contextlib import closing

import pytest

from kernelmark.bench.measure.measurement import Ceiling, Measurement
from kernelmark.bench.record.merge import merge_files
from kernelmark.bench.record.store import Store
from kernelmark.bench.record.versions import KernelVersion
from kernelmark.bench.run.session import taken_up
from support.rows import begin, put
from support.shards import measure, rows, suite_file


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Return a folder with a suite measured whole (`whole.db`) and in three shards (`1.db` to `3.db`)."""
    folder = tmp_path_factory.mktemp("shards")
    suite = suite_file(folder)
    measure(folder / "whole.db", suite)
    for index in (1, 2, 3):
        measure(folder / f"{index}.db", suite, f"{index}/3")
    return folder


def paths(folder, *names):
    return [folder / f"{name}.db" for name in names]


def content(db):
    """Return the rows of a store's main tables, sorted."""
    with closing(sqlite3.connect(db)) as opened:
        tables = ("run", "result", "ratio", "evidence", "layer", "ceiling", "machine")
        return {name: sorted(opened.execute(f"SELECT * FROM {name}").fetchall(), key=repr) for name in tables}


def test_merged_shards_have_the_rows_of_the_undivided_run(shards, tmp_path):
    result = merge_files(tmp_path / "all.db", paths(shards, 1, 2, 3))
    assert result.rows == len(rows(shards / "whole.db")) == 24 * 3
    assert rows(tmp_path / "all.db") == rows(shards / "whole.db")
    with Store(tmp_path / "all.db") as merged, Store(shards / "whole.db") as whole:
        (run,) = merged.runs()
        assert run["planned"] == whole.runs()[0]["planned"] == result.rows
        assert run["run_id"].startswith("3-shards-")
        assert run["finished_at"]
        assert merged.layers(run["run_id"]) == whole.layers(whole.run_ids()[0]) != []
        speedups = [r.speedup for r, _ in merged.results(run["run_id"])]
        assert speedups == [r.speedup for r, _ in whole.results(whole.run_ids()[0])]
        assert any(speedups)
    ratios = [[row[1:] for row in content(db)["ratio"]] for db in (tmp_path / "all.db", shards / "whole.db")]
    assert sorted(ratios[0]) == sorted(ratios[1]) != []
    merge_files(tmp_path / "a.db", paths(shards, 1, 3))
    with Store(tmp_path / "a.db") as partial:
        assert partial.runs()[0]["finished_at"] is None
    merge_files(tmp_path / "again.db", [tmp_path / "a.db", shards / "2.db"])  # a.db is itself a merged store
    assert rows(tmp_path / "again.db") == rows(shards / "whole.db")


def test_the_order_of_files_and_the_number_of_merges_do_not_matter(shards, tmp_path):
    contents = []
    for i, order in enumerate(itertools.permutations((1, 2, 3))):
        at_once, one_by_one = tmp_path / f"{i}.db", tmp_path / f"{i}-one.db"
        merge_files(at_once, paths(shards, *order))
        contents.append(content(at_once))
        assert merge_files(at_once, paths(shards, 2, 1, 1)).rows == 0
        for index in (*order, order[0]):
            merge_files(one_by_one, paths(shards, index))
        contents += [content(at_once), content(one_by_one)]
    assert all(merged == contents[0] for merged in contents)


def test_a_resumed_shard_adds_its_new_rows(tmp_path):
    suite = suite_file(tmp_path, range(1, 7))
    run_id = measure(tmp_path / "1.db", suite, "1/2", most=3)
    measure(tmp_path / "2.db", suite, "2/2")
    measure(tmp_path / "whole.db", suite)
    merge_files(tmp_path / "all.db", paths(tmp_path, 1, 2))
    early = len(rows(tmp_path / "all.db"))
    measure(tmp_path / "1.db", suite, "1/2", resume=run_id)
    assert merge_files(tmp_path / "all.db", paths(tmp_path, 1)).rows == len(rows(tmp_path / "whole.db")) - early > 0
    assert rows(tmp_path / "all.db") == rows(tmp_path / "whole.db")


def test_runs_that_are_not_shards_are_copied_with_samples_ceilings_and_versions(store, tmp_path):
    begin(store, "r1", name="base")
    put(store, "gemm/m8n8k8/f32/NN", "gemm/some.base", dims={"m": 8}, baseline="gemm/some.base")
    put(store, "gemm/m8n8k8/f32/NN", "gemm/some.own", dims={"m": 8}, baseline="gemm/some.base", speedup=2.0)
    store.add_ceiling("r1", Ceiling("cpu", 1, "memory", "copy/m1n1/f32", "copy/k", "x", 1e9, 9e8, 1e9, 1e9, "2026"))
    version = KernelVersion(kernel="k", problem="p", saved_at="2026", by="watch", verdict="right", right=True)
    store.add_version(version, {"k.cu": b"x"})
    store.close()
    target = tmp_path / "all.db"
    assert merge_files(target, [store.path]).copied == ["r1"]
    before = content(target)
    merge_files(target, [store.path])
    assert content(target) == before
    with Store(target) as merged, Store(store.path) as original:
        assert merged.runs() == original.runs()
        assert list(merged.records("r1", samples=True)) == list(original.records("r1", samples=True))
        assert merged.ceilings("r1") == original.ceilings("r1")
        (copied,) = merged.versions("k", "p")
        assert copied.version == version


def test_missing_shards_can_be_added_after_another_run(shards, begun, tmp_path):
    target = tmp_path / "all.db"
    put(begun, "gemm/m8n8k8/f32/NN", "gemm/some.own", dims={"m": 8})
    begun.close()
    merge_files(target, paths(shards, 3))
    merge_files(target, [begun.path])
    merge_files(target, paths(shards, 1, 2))
    with Store(target) as merged:
        (run_id,) = [name for name in merged.run_ids() if "-shards-" in name]
    assert (rows(target, run_id), len(rows(target, "r1"))) == (rows(shards / "whole.db"), 1)


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"shard": "2/4"}, "the number of shards is 4, but in {1} it is 3"),
        ({"seed": 7}, "plan.seed is 7, but in {1} it is 0"),
        ({"sizes": range(1, 14)}, "the digest of the suite is "),
        ({"commit": "c0ffee"}, "the commit is c0ffee, but in {1} it is "),
        ({"shard": "1/3"}, "shard 1/3 is run "),
    ],
)
def test_shards_that_do_not_belong_together_are_refused_with_the_reason(shards, tmp_path, complaint, change, refusal):
    change = dict(change)
    suite = suite_file(tmp_path, change.pop("sizes", range(1, 13)))
    commit = change.pop("commit", "")
    other = tmp_path / "other.db"
    measure(other, suite, **{"shard": "2/3", **change})
    if commit:
        with closing(sqlite3.connect(other)) as db, db:
            db.execute("UPDATE run SET git_commit = ?", (commit,))
    line = complaint(lambda: merge_files(tmp_path / "all.db", [shards / "1.db", other]))
    assert refusal.replace("{1}", str(shards / "1.db")) in line
    assert "(--db)" in line
    merge_files(tmp_path / "all.db", paths(shards, 1))
    assert refusal.partition("{1}")[0] in complaint(lambda: merge_files(tmp_path / "all.db", [other]))


@pytest.mark.parametrize(
    ("statement", "refusal"),
    [
        ("UPDATE result SET time_s_median = 2 * time_s_median WHERE time_s_median > 0", "differ in the row of copy/"),
        ("UPDATE run SET started_at = '2026-01-01T00:00:00+00:00'", " and the one in "),
    ],
)
def test_a_run_that_differs_from_its_merged_copy_is_refused(shards, begun, tmp_path, complaint, statement, refusal):
    put(begun, "copy/m8n8/f32", "copy/some.own", dims={"m": 8})
    begun.close()
    for number, path in enumerate((shards / "1.db", begun.path)):
        target, changed = tmp_path / f"all{number}.db", tmp_path / f"changed{number}.db"
        merge_files(target, [path])
        with closing(sqlite3.connect(path)) as db, closing(sqlite3.connect(changed)) as copy:
            db.backup(copy)
        with closing(sqlite3.connect(changed)) as db, db:
            db.execute(statement)
        before = content(target)
        assert refusal in complaint(lambda target=target, changed=changed: merge_files(target, [changed]))
        assert content(target) == before


def test_a_file_that_is_no_store_is_refused_before_anything_is_merged(shards, tmp_path, complaint):
    target, bad = tmp_path / "all.db", tmp_path / "bad.db"

    def refused():
        return complaint(lambda: merge_files(target, [shards / "1.db", bad])).removeprefix(f"{bad}: ")

    assert refused().startswith("there is no such file")
    bad.write_bytes(b"")
    assert refused().startswith("is empty")
    bad.write_bytes(b"no database " * 1000)
    assert refused().startswith("cannot be used as a store")
    bad.unlink()
    Store(bad).close()
    assert refused().startswith("holds no run")
    with closing(sqlite3.connect(bad)) as db:
        db.execute("PRAGMA user_version = 99")
    assert refused().startswith("has schema 99, expected 10, which this kernelmark reads; ")
    assert not target.exists()
    assert "is the target of the merge" in complaint(lambda: merge_files(shards / "1.db", paths(shards, 1)))


def test_a_name_that_another_run_has_is_refused(store, shards, tmp_path, complaint):
    begin(store, "r1", name="sweep")
    store.close()
    measure(tmp_path / "1.db", shards / "s.toml", "1/3", name="sweep")
    assert "run r1" in complaint(lambda: merge_files(store.path, [tmp_path / "1.db"]))


def test_processes_of_another_host_are_not_pooled(begun, complaint):
    run = begun.run("r1")
    begun.set_aside("r1", 0, 1, [Measurement(kernel="copy/k", host="elsewhere")])
    assert "has processes of host elsewhere, which are not pooled" in complaint(lambda: taken_up(begun, "r1", run))
