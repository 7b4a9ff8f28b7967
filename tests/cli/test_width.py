"""No table of any command is wider than the terminal, and no word is broken, however long the ids and reasons are."""

import json
import re

import msgspec
import pytest
from click.testing import CliRunner

from kernelmark.bench.cli.commands import cli
from kernelmark.bench.cli.tune import print_race, print_search
from kernelmark.bench.measure.cpu import cpu_name
from kernelmark.bench.measure.measurement import ProcessPart
from kernelmark.bench.plan.status import Status
from kernelmark.bench.record.store import Layer, Store
from kernelmark.bench.record.versions import KernelVersion, VersionRatio
from kernelmark.bench.selftest import checks
from kernelmark.bench.selftest.finding import Finding
from kernelmark.bench.tune import static
from kernelmark.bench.tune.inspect import InspectRow
from support.rows import begin, ceilings, fail, put
from support.tuning import FIRST, SECOND, bordered, plant

SIZES, WIDE = (80, 100, 200), 10_000
#: The end of a table that had to leave columns out, whose words are not in the wide table.
LEFT_OUT = re.compile(r"left out to fit: .*?shows\s+all\)", re.DOTALL)
CONV = "conv/n128c256h224w224k512r{r}s{r}pad1x2stride2/f32/nchw/fprop/dil2/g32"
PRODUCT = "gemm/m1024n2048k26752/f32/{layout}"
KERNELS = ("conv/cudnn_frontend.implicit_precomp_gemm_tf32", "conv/pyfftw.tiled", "conv/openblas.omatcopy_and_back")
REASON = f"{KERNELS[0]} takes no groups, and {CONV.format(r=3)} has 32; `kernelmark list --op conv` names others"
SUITE = """
title = "Long names"
[[sweep]]
op = "conv"
dtype = "f32"
pad = ["1x2"]
stride = 2
dilation = 2
groups = 32
points = [[128, 256, 224, 224, 512, 3, 3], [128, 256, 224, 224, 512, 5, 5]]
along = "r"
"""
NOISE = "other processes used 0.98 CPUs during 100 % of the sampling"
TILE = '{"BM":128,"BN":256,"BK":8,"WM":64,"WN":64,"TM":8,"TN":16,"STAGES":4}'
#: Commands, each with a text that it prints.
COMMANDS = {
    ("runs",): "the new run",
    ("show", "new"): "NOISY",
    ("show", "new", "--by", "network"): "NOISY",
    ("show", "new", "--by", "network", "--step"): "NOISY",
    ("show", "new", "--by", "overlap"): "NOISY",
    ("show", "new", "--row", "tf32_wrong"): "reason",
    ("run", "long.toml", "--list"): "comparison group",
    ("run", "long.toml", "--dry-run"): "kernels: ",
    ("compare", "old", "new"): "slower",
    ("crossover", "long.toml", "new"): "gives way to",
    ("scaling", "network-with-a-long-name", "--link", "8GB/s"): "omputed, not measured",
    ("trend", "long.toml"): "last over first",
    ("trend", KERNELS[1]): "slower in",
    ("claims", "new", "--only", "op-t-slower,transpose-first,gpu-pays"): "DEPENDS",
    ("doctor",): "how to fix it",
    ("doctor", "--all"): "kernels",
    ("list",): "conv/cpu.im2col",
    ("list", "--all"): "conv/cpu.im2col",
    ("list", "--suites"): "alexnet",
    ("inspect",): "sm_90a",
    ("select", "--train", "planted", "--op", "gemm", "--model", "selector.json"): "best single",
    ("select", "gemm/m500n70k256/f32/NT", "--model", "selector.json"): "oracle",
    ("history", "conv/cudnn_frontend.implicit_precomp_gemm_tf32", CONV.format(r=3)): "not in turn:",
    ("tune", "gemm/cuda.tiled", "gemm/m1024n1024k1024/f32/NT", "--static", "--budget", "2"): "NOTHING WAS TIMED",
    ("inspect", "transpose/cuda.tiled", "transpose/m33n70/f32/out"): "registers",
    ("profile", "transpose/cuda.tiled", "transpose/m33n70/f32/out"): "wavefronts",
    ("selftest", "--quick"): "adversaries",
}
#: Commands that have no table, are run below (`verify`), or have tests of their own (`merge`, `watch`).
WITHOUT = {"export", "import", "merge", "report", "suite", "verify", "watch"}
IN_STORE = {"runs", "run", "show", "compare", "crossover", "claims", "doctor", "history", "scaling", "select", "trend"}


def words_of(text: str) -> set[str]:
    return {word.rstrip(":") for word in text.split() if word.strip("-")}


def fill(store: Store, run_id: str, factor: float) -> None:
    """Add a run with rows of each kind: noisy, baseline, with ceiling, in place with large scratch, without a time."""
    begin(store, run_id, name=f"the {run_id} run of this test", suites=("long-name-of-a-suite", "another"), planned=199)
    baseline = {"baseline": KERNELS[1], "roofline_pct": 41.234, "bound_by": "memory", "ceiling_gbyte_per_s": 61.1}
    gain = {"speedup": 1.23456, "speedup_ci95_low": 0.0123456, "speedup_ci95_high": 12.3456, "scratch_bytes": 219_000}
    for r in (3, 5):
        for i, kernel in enumerate(KERNELS):
            for threads in (1, 2):
                time_s = factor * (1 + (i - 1) * (r - 4) / 4) / threads
                parts = [ProcessPart(8, time_s * (1 + process / 1e4)) for process in range(5)]
                columns = {**baseline, **(gain if i else {}), "threads": threads, "run_id": run_id, "processes": 5}
                put(store, CONV.format(r=r), kernel, time_s, parts=parts, **columns, disturbed=NOISE)
        store.add_layer(run_id, Layer("network-with-a-long-name", CONV.format(r=r), "forward", 3))
        store.add_layer(run_id, Layer("network-with-a-long-name", CONV.format(r=r), "backward", 3))
    for layout in ("NT", "NN"):
        for kernel in ("gemm/numpy.matmul", "gemm/openblas.tnn", "gemm/scipy.sgemm"):
            put(store, PRODUCT.format(layout=layout), kernel, run_id=run_id)
    moved = {"n": 10**6, "direction": "h2h", "node": "", "work": 0}
    put(store, "transfer/n1000000/f32/h2h", "transfer/numpy.copyto", 1e-3, moved, run_id=run_id, disturbed=NOISE)
    for name, time_s in (("serial", 3e-3), ("arrived", 2e-3), ("staged", 2.5e-3)):
        problem, dims = "transfer/n1000000/f32/h2h/work64", moved | {"work": 64}
        put(store, problem, f"transfer/numba.{name}", time_s, dims, run_id=run_id, disturbed=NOISE)
    sums = {"w": 4, "n": 10**6, "step": "sum"}
    put(store, "aggregate/w4n1000000/f32", "aggregate/cpu.host_serial", 1e-3, sums, run_id=run_id, disturbed=NOISE)
    matrix = "transpose/m26752n26752/f32/in"
    put(store, matrix, "transpose/openblas.omatcopy_and_back", run_id=run_id, scratch_bytes=10**9, gbyte_per_s=1.0)
    for status in set(Status) - {Status.OK}:
        fail(store, CONV.format(r=5), KERNELS[0] + "_" + status, status, reason=REASON, run_id=run_id)
    ceilings(store)


def tile(number: int) -> str:
    return ",".join(f"{name}={value}" for name, value in {**json.loads(TILE), "STAGES": number}.items())


def tunings(store: Store) -> None:
    """Add a search over two problems, and its race, for a kernel with many tunables."""
    spaces = [
        {"problem": CONV.format(r=r), "size": 10**9, "valid": 10**6, "exact": False, "listed": 2000, "default": tile(1)}
        for r in (3, 5)
    ]
    tunes = {"kernel": KERNELS[0], "how": "random, 100", "source": "c0ffee", "where": "auto", "spaces": spaces}
    begin(store, "searched", plan={"tunes": tunes})
    begin(store, "raced", plan={"tunes": {**tunes, "search": "searched", "overall": tile(2)}})
    for run_id in ("searched", "raced"):
        for space in spaces:
            for stages in (1, 2, 3):
                kernel = KERNELS[0] + (f"@{tile(stages)}" if stages > 1 else "")
                columns = {"tunables": json.dumps({**json.loads(TILE), "STAGES": stages}), "speedup": 1.0 * stages}
                put(store, space["problem"], kernel, 1 / stages, run_id=run_id, disturbed=NOISE, **columns)


def versions(store: Store) -> None:
    """Add two versions with long verdicts and tiles; the second has no speedup over the first."""
    known = {"kernel": KERNELS[0], "problem": CONV.format(r=3), "saved_at": "2026-01-01T10:00:00+00:00", "by": "watch"}
    known |= {"verdict": "FAIL, does not compile and 12 reports", "right": False, "tile": tile(4), "time_s": 1.23456e-3}
    known |= {"low": 1.2e-3, "high": 1.3e-3, "registers": 255, "spill_bytes": 65536, "device": "Some GPU"}
    others = (VersionRatio(1.23456, 0.0123456, 12.3456, KERNELS[1]), VersionRatio(1.1, 1.0, 1.2, KERNELS[2]))
    for text in (b"one", b"two"):
        store.add_version(KernelVersion(**known, compared=others), {"tiled.cu": text})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("width")
    (made / "long.toml").write_text(SUITE)
    store = Store(made / "w.db")
    other = {"gemm/a_library_with_a_long_name.tnn_out_of_place": bordered(256)[SECOND]}
    plant(store, {FIRST: bordered(256)[FIRST], **other}, device_name=cpu_name())
    fill(store, "old", 1.0)
    fill(store, "new", 1.1)
    versions(store)
    store.close()
    train = ("select", "--train", "planted", "--op", "gemm", "--model", str(made / "selector.json"))
    assert CliRunner().invoke(cli, [*train, "--db", str(made / "w.db")]).exit_code == 0
    return made


@pytest.fixture
def shown(folder, monkeypatch):
    findings = [Finding("adversaries: copies from its last output", REASON, "wrong or mistrusted", True)] * 2
    monkeypatch.setattr(checks, "run", lambda *_: iter(findings))
    known = {"kernel": KERNELS[0], "tunables": TILE, "arch": "sm_90a", "limiter": "shared memory"}
    known = {**dict.fromkeys(InspectRow.__struct_fields__, 65536), **known}
    inspected = [InspectRow(**{**known, "entry": entry}) for entry in ("filters", "product")]
    monkeypatch.setattr("kernelmark.bench.cli.inspect.inspect_rows", lambda *_: inspected)
    fits = [msgspec.structs.replace(row, spill_bytes=0) for row in inspected]
    monkeypatch.setattr(static, "_launches", lambda *_: fits)
    monkeypatch.chdir(folder)

    def run(words: tuple[str, ...], width: int) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        done = CliRunner().invoke(cli, [*words, *(("--db", "w.db") if words[0] in IN_STORE else ())])
        assert done.exception is None, done.exception
        assert COMMANDS[words] in done.output
        return done.output

    return run


def require_fitting(printed):
    """Fail if an output has a line that is wider than the terminal, or a word that is not in the widest output."""
    whole = words_of(printed(WIDE))
    for width in SIZES:
        output = printed(width)
        assert [line for line in output.splitlines() if len(line) > width and len(line.split()) > 1] == []
        assert words_of(LEFT_OUT.sub("", output)) - whole == set()


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_table_is_wider_than_the_terminal_and_no_word_is_broken(shown, words):
    require_fitting(lambda width: shown(words, width))


def test_what_a_tuning_prints_is_no_wider_than_the_terminal_and_no_word_is_broken(store, monkeypatch, capsys):
    tunings(store)

    def printed(width: int) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        print_search(store, "searched")
        print_race(store, "raced")
        return capsys.readouterr().out

    assert {"STAGES", "regret"} <= words_of(printed(WIDE))
    require_fitting(printed)


def test_every_command_that_has_a_table_is_tried():
    assert {words[0] for words in COMMANDS} | WITHOUT == set(cli.commands)


@pytest.mark.long
@pytest.mark.parametrize("command", ["run", "verify"])
def test_what_measures_prints_no_line_that_is_wider_than_the_terminal(called, monkeypatch, command):
    problems = "gemm/m33n31k17/f32/NT", "transpose/m512n512/f32/in"
    limits = ("--max-time", "0.01", "--no-ceilings") if command == "run" else ()
    monkeypatch.setenv("COLUMNS", "80")
    done = called(command, *problems, "--threads", "1", *limits)
    assert done.status == 0, done.err
    lines = (done.out + done.err).splitlines()
    assert [line for line in lines if len(line) > 80 and len(line.split()) > 1] == []
