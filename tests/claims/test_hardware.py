"""What a claim lacks of the hardware is judged by the machine of the run, wherever the report is made."""

import msgspec
import pytest

from kernelmark.bench.claims.answer import Hardware, untestable
from support.rows import RUN

SMALL = {"cpu": "Some CPU", "cpus_usable": 2, "isas": ["sse", "avx"]}
LARGE = SMALL | {"cpus_usable": 64, "gpu": "Some GPU", "gpus": 4, "isas": ["sse", "avx", "avx2"]}


@pytest.fixture
def judged(store, verdict):
    """The answer to a claim from a run on a machine with these facts."""

    def of(claim, facts):
        store.begin(msgspec.structs.replace(RUN, run_id="r1", machine=facts))
        return verdict(claim)

    return of


@pytest.mark.parametrize(
    ("claim", "facts", "said"),
    [
        ("gpu-lstm", SMALL, "a GPU; Some CPU has none"),
        ("ranking-peers", LARGE | {"gpus": 2}, "4 GPUs; Some CPU with Some GPU has 2"),
        ("ranking-peers", SMALL | {"gpu": "Some GPU"}, "4 GPUs; Some CPU with Some GPU has 1"),
        ("ninety-six-gpus", LARGE, "96 GPUs; Some CPU with Some GPU has 4"),
        ("threads-64", SMALL, "64 threads; Some CPU has 2"),
        ("isa-gain", SMALL, "the instruction sets sse and avx2; Some CPU has sse and avx"),
        ("isa-gain", SMALL | {"isas": []}, "the instruction sets sse and avx2; Some CPU has none"),
    ],
)
def test_what_the_machine_of_the_run_lacks_makes_a_claim_not_testable(judged, claim, facts, said):
    found = judged(claim, facts)
    assert (found.verdict, found.said) == ("not testable here", (said,))


@pytest.mark.parametrize("claim", ["gpu-lstm", "ranking-peers", "threads-64", "isa-gain"])
@pytest.mark.parametrize("facts", [LARGE, {}, {"cpu": "of another tool"}], ids=["large", "none", "other"])
def test_where_nothing_is_known_to_lack_a_claim_is_not_measured(judged, claim, facts):
    found = judged(claim, facts)
    assert found.verdict == "not measured"
    assert f"`kernelmark claims --only {claim}`" in found.said[0]


def test_too_few_threads_are_told_with_what_they_gain(judged, put, verdict):
    judged("threads-64", SMALL)
    for threads, time_s in ((1, 4.0), (2, 2.0)):
        put("gemm/scipy.sgemm", "gemm/m1024n1024k1024/f32/NN", time_s, run_id="r2", threads=threads)
    (said,) = verdict("threads-64", ("r1", "r2")).said
    assert said.startswith("64 threads; Some CPU has 2; over those: gemm m1024n1024k1024/NN, 2 threads against 1: 2x")


@pytest.mark.parametrize(
    ("name", "facts", "said"),
    [
        ("lstm", SMALL, "a GPU; Some CPU has none"),
        ("lstm", LARGE, ""),
        ("threads", SMALL, ""),
        ("threads-mlp", SMALL, "64 threads; Some CPU has 2"),
        ("isa-mlp", SMALL | {"cpus_usable": 8}, "the instruction sets sse and avx2; Some CPU has sse and avx"),
        ("gpu-sizes", LARGE, ""),
    ],
)
def test_an_experiment_is_for_a_machine_that_can_test_one_of_its_claims(name, facts, said):
    assert untestable(name, facts) == said


def test_machines_of_several_runs_count_together():
    found = Hardware.of([SMALL, LARGE, {"cpu": "of another tool"}])
    assert found == Hardware("Some CPU and Some CPU with Some GPU", 4, 64, ("sse", "avx", "avx2"))
