"""Command lines, drawn from the click group itself, so that new commands and options are covered."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import click
from hypothesis import strategies as st

from fuzz.inputs import HISTORY, NETWORK, ROWS_RUN, RUNS, STORES, Step
from kernelmark.bench.cli.commands import cli

Strategy = st.SearchStrategy
#: Commands that may take minutes.
LASTING = ("run", "verify", "claims", "selftest", "watch", "inspect", "tune", "profile")
#: Seconds after which a command that may take minutes is interrupted, and after which one with QUICK is: it is short,
#: but measures again while other processes use the CPUs.
PATIENCE_S, MEASURING_S = 1.0, 10.0
#: Options that make a run short.
QUICK = {
    "run": ("--max-time", "0.01", "--no-ceilings", "--threads", "1", "--kernels", "*/numpy.*"),
    "verify": ("--threads", "1", "--kernels", "*/numpy.*"),
}
#: How often commands are drawn: those that take seconds less often.
RARE = dict.fromkeys(("report", "selftest", "inspect", "doctor"), 1) | dict.fromkeys(("claims", "tune", "profile"), 3)
WEIGHTS = {**dict.fromkeys(cli.commands, 6), **RARE, "watch": 2, "run": 8, "verify": 5}
#: Problems of each operation, small enough to be measured in a moment.
PROBLEMS = f"""copy/m4n4/f32 copy/m1n31/f64 gemm/m4n5k6/f32/NT gemm/m3n3k3/f64/TN/alpha1.5/beta0.5/batch2/lda+3
gemm/m3n3k3/f16.f32/NN gemm/m3n4k5/f32/NT/epi-bias-relu gemm/m3n4k5/f64/TN/epi-update gemm/m3n3k3/e4m3.f32/NT
gemm/m3n3k3/e4m3.f32/NT/scale-blocks gemm/m5n4k6/f32/NN/groups3-skewed gemm/m3n4k5/s8.s32/NT
transpose/m5n7/f32/out transpose/m5n7/bf16/in
fft/b2h4w4/f32/r2c fft/b1h1w7/f64/c2c/inverse conv/n1c2h5w5k3r3s3/f32/nchw/fprop fma/n64k3/f32 transfer/n7/f32/h2h
transfer/n7/f64/bidir/node3/work2 transfer/n64/f32/h2h/work2 aggregate/w2n7/f32 aggregate/w3n5/f64/update/ef
{HISTORY[1]} conv/n1c2h5w5k2r3s3pad0-1x1stride2/f32/nhwc/dgrad/dil2/g2""".split()
#: Texts that are not ids of problems.
NO_PROBLEMS = f"""copy copy/ copy/m4n4 copy/m4n4/f33 copy/m4n4/f32/NT copy/n4m4/f32 gemm/m4n4k4/f32 gemm/m4n4k4/f32/NX
copy/mn4/f32 copy/mxn4/f32 copy/m-1n4/f32 copy/m0n4/f32 copy/m1.5n4/f32 copy/m1e3n4/f32 copy/m½n4/f32
copy/m{"9" * 5000}xn4/f32 gemm/m4n4k4/f32/NT/betax gemm/m4n4k4/f32/NT/alphanan gemm/m4n4k4/f32/NT/batch0
gemm/m4n4k4/f32/NT/epi-gelu gemm/m4n4k4/f32/NT/beta1/epi-update gemm/m4n4k4/f32/NT/lda+-1 gemm/m4n4k4/f32/NT/ldd+1
nothing/m4n4/f32 fft/b2h4w4/f32/r2r aggregate/w1n7/f32 aggregate/w2n7/f16 aggregate/w2n7/f32/ef/update aggregate/w2n7
aggregate/w9999n7/f32 transfer/n7/f32 transfer/n7/f32/h2h/work0 transfer/m7/f32/h2h conv/n1c2h5w5k3r3s3/f32/nchw
conv/n1c2h5w5k3r9s9/f32/nchw/fprop conv/n1c3h5w5k3r3s3/f32/nchw/fprop/g2""".split()
KERNELS = ["copy/numpy.copyto", "gemm/numpy.matmul", "transpose/numpy.out", "conv/cpu.im2col", "fft/pyfftw.plan"]
TILED = [
    "gemm/cuda.async@BM=128", "gemm/cuda.async@BM=128,BN=64,BK=8", "gemm/cuda.naive@T=16", "conv/cpu.im2col@DEPTH=64",
    "conv/cpu.im2col@DEPTH=64,AREA=8192", "conv/numba.*@STEPS=32,AT_ONCE=16",
]  # fmt: skip
#: Tiles that a kernel does not have, and texts that are not tiles.
NO_TILES = f"""conv/cpu.im2col@DEPTH=4 conv/cpu.im2col@ conv/cpu.im2col@DEPTH conv/cpu.im2col@DEPTH=64,DEPTH=64 @
conv/cpu.im2col@X=1 conv/cpu.im2col@DEPTH=-1 conv/cpu.im2col@A=1,B=2 copy/numpy.copyto@T=1 gemm/cuda.naive@T=0
conv/cpu.im2col@DEPTH=\u0661 conv/cpu.im2col@DEPTH={"9" * 5000} @A=1,B=2""".split()
HUGE = ("1099511627776", str(2**62), str(2**63 - 1), str(2**63), str(2**64), "1" + "0" * 20, "9" * 5000)
_ODD = (
    "", " ", "-", "--", "*", "!", "!*", "[", "%", "%s", "{}", "..", "/", "~", "\n", "\t", "\x1b[31m", "a\nb", "\udcff",
    "\xe9", "\u0661", "\u200b", "\U0001d4b3", "r" * 60_000, "n" * 300, "'; DROP TABLE run; --", "$(id)", "\\", "CON",
    "@", "a=b",
)  # fmt: skip
TEXTS = st.one_of(st.text(max_size=12), st.sampled_from(_ODD))


class Word(NamedTuple):
    """A word of a command line. refused: the command must refuse it. long: the command may take long with it."""

    text: str
    refused: bool = False
    long: bool = False


ANYTHING = TEXTS.map(lambda text: Word(text, long=True))


def once_in(times: int) -> Strategy[bool]:
    """Draw True once in this many times; Hypothesis would draw the integer 0 far more often."""
    return st.sampled_from([False] * (times - 1) + [True])


def _words(sound: str, wrong: str = "", rest: str = "") -> Strategy[Word]:
    """Draw mostly valid words, some that must be refused, and some with which a command may take long.

    Each text lists words between bars; `|` lists the empty word. An empty `wrong` or `rest` stands for any word, and
    without `sound`, the words of `rest` are drawn more often.
    """
    good = [Word(text) for text in sound.split("|")] if sound else [Word(text, long=True) for text in rest.split("|")]
    bad = st.sampled_from([Word(text, refused=True) for text in wrong.split("|")]) if wrong else ANYTHING
    other = st.sampled_from([Word(text, long=True) for text in rest.split("|")]) if rest else ANYTHING
    return st.one_of(*[st.sampled_from(good)] * 3, bad, other)


@st.composite
def _changed(draw: Any, texts: Sequence[str]) -> Word:
    text = draw(st.sampled_from(texts))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        put = draw(st.one_of(st.sampled_from([*"/mnk0123456789-+.x@=,*!?[]", "f32", "NT", "00", "beta", *HUGE]), TEXTS))
        text = text[:start] + put + text[start + draw(st.integers(0, 3)) :]
    return Word(text, long=True)


def _any_of(texts: Sequence[str], **kind: bool) -> Strategy[Word]:
    return st.sampled_from([Word(text, **kind) for text in texts])


#: Problems too large for any machine, and texts that are no problems because of a number that is too large.
_HUGE_PROBLEMS = st.tuples(st.sampled_from(PROBLEMS), st.sampled_from(HUGE)).map(
    lambda match: Word(re.sub(r"\d+", match[1], match[0], count=1), long=True)
)
PROBLEM_WORDS = st.one_of(
    *[_any_of(PROBLEMS)] * 2, _any_of(NO_PROBLEMS, refused=True), _changed(PROBLEMS), _HUGE_PROBLEMS
)
SUITE_WORDS = st.one_of(
    *[PROBLEM_WORDS] * 2, _any_of(["smoke", "founding", "seed", "square-sweep", "vgg16", "llm"], long=True),
    _any_of(["nothing", "none.toml", "", "smoke2"], refused=True),
)  # fmt: skip
GLOBS = st.one_of(
    *[_any_of([*KERNELS, *["*", "copy/*", "*/numpy.*", "!gemm/*", "!*", "[", "no/such.kernel"]])] * 3,
    _changed(KERNELS + TILED), _any_of(TILED + NO_TILES, long=True),
)  # fmt: skip
#: Words for parameters that take one kernel, and no pattern.
KERNEL_WORDS = st.one_of(_any_of(KERNELS), _any_of([*KERNELS, *TILED, *NO_TILES, "*"], long=True), _changed(TILED))
RUN_WORDS = _words("|".join((*RUNS, ROWS_RUN, "2026")), f"no-such-run|20269999-x|{'r' * 60_000}|\x1b[31m")
SECONDS = _words("0.01|0.02|0.05", "nan|inf|-1||x", "1|60|1e300|1e-300")
INTEGERS = _words("1|2", f"-1|nan|1.5||x|{HUGE[6]}", "|".join(("0", *HUGE[:6])))
COUNTS = _words("1", f"0|-1|1.5|nan||x|,|1,|{HUGE[4]}|{HUGE[6]}", "2|1,1")
FILES_OUT = _words("out.csv|new/place/out.csv", rest=f"folder||.|{'n' * 300}|full|fifo|rows.db/x|\udcff")
FOLDERS = _words("out|new/out", rest=f"rows.db|folder|.||{'n' * 300}|full|rows.db/x")
#: The folder holds the samples in STORES, and a damaged sample, `hurt.db`.
STORE_WORDS = _words(
    "rows.db|runs.db|hurt.db", rest="|".join((*STORES, "rows.csv|none.db|folder|fifo|full|", "n" * 300, "\udcff"))
)
TILE_FILES = _words("", rest="auto|tuned.json|rows.csv|folder|full|fifo|")
#: Values by the name of the parameter, for all commands.
BY_NAME: dict[str, Strategy[Word]] = {
    **dict.fromkeys(("db", "base_db"), STORE_WORDS),
    **dict.fromkeys(("run_id", "base", "new", "resume", "delete", "aggregation", "tests"), RUN_WORDS),
    "names": st.one_of(PROBLEM_WORDS, RUN_WORDS),
    **dict.fromkeys(("suites", "suite_name"), SUITE_WORDS),
    "problem_id": PROBLEM_WORDS,
    "problem": _any_of([*PROBLEMS, *NO_PROBLEMS, "copy/*", "["]),  # a glob, which may match nothing
    **dict.fromkeys(("kernels", "against"), GLOBS),
    **dict.fromkeys(("kernel", "kernel_id"), KERNEL_WORDS),
    **dict.fromkeys(("max_time_s", "timeout_s", "rel_ci", "spread_s", "max_time", "start_timeout_s"), SECONDS),
    **dict.fromkeys(("threads", "processes"), COUNTS),
    **dict.fromkeys(("seed", "seeds", "page", "budget"), INTEGERS),
    **dict.fromkeys(("fail_slower", "margin"), _words("2%|5|0.1%|1e300", "nan|inf|-1|0||%|x|2%%")),
    **dict.fromkeys(("csv_path", "output", "html"), FILES_OUT),
    **dict.fromkeys(("out", "report_to", "figures"), FOLDERS),
    **dict.fromkeys(("tuned", "where", "select"), TILE_FILES),
    **dict.fromkeys(("arch", "archs"), _words("", "sm_9|x|sm_999", "sm_90a")),
    **dict.fromkeys(("prices", "prices_path"), _words("prices.toml", "none.toml|rows.db|fifo|full|")),
    **dict.fromkeys(("file", "vs"), _words("kernel.cu", "none.cu|folder|fifo|full")),
    "shard": _words("1/2|2/2", f"0/2|3/2|1/0|x||1/2/3|1/{HUGE[6]}"),
    "gpus": _words("", f"x|-1||{HUGE[6]}", "all|0"),
    "executor": _words("", "none.py|folder|rows.db|fifo|", "plugin.py"),
    "device_name": _words("h100-sxm", "nothing|"),
    "plugins": _words("plugin.py", "none.py|folder|rows.db|fifo|full|"),
    "files": _words("rows.csv|nvbench.json|pytest_benchmark.json", "none|folder|fifo|", "rows.db|runs.db|hurt.db"),
    **dict.fromkeys(("op", "operation"), _words("copy|gemm|conv")),
    "only": _words("transpose-first", "nothing"),
    "name": _words("mine|a.b-c", f"1|a b|{'x' * 61}|-|\n"),
    "network": _words(NETWORK, f"nothing||{'r' * 60_000}", "alexnet|copy/m4n4/f32"),
    "workers": _words("1|1,2,4|4,4,1000000", f"|0|1,|,|-1|1.5|x|{HUGE[0]}|{HUGE[6]}"),
    "link": _words("8GB/s|10Gbit/s|0.5kB/s", f"|8|GB/s|8GB|-8GB/s|nanGB/s|infGB/s|1e400GB/s|0GB/s|8gb/s|{HUGE[6]}GB/s"),
    "prune": _words("30d|2026-01-31", f"|x|-1d|0d|9999-01-01|30y|2026-13-01|{'9' * 30}w"),
    "isas": _words("", "mmx|sse,x", "sse|avx2|"),
    "tile": _words("", "|x|T=|=1|T=-1|T=32,|T=32,T=64|A=1;B=2", "BM=64|T=32"),
    "row": _words("some.fast|m16n16k16/f32/NN", "no such case"),
}


def values_of(param: click.Parameter) -> Strategy[Word]:
    """Return values of a parameter, by its choices, name or type; for an unknown parameter, any words."""
    if isinstance(param.type, click.Choice):
        return _words("|".join(map(str, param.type.choices)), "|nothing|CSV2|\n")
    if str(param.name) in BY_NAME:
        return BY_NAME[str(param.name)]
    if isinstance(param.type, click.types.IntParamType | click.types.FloatParamType):
        return INTEGERS
    return st.one_of(*BY_NAME.values(), *[ANYTHING] * 9)


def step_of(name: str, words: Sequence[Word], *fixed: str) -> Step:
    """Return the call of a command with these words, with the time after which it is interrupted."""
    long = name in LASTING and (name not in QUICK or any(word.long for word in words))
    texts = (name, *fixed, *(word.text.replace("\0", "") for word in words))
    patience_s = PATIENCE_S if long else MEASURING_S if name in QUICK else 0.0
    return Step(texts, refused=any(word.refused for word in words), patience_s=patience_s)


@st.composite
def calls(draw: Any) -> Step:
    """Draw a call with some options and arguments, most of them valid; rarely an unknown command, or help."""
    name = draw(st.sampled_from([name for name, weight in sorted(WEIGHTS.items()) for _ in range(weight)]))
    if draw(once_in(14)):
        nothing = [(text,) for text in ("nothing", "--nothing", "", "runn", "\x1b[31m", "\udcff", "r" * 60_000)]
        refused = [Step(words, refused=True) for words in (*nothing, (name, "--nothing"))]
        return draw(st.sampled_from([*refused, *map(Step, [(), ("--help",), ("--version",), ("-h",), (name, "-h")])]))
    params = cli.commands[name].params
    words = [word for param in params if isinstance(param, click.Argument) for word in draw(_argument(param))]
    if draw(once_in(30)):
        words.append(draw(ANYTHING))
    known = [param for param in params if isinstance(param, click.Option)]
    usual = [option for option in known if option.required or option.name == "db"]
    options = draw(st.lists(st.sampled_from(known), max_size=4)) + [param for param in usual if not draw(once_in(10))]
    for i, option in enumerate(options):
        again = option in options[i + 1 :] and not option.multiple  # only the last value counts
        words += [word._replace(refused=word.refused and not again) for word in draw(_option(option))]
    if draw(once_in(25)):
        words += [Word(draw(st.sampled_from(["--nothing", "-", "--kernels", "-x", "--db"])), long=True)]
    return step_of(name, words, *QUICK.get(name, ()))


@st.composite
def _argument(draw: Any, param: click.Argument) -> list[Word]:
    least = 1 if param.required and not draw(once_in(20)) else 0
    words = draw(st.lists(values_of(param), min_size=least, max_size=3 if param.nargs < 0 else 1))
    # A word that begins with a hyphen would be an option.
    return [word if word.text[:1] != "-" else Word(word.text, long=True) for word in words]


@st.composite
def _option(draw: Any, option: click.Option) -> list[Word]:
    name = draw(st.sampled_from([*option.opts, *option.secondary_opts]))
    if option.is_flag:
        return [Word(name, long=True)]
    value = draw(values_of(option))
    if name.startswith("--") and draw(st.booleans()):
        return [value._replace(text=f"{name}={value.text}")]
    return [Word(name), value]
