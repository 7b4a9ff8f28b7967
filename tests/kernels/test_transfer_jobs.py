"""Transfers on a GPU in jobs: what they are set against, and what is measured in turn with them."""

from kernelmark.bench.plan.case import Plan, jobs
from kernelmark.bench.plan.suites import find_suite
from support.kernels import REGISTRY


def baselines(problem: str) -> dict[str, str | None]:
    """The baseline of each problem of the suite's jobs on a GPU that measure this one, by their ids."""
    planned = jobs([find_suite("transfer", REGISTRY)], REGISTRY, Plan(("cpu", "cuda")))
    (job,) = (each.job for each in planned if problem in each.job.problems)
    return {name: job.baseline_of(name) for name in job.problems}


def test_a_gpus_baselines_are_those_of_the_direction() -> None:
    assert baselines("transfer/n1024/f32/h2d") == {"transfer/n1024/f32/h2d": "transfer/cuda.pageable"}
    assert baselines("transfer/n51200000/f32/d2d") == {"transfer/n51200000/f32/d2d": "transfer/cuda.device"}


def test_on_a_gpu_the_work_alone_is_measured_in_turn_with_the_transfer_before_it() -> None:
    at_once, within = (f"transfer/n51200000/f32/{way}/work64" for way in ("h2d", "d2d"))
    assert baselines(at_once) == {at_once: "transfer/cuda.serial", within: None}
