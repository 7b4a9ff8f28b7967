"""What `kernelmark watch` prints of a version beside the one before."""

from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.measure.stats import median_interval
from kernelmark.bench.tune.watch.session import resource_table, time_table
from support.tuning import row


def lines(table):
    return {line.split("  ")[0].strip(): line.split("  ")[-1].strip() for line in table.splitlines()}


def test_what_differs_from_the_version_before_says_what_it_was():
    found = lines(resource_table([row(registers=40, occupancy=0.75, limiter="registers")], [row()]))
    assert found["registers"] == "40 (was 32)"
    assert found["occupancy"] == "75% (was 100%)"
    assert found["limited by"] == "registers (was warps)"
    assert found["spill"] == "0"


def test_a_launch_that_is_new_is_compared_with_nothing():
    assert "was" not in resource_table([row(entry="g", registers=40)], [row()])


def measured(kernel, *times):
    samples = list(times) * 10
    return Measurement(kernel=kernel, samples=samples, interval=median_interval(samples))


def test_the_present_version_is_set_against_each_other_one_with_an_interval(registry):
    problem = registry.problem("gemm/m100n100k100/f32/NT")
    rows = [measured("a", 1e-3), measured("b", 2e-3), measured("c", 5e-4), measured("d", 1e-3)]
    refused = Measurement(kernel="e", status="unsupported", reason="no such thing")
    table = time_table([*rows, refused], {"a": "version 2"}, problem).splitlines()
    assert table[2].split() == ["version", "2", "1.00", "ms", "+0.0", "+0.0", "%", "2.00"]
    assert table[3].endswith(" 2x [2, 2] faster")
    assert table[4].endswith(" 0.5x [0.5, 0.5] slower")
    assert table[5].endswith(" 1.00x [1, 1] tie")
    assert table[-1] == "unsupported: e: no such thing"


def test_a_version_of_another_job_has_no_ratio_to_the_present_one(registry):
    rows = [measured("a", 1e-3), measured("b", 2e-3)]
    rows[1].job = "another"
    table = time_table(rows, {}, registry.problem("gemm/m100n100k100/f32/NT")).splitlines()
    assert table[3].endswith("not measured in turn")


def test_a_present_version_that_is_wrong_has_no_ratio(registry):
    wrong = Measurement(kernel="a", status="wrong", reason="c[0] is 0")
    table = time_table([wrong, measured("b", 2e-3)], {}, registry.problem("copy/m64n64/f32")).splitlines()
    assert table[2].split() == ["b", "2.00", "ms", "+0.0", "+0.0", "%", "0.0164"]
    assert table[-1] == "wrong: a: c[0] is 0"


def test_both_tables_fit_the_terminal(registry, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    refused = Measurement(
        kernel="gemm/cublas.gemmex_tf32", status="unsupported", reason="no such thing in this library"
    )
    rows = [measured("gemm/cuda.warptile", 1e-3), measured("gemm/cublas.gemmex_tf32_colmajor", 2e-3), refused]
    launches = [row(entry=f"conv_{name}<8,N,T>", limiter="shared memory") for name in ("columns", "product", "sums")]
    problem = registry.problem("gemm/m100n100k100/f32/NT")
    shown = time_table(rows, {}, problem) + "\n" + resource_table(launches, [])
    assert max(map(len, shown.splitlines())) <= 60
