"""`make honest`, the ladder of kernels, and the table of cuDNN's algorithms."""

from collections import Counter

import numpy as np
import pytest

import cudnn_table
import honest
import ladder
from kernelmark.bench.measure.draw import Draw
from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.plan import verdict
from kernelmark.bench.plan.kernel import CudaKernel
from kernelmark.bench.run.job import run_job


@pytest.mark.long
def test_no_right_result_of_drawn_problems_is_called_wrong(registry):
    seen = Counter()
    assert list(honest.alarms(registry, 120, 7, seen)) == []
    assert {name.partition("/")[0] for name in seen if "/" in name} == set(registry.operations)


def test_the_same_seed_draws_the_same_problems(registry):
    first, again, other = ([p.id for p in honest.problems(registry, 40, seed)] for seed in (3, 3, 4))
    assert first == again != other


def test_a_bound_that_is_too_tight_raises_alarms_and_a_search_that_is_closed_restores_settings(registry, monkeypatch):
    for module in honest.REFERENCES:
        monkeypatch.setattr(module, "WHOLE_REFERENCE_MACS", 12345)
    monkeypatch.setattr(verdict.Bound, "rms_limit", lambda *_: 0.0)
    alarms = honest.alarms(registry, 200, 0, Counter())
    assert "rms error" in next(alarms)
    alarms.close()
    assert [module.WHOLE_REFERENCE_MACS for module in honest.REFERENCES] == [12345, 12345]


def test_timed_kernels_that_fail_or_are_accused_raise_alarms(registry, monkeypatch):
    rows = [Measurement(kernel="k", status=status) for status in ("ok", "unsupported", "mistrusted", "crashed")]
    monkeypatch.setattr(honest, "measured", lambda *_, **__: rows)
    seen = Counter()
    assert len(list(honest.timed_alarms(registry, 3, 0, seen, "copy"))) == 3 * 2
    assert seen == {"k": 3 * 3}


def test_sampled_activations_are_judged_without_checksums_as_in_large_products(registry):
    problem = registry.problem("gemm/m3n5k7/f32/NN/epi-sigmoid")
    for active in (True, False):
        with honest.sampled(active):
            checks = problem.checksums(Draw(problem, 1).views("C"), np.random.default_rng(1))
        assert (checks is None) == active


def test_the_page_names_every_hand_written_kernel_with_its_idea(registry):
    page = ladder.PAGE.read_text(encoding="utf-8")
    for kernel in registry.kernels.values():
        if isinstance(kernel, CudaKernel) and kernel.is_ours:
            row = next((line for line in page.splitlines() if line.startswith(f"| [{kernel.id}]")), "")
            assert f"(../cuda/{kernel.source})" in row, f"{kernel.id}: run make ladder"
            assert kernel.label in row, f"{kernel.id}: run make ladder"


def test_each_kernel_is_on_one_ladder_and_the_named_rungs_exist(registry):
    ids = [kernel.id for kernels in ladder.rungs(registry).values() for kernel in kernels]
    assert len(ids) == len(set(ids))
    named = sum(len(words.split()) - 1 for words in ladder.LADDERS.values())
    assert len(ids) == named + len(ladder.rungs(registry)["Others"])


def test_a_rung_has_the_resources_of_its_default_tile(registry, cuda_compiler):
    name, label, threads, *_ = ladder.rung(registry, registry.kernels["gemm/cuda.tiled"])
    assert (name, threads) == ("[gemm/cuda.tiled](../cuda/gemm/tiled.cu)", "1024")
    assert label == registry.kernels["gemm/cuda.tiled"].label


def test_a_probe_runs_or_has_the_reason_for_its_refusal(registry):
    forms = [("3x3", "f32", "nchw"), ("5x5", "f32", "nchw")]
    rows = cudnn_table.probe(lambda job, key: run_job(job), "conv/cpu.w", forms)
    answers = {(a.kernel, a.direction, a.probe): a for a in rows}
    assert answers["conv/cpu.winograd", "fprop", "3x3 f32 nchw"].text.startswith("runs, ")
    refused = answers["conv/cpu.winograd", "fprop", "5x5 f32 nchw"]
    assert (refused.text, refused.reason) == ("unsupported", "r is 5, expected 3")


def test_a_cell_has_the_status_that_cudnn_returned():
    answers = [
        cudnn_table.Answer("conv/cudnn.fft", "dgrad", "3x3", "runs, 1.0 MiB", ""),
        cudnn_table.answer(Measurement(kernel="conv/cudnn.gemm", status="unsupported", reason=REFUSED), "fprop", "3x3"),
        cudnn_table.answer(Measurement(kernel="conv/cudnn.gemm", status="wrong", reason="is off"), "fprop", "9x9"),
    ]
    head, _, fft, gemm = (line.split("|")[1:-1] for line in cudnn_table.table(answers).splitlines()[:4])
    assert [cell.strip() for cell in head] == ["kernel", "pass", "3x3", "9x9"]
    assert [cell.strip() for cell in fft] == ["conv/cudnn.fft", "dgrad", "runs, 1.0 MiB", ""]
    assert [cell.strip() for cell in gemm] == ["conv/cudnn.gemm", "fprop", "NOT_SUPPORTED", "wrong"]


def test_every_probe_is_a_problem_that_some_algorithm_supports(registry):
    for shape, dtype, layout in cudnn_table.FORMS:
        for direction in cudnn_table.DIRECTIONS:
            problem = registry.problem(f"conv/{cudnn_table.SHAPES[shape]}/{dtype}/{layout}/{direction}")
            names = [k.id for k in registry.kernels.values() if k.provider == "cudnn" and k.refuses(problem) is None]
            assert names, problem.id


REFUSED = "cudnnGetConvolutionForwardWorkspaceSize returned CUDNN_STATUS_NOT_SUPPORTED"
