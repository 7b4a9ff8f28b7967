"""Noisy rows: which of them carry the mark, and the sentence about a run that has some."""

from typing import Any

import pytest

from kernelmark.bench.record.result import Result
from kernelmark.bench.record.store import Store
from kernelmark.bench.report.noise import is_noisy, marked, noise_of
from kernelmark.bench.report.pages import run_page
from support.rows import DISTURBED, put


def row(store: Store, name: str = "b", **values: Any) -> Result:
    put(store, "gemm/m8n8k8/f32/NN", f"gemm/a.{name}", **values)
    return [result for result, _ in store.results("r1")][-1]


@pytest.mark.parametrize(
    ("disturbed", "noisy"),
    [
        (DISTURBED, True),
        ("others took 0.98 CPUs during 9 % of the sampling", False),
        ("others took 0.2 CPUs during 3 % of the sampling; quota during 10 % of the sampling", True),
        ("measured alone, since in company the worker was lost (signal 9)", False),
        ("", False),
    ],
)
def test_a_row_is_noisy_if_it_was_disturbed_during_a_tenth_of_its_sampling(begun, disturbed, noisy) -> None:
    found = row(begun, disturbed=disturbed)
    assert is_noisy(found) is noisy
    assert marked("1 ms", found) == ("~1 ms" if noisy else "1 ms")


def test_a_row_without_a_time_is_not_noisy(begun) -> None:
    found = row(begun, disturbed=DISTURBED)
    found.time_s_median = None
    assert not is_noisy(found)
    assert noise_of([found]) == (0, 0, "")


def test_the_sentence_counts_noisy_cases_and_names_the_longest_cause(begun) -> None:
    rows = [row(begun, "a", disturbed="the hypervisor took 5 % of the time during 20 % of the sampling")]
    rows += [row(begun, "b", disturbed=DISTURBED), row(begun, "c")]
    noise = noise_of(rows)
    assert noise.badge == "noisy"
    assert noise.sentence == "NOISY: 2 of 3 cases were disturbed (others took 0.98 CPUs)"
    assert (noise_of(rows[2:]).badge, noise_of(rows[2:]).sentence) == ("clean", "")


def test_a_table_marks_noisy_times_and_explains_the_mark(begun) -> None:
    row(begun, "quiet", median=2e-3)
    row(begun, "noisy", median=1e-3, disturbed=DISTURBED)
    table = next(run_page(begun, "r1"))
    marks = {line.split()[0]: "~" in line for line in table.splitlines() if line.startswith(("a.quiet", "a.noisy"))}
    assert marks == {"a.quiet": False, "a.noisy": True}
    assert "  ~ NOISY: 1 of 2 cases was disturbed (others took 0.98 CPUs)" in table
