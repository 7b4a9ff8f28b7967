"""Runs by Parsl's executors: refusals, and the effect of its processes on a run."""

import re
from unittest.mock import MagicMock

import pytest

from kernelmark.bench.measure.present import module_missing
from kernelmark.bench.run.broker import load_config
from support.pages import DOCS, save_files
from support.shards import LOCAL, config_file, dispatch, measure, plan_of, rows, suite_file
from support.tools import needed

if reason := module_missing("parsl"):
    needed(reason)

QUICK = ("--mode", "hot", "--max-time", "0.02", "--no-ceilings", "--threads", "1")
SMALL = "copy/m3n5/f32"


def test_rows_of_an_executor_are_those_of_one_process(tmp_path):
    suite = suite_file(tmp_path, range(1, 4))
    measure(tmp_path / "home.db", suite)
    dispatch(tmp_path / "r.db", plan_of(suite), config=config_file(tmp_path))
    executed = sorted(rows(tmp_path / "r.db"), key=lambda row: (row["problem"], row["kernel"]))
    assert executed == sorted(rows(tmp_path / "home.db"), key=lambda row: (row["problem"], row["kernel"]))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("x = 1", "defines no `config`, expected `config = parsl.Config(...)`"),
        ("config = 3", "its `config` is of type int, expected `config = parsl.Config(...)`"),
        ("config = ", "cannot be run: SyntaxError: "),
        ("raise SystemExit(3)", "cannot be run: SystemExit: 3"),
    ],
)
def test_a_file_without_a_configuration_is_refused_in_one_line(tmp_path, complaint, text, line):
    path = config_file(tmp_path, text)
    assert complaint(lambda: load_config(path)).startswith(f"--executor {path}: {line}")


@pytest.mark.long
def test_an_executor_that_never_starts_is_a_time_out_with_the_reason(refused, tmp_path):
    config = config_file(tmp_path, LOCAL, rest=', worker_init="sleep 600"')
    line = refused("run", SMALL, *QUICK, "--executor", config, "--start-timeout", "8")
    assert re.search(r"no worker of the executor has started within 8 s: here: .*block", line)


@pytest.mark.long
def test_an_executor_whose_blocks_fail_ends_the_run_with_what_they_print(refused, tmp_path):
    config = config_file(tmp_path, LOCAL, rest=', worker_init="echo no such account >&2; exit 7"')
    assert "no such account" in refused("run", SMALL, *QUICK, "--executor", config)


def test_parsl_loads_the_configurations_of_the_docs(tmp_path, monkeypatch):
    from parsl.providers.kubernetes import kube

    save_files((DOCS / "cluster.md").read_text(), tmp_path)
    for name in ("client", "config"):  # modules that would look for a Kubernetes cluster
        monkeypatch.setattr(kube, name, MagicMock(), raising=False)
    monkeypatch.setattr(kube, "_kubernetes_enabled", True)
    configs = {name: load_config(str(tmp_path / f"{name}.py")) for name in ("local", "slurm", "pods", "ssh")}
    assert all(len(config.executors) == 1 for config in configs.values())


@pytest.mark.long
def test_the_local_configuration_of_the_docs_measures(kernelmark, tmp_path):
    save_files((DOCS / "cluster.md").read_text(), tmp_path)
    options = ("--kernels", "gemm/numpy.matmul", "--executor", "local.py", "--db", "r.db")
    done = kernelmark("run", "layers.toml", *QUICK, *options)
    assert done.returncode == 0, done.stderr
    assert "6 rows: 6 ok" in done.stdout
