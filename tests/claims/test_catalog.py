"""The claims and the experiments that test them, as the files of bench/claims hold them."""

from pathlib import Path

import pytest

from kernelmark.bench.claims.catalog import FOLDER, Catalog, catalog, claims, experiment, experiment_names, read_table
from kernelmark.bench.claims.evidence import batch_of, entries, planned
from kernelmark.bench.plan.globs import matches

#: Every clause of the founding texts, by the beginning of its words.
CLAUSES = (
    "op_T is slower than op_N",
    "The loss by op_T reaches 3x",
    "Out-of-place transposition first, then op_N, is better",
    "In-place transposition is the costly part",
    "Accumulation by beta (gradient and update in one GEMM) beats two steps",
    "FFT convolution beats direct convolution in many cases",
    "In the frequency domain the convolution is a plain inner product",
    "That inner product, with FFTs of whole images around it, is faster",
    "64 CPU threads do no better than 32",
    "64 CPU threads do worse than 32 on small convolutions",
    "16 threads are the sweet spot",
    "Up to the sweet spot of 16, more threads are faster",
    "Builds for newer instruction sets (AVX, FMA) are faster",
    "The gain is 30-40 %",
    "The gain is largest at few threads",
    "The GPU's advantage grows with the size of the problem",
    "It comes from memory bandwidth and parallel units: 10-15x",
    "Small networks need no GPU: the size at which the GPU passes the CPU, without transfers",
    "Small networks need no GPU: the size at which the GPU passes the CPU, with transfers",
    "Gradients take about a quarter of a mini-batch's time from GPU to CPU",
    "LSTM steps with their small GEMMs run slower on a GPU than on CPUs",
    "Throughput rises with the batch until memory is full",
    "Larger batches make layers faster an image; which gain: AlexNet",
    "Larger batches make layers faster an image; which gain: GoogLeNet",
    "Larger batches make layers faster an image; which gain: ResNet-50",
    "A GPU instance at 2-3x the price pays only beyond a 2-3x speed-up",
    "The GPU instance does more work for the same money",
    "The accelerator does more work for the same energy",
    "Matrix products and FFTs are far faster on a GPU",
    "A CNN trains more than twice as fast on the GPU",
    "fastText trains far faster on the GPU",
    "With hundreds of thousands of parameters and more",
    "AlexNet takes clearly fewer seconds a batch on the newer",
    "CPUs are the better value at preemptible prices alone",
    "MXNet and Caffe scale well, Torch less, TensorFlow least: on several GPUs",
    "Several GPUs also pay without parallelism",
)


def test_every_clause_is_a_claim_of_its_own():
    for clause in CLAUSES:
        assert any(claim.words.startswith(clause) for claim in catalog().claim), clause
    words = [claim.words for claim in catalog().claim]
    assert len(set(words)) == len(words)


def test_every_file_of_claims_is_read():
    names = {path.stem for path in FOLDER.glob("*.toml")} - {"prices"}
    found = [read_table(FOLDER / f"{name}.toml", Catalog) for name in sorted(names)]
    assert sum(len(file.claim) for file in found) == len(catalog().claim)
    assert all(claim.source and claim.applies and claim.number for claim in catalog().claim)


@pytest.mark.parametrize("claim", catalog().claim, ids=lambda claim: claim.id)
def test_a_claim_names_problems_and_kernels_that_exist(claim, registry):
    asked, comparison = experiment(claim), claim.comparison
    problems = {layer.entry.problem.id for layer in entries(asked, registry)}
    sides = [*comparison.one, *comparison.other]
    if comparison.kind == "problems":
        assert set(sides) <= problems
    elif comparison.kind in ("kernels", "verified"):
        assert all(_fits(glob, registry.kernels) for glob in sides)
    assert all(_fits(glob, problems) for glob in comparison.problems)
    assert all(_fits(glob, registry.kernels) for glob in (*asked.kernels, *comparison.kernels))
    assert set(comparison.other) <= {"1", "2", "4", "8", "32", "64"} or comparison.kind != "threads"


def _fits(glob, names):
    return any(matches(name, (glob,)) for name in names)


def test_a_case_has_the_same_company_in_every_experiment(registry):
    """A run keeps the first row of a case, and kernels that are compared must have been measured in turn."""
    for devices in (("cpu",), ("cpu", "cuda")):
        company = {}
        for asked in (e for e in catalog().experiment if e.device in devices):
            for job in planned(asked.id, registry, devices)[1]:
                for kernel in job.job.kernels:
                    case = (kernel, job.job.problems, job.job.threads, job.job.isa)
                    assert company.setdefault(case, job.job.kernels) == job.job.kernels, asked.id


def test_the_jobs_of_each_experiment_are_planned_by_its_name(registry):
    assert experiment_names() == [asked.id for asked in catalog().experiment]
    for asked in catalog().experiment:
        how, jobs = planned(asked.id, registry, ("cpu", "cuda"))
        assert {p for job in jobs for p in job.job.problems} == {e.entry.problem.id for e in entries(asked, registry)}
        assert (how.spread_s, how.processes, how.max_time_s) == (asked.spread, asked.processes, asked.max_time)


def test_an_experiment_on_the_cpu_has_no_contenders_on_a_gpu(registry):
    for asked in catalog().experiment:
        how, jobs = planned(asked.id, registry, ("cpu", "cuda"))
        used = {registry.kernels[kernel].device for job in jobs for kernel in job.job.kernels}
        assert ("cuda" in how.devices, "cuda" in used) == (asked.device == "cuda",) * 2, asked.id


def test_siblings_of_an_experiment_are_one_job(registry):
    _, jobs = planned("founding-cublas", registry, ("cpu", "cuda"))
    assert [len(job.job.problems) for job in jobs] == [2]


def test_jobs_of_a_plan_have_places_of_their_own_and_the_suites_that_they_are_from(registry):
    _, jobs = planned("aggregated-networks", registry, ("cpu",))
    assert [job.place for job in jobs] == list(range(len(jobs)))
    assert {job.suite for job in jobs} == {"alexnet", "googlenet", "resnet50", "aggregation"}


def test_an_experiment_that_no_claim_has_is_refused(registry, complaint):
    said = complaint(lambda: planned("op-u", registry, ("cpu",)))
    assert said.startswith("'op-u': is no experiment of a claim; expected one of op-t, strategies, ")


def test_batches_are_put_where_images_lie(registry):
    found = entries(experiment(*claims(["layers-alexnet"])), registry)
    assert {(batch_of(e.entry.problem), e.batch) for e in found} == {(1, 1), (8, 8)}
    assert {e.entry.problem.id for e in found} >= {"gemm/m8n4096k9216/f32/NT", "gemm/m4096n9216k8/f32/TN"}


def test_a_claim_that_nobody_made_is_refused(complaint):
    assert complaint(lambda: claims(["beta", "gamma"])).startswith(
        "--only 'gamma': is no claim; expected some of op-t-"
    )


@pytest.mark.parametrize(
    ("confirm", "said"), [("", "expected one of above, below, between"), ("over = 1", "unknown field `over`")]
)
def test_a_claim_without_a_number_is_refused(tmp_path, complaint, confirm, said):
    claim = "[[claim]]\n" + "\n".join(f"{key} = 'a'" for key in ("id", "words", "applies", "experiment", "number"))
    (tmp_path / "mine.toml").write_text(f"{claim}\nconfirm = {{ {confirm} }}\ncomparison = {{ kind = 'threads' }}")
    assert said in complaint(lambda: read_table(tmp_path / "mine.toml", Catalog))


def test_the_documentation_names_every_claim_with_its_number():
    page = (Path(__file__).parents[2] / "docs" / "claims.md").read_text()
    for claim in catalog().claim:
        assert f"| `{claim.id}`: {claim.words} | {claim.number} | {claim.confirm} |" in page
