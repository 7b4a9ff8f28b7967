"""Input that no command accepts: exit status 2, and one line with what was found and expected; no store changes."""

import os
import shlex
from contextlib import suppress
from pathlib import Path

import click
import pytest

from kernelmark.bench.cli.commands import cli
from kernelmark.bench.cli.shared import Read
from kernelmark.bench.plan.text import MOST
from support.pages import ROOT
from support.rows import begin, fail

NT = "gemm/m8n8k8/f32/NT"
OUT, NO_TILE = "transpose/m96n70/f32/out", "transpose/numba.blocked@RUM=512"
PRODUCT = "gemm/m256n512k64/f32/NN"
STREAMING = "copy/numba.streaming"
TILED, WGMMA = (ROOT / f"cuda/gemm/{name}.cu" for name in ("tiled", "wgmma"))
SWEEP = "[[sweep]]\nop = 'copy'\ndtype = 'f32'\nn = 5\nm = [3, 4, 6]\n"
HUGE = "9" * 5000
PRICES = 'currency = "EUR"\ndate = "now"\n[[device]]\ndevice = "cpu"\nname = "Other"\nper_hour = 1.0\n'
FILES = {
    "other.toml": PRICES,
    "file": "no database, but many bytes of something else\n" * 40,
    "hollow": "",
    "own.cu": "",
    "tn.py": "from kernelmark import kernel\n@kernel('gemm', provider='mine', device='cpu', layouts=('TN',))\n"
    "def f(problem, x): ...\n",
    "broken.py": "def (:\n",
    "s.toml": SWEEP,
    "nested.toml": f"a = {'[' * 3000}{']' * 3000}",
    "huge.toml": f"a = {HUGE}",
    "shapes.toml": "[[sweep]]\nop = 'gemm'\nshapes = [[1, 1, 1]]\n",
    "typo.toml": f"{SWEEP}{SWEEP}kernels = ['copy/numpi.*']\n",
    "late.toml": "[[sweep]]\nop = 'gemm'\ndtype = 'f32'\npoints = [[1, 1, 1]]\nlda_pad = -1\n",
}
#: Commands in a folder with a store of two runs, each with a part of its error message.
REFUSED = [
    ("claims --prices other.toml base --db results.db", "other.toml: has prices for 'Other' (cpu), expected one"),
    ("lst", "No such command 'lst'"),
    ("show --row gemm/none --db results.db", "--row 'gemm/none': run 20"),
    ("compare r9 r8 --allow-missing", "work only with --fail-slower P%; add it"),
    ("compare r9 r8 --margin -1%", "is '-1%', expected a percentage above 0"),
    ("runs --prune 0d --db results.db", "is '0d', expected an age"),
    ("claims --csv file/a.csv", "file/a.csv: cannot be written"),
    ("list --xyz", "No such option '--xyz'; `kernelmark list --help` lists its options and arguments"),
    ("list --op gem", "--op: 'gem' is not an operation; expected one of "),
    ("run", "no SUITE was named"),
    ("list gemm --suites", "--suites: lists all suites; leave it out, or leave out OP, --op and "),
    ("run smokey", "suite 'smokey': is not a suite, a .toml file or a problem id such as gemm/m64n64k64/f32/NT; `"),
    ("run ''", "suite '': is not a suite, a .toml file or a problem id"),
    ("run nested.toml", "nested.toml: is not TOML: "),
    ("run huge.toml", "huge.toml: is not TOML: "),
    (f"run {'s' * 300}.toml", "cannot be read: File name too long"),
    ("run 'one\ntwo\x1b[31m'", r"one\ntwo\x1b[31m"),
    (f"run {NT} --seed {HUGE}", "--seed"),
    (f"run {NT} --threads {2**64}", "exceeds the CPUs that may be used here"),
    (f"show {'r' * 60_000} --db results.db", "kernelmark: run 'rrr"),
    ("run smok", "`kernelmark list --suites` lists all suites; did you mean smoke?"),
    ("run gemm/m8n8k8/fp32/NT", "; did you mean f32?"),
    ("run smoke --device gpu", "'gpu' is not one of 'auto', 'cpu', 'cuda'; did you mean cuda?"),
    ("run shapes.toml", "; did you mean points?"),
    ("list gemn", "list: 'gemn' is not an operation; expected one of "),
    ("list gemm --op copy", "list gemm: --op copy names an operation, too; omit one of them"),
    ("run absent.toml", "absent.toml: cannot be read: No such file"),
    ("run late.toml", "late.toml: [[sweep]] 1: lda_pad is -1"),
    (f"run {NT} --kernels no/such", "no kernel matches --kernels 'no/such' on cpu; `kernelmark list --all` "),
    (f"run {NT} --kernels gemm/nump.matmul", "; did you mean gemm/numpy.matmul?"),
    (f"run {NT} --kernels *numpy.* --kernels gemm/scipi.dgemm", "--kernels 'gemm/scipi.dgemm': matches no kernel; "),
    (f"run {NT} --kernels gemm/numpi.* --kernels gemm/numpy.matmul", "--kernels 'gemm/numpi.*': matches no kernel; "),
    (f"run {NT} --kernels !gemm/numpy.matmull", "'!gemm/numpy.matmull': matches no kernel; `kernelmark list --all` "),
    ("run typo.toml", "typo.toml: [[sweep]] 2, key 'kernels': 'copy/numpi.*' matches no kernel of copy; `kernelm"),
    ("run transfer/n8/f32/p2p", "no kernel matches on cpu; on cuda, transfer/cuda.peer would match; "),
    (f"run {NT} --dry-run --json", "--json: prints the rows of a run, but --list and --dry-run measure none"),
    ("run --resume r --list", "--resume: continues a run, but --list and --dry-run measure nothing"),
    ("run --resume ''", "--resume '': is empty, expected a run; `kernelmark runs` lists them"),
    ("run --resume 19700101 --db results.db", "run '19700101': is not a run of /"),
    ("run s.toml --resume 19700101 --db results.db", "run '19700101': is not a run of /"),
    ("run --resume 2026 --db none.db", "there is no store"),
    (f"run {NT} --noisy-again", "--noisy-again: has no run to measure again; name one with --resume"),
    ("run s.toml --executor none.py", "none.py: no such file; expected one"),
    ("run s.toml --executor broken.py --devices all", "--executor and --devices: each chooses the workers"),
    ("run s.toml --executor none.py --list", "--list and --dry-run plan for this machine"),
    (f"run {NT} --isa sse9", "--isa sse9: unknown; expected "),
    (f"run {NT} --threads 0", "expected integers above 0"),
    (f"run {NT} --device cuda", "cuda"),
    (f"run {NT} --plugin absent.py", "there is no such file"),
    (f"run {NT} --plugin {'n' * 300}", "there is no such file"),
    (f"run {NT} --plugin tn.py --kernels gemm/mine.*", "on cpu; gemm/mine.f has no NT path; it has TN"),
    (f"run {NT} --plugin broken.py", "broken.py, line 1: "),
    (f"run {NT} --db file/results.db", "file/results.db: cannot be used as a store"),
    (f"run {NT} --db file", "file: cannot be used as a store"),
    (f"run {NT} --csv file/rows.csv", "file/rows.csv: cannot be written"),
    ("run s.toml --shard 0/4", "'0/4', expected I/N with I from 1 to N"),
    ("merge none.db", "none.db: there is no such file"),
    ("show --db absent.db", "there is no store; `kernelmark run SUITE` makes one"),
    ("show --db hollow", "hollow: is empty, expected a store; `kernelmark run SUITE` makes one"),
    ("show --step --db results.db", "--step: needs --by network; add it"),
    ("show --page 2 --db results.db", "has 1; --page 1 shows the first"),
    ("show --row a.b --db results.db", "found 'copy/a.b copy/m3n5/f32 cold t1', 'copy"),
    ("show --row m3n5 --page 2 --db results.db", "--row: shows one row"),
    ("show --json --row m3 --db results.db", "--json: prints all rows"),
    ("show --op conv --db results.db", "conv: selects no row of run 20260201-new; `kernelmark show 20260201-new --db"),
    ("show --status fine --db results.db", "'fine' is not one of 'ok'"),
    ("report r9 --db results.db", "run 'r9': is not a run of "),
    ("report --db results.db --out file/below", "file/below: "),
    ("export --metric ratio", "--metric: applies to --format markdown and latex, not to csv; leave one of the two out"),
    ("export --format json --no-empty", "--no-empty: applies to --format csv, not to json; leave one of the two out"),
    ("export --format github --columns k", "--columns: applies to --format csv and json, not to github; leave one of"),
    ("export --format parquet --spreadsheet", "--spreadsheet: applies to --format csv, not to parquet"),
    ("export --columns tme --db results.db", "--columns tme: these rows have no such column"),
    ("export --kernels none --status ok --db results.db", "--kernels none --status ok: selects no row of run 2026"),
    *(
        (f"{command} --db results.db", "/results.db; the latest are 20260201-new, 20260101-old")
        for command in ("show r9", "export r9", "export r9 -o rows.csv", "compare r9 r8", "crossover s.toml r9")
    ),
    ("compare r9 r8 --fail-slower much", "is 'much', expected a percentage above 0"),
    ("compare r9 r8 --fail-unclear", "work only with --fail-slower P%; add it"),
    ("compare r9 r8 --base-db absent.db --db results.db", "absent.db: there is no store"),
    ("crossover s.toml --csv file/who.csv --db results.db", "file/who.csv: cannot be written"),
    ("runs --prune yesterday --db results.db", "'yesterday', expected an age such as 12h, 30d or 8w, or a past date"),
    ("runs --prune 9999-01-01 --db results.db", "is '9999-01-01', expected an age"),
    ("runs --prune 99999999999w --db results.db", "is '99999999999w', expected an age"),
    ("runs --prune 3d --delete base --db results.db", "--delete and --prune: each chooses the runs to remove"),
    ("history copy/a.c@A=1 copy/m3n5/f32 --db results.db", "copy/a.c@A=1: a history covers all tiles of a kernel"),
    ("selftest --adversaries --quick", "--adversaries --quick: each chooses the checks; leave one out"),
    ("selftest --adversaries --only ratio", "--adversaries --only ratio: each chooses the checks; leave one out"),
    (f"run {NT} --select auto --threads 1", "--select auto: there is none; expected 1 thread, cold; `kernelmark "),
    ("tune", "Missing argument 'KERNEL'; `kernelmark tune --help` lists its options and arguments"),
    (f"tune {STREAMING}@X=1 copy/m64n1024/f32", f"{STREAMING}@X=1: X is unknown, expected one of "),
    (f"tune {STREAMING} copy/m64n1024/f32 --threads 1,2", "--threads 1,2: expected one number of threads"),
    (f"tune {STREAMING} copy/m64n1024/f32 --processes 1", "value for '--processes': is '1', expected an integer "),
    (f"tune {STREAMING} copy/m64n1024/f32 --budget 0", "Invalid value for '--budget': 0 is not in the range x>=1."),
    (f"tune {STREAMING} copy/m64n1024/f32 --tuned /proc/t.json", "/proc/t.json: cannot be written: "),
    ("export --format c", "has no tile; `kernelmark tune KERNEL PROBLEM` finds tiles"),
    ("export --format c --tuned no.json", "no.json: cannot be read: No such file or directory; `kernelmark tune"),
    ("export --tuned auto", "--tuned: applies to --format c, not to csv; leave one of the two out"),
    ("export no-run --format c", "there is no store; "),
    (f"watch --once absent.cu {NT}", "File 'absent.cu' does not exist"),
    (f"watch --once own.cu {OUT}", "own.cu: no registered kernel uses this file; --plugin names the file"),
    (f"watch --once {TILED} gemm/m5n5k5/f16/NT", "gemm/cuda.tiled has no f16 path; it has f32"),
    (f"watch --once {TILED} {OUT}", "is not a problem of gemm, which gemm/cuda.tiled computes"),
    (f"watch --once --kernel gemm/cuda.naive {TILED} {NT}", "expected one of gemm/cuda.tiled"),
    (f"watch --once --against none {TILED} {NT}", "--against 'none': matches no GPU kernel"),
    (f"watch --once --arch sm_1 {TILED} {NT}", "arch 'sm_1': its limits are not known"),
    (f"watch --once --arch sm_80 {WGMMA} gemm/m64n64k64/f16/NT", "--arch sm_80: gemm/cuda.wgmma is for sm_90a"),
    *(
        (f"{words} {OUT}", f"{NO_TILE}: RUM is unknown, expected one of DOWN, RUN, STREAM; did you mean RUN?")
        for words in (f"inspect {NO_TILE}", f"run --kernels {NO_TILE}", f"verify --kernels {NO_TILE}")
    ),
    (f"inspect gemm/cuda.tiled {PRODUCT} --kernels *", "--kernels *: selects kernels, and so does KERNEL; omit one"),
    ("inspect --arch sm_1", "arch 'sm_1': its limits are not known"),
    (f"profile gemm/cuda.async {PRODUCT} --arch sm_{'9' * 5000}", ", sm_100, sm_120"),
    ("inspect --kernels none*", "kernels 'none*': matches no hand-written kernel"),
    ("inspect transpose/numba.blocked", "expected a problem after the kernel"),
    (f"inspect transpose/numba.blokced {OUT}", "did you mean transpose/numba.blocked?"),
    ("inspect transpose/numba.blocked transpose/m96n70/f32/in", "has no in path; it has out"),
    (f"inspect transpose/numba.blocked {PRODUCT}", "transpose/numba.blocked is a kernel of transpose, and gemm/"),
    (f"inspect transpose/numba.blocked@DOWN=4096 {OUT}", "DOWN = 4096 covers all 96 rows"),
    (f"profile gemm/cublas.sgemm {PRODUCT}", "gemm/cublas.sgemm: has no .cu file"),
    (f"profile gemm/cuda.async {PRODUCT} --on h100-smx", "did you mean h100-sxm?"),
    (f"profile gemm/cuda.async {PRODUCT} --on a100", "device a100: is sm_80, not sm_90a; set --arch to the device's"),
    (f"profile gemm/cuda.wgmma {PRODUCT} --arch sm_80", "--arch sm_80: gemm/cuda.wgmma is for sm_90a"),
    (f"profile gemm/cuda.async {OUT}", "gemm/cuda.async is a kernel of gemm"),
    ("select", "select: got no PROBLEM, expected one problem"),
    ("verify conv/n1c2h5w5k3r3s3/f32/nc\udcff/fprop", "layout is 'nc\\udcff', expected one of nchw"),
    (f"select {NT} {NT}", "select: got 2 names, expected one problem"),
    (f"select {NT}", "does not exist; `kernelmark select --train RUN` makes it"),
    (f"select {NT} --test a", "--test: works only with --train; add --train"),
    (f"select {NT} --op gemm", "--kernels, --op, --problem or --status: works only with --train"),
    (f"select {NT} -o x", "-o x: applies only to --format"),
    (f"select {NT} --json --format c", "--json: prints the answer, but --format c prints the selector"),
    ("select --train base --kernels gemm/* --db results.db", "run 20260101-old: has no row with a time; `kernelma"),
    ("claims --only beta,nothing", "--only 'nothing': is not a claim; expected some of op-t-slower"),
    ("claims --prices none.toml", "none.toml: cannot be read"),
    ("selftest --quick --only ratio", "--quick --only ratio: each chooses the checks; omit one of them"),
    ("selftest --only ratio,speed", "--only ratio,speed: 'speed' is not a check; expected some of durations, clocks, "),
    ("scaling net", "--link"),
    *(
        (f"scaling net --link 8GB/s --workers '{text}'", "expected integers from 1 to 1000000, separated by commas")
        for text in ("", "0", "1,", "-2", "1.5", "2,x", "10000000", "9" * 5000)
    ),
    *(
        (f"scaling net --link='{text}'", "expected a rate from 1 B/s to 1 EB/s, such as 8GB/s or 10Gbit/s")
        for text in ("", "8", "8GB", "fast", "-8GB/s", "0GB/s", "nanGB/s", "1e999GB/s", "8 GB/s", "8gb/s")
    ),
]


@pytest.mark.parametrize(("words", "refusal"), REFUSED, ids=[words[:60] for words, _ in REFUSED])
def test_bad_usage_is_one_line_and_changes_no_store(called, two_runs, tmp_path, words, refusal):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    before = Path(two_runs).read_bytes()
    done = called(*shlex.split(words))
    (line,) = done.err.splitlines()
    assert done.status == 2
    assert line.startswith("kernelmark: ")
    assert refusal in line
    assert (len(line) <= MOST, line.isprintable()) == (True, True)
    assert Path(two_runs).read_bytes() == before
    assert [path.name for path in tmp_path.glob("*.db")] == ["results.db"]


def test_no_option_of_any_command_reads_a_number_that_is_not_finite():
    params = [(name, param) for name, command in cli.commands.items() for param in command.params]
    assert not {type(param.type) for _, param in params} & {click.FLOAT.__class__, click.FloatRange}
    read = [(name, param) for name, param in params if isinstance(param.type, Read)]
    assert {name for name, _ in read} >= {"run", "verify", "tune", "watch", "compare", "scaling"}
    for name, param in read:
        for text in ("nan", "inf", "-inf", "1e999", "-1", ""):
            with suppress(ValueError):
                assert not isinstance(param.type._parse(text), float), f"{name} {param.opts} {text}"


#: Functions that make each kind, and its names in messages; click, which checks first, has its own name for a folder.
KINDS = {
    "pipe": (os.mkfifo, ("named pipe",)),
    "folder": (Path.mkdir, ("a folder", "is a directory")),
    "device": (lambda path: path.symlink_to("/dev/zero"), ("a device",)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("words", [
    "run", "show --db", "run copy/m4n4/f32 --db", "import", "claims --prices", "run copy/m4n4/f32 --csv", "export -o",
    "export --format parquet -o",
])  # fmt: skip
@pytest.mark.usefixtures("two_runs")
def test_what_is_no_file_is_refused_before_it_is_opened(called, tmp_path, kind, words):
    if "parquet" in words:
        pytest.importorskip("pyarrow")
    make, names = KINDS[kind]
    make(tmp_path / "found.toml")
    db = ("--db", "results.db") if words.startswith("export") else ()
    line = called(*words.split(), "found.toml", *db).refusal
    assert "found.toml" in line
    assert any(name in line for name in names)


def test_what_others_wrote_is_no_formula_and_no_markup_in_what_is_exported(called, store):
    begin(store, name="\x1b]0;title\x07")
    fail(store, "copy/m2n2/f32", "copy/some.base", reason="=1+1 | <b>bold</b> [here](x)", mode="\x1b[31m", isa="\x07")
    shown = called("show", "--db", str(store.path)).out
    assert shown.startswith(r"run r1 (\x1b]0;title\x07)")
    assert not {"\x1b", "\x07"} & set(shown)
    export = ("export", "--db", str(store.path))
    assert ",=1+1 | <b>bold</b> [here](x)," in called(*export).out
    assert ",'=1+1 | <b>bold</b> [here](x)," in called(*export, "--spreadsheet").out
    shown = called(*export, "--format", "markdown").out
    assert "=1+1" in shown
    assert not any(markup in shown for markup in ("1 | <", "<b>", " [here](x)"))
