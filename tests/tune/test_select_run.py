"""`run --select`: the choice is a contender with a row of its own, verified and timed like any kernel."""

import json

import pytest

from kernelmark.bench.measure.cpu import cpu_name
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.record.store import Store
from kernelmark.bench.tune.select import contender
from kernelmark.bench.tune.select.model import file_of, write
from kernelmark.bench.tune.select.train import train
from support.tuning import FIRST, bordered, plant

SMALL, LARGE = "gemm/m64n31k33/f32/NT", "gemm/m400n31k33/f32/NT"
TNN = "gemm/openblas.tnn"
SELECTED = "gemm/kernelmark.selected"
LIMITS = ("--threads", "1", "--max-time", "0.01", "--no-ceilings", "--select", "auto", "--db", "run.db")


@pytest.fixture
def model(store, registry, tmp_path, monkeypatch):
    """A selector of one thread here, which takes the other kernel for m above 256; kept where `auto` finds it."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    kernels = {FIRST: bordered(256)[FIRST], TNN: bordered(256)["gemm/scipy.sgemm"]}
    plant(store, kernels, threads=1, device_name=cpu_name())
    made = train(store, registry, ["planted"], ()).model
    write(file_of(made.op, made.device_name), made)
    return made


def test_the_choice_is_run_and_its_row_names_the_kernel(model, kernelmark, tmp_path):
    globs = ("--kernels", SELECTED, "--kernels", FIRST)
    done = kernelmark("run", SMALL, LARGE, *LIMITS, *globs)
    assert done.returncode == 0, done.stderr
    store = Store(tmp_path / "run.db")
    rows = {(r.problem, r.kernel): r for r, _ in store.results(store.run_ids()[0])}
    store.close()
    chosen = [json.loads(rows[problem, SELECTED].tunables)["kernel"] for problem in (SMALL, LARGE)]
    assert chosen == [FIRST, TNN]
    row = rows[LARGE, SELECTED]
    assert (row.status, row.numerics, row.baseline) == ("ok", "fp32", FIRST)
    assert row.speedup > 0
    assert row.scratch_bytes == 31 * 33 * 4, "what the chosen kernel takes counts here"
    assert row.job == rows[LARGE, FIRST].job, "it is sampled in turn with the others"


def test_without_the_option_there_is_no_such_contender(registry):
    assert SELECTED not in registry.kernels


def test_a_selector_of_other_threads_or_another_mode_or_device_is_refused(model, registry, tmp_path, complaint):
    path = str(file_of("gemm", model.device_name))
    found = complaint(lambda: contender.plugins_of(path, (1, 2), "cold", registry))
    assert "1 thread, cold, f32; expected 1, 2 threads, cold; `kernelmark select --train RUN` makes one" in found
    assert "expected 1 thread, hot" in complaint(lambda: contender.plugins_of("auto", (1,), "hot", registry))
    assert contender.plugins_of("auto", (1,), "cold", registry) == contender.plugins_of(path, (1,), "cold", registry)
    (tmp_path / "other.json").write_text(
        (tmp_path / "data/kernelmark/selectors" / path.rpartition("/")[2]).read_text().replace(cpu_name(), "Other")
    )
    assert "is of Other, here is" in complaint(
        lambda: contender.plugins_of(str(tmp_path / "other.json"), (1,), "cold", registry)
    )


def test_where_no_kernel_is_kept_the_option_is_one_line(refused):
    line = refused("run", SMALL, "--select", "auto", "--threads", "1")
    assert line.startswith("kernelmark: --select auto: there is none; expected 1 thread, cold; `kernelmark select")


def test_what_no_kernel_of_the_selector_takes_is_unsupported_with_the_reason(model, registry):
    (plugin,) = contender.plugins_of("auto", (1,), "cold", registry)
    from kernelmark.bench.plan.discovery import discover

    kernel = discover((plugin,)).kernels[SELECTED]
    assert kernel.refuses(registry.problem(LARGE)) is None
    assert kernel.refuses(registry.problem("gemm/m400n31k33/f16/NT")) == f"{SELECTED} has no f16 path; it has f32"
    with pytest.raises(UsageError, match="registered twice"):
        contender.register(json.dumps(json.loads(file_of("gemm", model.device_name).read_text())))
