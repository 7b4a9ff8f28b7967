"""Suites: checked when loaded, expanded one problem at a time, and dealt into shards."""

import random
import tracemalloc
from itertools import islice

import pytest

from kernelmark.bench.plan.case import Plan, Shard, case_count, jobs
from kernelmark.bench.plan.shards import group_of, owners, parse_shard, sharded, weight
from kernelmark.bench.plan.suites import find_suite, load_suite, suite_names

GEMM = "op = 'gemm'\ndtype = 'f32'\nlayout = 'NT'\n"
CONV = "op = 'conv'\ndtype = 'f32'\nn = 1\nc = 8\nh = 8\nw = 8\nk = 8\n"
SIZES = "m = 8\nn = 8\nk = 8\n"
GOOD = f"[[sweep]]\n{GEMM}{SIZES}"
COPY = "[[sweep]]\nop = 'copy'\ndtype = 'f32'\nn = 1\n"
HUGE = "9" * 400


def problems(suite):
    return [entry.problem.id for entry in suite.entries()]


def test_axes_are_swept_with_the_last_one_running_fastest(load):
    suite = load("[[sweep]]\nop = 'gemm'\nm = [1, 2]\nn = 3\nk = 5\ndtype = ['f32']\nlayout = ['NN', 'NT']\n")
    assert problems(suite) == [f"gemm/m{m}n3k5/f32/{layout}" for m in (1, 2) for layout in ("NN", "NT")]


def test_pow2_and_linear_include_both_ends(load):
    suite = load("[[sweep]]\nop = 'copy'\ndtype = 'f32'\nm = {pow2 = [3, 5]}\nn = {linear = [10, 20, 5]}\n")
    assert problems(suite) == [f"copy/m{m}n{n}/f32" for m in (8, 16, 32) for n in (10, 15, 20)]
    past = load("[[sweep]]\nop = 'copy'\ndtype = 'f32'\nm = 1\nn = {linear = [1, 6, 2]}\n")  # no step ends at 6
    assert problems(past) == ["copy/m1n1/f32", "copy/m1n3/f32", "copy/m1n5/f32"]


def test_points_give_all_sizes_or_the_named_axes_and_have_one_count_or_one_each(load):
    suite = load(f"[[sweep]]\n{GEMM}points = [[1, 2, 3], [4, 5, 6]]\ncount = [7, 9]\n")
    assert problems(suite) == ["gemm/m1n2k3/f32/NT", "gemm/m4n5k6/f32/NT"]
    assert [entry.count for entry in suite.entries()] == [7, 9]
    assert [e.count for e in load(f"[[sweep]]\n{GEMM}points = [[1, 2, 3], [4, 5, 6]]\ncount = 3\n").entries()] == [3, 3]
    named = load(f"[[sweep]]\n{GEMM}n = 5\naxes = ['k', 'm']\npoints = [[1, 2]]\n")
    assert problems(named) == ["gemm/m2n5k1/f32/NT"]


def test_sweeps_follow_each_other_in_the_order_of_the_file(load):
    suite = load(f"[[sweep]]\nop = 'copy'\ndtype = 'f32'\nm = 1\nn = 1\n{GOOD}kernels = ['gemm/numpy.*']\n")
    assert problems(suite) == ["copy/m1n1/f32", "gemm/m8n8k8/f32/NT"]
    assert [entry.kernels for entry in suite.entries()] == [(), ("gemm/numpy.*",)]


def test_problems_that_differ_only_in_the_named_axes_are_variants(load):
    both = GEMM.replace("'NT'", "['NN', 'NT']")
    suite = load(f"[[sweep]]\n{both}m = [1, 2]\nn = 3\nk = 5\ntogether = ['layout']\n")
    groups = [[entry.problem.id for entry in group] for group in suite.groups()]
    assert groups == [[f"gemm/m{m}n3k5/f32/{layout}" for layout in ("NN", "NT")] for m in (1, 2)]
    assert problems(suite) == [name for group in groups for name in group]
    suite = load("[[sweep]]\nop = 'copy'\ndtype = ['f32', 'f64']\nm = [1, 2]\nn = 3\n")
    assert [len(group) for group in suite.groups()] == [1] * 4


BAD_SWEEPS = {
    "misspelt_axis": (GEMM + SIZES + "layuot = 'NT'", "key 'layuot': is unknown, expected one of al", "mean layout?"),
    "unknown_op": ("op = 'gem'", "op", "'gem'"),
    "op_of_wrong_type": ("op = 3", "op", "'3'"),
    "no_op": (SIZES, "op", "missing"),
    "unknown_dtype": ("op = 'copy'\nm = 1\nn = 1\ndtype = ['f32', 'f31']", "dtype", "'f31'"),
    "size_zero": (GEMM + "m = [8, 0]\nn = 1\nk = 1", "m", "is 0, expected `int` >= 1"),
    "size_that_is_a_boolean": (GEMM + "m = true\nn = 1\nk = 1", "m", "is True"),
    "empty_axis": (GEMM + "m = []\nn = 1\nk = 1", "m", "empty list"),
    "empty_points": (GEMM + "points = []", "points", "is []"),
    "points_not_a_list": (GEMM + "points = 3", "points", "is 3"),
    "short_point": (GEMM + "points = [[1, 2, 3], [1, 2]]", "points", "3 values (m, n, k)"),
    "zero_in_a_point": (GEMM + "points = [[1, 2, 3], [1, 0, 3]]", "points", "key 'n': n is 0"),
    "fewer_counts_than_points": (GEMM + "points = [[1, 2, 3], [4, 5, 6]]\ncount = [1]", "count", "2 points"),
    "count_zero": (GEMM + SIZES + "count = 0", "count", "is 0"),
    "count_of_wrong_type": (GEMM + SIZES + "count = 'two'", "count", "'two'"),
    "axes_without_points": (GEMM + SIZES + "axes = ['m']", "axes", "points"),
    "unknown_tied_axis": (GEMM + "axes = ['m', 'q']\npoints = [[1, 2]]", "axes", "'q'"),
    "axes_not_a_list": (GEMM + "axes = 3\npoints = [[1, 2]]", "axes", "is 3"),
    "axes_that_are_lists": (GEMM + "axes = [['m']]\npoints = [[1]]", "axes", "'m'"),
    "axis_tied_twice": (GEMM + "n = 1\nk = 1\naxes = ['m', 'm']\npoints = [[1, 2]]", "axes", "'m'"),
    "axis_given_twice": (GEMM + "m = 1\npoints = [[1, 2, 3]]", "m", "points"),
    "missing_size": (GEMM + "m = 8\nn = 8", "k", "missing"),
    "pow2_of_one_number": (GEMM + "m = {pow2 = [8]}\nn = 1\nk = 1", "m", "{pow2 = [first, last]}"),
    "pow2_downwards": (GEMM + "m = {pow2 = [8, 4]}\nn = 1\nk = 1", "m", "{pow2 = [first, last]}"),
    "pow2_not_a_list": (GEMM + "m = {pow2 = 8}\nn = 1\nk = 1", "m", "{pow2 = [first, last]}"),
    "linear_without_step": (GEMM + "m = {linear = [1, 9]}\nn = 1\nk = 1", "m", "{linear = [start, stop, step]}"),
    "linear_with_step_zero": (GEMM + "m = {linear = [1, 9, 0]}\nn = 1\nk = 1", "m", "{linear = [start, stop, step]}"),
    "linear_from_zero": (GEMM + "m = {linear = [0, 8, 4]}\nn = 1\nk = 1", "m", "is 0, expected `int` >= 1"),
    "unknown_range": (GEMM + "m = {log = [1, 9]}\nn = 1\nk = 1", "m", "'log'"),
    "two_ranges": (GEMM + "m = {pow2 = [1, 2], linear = [1, 2, 1]}\nn = 1\nk = 1", "m", "pow2"),
    "unknown_part": (GEMM + SIZES + "part = 'sideways'", "part", "'sideways'"),
    "network_of_wrong_type": (GEMM + SIZES + "network = 3", "network", "is 3"),
    "along_an_axis_without_points": (GEMM + SIZES + "along = 'm'", "along", "axes of points: none"),
    "variants_of_sizes": (GEMM + SIZES + "together = ['m']", "together", "names, each once; here: dtype, layout"),
    "variants_along_an_axis_not_given": (GEMM + SIZES + "together = ['place']", "together", "is ['place'], expected"),
    "variants_along_an_axis_twice": (GEMM + SIZES + "together = ['dtype', 'dtype']", "together", "each once"),
    "variants_of_wrong_type": (GEMM + SIZES + "together = 'layout'", "together", "is 'layout'"),
    "variants_of_lists": (GEMM + SIZES + "together = [['layout']]", "together", "is [['layout']]"),
    "padding_of_wrong_form": (CONV + "r = 3\ns = 3\npad = [1, '1-']", "pad", "'1-'"),
    "kernels_of_wrong_type": (GEMM + SIZES + "kernels = [3]", "kernels", "[3]"),
    # Mistakes that only the problem class can find; it reports them when the problem is made.
    "beta_that_is_not_finite": (GEMM + SIZES + "beta = nan", "beta", "2: beta is nan"),
    "filter_beyond_the_image": (CONV + "r = 9\ns = 3", "r", "2: r is 9, expected at most the padded image's 8"),
}


@pytest.mark.parametrize("case", BAD_SWEEPS)
def test_a_bad_sweep_is_refused_in_one_line_with_file_table_and_key(load, tmp_path, complaint, case):
    text, key, fault = BAD_SWEEPS[case]
    line = complaint(lambda: load(f"{GOOD}\n[[sweep]]\n{text}\n"))
    assert line.startswith(f"{tmp_path / 'mine.toml'}: [[sweep]] 2")
    assert key in line
    assert fault in line


def test_a_bad_value_is_refused_only_when_a_large_sweep_reaches_it(load, complaint):
    suite = load(f"[[sweep]]\n{GEMM}m = {{linear = [1, 1000000, 1]}}\nn = 1\nk = 1\nlda_pad = [0, -1]\n")
    assert "lda_pad is -1" in complaint(lambda: list(islice(suite.entries(), 2)))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("title = \n", "is not TOML: Invalid value (at line 1, column 9)"),
        ("", "no [[sweep]]"),
        ("[sweep]\nop = 'gemm'\n", "no [[sweep]]"),
        ("sweep = []\n", "no [[sweep]]"),
        ("sweep = [3]\n", "[[sweep]] 1: is 3, expected a table"),
        (
            "titel = 'x'\n" + GOOD,
            "key 'titel': is unknown, expected one of baseline, max_time, source, sweep, title; did",
        ),
        ("title = 3\n" + GOOD, "title is 3, expected a string"),
        ("max_time = 0\n" + GOOD, "max_time is 0, expected a finite number of seconds above 0"),
        ("max_time = 'long'\n" + GOOD, "max_time is 'long'"),
        (GOOD + "max_time = nan\n", "[[sweep]] 1: max_time is nan"),
        ("baseline = 'gemm/numpy.matmul'\n" + GOOD, "baseline: is 'gemm/numpy.matmul', expected a table"),
        ("baseline = {gem = 'gemm/numpy.matmul'}\n" + GOOD, "'gem' is not an operation"),
        ("baseline = {gemm = 'gemm/numpy.matmull'}\n" + GOOD, "'gemm/numpy.matmull', which is not a kernel"),
        ("baseline = {gemm = 'copy/numpy.copyto'}\n" + GOOD, "'copy/numpy.copyto', which is not a kernel of gemm"),
        ("baseline = {gemm = ['x']}\n" + GOOD, "gemm is ['x'], which is not a kernel"),
        (COPY + "m = {linear = [1, 100000000000000000000, 1]}", "expected {pow2 = [first, last]} or {linear = "),
        (COPY + "m = {linear = [-9223372036854775808, 9223372036854775807, 1]}", "expected {pow2 = [first, last]} or"),
        (COPY + "m = {linear = [1, 10000001, 1]}", "[[sweep]] 1: has 10,000,001 problems, expected at most 10,000,000"),
        pytest.param(f"{COPY}m = {HUGE}", "expected `int` <= 9223372036854775807", id="size"),
        pytest.param(f"{COPY}m = 1\ncount = {HUGE}", "expected integers from 1 to 9223372036854775807", id="count"),
        pytest.param(f"{COPY}m = 1\nmax_time = {HUGE}", "expected a finite number of seconds above 0", id="time"),
    ],
)
def test_a_bad_file_is_refused_in_one_line_that_names_it(load, tmp_path, complaint, text, fault):
    line = complaint(lambda: load(text))
    assert line.startswith(str(tmp_path / "mine.toml"))
    assert fault in line


def test_a_byte_order_mark_is_skipped_and_other_encodings_than_utf8_are_refused(registry, tmp_path, complaint):
    path = tmp_path / "bom.toml"
    path.write_text("\ufefftitle = 'x'\n[[sweep]]\nop = 'copy'\ndtype = 'f32'\nm = 8\nn = 8\n")
    assert load_suite(path, registry).title == "x"
    path.write_bytes(b"title = '\xe9'\n")
    assert complaint(lambda: load_suite(path, registry)).startswith(f"{path}: is not TOML")


def test_every_suite_of_the_project_has_title_source_and_problems(registry):
    assert {"founding", "seed", "smoke"} <= set(suite_names())
    for name in suite_names():
        suite = find_suite(name, registry)
        assert suite.title
        assert suite.source
        assert len(set(problems(suite))) >= 1
    assert "gemm/m1024n2048k26752/f32/NT" in problems(find_suite("founding", registry))


@pytest.mark.parametrize(
    "axes",
    [
        "m = {linear = [1, 1000000, 1]}\nn = 1\nk = 1\n",
        "m = {linear = [1, 100, 1]}\nn = {linear = [1, 100, 1]}\nk = {linear = [1, 100, 1]}\n",
        "m = {linear = [1, 10000000, 1]}\nn = 1\nk = 1\n",  # the largest sweep
    ],
)
def test_the_first_of_millions_of_problems_take_little_memory(load, axes):
    tracemalloc.start()
    try:
        entries = load(f"[[sweep]]\n{GEMM}{axes}").entries()
        first = [entry.problem.id for entry in islice(entries, 3)]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert first[0] == "gemm/m1n1k1/f32/NT"
    assert peak < 1_000_000


PLAN = Plan(("cpu",))


@pytest.fixture
def planned(registry):
    return list(jobs([find_suite(name, registry) for name in ("smoke", "alexnet", "fft")], registry, PLAN))


@pytest.mark.parametrize("text", ["0/4", "9/8", "x", "", "1", "1/", "/4", "-1/4", "1/0", "01/4", "1/4/2", "1.5/4"])
def test_a_bad_shard_is_refused(text):
    with pytest.raises(ValueError, match=f"is {text!r}, expected I/N with I from 1 to N"):
        parse_shard(text)


def test_each_job_is_in_one_shard_and_keeps_its_order(planned, registry):
    parts = [sharded(PLAN, Shard(index, 7), planned, registry)[1] for index in range(1, 8)]
    assert sorted((job for part in parts for job in part), key=lambda job: job.place) == planned
    assert [job.place for job in planned] == list(range(len(planned)))
    assert all([job.place for job in part] == sorted(job.place for job in part) for part in parts)


def test_all_jobs_on_the_same_sizes_are_in_one_shard_whatever_the_order_of_the_suite(planned, registry):
    owner_by_group = owners(planned, 5, registry)
    problems = {problem for job in planned for problem in job.job.problems}
    assert {group_of(problem) for problem in problems} == set(owner_by_group)
    assert group_of("gemm/m8n8k8/f32/NT") == group_of("gemm/m8n8k8/f64/TN/beta1") == "gemm/m8n8k8"
    shuffled = list(planned)
    random.Random(3).shuffle(shuffled)
    assert owners(shuffled, 5, registry) == owner_by_group


def test_a_shard_exceeds_its_share_by_at_most_one_group(planned, registry):
    owner_by_group, loads, groups = owners(planned, 4, registry), dict.fromkeys(range(1, 5), 0), {}
    for job in planned:
        group = group_of(job.job.problems[0])
        loads[owner_by_group[group]] += weight(job, registry)
        groups[group] = groups.get(group, 0) + weight(job, registry)
    assert max(loads.values()) <= sum(loads.values()) / 4 + max(groups.values())
    assert min(loads.values()) > 0


def test_the_plan_of_a_shard_counts_all_cases_and_a_superfluous_shard_is_empty(registry):
    planned = list(jobs([find_suite("gemm/m8n8k8/f32/NT", registry)], registry, PLAN))
    plans, parts = zip(*(sharded(PLAN, Shard(index, 3), planned, registry) for index in (1, 2, 3)), strict=True)
    assert [str(plan.shard) for plan in plans] == ["1/3", "2/3", "3/3"]
    assert {plan.shard.cases for plan in plans} == {case_count(planned, registry)}
    assert sorted(map(len, parts)) == [0, 0, 1]
