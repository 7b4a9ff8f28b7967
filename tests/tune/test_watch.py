"""Sessions of `kernelmark watch`: versions of a .cu, compiled, judged and compared."""

from pathlib import Path

import pytest

from kernelmark.bench.plan.case import Budget, WorkerKey
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.run.pool import Workers
from kernelmark.bench.tune.watch.contenders import VersionTiming, counterparts, job_of
from kernelmark.bench.tune.watch.source import keep
from support.tuning import BROKEN, PROBLEM, RACING, SOURCE, STAGED, version

pytestmark = pytest.mark.usefixtures("cuda_compiler")


def test_what_changed_is_told_against_the_last_version_that_was_right(look, session):
    look(SOURCE)
    assert "FAIL: " in look(STAGED.replace("if (i < m && j < n) ", ""))
    assert not session.good
    assert "1024 (was 0)" in look(STAGED)
    assert "0 (was 1024)" in look(SOURCE)


def test_a_bug_in_a_tile_that_no_run_takes_is_one_report_that_names_the_tile(look, session):
    said = look(RACING).partition("FAIL: ")[2].splitlines()
    assert said[0] == "1 report (10 problems x 3 schedules, 2 tiles)"
    assert said[1].startswith("turned.cu:6: race: ")
    assert "  with H=4, in all schedules" in said
    assert [line.split()[:2] for line in said[-2:]] == [["PASS", "H=8"], ["FAIL", "H=4"]]
    assert not session.good


def test_only_the_tiles_asked_for_are_tested(opened, folder):
    session = opened({"H": 8})
    said = "\n".join(session.look(version(folder, 1, RACING)))
    assert session.good
    assert "problems x 3 schedules, 1 tile)\n  PASS  H=8" in said
    assert "H=4" not in said


@pytest.mark.parametrize(
    ("tile", "said"),
    [
        ({"H": 5}, "transpose/cuda.turned@H=5: H is 5, transpose/cuda.turned has 8, 4"),
        ({"W": 8}, "transpose/cuda.turned@W=8: W is unknown, expected one of H"),
    ],
)
def test_a_tile_that_the_kernel_has_not_is_refused_with_those_it_has(opened, complaint, tile, said):
    assert complaint(lambda: opened(tile)) == said


def test_versions_are_compared_with_another_source_where_one_is_named(opened, folder):
    session = opened(vs=keep({"other.cu": STAGED.encode()}, folder / "other.cu", folder, 0))
    for number in (1, 2):
        assert session.beside.name == "other.cu"
        assert "0 (was 1024)" in "\n".join(session.look(version(folder, number, SOURCE)))


def test_another_source_that_does_not_compile_is_named(opened, folder):
    other = keep({"other.cu": BROKEN.encode()}, folder / "other.cu", folder, 0)
    with pytest.raises(UsageError, match=r"/other\.cu does not compile for sm_90a"):
        opened(vs=other)


def test_a_session_without_a_version_has_a_summary(session):
    assert session.summary() == "no version was tried"


def test_a_version_that_does_not_compile_is_told_by_the_users_file(look, session, folder):
    said = look(BROKEN)
    assert f"{folder / 'turned.cu'} does not compile for sm_90a" in said
    assert str(folder / "1" / "turned.cu") not in said
    assert not session.good


@pytest.mark.parametrize("place", ["", "{folder}/"])
def test_headers_beside_the_source_belong_to_its_version(look, folder, place):
    include = place.format(folder=folder.name)
    text = SOURCE.replace('"common.cuh"', f'"common.cuh"\n#include "{include}width.cuh"').replace(
        "* H", "* (H - 8 + width)"
    )
    assert "PASS: no races or memory errors" in look(text, width="constexpr int width = 8;\n")
    assert "FAIL: " in look(text, width="constexpr int width = 7;\n")


def test_without_a_host_compiler_it_is_said_that_nothing_was_verified(look, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert "not verified: no GPU is here, and the emulator needs no-such-compiler" in look(SOURCE)


def test_a_launch_that_the_emulator_refuses_is_a_complaint(look):
    assert "FAIL: " in look(SOURCE.replace("int m, int n)", "int m, int n, int l)"))


def test_two_versions_are_two_contenders_of_one_job(folder, registry):
    versions = [version(folder, number, text) for number, text in enumerate((SOURCE, STAGED), 1)]
    plugins = (str(folder / "turned.py"),)
    comparison = VersionTiming("transpose/cuda.turned@H=4", PROBLEM, (), plugins, Budget(0.01))
    job = job_of(comparison, versions[1], versions[0])
    known = discover(job.plugins).kernels
    assert [known[name].tile for name in job.kernels] == [{"H": 4}] * 2
    assert [Path(known[name].source).read_text() for name in job.kernels] == [STAGED, SOURCE]
    with Workers() as workers:
        rows = workers.run(job, WorkerKey("cuda", 1))
    assert [row.kernel for row in rows] == ["transpose/watch.current@H=4", "transpose/watch.previous@H=4"]
    assert {row.status for row in rows} <= {"ok", "unsupported"}, rows


def test_the_vendors_calls_of_the_same_numerics_are_what_a_kernel_is_set_against(registry):
    kernel, problem = registry.kernels["gemm/cuda.mma_tf32"], registry.problem("gemm/m512n512k512/f32/NT")
    vendors = ("gemm/cublas.gemmex_tf32", "gemm/cublaslt.heuristic_tf32")
    assert counterparts(registry, kernel, problem, None) == vendors
    fp32 = counterparts(registry, registry.kernels["gemm/cuda.tiled"], problem, None)
    assert {"gemm/cublas.sgemm", "gemm/cublaslt.heuristic"} <= set(fp32)
    assert not [name for name in fp32 if registry.kernels[name].on_request]
    assert counterparts(registry, kernel, problem, "*/cublas.sgemm") == ("gemm/cublas.sgemm",)


def test_a_version_shows_what_it_counts_beside_the_one_before(look):
    first, second = look(SOURCE), look(STAGED)
    (before, after) = (next(line for line in said.splitlines() if "wavefronts" in line) for said in (first, second))
    assert before.split() == ["wavefronts", "0"]
    assert after.endswith("the least (was 0)")
    assert "(was" not in next(line for line in second.splitlines() if line.startswith("sectors"))
