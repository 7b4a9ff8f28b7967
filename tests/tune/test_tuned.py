"""The file of tuned tiles, runs and headers that use them, and the tiles that a search evaluates."""

import json
import random
import shutil
import subprocess
from functools import partial
from itertools import product
from pathlib import Path

import msgspec
import numpy as np
import pytest

from kernelmark.bench.cli import doctor
from kernelmark.bench.cli.commands import cli
from kernelmark.bench.cli.defaults import NEVER
from kernelmark.bench.measure import present
from kernelmark.bench.measure.present import module_missing
from kernelmark.bench.plan.case import Plan, jobs
from kernelmark.bench.plan.options import ALL, BUDGET, GUIDED
from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.record.selection import Selection
from kernelmark.bench.run.job import run_job
from kernelmark.bench.run.session import Session, run_jobs
from kernelmark.bench.tune import search as searching
from kernelmark.bench.tune import tuned as files
from kernelmark.bench.tune.search import SearchDomain, SearchWay, choose, search
from support.tools import needed
from support.tuning import entry as tuned_entry

PROBLEM = "copy/m64n1024/f32"
ROOT = Path(__file__).resolve().parents[2]


def entry(kernel, **others):
    fields = {"kernel": kernel.id, "problem": PROBLEM, "tile": "WORK=1", "run": "20260101-race"}
    fields |= {"digest": files.source_digest(kernel), "versions": files.versions(kernel), "default": "WORK=4"}
    return tuned_entry(**{**fields, "ratio": 4.0, "low": 3.9, "high": 4.1, **others})


@pytest.fixture
def kernel(tuned):
    return tuned.registry.kernels["copy/mine.counted"]


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return files.file_of("auto", "cpu")


def plan_with(where, registry, **others):
    return files.with_tuned(Plan(devices=("cpu",), suites=(PROBLEM,), **others), where, registry)


def test_an_entry_is_kept_with_the_results_replaced_and_removed_by_kernel_problem_and_threads(file, kernel, tmp_path):
    single, threaded = entry(kernel), entry(kernel, threads=2)
    assert file.path.parent == tmp_path / "data" / "kernelmark" / "tuned"
    assert files.tiles_in(file) == ()
    files.keep(file, single.key, None)
    assert not file.path.exists(), "no file is made if the default stays"
    files.keep(file, single.key, single)
    content = json.loads(file.path.read_text())
    assert (content["device"], content["tiles"][0]["tile"]) == (file.device, "WORK=1")
    files.keep(file, threaded.key, threaded)
    assert files.tiles_in(file) == (single, threaded)
    better = msgspec.structs.replace(single, tile="WORK=2")
    files.keep(file, single.key, better)
    assert files.tiles_in(file) == (better, threaded)
    files.keep(file, single.key, None)
    assert files.tiles_in(file) == (threaded,)
    assert [path.name for path in file.path.parent.iterdir()] == [file.path.name]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not a file of tuned tiles: "),
        ("[1]", "is not a file of tuned tiles: "),
        ('{"device": "x", "tiles": [{"kernel": 1}]}', "is not a file of tuned tiles: "),
        ('{"device": "x", "format": 9}', "has format 9, expected 1; tune again with this kernelmark"),
        ('{"device": "Quantum 9000"}', "is for Quantum 9000, not "),
    ],
)
def test_a_corrupt_file_or_one_of_another_device_is_refused_in_one_line(file, complaint, tuned, tmp_path, text, words):
    path = tmp_path / "t.json"
    path.write_text(text)
    for call in (lambda: files.opened(str(path), "cpu"), lambda: plan_with(str(path), tuned.registry)):
        assert complaint(call).startswith(f"{path}: {words}")


def test_a_missing_file_is_refused_by_run_and_made_by_tune(tmp_path, tuned, complaint):
    missing = tmp_path / "t.json"
    refusal = f"{missing}: cannot be read: No such file or directory; `kernelmark tune` writes one"
    assert complaint(lambda: plan_with(str(missing), tuned.registry)) == refusal
    assert files.opened(str(missing), "cpu").path == missing
    assert list(tmp_path.glob(".t.json*")) == []


def test_a_file_that_cannot_be_replaced_is_refused_before_anything_is_measured(tmp_path, complaint, kernel):
    path = tmp_path / "t.json"
    file = files.file_of(str(path), "cpu")
    files.keep(file, entry(kernel).key, entry(kernel))
    path.chmod(0o444)
    refusal = f"{path}: is read-only; make it writable, or --tuned FILE names another"
    assert complaint(lambda: files.opened(str(path), "cpu")) == refusal


def test_a_tile_is_stale_if_source_versions_kernel_or_values_have_changed(kernel, tuned):
    stale = {
        "digest": ("0", "its source has changed since it was tuned"),
        "versions": ("numba 1", "it was tuned with numba 1, but this machine has "),
        "kernel": ("copy/mine.gone", "there is no such kernel"),
        "tile": ("WORK=9", "copy/mine.counted@WORK=9: WORK is 9"),
        "problem": ("copy/m64", "copy/m64"),
    }
    for name, (value, reason) in stale.items():
        good, (complaint,) = files.usable([msgspec.structs.replace(entry(kernel), **{name: value})], tuned.registry)
        assert good == []
        assert f" on {value if name == 'problem' else PROBLEM}: {reason}" in complaint
    assert [tile.tile for tile in files.usable([entry(kernel)], tuned.registry)[0]] == ["WORK=1"]


def test_a_stale_tile_is_left_out_with_a_remark_and_doctor_lists_it_and_counts_the_usable_ones(file, kernel, tuned):
    old = entry(kernel, threads=2, digest="0")
    files.keep(file, old.key, old)
    plan, remarks = plan_with("auto", tuned.registry)
    assert plan.tiles == ()
    stale = f"copy/mine.counted@WORK=1 on {PROBLEM}: its source has changed since it was tuned"
    assert remarks[0].startswith(f"tuned: 1 tile of {file.path} not used: {stale}")
    files.keep(file, entry(kernel).key, entry(kernel))
    findings = [(finding.usable, finding.found) for finding in doctor._tuned()]
    assert findings == [(True, f"1 tile in {file.path}"), (False, f"{stale}; tune again")]


def test_tuned_tiles_are_used_only_by_a_run_with_the_option():
    """The option of `tune` names the file that is written, and the option of `export` the file made into a header."""
    commands = {name for name, command in cli.commands.items() for p in command.params if "--tuned" in p.opts}
    assert commands == {"run", "tune", "export"}
    assert "tuned" in NEVER  # a file of defaults cannot set it
    for automatic in ("Makefile", "tools/publish.py", "tools/gpu_tasks.py", "bench/pytest_hooks.py"):
        assert "--tuned" not in (ROOT / automatic).read_text()


def measured(tuned, plan):
    suites = [find_suite(name, tuned.registry) for name in plan.suites]
    session = Session(tuned.store, suites, plan, lambda job, key: run_job(job))
    run_jobs(session, partial(jobs, suites, tuned.registry, plan))
    return {row.kernel: row for row, _ in tuned.store.results(session.run_id)}


def test_a_run_takes_the_tile_and_its_rows_name_the_run_that_found_it(file, kernel, tuned):
    files.keep(file, entry(kernel).key, entry(kernel))
    kernels = ("copy/mine.counted", "copy/numpy.copyto")
    options = {"kernels": kernels, "max_time_s": 0.004, "ceilings": False}
    rows = measured(tuned, plan_with("auto", tuned.registry, **options)[0])
    assert (rows[kernels[0]].tuned, rows[kernels[0]].tunables) == ("20260101-race", '{"WORK":1}')
    assert rows[kernels[1]].tuned == ""
    plain = measured(tuned, Plan(devices=("cpu",), suites=(PROBLEM,), **options))
    assert (plain[kernels[0]].tuned, plain[kernels[0]].tunables) == ("", '{"WORK":4}')


def planned(tuned, plan, baseline="copy/numpy.copyto"):
    suite = msgspec.structs.replace(find_suite(PROBLEM, tuned.registry), baseline={"copy": baseline})
    return [tile.kernel for job in jobs([suite], tuned.registry, plan) for tile in job.job.tiles]


def test_a_baseline_and_another_problem_take_no_tile(file, kernel, tuned):
    files.keep(file, entry(kernel).key, entry(kernel))
    plan, _ = plan_with("auto", tuned.registry)
    assert planned(tuned, plan) == [kernel.id]
    assert planned(tuned, plan, baseline=kernel.id) == []
    tiles = tuple(msgspec.structs.replace(tile, problem="copy/m65n1024/f32") for tile in plan.tiles)
    assert planned(tuned, msgspec.structs.replace(plan, tiles=tiles)) == []


def test_a_run_is_not_resumed_if_its_file_of_tiles_has_changed(file, kernel, tuned, complaint):
    files.keep(file, entry(kernel).key, entry(kernel))
    plan, _ = plan_with("auto", tuned.registry)
    suites = [find_suite(PROBLEM, tuned.registry)]
    run_id = Session(tuned.store, suites, plan, lambda job, key: []).run_id
    files.keep(file, entry(kernel).key, entry(kernel, tile="WORK=2"))
    changed, _ = plan_with(plan.tuned, tuned.registry)
    refusal = complaint(lambda: Session(tuned.store, suites, changed, lambda job, key: [], run_id))
    assert refusal.startswith(f"--resume {run_id}: plan.tiles was ")


def test_the_digest_of_a_kernel_depends_on_its_source_and_not_on_its_tile(registry):
    blocked, streaming = (registry.kernels[name] for name in ("transpose/numba.blocked", "copy/numba.streaming"))
    assert files.source_digest(blocked) != files.source_digest(streaming)
    assert files.source_digest(blocked) == files.source_digest(blocked.with_tile({"RUN": 64}))


KERNEL = "transpose/numba.blocked"
OUT_OF_PLACE = "transpose/m2048n26752/f32/out"
EVERYTHING = Selection()


def raced_entry(**others):
    fields = {"kernel": KERNEL, "problem": OUT_OF_PLACE, "threads": 2, "ratio": 1.25, "low": 1.2, "high": 1.3}
    return tuned_entry(**{**fields, "tile": "RUN=512,DOWN=64", "default": "RUN=256,DOWN=0", **others})


@pytest.fixture
def file_with(tmp_path):

    def of(*entries, device="Xeon"):
        path = tmp_path / "tuned.json"
        path.write_bytes(msgspec.json.encode(files.Tuned(device=device, tiles=entries)))
        return files.TileFile(path, "Xeon")

    return of


def text(file_with, named=False, selection=EVERYTHING, run_id=None):
    return files.header(files.adopted([file_with], named, selection, run_id))


def test_each_tunable_is_a_constant_below_its_provenance(file_with):
    assert text(file_with(raced_entry())) == (
        "#ifndef KERNELMARK_TUNED_H\n#define KERNELMARK_TUNED_H\n\n"
        "/* transpose/numba.blocked on transpose/m2048n26752/f32/out, 2 threads, cold */\n"
        "/* Xeon; numba 0.62.1; source c0ffee */\n"
        "/* 1.25x [1.2, 1.3] as fast as RUN=256,DOWN=0 over 5 processes, run race-1 of 2026-01-01T00:00:00 */\n"
        "#define KERNELMARK_TRANSPOSE_NUMBA_BLOCKED_M2048N26752_F32_OUT_T2_RUN 512\n"
        "#define KERNELMARK_TRANSPOSE_NUMBA_BLOCKED_M2048N26752_F32_OUT_T2_DOWN 64\n\n"
        "#endif /* KERNELMARK_TUNED_H */\n"
    )


def test_a_compiler_takes_the_header_twice_whatever_texts_the_file_has(file_with, tmp_path):
    needed(None if shutil.which("cc") else "cc is not on PATH")
    odd = [
        raced_entry(threads=1, versions="*/ int x; /*", run="/*/ \\"),
        raced_entry(threads=3, default='??/ "\\\n#error no\n'),
        raced_entry(kernel="transpose/a.b_c"),
        raced_entry(kernel="transpose/a_b.c", tile="RUN=7,DOWN=64"),
    ]
    (tmp_path / "tuned.h").write_text(text(file_with(*odd, device="Xeon */ (TM) é"), named=True))
    name = "KERNELMARK_TRANSPOSE_A_B_C_M2048N26752_F32_OUT_T2"
    (tmp_path / "main.c").write_text(
        '#include "tuned.h"\n#include "tuned.h"\n'
        f"int main(void) {{ return {name}_RUN == 512 && {name}_2_RUN == 7 ? 0 : 1; }}\n"
    )
    flags = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-o", "main")
    subprocess.run(["cc", *flags, "main.c"], cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "main"], check=False).returncode == 0


def test_tiles_are_chosen_by_kernel_problem_and_the_race_that_adopted_them(file_with):
    others = raced_entry(threads=1, run="race-2"), raced_entry(kernel="copy/a.b", problem="copy/m1n1/f32")
    file = file_with(raced_entry(), *others)
    assert len(files.adopted([file], False, EVERYTHING)) == 3
    assert [tile.threads for _, tile in files.adopted([file], False, EVERYTHING, "race-2")] == [1]
    assert [tile.kernel for _, tile in files.adopted([file], False, Selection(op=("copy",)))] == ["copy/a.b"]
    assert len(files.adopted([file], False, Selection(kernels=("transpose/*",), problem=("*/f32/out",)))) == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"named": False}, "is for H100, not Xeon; name another file, or tune here"),
        ({"named": True, "run_id": "race-9"}, "has no tile of run race-9; `kernelmark tune KERNEL PROBLEM` finds "),
        ({"named": True, "selection": Selection(op=("gemm",))}, "has no tile that was selected; `kernelmark tune"),
    ],
)
def test_without_a_tile_one_line_names_the_file_and_the_remedy(file_with, complaint, options, words):
    file = file_with(raced_entry(), device="H100")  # not this device
    assert [device for device, _ in files.adopted([file], True, EVERYTHING)] == ["H100"]
    assert complaint(lambda: text(file, **options)).startswith(f"{file.path}: {words}")


def test_an_invalid_tile_is_refused_in_one_line(file_with, complaint):
    expected = "expected NAME=VALUE pairs separated by commas, such as T=32"
    refusal = f"{KERNEL} on {OUT_OF_PLACE}: tile 'RUN=512\\n#error': {expected}"
    assert complaint(lambda: text(file_with(raced_entry(tile="RUN=512\n#error")))) == refusal


CONFIGS = list(product((1, 2, 4, 8, 16), (1, 2, 4, 8), (0, 1, 2, 3), (0, 1, 2, 3, 4)))  # 400
FIELD = SearchDomain("ABCD", CONFIGS, (2, 2, 3, 4))


def cost(config):
    """A valley with walls: the lowest cost is 1, at (8, 4, 1, 2); the median is near 2."""
    a, b, c, d = config
    wall = 0.8 if c == 0 else 0.0
    return 1 + 0.25 * abs(np.log2(a) - 3) + 0.3 * abs(np.log2(b) - 2) + 0.15 * abs(c - 1) + 0.1 * abs(d - 2) + wall


@pytest.fixture
def kernel_tuner():
    needed(module_missing("kernel_tuner"))


def evaluated(strategy, budget, seed=0, cost=cost):
    """The configurations that a search evaluates, in order, in the lists that it asks for."""
    calls = []

    def evaluate(configs):
        calls.append(list(configs))
        return [cost(config) for config in configs]

    search(FIELD, evaluate, SearchWay(strategy, budget), seed)
    return calls


def test_all_tiles_are_measured_up_to_200_or_the_budget_and_100_of_more():
    assert choose(ALL, None, None) == SearchWay("exhaustive", ALL)
    assert choose(ALL + 1, "random", None) == SearchWay("random", BUDGET)
    assert choose(500, None, 500) == choose(500, "random", 900) == SearchWay("exhaustive", 500)
    assert choose(150, "random", 40) == SearchWay("random", 40)


def test_without_kernel_tuner_the_install_command_and_two_other_strategies_are_named(monkeypatch, complaint):
    assert present.EXTRAS["kernel_tuner"] == "tune"
    reason = "kernel_tuner is not installed; pip install 'kernelmark[tune]'"
    monkeypatch.setattr(searching, "module_missing", lambda module: reason)
    instead = "use --strategy exhaustive (all 201 tiles) or --strategy random"
    assert complaint(lambda: choose(201, None, None)) == f"--strategy genetic_algorithm: {reason}, or {instead}"
    assert [choose(201, way, None).strategy for way in ("exhaustive", "random")] == ["exhaustive", "random"]


def test_a_random_search_evaluates_as_many_different_tiles_as_its_budget():
    (drawn,) = evaluated("random", 37)
    assert len(drawn) == len(set(drawn)) == 37
    assert evaluated("random", 37) == [drawn]
    assert evaluated("random", 37, seed=1) != [drawn]


@pytest.mark.usefixtures("kernel_tuner")
@pytest.mark.parametrize("strategy", GUIDED)
def test_a_strategy_evaluates_no_tile_twice_and_keeps_to_the_budget(strategy, capsys):
    tiles = [config for configs in evaluated(strategy, 60) for config in configs]
    assert len(tiles) == len(set(tiles)) <= 60
    assert len(tiles) > 40
    assert set(tiles) <= set(CONFIGS)
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("kernel_tuner")
def test_a_strategy_is_repeatable_and_does_not_change_shared_random_generators():
    random.seed(5), np.random.seed(5)
    first = evaluated(GUIDED[0], 30, seed=3)
    left = random.random(), np.random.random()
    random.seed(5), np.random.seed(5)
    assert left == (random.random(), np.random.random())
    assert evaluated(GUIDED[0], 30, seed=3) == first


@pytest.mark.usefixtures("kernel_tuner")
@pytest.mark.parametrize("strategy", GUIDED)
def test_a_strategy_gets_past_tiles_that_fail_and_ends_if_all_fail(strategy):
    tiles = [c for configs in evaluated(strategy, 60, cost=lambda c: np.inf if c[0] < 4 else cost(c)) for c in configs]
    assert min(map(cost, tiles)) < 1.3
    assert 0 < len(evaluated(strategy, 20, cost=lambda config: np.inf)) <= 20
