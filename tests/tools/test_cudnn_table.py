"""The table of what cuDNN runs, on CPU kernels in the place of its algorithms."""

from kernelmark.bench.run.job import run_job

TOOL = "cudnn_table"


def test_a_kernel_that_is_right_runs_and_others_say_why_not(tool, registry):
    found = tool.probe(lambda job, key: run_job(job), "conv/cpu.w", [("3x3", "f32", "nchw"), ("5x5", "f32", "nchw")])
    answers = {(a.kernel, a.direction, a.probe): a for a in found}
    assert answers["conv/cpu.winograd", "fprop", "3x3 f32 nchw"].text.startswith("runs, ")
    refused = answers["conv/cpu.winograd", "fprop", "5x5 f32 nchw"]
    assert (refused.text, refused.reason) == ("unsupported", "r is 5, expected 3")


def test_a_cell_holds_cudnns_own_status(tool):
    answers = [
        tool.Answer("conv/cudnn.fft", "dgrad", "3x3", "runs, 1.0 MiB", ""),
        tool.answer(tool.Measurement(kernel="conv/cudnn.gemm", status="unsupported", reason=REFUSED), "fprop", "3x3"),
        tool.answer(tool.Measurement(kernel="conv/cudnn.gemm", status="wrong", reason="is off"), "fprop", "9x9"),
    ]
    head, _, fft, gemm = (line.split("|")[1:-1] for line in tool.table(answers).splitlines()[:4])
    assert [cell.strip() for cell in head] == ["kernel", "pass", "3x3", "9x9"]
    assert [cell.strip() for cell in fft] == ["conv/cudnn.fft", "dgrad", "runs, 1.0 MiB", ""]
    assert [cell.strip() for cell in gemm] == ["conv/cudnn.gemm", "fprop", "NOT_SUPPORTED", "wrong"]


def test_every_probe_is_a_problem_that_some_algorithm_has(tool, registry):
    for shape, dtype, layout in tool.FORMS:
        for direction in tool.DIRECTIONS:
            problem = registry.problem(f"conv/{tool.SHAPES[shape]}/{dtype}/{layout}/{direction}")
            names = [k.id for k in registry.kernels.values() if k.provider == "cudnn" and k.refuses(problem) is None]
            assert names, problem.id


REFUSED = "cudnnGetConvolutionForwardWorkspaceSize returned CUDNN_STATUS_NOT_SUPPORTED"
