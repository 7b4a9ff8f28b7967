"""Shards: every job in one of them, groups whole, whatever the order of the suite, and alike in weight."""

import random

import pytest

from kernelmark.bench.plan.case import Plan, jobs
from kernelmark.bench.plan.shards import Shard, group_of, parse_shard
from kernelmark.bench.plan.shards_owners import owners, sharded, weight
from kernelmark.bench.plan.suites import find_suite

PLAN = Plan(("cpu",))


@pytest.fixture
def planned(registry):
    return list(jobs([find_suite(name, registry) for name in ("smoke", "alexnet", "fft")], registry, PLAN))


@pytest.mark.parametrize("text", ["0/4", "9/8", "x", "", "1", "1/", "/4", "-1/4", "1/0", "01/4", "1/4/2", "1.5/4"])
def test_what_is_no_shard_is_refused(text):
    with pytest.raises(ValueError, match=f"is {text!r}, expected I/N with I from 1 to N"):
        parse_shard(text)


def test_each_job_is_in_one_shard_and_keeps_its_order(planned, registry):
    parts = [sharded(PLAN, Shard(index, 7), planned, registry)[1] for index in range(1, 8)]
    found = sorted((job for part in parts for job in part), key=lambda job: job.place)
    assert found == planned
    assert [job.place for job in planned] == list(range(len(planned)))
    assert all([job.place for job in part] == sorted(job.place for job in part) for part in parts)


def test_all_jobs_on_the_same_sizes_are_in_one_shard(planned, registry):
    found = owners(planned, 5, registry)
    problems = {problem for job in planned for problem in job.job.problems}
    assert {group_of(problem) for problem in problems} == set(found)
    assert group_of("gemm/m8n8k8/f32/NT") == group_of("gemm/m8n8k8/f64/TN/beta1") == "gemm/m8n8k8"


def test_the_order_of_a_suite_is_of_no_account(planned, registry):
    shuffled = list(planned)
    random.Random(3).shuffle(shuffled)
    assert owners(shuffled, 8, registry) == owners(planned, 8, registry)


def test_no_shard_has_more_than_its_share_and_a_group(planned, registry):
    found, loads, groups = owners(planned, 4, registry), dict.fromkeys(range(1, 5), 0), {}
    for job in planned:
        group = group_of(job.job.problems[0])
        loads[found[group]] += weight(job, registry)
        groups[group] = groups.get(group, 0) + weight(job, registry)
    assert max(loads.values()) <= sum(loads.values()) / 4 + max(groups.values())
    assert min(loads.values()) > 0


def test_the_plan_of_a_shard_has_the_cases_of_all(planned, registry):
    plans = [sharded(PLAN, Shard(index, 3), planned, registry)[0] for index in (1, 2, 3)]
    assert len({plan.shard.cases for plan in plans}) == 1
    assert [str(plan.shard) for plan in plans] == ["1/3", "2/3", "3/3"]


def test_a_shard_that_is_one_too_many_is_empty(registry):
    planned = list(jobs([find_suite("gemm/m8n8k8/f32/NT", registry)], registry, PLAN))
    sizes = [len(sharded(PLAN, Shard(index, 3), planned, registry)[1]) for index in (1, 2, 3)]
    assert sorted(sizes) == [0, 0, 1]
