"""The plan of a run: kernels that contend on a problem, modes, options, and the statuses of rows."""

import ast

import msgspec
import pytest

from kernelmark import kernel
from kernelmark.bench.cli.run import run, verify
from kernelmark.bench.plan.case import Budget, Entrant, Job, Plan, WorkerKey, case_count, case_of, contenders, jobs
from kernelmark.bench.plan.modes import MAX_SETS, Mode
from kernelmark.bench.plan.options import MAX_TIME_S, OPTIONS, REL_CI
from kernelmark.bench.plan.suites import find_suite
from kernelmark.bench.plan.sweep import Entry
from support.pages import ROOT

CPU = ("cpu",)
NT = "gemm/m8n8k8/f32/NT"


def ids(registry, problem, *globs, of_suite=(), devices=CPU):
    entry = Entry(registry.problem(problem), kernels=of_suite)
    return [k.id for k in contenders(entry, registry, devices, globs)]


def only_job(registry, problem, **plan):
    (planned,) = jobs([find_suite(problem, registry)], registry, Plan(**{"devices": CPU, **plan}))
    return planned


def test_a_kernel_contends_outside_its_domain_only_if_it_is_named_in_full(registry):
    kernels = ids(registry, "gemm/m8n8k8/f64/NN")
    assert {"gemm/scipy.dgemm", "gemm/scipy.sgemm", "gemm/numpy.tnn"} & {*kernels} == {"gemm/scipy.dgemm"}
    for glob in ("gemm/scipy.dg?mm", "gemm/scipy.*", "*"):
        assert "gemm/scipy.dgemm" not in ids(registry, NT, glob)
    assert ids(registry, NT, "gemm/scipy.dgemm") == ["gemm/scipy.dgemm"]


@pytest.mark.parametrize("glob", ["numpy.matmul", "gemm/numpy", "matmul", "GEMM/NUMPY.MATMUL"])
def test_a_glob_matches_whole_ids(registry, glob):
    assert ids(registry, NT, glob) == []


def test_a_glob_after_an_exclamation_mark_excludes_kernels(registry):
    every, numpy = set(ids(registry, NT)), set(ids(registry, NT, "gemm/numpy.*"))
    assert set(ids(registry, NT, "!gemm/numpy.*")) == every - numpy
    assert ids(registry, NT, "gemm/numpy.*", "!*.tnn") == ["gemm/numpy.matmul"]
    assert set(ids(registry, NT, of_suite=("!gemm/numpy.*",))) == every - numpy


def test_kernels_of_an_absent_device_contend_only_if_they_are_named_in_full(registry):
    @kernel("gemm", provider="mine", device="cuda")
    def away(problem, x):
        """On a GPU."""

    assert ids(registry, NT, "gemm/mine.awa?") == []
    assert ids(registry, NT, "gemm/mine.away") == ["gemm/mine.away"]
    assert ids(registry, NT, "gemm/mine.awa?", devices=("cpu", "cuda")) == ["gemm/mine.away"]


def test_a_kernel_on_request_contends_only_if_a_glob_selects_it(dummy, registry):
    dummy("requested", on_request=True)
    for globs in ((), ("!gemm/numpy.*",), ("*.sgemm",)):
        assert "gemm/own.requested" not in ids(registry, NT, *globs)
    for glob in ("gemm/own.requested", "gemm/own.*", "*.request?d"):
        assert ids(registry, NT, glob) == ids(registry, NT, of_suite=(glob,)) == ["gemm/own.requested"]
    assert ids(registry, NT, "gemm/own.*", "!*.requested") == []


def test_a_kernel_whose_device_is_absent_is_planned_for_a_cpu_worker(registry):
    planned = only_job(registry, NT, kernels=("gemm/cublas.sgemm", "gemm/numpy.matmul"))
    assert (planned.key.device, planned.job.absent) == ("cpu", ("cuda",))
    present = only_job(registry, NT, kernels=("gemm/cublas.sgemm",), devices=("cpu", "cuda"))
    assert (present.key.device, present.job.absent) == ("cuda", ())


@pytest.mark.parametrize(
    ("problem", "baseline"),
    [
        ("gemm/m8n8k8/s8.s32/NT", "gemm/numpy.widened"),
        (NT, "gemm/numpy.matmul"),
        ("transpose/m8n8/f32/out", "transpose/numpy.out"),
        ("transpose/m8n8/f32/in", "transpose/openblas.imatcopy"),
        ("transfer/n8/f32/h2h/node0/work2", "transfer/numba.serial"),
    ],
)
def test_the_default_baseline_depends_on_the_problem(registry, problem, baseline):
    assert only_job(registry, problem).job.baseline == baseline


def test_a_suite_may_name_another_baseline_and_an_unselected_one_is_not_used(registry, load):
    job = only_job(registry, NT, kernels=("gemm/scipy.*",)).job
    assert job.baseline is None
    assert "gemm/numpy.matmul" not in job.kernels
    suite = load(
        "baseline = {transpose = 'transpose/numpy.out'}\n"
        "[[sweep]]\nop = 'transpose'\ndtype = 'f32'\nplace = ['out', 'in']\npoints = [[3, 5]]\n"
    )
    planned = jobs([suite], registry, Plan(devices=CPU))
    assert [p.job.baseline for p in planned] == ["transpose/numpy.out", None]


LAYOUTS = "[[sweep]]\nop = 'gemm'\ndtype = 'f32'\nlayout = ['NT', 'NN']\npoints = [[8, 8, 8]]\ntogether = ['layout']\n"


def test_variants_share_a_job_for_each_thread_count_but_not_their_contenders(registry, load):
    (planned,) = jobs([load(LAYOUTS + "kernels = ['gemm/numpy.*']")], registry, Plan(devices=CPU))
    nn = NT.replace("NT", "NN")
    assert planned.job.entrants == ((NT, "gemm/numpy.matmul"), (NT, "gemm/numpy.tnn"), (nn, "gemm/numpy.matmul"))
    assert planned.job.baseline_of(NT) == planned.job.baseline_of(nn) == "gemm/numpy.matmul"
    all_jobs = jobs([load(LAYOUTS)], registry, Plan(devices=CPU, threads=(1, 2)))
    assert [(p.job.threads, p.key.threads, len(p.job.problems)) for p in all_jobs] == [(1, 1, 2), (2, 2, 2)]


def test_each_variant_of_a_job_may_have_its_own_baseline_or_none(registry, load):
    text = "[[sweep]]\nop = 'transpose'\ndtype = 'f32'\nplace = ['out', 'in']\npoints = [[8, 8]]\ntogether = ['place']"
    places = ["transpose/m8n8/f32/out", "transpose/m8n8/f32/in"]
    (planned,) = jobs([load(text)], registry, Plan(devices=CPU))
    assert [planned.job.baseline_of(p) for p in places] == ["transpose/numpy.out", "transpose/openblas.imatcopy"]
    (planned,) = jobs([load(text + "\nkernels = ['*.im*', '*.omat*']")], registry, Plan(devices=CPU))
    assert [planned.job.baseline_of(p) for p in places] == [None, "transpose/openblas.imatcopy"]


def test_a_job_restricted_to_some_contenders_keeps_their_order():
    job = Job(("p", "q"), ("a", "b", "c"), Mode.HOT, (), 0, Budget(), 1)
    some = [("q", "a"), ("p", "c"), ("p", "a")]
    part = job.only([Entrant(*pair) for pair in some])
    assert part.entrants == (("p", "a"), ("p", "c"), ("q", "a"))
    assert (part.problems, part.kernels) == (("p", "q"), ("a", "c"))
    assert [share.entrants for share in part.apart()] == [(("p", "a"), ("p", "c")), (("q", "a"),)]


def test_only_threaded_kernels_and_their_baseline_run_at_a_second_thread_count(registry):
    suite = find_suite("transpose/m8n8/f32/out", registry)
    first, second = jobs([suite], registry, Plan(devices=CPU, threads=(1, 2)))
    assert {"transpose/numpy.out", "transpose/openblas.omatcopy"} <= set(first.job.kernels)
    assert {"transpose/numpy.out", "transpose/openblas.omatcopy_threaded"} <= set(second.job.kernels)
    assert "transpose/openblas.omatcopy" not in second.job.kernels
    assert first.job.baseline == second.job.baseline == "transpose/numpy.out"
    assert (first.job.threads, second.job.threads) == (1, 2)
    assert (first.key, second.key) == (WorkerKey("cpu", 1), WorkerKey("cpu", 2))


@pytest.mark.parametrize(
    ("suite_limit", "sweep_limit", "user_limit_s", "seconds"),
    [
        ("", "", None, 2.0),
        ("max_time = 0.5\n", "", None, 0.5),
        ("max_time = 0.5\n", "max_time = 0.7\n", None, 0.7),
        ("max_time = 0.5\n", "max_time = 0.7\n", 0.1, 0.1),
    ],
)
def test_the_time_limit_is_the_users_or_the_sweeps_or_the_suites_or_two_seconds(
    registry, load, suite_limit, sweep_limit, user_limit_s, seconds
):
    suite = load(f"{suite_limit}[[sweep]]\nop = 'copy'\ndtype = 'f32'\npoints = [[3, 5]]\ncount = 7\n{sweep_limit}")
    (planned,) = jobs([suite], registry, Plan(devices=CPU, max_time_s=user_limit_s, rel_ci=0.05))
    assert planned.job.budget == Budget(seconds, 0.05)
    assert (planned.suite, planned.count) == ("mine", 7)


def test_options_of_a_plan_reach_the_job(registry):
    plan = {"mode": Mode.HOT, "plugins": ("p.py",), "seed": 9, "launcher": "pycuda", "threads": (3,)}
    job = only_job(registry, NT, **plan).job
    assert (job.problems, job.mode, job.plugins, job.seed) == ((NT,), "hot", ("p.py",), 9)
    assert (job.launcher, job.threads) == ("pycuda", 3)


def test_repeated_problems_and_baselines_count_as_one_case(registry):
    suites = [find_suite(name, registry) for name in (NT, NT, "copy/m3n5/f32")]
    plan = Plan(devices=CPU, threads=(1, 2), kernels=("gemm/numpy.matmul", "gemm/numba.*", "copy/numpy.*"))
    planned = list(jobs(suites, registry, plan))
    cases = {case_of(p.job, name, registry.kernels[kernel]) for p in planned for name, kernel in p.job.entrants}
    assert case_count(planned, registry) == len(cases) < sum(len(p.job.entrants) for p in planned)


@pytest.mark.parametrize("folder", ["plan", "run", "emulator"])
def test_plan_run_and_emulator_name_no_operation(registry, folder):
    texts = [
        (path.name, node.value)
        for path in (ROOT / "bench" / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    named = {(name, text) for name, text in texts if text.partition("/")[0] in registry.operations}
    assert named - {("dtypes.py", "fft"), ("variants.py", "fft")} == set()  # named after an algorithm


LLC = 32 * 2**20


@pytest.mark.parametrize(
    ("footprint", "expected"),
    [
        (2**23, (9, False)),  # between two uses of a set, calls use the other eight, 64 MiB
        (2**26, (2, False)),
        (2**29, (2, False)),
        (2**30 - 1, (2, False)),
        (2**30, (1, False)),  # 32 last-level caches
        (96, (MAX_SETS, True)),
    ],
)
def test_cold_rotates_over_twice_the_last_level_cache(footprint: int, expected: tuple[int, bool]) -> None:
    assert Mode.COLD.rotation(footprint, LLC) == expected


@pytest.mark.parametrize(
    ("footprint", "touched", "expected"),
    [
        (2**23, 2**23 - 9999, (10, False)),  # a little padding takes one more set
        (2**27, 2**20, (2, True)),  # filling the caches would take too many sets of 128 MiB
        (2**30, 2**20, (1, True)),
        (2**30, 2**30 - 1, (1, True)),
        (2**22, 96, (32, True)),
    ],
)
def test_sets_of_cold_mode_are_counted_by_the_bytes_that_calls_touch(footprint, touched, expected) -> None:
    assert Mode.COLD.rotation(footprint, LLC, touched) == expected
    assert Mode.HOT.rotation(footprint, LLC, touched) == (1, False)


@pytest.mark.parametrize("mode", Mode)
def test_only_cold_rotates_only_graph_refuses_kernels_and_every_mode_is_described(registry, mode: Mode) -> None:
    kernels = registry.kernels.values()
    in_no_graph = {kernel.id for kernel in kernels if kernel.device == "cpu" or kernel.synchronises}
    assert (mode.rotation(96, LLC) == (1, False)) == (mode != Mode.COLD)
    assert {kernel.id for kernel in kernels if mode.refuses(kernel)} == (in_no_graph if mode == Mode.GRAPH else set())
    assert f" {mode} " in mode.does.sentence
    refusal = mode.refuses(registry.kernels["gemm/numpy.matmul"]) or ""
    assert refusal.startswith("gemm/numpy.matmul runs on the CPU") == (mode == Mode.GRAPH)


BY_NAME = {option.name: option for option in OPTIONS}
#: Fields whose defaults depend on the machine.
RESOLVED = {"devices", "threads", "isas"}


def test_fields_of_a_plan_have_options() -> None:
    others = {"suites", "tuned", "tiles", "tunes", "shard", "executor", "gpus", "reproduce", "absent"}
    fields = {field.name for field in msgspec.structs.fields(Plan)} - others
    assert {option.field for option in OPTIONS} == fields


def test_an_option_and_its_field_in_a_plan_have_the_same_default() -> None:
    plan = Plan(devices=("cpu",))
    unset = {option.field: () if option.many else option.default for option in OPTIONS if option.field not in RESOLVED}
    assert {name: getattr(plan, name) for name in unset} == unset
    assert Budget() == Budget(MAX_TIME_S, REL_CI)
    assert "fraction of the median (0.01 is 1 %)" in BY_NAME["rel-ci"].help


def test_run_takes_every_option_and_verify_all_but_those_of_timing() -> None:
    names = {param.name for param in run.params}
    assert names >= {option.field for option in OPTIONS}
    of_run = {"csv_path", "resume", "report_to", "fail_noisy", "tuned", "shard", "only_list", "dry_run"}
    of_run |= {"executor", "start_timeout_s", "gpus", "select", "noisy_again"}
    missing = names - {param.name for param in verify.params} - of_run
    assert missing == {"mode", "max_time_s", "rel_ci", "ceilings", "processes", "spread_s"}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("threads", "4, 1,4", (4, 1)),
        ("seed", "0", 0),
        ("timeout", "0.5", 0.5),
        ("rel-ci", "0", 0.0),
        ("processes", "5", 5),
    ],
)
def test_the_text_of_an_option_is_parsed(name: str, text: str, value: object) -> None:
    assert BY_NAME[name].parse(text) == value


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        *(("threads", text, "integers above 0, separated by commas") for text in ("0", "1,", "")),
        *(("seed", text, "an integer from 0 to 9223372036854775807") for text in ("-1", str(2**63))),
        *(("processes", text, "an integer from 1 to 1000") for text in ("1" + "0" * 20, "1.5")),
        ("timeout", "0", "a number above 0"),
        *(("max-time", text, "a number above 0") for text in ("inf", "soon")),
        ("rel-ci", "nan", "a number, 0 or more"),
        *(("spread", text, "a number, 0 or more") for text in ("-1", "inf")),
    ],
)
def test_a_bad_value_of_an_option_is_refused_with_what_is_expected(name: str, text: str, expected: str) -> None:
    with pytest.raises(ValueError, match=f"^is {text!r}, expected {expected}$"):
        BY_NAME[name].parse(text)


def test_the_help_names_every_mode_that_can_be_chosen_and_the_default() -> None:
    text = BY_NAME["mode"].text
    assert [mode for mode in Mode if f"{mode} " not in text] == [Mode.VERIFY]
    assert text.endswith("[default: cold]")
