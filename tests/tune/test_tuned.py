"""The file of tuned tiles, and runs that take them."""

import json
from functools import partial
from pathlib import Path

import msgspec
import pytest

from kernelmark.bench.cli import doctor
from kernelmark.bench.cli.commands import cli
from kernelmark.bench.cli.defaults import NEVER
from kernelmark.bench.plan.case import Plan, jobs
from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.run.job import run_job
from kernelmark.bench.run.session import Session, run_jobs
from kernelmark.bench.tune.tuned import (
    TileFile,
    file_of,
    keep,
    opened,
    source_digest,
    tiles_in,
    usable,
    versions,
    with_tuned,
)
from support.tuning import entry as tuned_entry

PROBLEM = "copy/m64n1024/f32"
ROOT = Path(__file__).resolve().parents[2]


def entry(kernel, **others):
    """What tuning would keep of a kernel."""
    fields = {"kernel": kernel.id, "problem": PROBLEM, "tile": "WORK=1", "run": "20260101-race"}
    fields |= {"digest": source_digest(kernel), "versions": versions(kernel), "default": "WORK=4"}
    return tuned_entry(**{**fields, "ratio": 4.0, "low": 3.9, "high": 4.1, **others})


@pytest.fixture
def kernel(tuned):
    return tuned.registry.kernels["copy/mine.counted"]


@pytest.fixture
def file(tmp_path, monkeypatch):
    """The file of this machine's CPU, in the test's folder."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return file_of("auto", "cpu")


def plan_with(where, registry, **others):
    return with_tuned(Plan(devices=("cpu",), suites=(PROBLEM,), **others), where, registry)


def test_the_file_of_a_device_lies_with_the_results_and_has_its_name(file, tmp_path):
    assert file.path.parent == tmp_path / "data" / "kernelmark" / "tuned"
    assert file.path.suffix == ".json"
    assert tiles_in(file) == ()


def test_an_entry_is_kept_replaced_and_removed_by_kernel_problem_and_threads(file, kernel):
    one, other = entry(kernel), entry(kernel, threads=2)
    keep(file, one.key, one)
    keep(file, other.key, other)
    assert tiles_in(file) == (one, other)
    better = msgspec.structs.replace(one, tile="WORK=2")
    keep(file, one.key, better)
    assert tiles_in(file) == (better, other)
    keep(file, one.key, None)
    assert tiles_in(file) == (other,)
    assert [path.name for path in file.path.parent.iterdir()] == [file.path.name]


def test_where_the_default_stays_no_file_is_made(file, kernel):
    keep(file, entry(kernel).key, None)
    assert not file.path.exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is no file of tuned tiles: "),
        ("[1]", "is no file of tuned tiles: "),
        ('{"device": "x", "tiles": [{"kernel": 1}]}', "is no file of tuned tiles: "),
        ('{"device": "x", "format": 9}', "has format 9, expected 1; tune again with this kernelmark"),
        ('{"device": "Quantum 9000"}', "is of Quantum 9000, here is "),
    ],
)
def test_a_file_that_is_corrupt_or_of_another_device_is_refused_in_one_line(
    file, complaint, tuned, tmp_path, text, words
):
    path = tmp_path / "t.json"
    path.write_text(text)
    for call in (lambda: opened(str(path), "cpu"), lambda: plan_with(str(path), tuned.registry)):
        assert complaint(call).startswith(f"{path}: {words}")


def test_a_file_that_is_not_there_is_refused_by_run_and_made_by_tune(tmp_path, tuned, complaint):
    missing = tmp_path / "t.json"
    assert complaint(lambda: plan_with(str(missing), tuned.registry)) == (
        f"{missing}: cannot be read: No such file or directory; `kernelmark tune` writes one"
    )
    assert opened(str(missing), "cpu").path == missing
    assert list(tmp_path.glob(".t.json*")) == []


def test_a_file_that_cannot_be_replaced_is_refused_before_anything_is_measured(tmp_path, complaint, kernel):
    path = tmp_path / "t.json"
    file = file_of(str(path), "cpu")
    keep(file, entry(kernel).key, entry(kernel))
    path.chmod(0o444)
    assert complaint(lambda: opened(str(path), "cpu")) == (
        f"{path}: is read-only; make it writable, or --tuned FILE names another"
    )
    assert complaint(lambda: opened("/proc/t.json", "cpu")).startswith("/proc/t.json: cannot be written: ")


def test_a_tile_is_stale_once_source_versions_kernel_or_values_are_others(kernel, tuned):
    stale = {
        "digest": ("0", "its source has changed since it was tuned"),
        "versions": ("numba 1", "it was tuned with numba 1, here is "),
        "kernel": ("copy/mine.gone", "there is no such kernel"),
        "tile": ("WORK=9", "copy/mine.counted@WORK=9: WORK is 9"),
        "problem": ("copy/m64", "copy/m64"),
    }
    for name, (value, reason) in stale.items():
        good, (found,) = usable([msgspec.structs.replace(entry(kernel), **{name: value})], tuned.registry)
        assert good == []
        assert found.reason.startswith(reason), name
    assert [tile.tile for tile in usable([entry(kernel)], tuned.registry)[0]] == ["WORK=1"]


def test_a_tile_that_is_stale_is_left_out_with_a_word(file, kernel, tuned):
    keep(file, entry(kernel).key, entry(kernel, digest="0"))
    plan, remarks = plan_with("auto", tuned.registry)
    assert plan.tiles == ()
    assert remarks[0].startswith(
        f"tuned: 1 tile of {file.path} not used: copy/mine.counted@WORK=1 on {PROBLEM}: its source"
    )


def test_doctor_lists_the_tiles_that_hold_and_each_that_is_stale(file, kernel, tuned):
    keep(file, entry(kernel).key, entry(kernel))
    old = entry(kernel, threads=2, digest="0")
    keep(file, old.key, old)
    found = [(finding.usable, finding.found) for finding in doctor._tuned()]
    assert found[0] == (True, f"1 tile in {file.path}")
    assert found[1:] == [
        (False, f"copy/mine.counted@WORK=1 on {PROBLEM}: its source has changed since it was tuned; tune again")
    ]


def test_nothing_but_a_run_that_is_asked_to_takes_tuned_tiles():
    """The option of `tune` names the file that is written, that of `export` the one that becomes a header."""
    having = {name for name, command in cli.commands.items() for p in command.params if "--tuned" in p.opts}
    assert having == {"run", "tune", "export"}
    assert "tuned" in NEVER  # a file of defaults cannot ask for it
    for automatic in ("Makefile", "tools/publish.py", "tools/gpu_tasks.py", "bench/pytest_hooks.py"):
        assert "--tuned" not in (ROOT / automatic).read_text()


def measured(tuned, plan):
    """The rows of a run of this plan, by kernel."""
    suites = [find_suite(name, tuned.registry) for name in plan.suites]
    session = Session(tuned.store, suites, plan, lambda job, key: run_job(job))
    run_jobs(session, partial(jobs, suites, tuned.registry, plan))
    return {row.kernel: row for row, _ in tuned.store.results(session.run_id)}


def test_a_run_takes_the_tile_and_its_rows_name_the_run_that_found_it(file, kernel, tuned):
    keep(file, entry(kernel).key, entry(kernel))
    kernels = ("copy/mine.counted", "copy/numpy.copyto")
    asked = {"kernels": kernels, "max_time_s": 0.004, "ceilings": False}
    rows = measured(tuned, plan_with("auto", tuned.registry, **asked)[0])
    assert (rows[kernels[0]].tuned, rows[kernels[0]].tunables) == ("20260101-race", '{"WORK":1}')
    assert rows[kernels[1]].tuned == ""
    plain = measured(tuned, Plan(devices=("cpu",), suites=(PROBLEM,), **asked))
    assert (plain[kernels[0]].tuned, plain[kernels[0]].tunables) == ("", '{"WORK":4}')


def planned(tuned, plan, baseline="copy/numpy.copyto"):
    """The tiles that the jobs of a plan take."""
    suite = msgspec.structs.replace(find_suite(PROBLEM, tuned.registry), baseline={"copy": baseline})
    return [tile.kernel for job in jobs([suite], tuned.registry, plan) for tile in job.job.tiles]


def test_a_baseline_another_problem_and_another_number_of_threads_take_no_tile(file, kernel, tuned):
    keep(file, entry(kernel).key, entry(kernel))
    plan, _ = plan_with("auto", tuned.registry)
    assert planned(tuned, plan) == [kernel.id]
    assert planned(tuned, plan, baseline=kernel.id) == []
    tiles = tuple(msgspec.structs.replace(tile, problem="copy/m65n1024/f32") for tile in plan.tiles)
    assert planned(tuned, msgspec.structs.replace(plan, tiles=tiles)) == []


def test_a_file_that_has_changed_since_stops_a_run_from_going_on(file, kernel, tuned, complaint):
    keep(file, entry(kernel).key, entry(kernel))
    plan, _ = plan_with("auto", tuned.registry)
    suites = [find_suite(PROBLEM, tuned.registry)]
    run_id = Session(tuned.store, suites, plan, lambda job, key: []).run_id
    keep(file, entry(kernel).key, entry(kernel, tile="WORK=2"))
    changed, _ = plan_with(plan.tuned, tuned.registry)
    refusal = complaint(lambda: Session(tuned.store, suites, changed, lambda job, key: [], run_id))
    assert refusal.startswith(f"--resume {run_id}: plan.tiles was ")


def test_the_digest_of_a_kernel_of_ours_covers_what_it_imports_from_beside_it(registry):
    blocked, streaming = (registry.kernels[name] for name in ("transpose/numba.blocked", "copy/numba.streaming"))
    assert source_digest(blocked) != source_digest(streaming)
    assert source_digest(blocked) == source_digest(blocked.with_tile({"RUN": 64}))


def test_the_file_is_json_that_people_can_read(file, kernel):
    keep(file, entry(kernel).key, entry(kernel))
    found = json.loads(file.path.read_text())
    assert found["device"] == file.device
    assert found["tiles"][0]["tile"] == "WORK=1"
    assert TileFile(file.path, file.device) == file
