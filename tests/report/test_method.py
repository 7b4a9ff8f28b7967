"""The paragraph on methodology states what was recorded, and nothing else."""

from kernelmark.bench.report.method import paragraph
from kernelmark.bench.report.run_data import RunData
from support.rows import begin, fail, put, varied


def said(store):
    return paragraph(RunData(store, "r1"))


def test_machine_versions_seed_mode_and_limits_are_named(store):
    varied(store)
    text = said(store)
    for words in (
        "kernelmark 0.1.0 (commit c0ffee123456)",
        "Some CPU (2 of 4 logical CPUs, 32.0 MB of last-level cache, 8.00 GB of memory)",
        "numpy 2.4.6; BLAS: openblas 0.3",
        "(seed 3)",
        "In cold mode the operands rotate",
        "narrower than 1 % of it or 0.5 s a case",
        "25 cases",
        "24 were ok, 1 was wrong",
        "measured in one process",
        "on 10 problems, 1 and 2 threads.",
    ):
        assert words in text


def test_modes_that_did_not_occur_are_not_explained(begun):
    put(begun, "gemm/m8n8k8/f32/NN", "gemm/some.base", mode="hot")
    assert "In hot mode" in said(begun)
    assert "In cold mode" not in said(begun)


def test_several_processes_are_told_with_what_their_intervals_hold_for(begun):
    put(begun, "gemm/m8n8k8/f32/NN", "gemm/some.base", processes=5)
    assert "in 5 fresh processes" in said(begun)
    assert "hold for the next process too" in said(begun)


def test_a_suite_with_its_own_limit_is_not_said_to_have_another(store):
    begin(store, plan={"max_time_s": None, "rel_ci": 0.02})
    put(store, "gemm/m8n8k8/f32/NN", "gemm/some.base")
    assert "narrower than 2 % of it or the suite's time limit a case (2 s where it sets none)" in said(store)


def test_changes_that_were_not_committed_are_admitted(store):
    begin(store, git_commit="c0ffee1234567-dirty")
    assert "(commit c0ffee123456, with changes that are not committed)" in said(store)


def test_disturbed_and_repeated_samples_are_counted(begun):
    put(
        begun,
        "gemm/m8n8k8/f32/NN",
        "gemm/some.base",
        disturbed="others took 0.3 CPUs during 40 % of the sampling",
        repeated=4,
    )
    assert "NOISY: 1 of 1 case was disturbed (others took 0.3 CPUs)." in said(begun)
    assert "4 samples taken under such load were taken again" in said(begun)


def test_an_empty_run_and_one_of_failures_alone_are_said_to_be_that(begun):
    assert said(begun).endswith("The run recorded no case.")
    fail(begun, "gemm/m8n8k8/f32/NN", "gemm/some.bad")
    assert said(begun).endswith("Of the cases 1 was wrong.")


def test_a_run_that_recorded_nothing_of_itself_claims_nothing(store):
    begin(store, machine={}, environment={}, plan={}, git_commit="", suites=())
    put(store, "gemm/m8n8k8/f32/NN", "gemm/some.base")
    text = said(store)
    assert "a processor that is not recorded" in text
    for words in ("seed", "float64", "ABBA", "Libraries"):
        assert words not in text
