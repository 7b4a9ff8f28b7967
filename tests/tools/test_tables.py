"""Pages and checks by tools: right results are never called wrong, the ladder, and the table of cuDNN's algorithms."""

from collections import Counter

import numpy as np
import pytest

from kernelmark.bench.measure.draw import Draw
from kernelmark.bench.plan import verdict
from kernelmark.bench.plan.kernel import CudaKernel
from kernelmark.bench.run.job import run_job
from support.tools import script

HONEST = script("honest")


@pytest.mark.long
def test_no_right_result_of_drawn_problems_is_called_wrong(registry):
    seen = Counter()
    assert list(HONEST.alarms(registry, 120, 7, seen)) == []
    assert {name.partition("/")[0] for name in seen if "/" in name} == set(registry.operations)


def test_a_bound_that_is_too_tight_raises_alarms(registry, monkeypatch):
    monkeypatch.setattr(verdict.Bound, "rms_limit", lambda *_: 0.0)
    assert "rms error" in next(HONEST.alarms(registry, 200, 0, Counter()))


def test_problems_are_drawn_alike_from_one_seed(registry):
    first, again, other = ([p.id for p in HONEST.problems(registry, 40, seed)] for seed in (3, 3, 4))
    assert first == again != other


def test_how_large_problems_are_judged_is_as_before_when_a_search_is_left_early(registry, monkeypatch):
    for module in HONEST.REFERENCES:
        monkeypatch.setattr(module, "WHOLE_REFERENCE_MACS", 12345)
    monkeypatch.setattr(verdict.Bound, "rms_limit", lambda *_: 0.0)
    found = HONEST.alarms(registry, 200, 0, Counter())
    next(found)
    found.close()
    assert [module.WHOLE_REFERENCE_MACS for module in HONEST.REFERENCES] == [12345, 12345]


def test_activations_are_judged_as_those_of_large_products_which_have_no_sums(registry):
    problem = registry.problem("gemm/m3n5k7/f32/NN/epi-sigmoid")
    for active in (True, False):
        with HONEST.sampled(active):
            checks = problem.checksums(Draw(problem, 1).views("C"), np.random.default_rng(1))
        assert (checks is None) == active


LADDER = script("ladder")


def test_the_page_names_every_hand_written_kernel_with_its_idea(registry):
    page = LADDER.PAGE.read_text(encoding="utf-8")
    for kernel in registry.kernels.values():
        if isinstance(kernel, CudaKernel) and kernel.is_ours:
            row = next((line for line in page.splitlines() if line.startswith(f"| [{kernel.id}]")), "")
            assert f"(../cuda/{kernel.source})" in row, f"{kernel.id}: run make ladder"
            assert kernel.label in row, f"{kernel.id}: run make ladder"


def test_each_kernel_stands_on_one_ladder_and_the_named_rungs_exist(registry):
    found = [kernel.id for kernels in LADDER.rungs(registry).values() for kernel in kernels]
    assert len(found) == len(set(found))
    named = sum(len(names) for _, *names in LADDER.LADDERS.values())
    assert len(found) == named + len(LADDER.rungs(registry)["Others"])


def test_a_rung_has_the_resources_of_its_default_tile(registry, cuda_compiler):
    name, label, threads, *_ = LADDER.rung(registry, registry.kernels["gemm/cuda.tiled"])
    assert (name, threads) == ("[gemm/cuda.tiled](../cuda/gemm/tiled.cu)", "1024")
    assert label == registry.kernels["gemm/cuda.tiled"].label


CUDNN = script("cudnn_table")


def test_a_kernel_that_is_right_runs_and_others_say_why_not(registry):
    found = CUDNN.probe(lambda job, key: run_job(job), "conv/cpu.w", [("3x3", "f32", "nchw"), ("5x5", "f32", "nchw")])
    answers = {(a.kernel, a.direction, a.probe): a for a in found}
    assert answers["conv/cpu.winograd", "fprop", "3x3 f32 nchw"].text.startswith("runs, ")
    refused = answers["conv/cpu.winograd", "fprop", "5x5 f32 nchw"]
    assert (refused.text, refused.reason) == ("unsupported", "r is 5, expected 3")


def test_a_cell_holds_cudnns_own_status():
    answers = [
        CUDNN.Answer("conv/cudnn.fft", "dgrad", "3x3", "runs, 1.0 MiB", ""),
        CUDNN.answer(CUDNN.Measurement(kernel="conv/cudnn.gemm", status="unsupported", reason=REFUSED), "fprop", "3x3"),
        CUDNN.answer(CUDNN.Measurement(kernel="conv/cudnn.gemm", status="wrong", reason="is off"), "fprop", "9x9"),
    ]
    head, _, fft, gemm = (line.split("|")[1:-1] for line in CUDNN.table(answers).splitlines()[:4])
    assert [cell.strip() for cell in head] == ["kernel", "pass", "3x3", "9x9"]
    assert [cell.strip() for cell in fft] == ["conv/cudnn.fft", "dgrad", "runs, 1.0 MiB", ""]
    assert [cell.strip() for cell in gemm] == ["conv/cudnn.gemm", "fprop", "NOT_SUPPORTED", "wrong"]


def test_every_probe_is_a_problem_that_some_algorithm_has(registry):
    for shape, dtype, layout in CUDNN.FORMS:
        for direction in CUDNN.DIRECTIONS:
            problem = registry.problem(f"conv/{CUDNN.SHAPES[shape]}/{dtype}/{layout}/{direction}")
            names = [k.id for k in registry.kernels.values() if k.provider == "cudnn" and k.refuses(problem) is None]
            assert names, problem.id


REFUSED = "cudnnGetConvolutionForwardWorkspaceSize returned CUDNN_STATUS_NOT_SUPPORTED"
