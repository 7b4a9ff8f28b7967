"""Views of a run from the command line: whole networks, and who wins where."""

import csv

import pytest

from kernelmark.bench.measure.measurement import ProcessPart
from kernelmark.bench.record.store import Run, Store
from support.processes import refusal
from support.rows import result

SUITE = """
title = "A net of two layers"

[[sweep]]
op = "gemm"
dtype = "f32"
layout = "NT"
part = "forward"
m = [4, 9]
n = 8
k = 8
count = 3
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory, kernelmark_in):
    folder = tmp_path_factory.mktemp("views")
    (folder / "net.toml").write_text(SUITE)
    options = (
        "--kernels",
        "gemm/numpy.matmul",
        "--mode",
        "hot",
        "--max-time",
        "0.02",
        "--no-ceilings",
        "--db",
        "net.db",
    )
    assert kernelmark_in(folder, "run", "net.toml", *options).returncode == 0
    return folder


def test_show_by_network_sums_the_layers_of_the_latest_run(measured, kernelmark_in):
    done = kernelmark_in(measured, "show", "--by", "network", "--db", "net.db")
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = [line for line in done.stdout.splitlines() if "gemm/numpy.matmul" in line]
    assert line.startswith("net ")
    assert line.endswith("2 of 2")


@pytest.mark.parametrize(
    ("options", "beginning"),
    [(("--by", "network", "--step"), "no share: it takes times of all layers"), (("--by", "overlap"), "no overlap: ")],
)
def test_what_a_run_has_no_rows_for_is_said_with_the_command_that_measures_it(
    measured, kernelmark_in, options, beginning
):
    done = kernelmark_in(measured, "show", *options, "--db", "net.db")
    assert (done.returncode, done.stderr) == (0, "")
    text = " ".join(done.stdout.split())
    assert beginning in text
    assert "`kernelmark run transfer`" in text


def test_a_step_without_networks_is_one_line(measured, kernelmark_in):
    done = kernelmark_in(measured, "show", "--step", "--db", "net.db")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "kernelmark: --step: is a part of --by network, whose layers make a step; add that\n"


def test_crossover_prints_a_table_and_writes_it_as_csv(measured, kernelmark_in):
    done = kernelmark_in(measured, "crossover", "net.toml", "--db", "net.db", "--csv", "who.csv")
    assert (done.returncode, done.stderr) == (0, "")
    assert "net: 2 of 2 problems timed" in done.stdout
    with (measured / "who.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["problem"] for row in rows] == ["gemm/m4n8k8/f32/NT", "gemm/m9n8k8/f32/NT"]
    assert {row["fastest"] for row in rows} == {"gemm/numpy.matmul"}


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("show", "--by", "kernel"), "'kernel' is not one of"),
        (("show", "--page", "0"), "'--page'"),
        (("show", "--row", "gemm/none"), "--row 'gemm/none': run 20"),
        (("show", "--row", "numpy.matmul"), "found 'gemm/numpy.matmul gemm/m4n8k8/f32/NT hot t"),
        (("show", "--row", "m4n8", "--page", "2"), "--row: shows one row"),
        (("show", "--page", "2"), "has 1; --page 1 shows the first"),
        (("compare", "r9", "r8"), "run 'r9': is not a run of net.db"),
        (("compare", "r9", "r8", "--fail-slower", "much"), "is 'much', expected per cent above 0"),
        (("compare", "r9", "r8", "--margin", "-1%"), "is '-1%', expected per cent above 0"),
        (("compare", "r9", "r8", "--base-db", "absent.db"), "absent.db: there is no store"),
        (("compare", "r9"), "Missing argument 'NEW'"),
        (("crossover", "smoke"), "smoke: no run in net.db has a time for it; `kernelmark run smoke` makes one"),
        (("crossover", "net.toml", "r9"), "run 'r9': is not a run of net.db"),
        (("crossover", "net.toml", "--csv", "net.toml/who.csv"), "net.toml/who.csv: cannot be written"),
    ],
)
def test_bad_usage_is_one_line(measured, kernelmark_in, words, found):
    assert found in refusal(kernelmark_in(measured, *words, "--db", "net.db"))


def add_run(store, run_id, factor, processes=5, cpu="some"):
    """A run of one case whose processes scatter by a thousandth."""
    store.begin(Run(run_id, {"cpu": cpu}, "2026", ("s",), "", {}, "c0ffee", {}))
    own = {"run_id": run_id, "op": "copy", "problem": "copy/m1n1/f32", "kernel": "copy/a.b"}
    medians = [factor * (1e-3 + 1e-6 * i) for i in range(processes)]
    row = result(**own, time_s_median=medians[0])
    store.add(row, {}, [], None, [ProcessPart(1, median) for median in medians])


@pytest.fixture(scope="module")
def compared(tmp_path_factory, kernelmark_in):
    folder = tmp_path_factory.mktemp("compare")
    store = Store(folder / "c.db")
    add_run(store, "base", 1)
    add_run(store, "slower", 1.05)
    add_run(store, "again", 1)
    add_run(store, "single", 1, processes=1)
    add_run(store, "foreign", 1, cpu="other")
    store.close()
    return lambda *words: kernelmark_in(folder, "compare", *words, "--db", "c.db")


@pytest.mark.parametrize(
    ("words", "status", "tally"),
    [
        (("base", "slow"), 0, "1 slower, 0 faster, 0 same, 0 unclear"),
        (("slow", "base", "--fail-slower", "2%"), 0, "0 slower, 1 faster, 0 same, 0 unclear"),
        (("base", "slow", "--fail-slower", "2%"), 1, "1 slower, 0 faster, 0 same, 0 unclear"),
        (("base", "slow", "--fail-slower", "6"), 0, "1 slower, 0 faster, 0 same, 0 unclear"),
        (("base", "again", "--fail-slower", "2%"), 0, "0 slower, 0 faster, 1 same, 0 unclear"),
        (("base", "single"), 0, "0 slower, 0 faster, 0 same, 1 unclear"),
        (("base", "foreign", "--anyway"), 0, "0 slower, 0 faster, 1 same, 0 unclear"),
    ],
)
def test_compare_exits_with_1_for_slower_cases_if_asked_to(compared, words, status, tally):
    done = compared(*words)
    assert (done.returncode, done.stderr) == (status, "")
    assert done.stdout.splitlines()[-1] == f"1 case: {tally}"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("base", "foreign"), "are of different machines: cpu: some -> other; --anyway compares them"),
        (("base", "single", "--fail-slower", "2%"), "1 of 1 cases have fewer than two processes"),
        (("base", "base"), "BASE and NEW are both run base"),
    ],
)
def test_what_compare_cannot_decide_is_refused_in_one_line(compared, words, found):
    done = compared(*words)
    assert done.stdout == ""
    assert found in refusal(done)


def test_compare_writes_every_case_as_csv(compared, tmp_path):
    path = tmp_path / "deep" / "all.csv"
    assert compared("base", "again", "--csv", str(path)).returncode == 0
    with path.open(newline="") as lines:
        (row,) = csv.DictReader(lines)
    assert (row["verdict"], row["ratio"], row["p_holm"]) == ("same", "1.0", "1.0")
