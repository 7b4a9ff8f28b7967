"""Views of a run from the command line: whole networks, and who wins where."""

import csv

import pytest

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
    options = ("--kernels", "gemm/numpy.matmul", "--max-time", "0.02", "--no-ceilings", "--db", "net.db")
    assert kernelmark_in(folder, "run", "net.toml", *options).returncode == 0
    return folder


def test_show_by_network_sums_the_layers_of_the_latest_run(measured, kernelmark_in):
    done = kernelmark_in(measured, "show", "--by", "network", "--db", "net.db")
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = [line for line in done.stdout.splitlines() if "gemm/numpy.matmul" in line]
    assert line.startswith("net ")
    assert line.endswith("2 of 2")


def test_crossover_prints_a_table_and_writes_it_as_csv(measured, kernelmark_in):
    done = kernelmark_in(measured, "crossover", "net.toml", "--db", "net.db", "--csv", "who.csv")
    assert (done.returncode, done.stderr) == (0, "")
    assert "net: 2 of 2 problems have a time" in done.stdout
    with (measured / "who.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["problem"] for row in rows] == ["gemm/m4n8k8/f32/NT", "gemm/m9n8k8/f32/NT"]
    assert {row["fastest"] for row in rows} == {"gemm/numpy.matmul"}


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("show", "--by", "kernel"), "'kernel' is not one of"),
        (("crossover", "smoke"), "smoke: no run in net.db has a time for it; `kernelmark run smoke` makes one"),
        (("crossover", "net.toml", "r9"), "run 'r9': is not a run of net.db"),
        (("crossover", "net.toml", "--csv", "net.toml/who.csv"), "net.toml/who.csv: cannot be written"),
    ],
)
def test_bad_usage_is_one_line(measured, kernelmark_in, words, found):
    done = kernelmark_in(measured, *words, "--db", "net.db")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert found in line
