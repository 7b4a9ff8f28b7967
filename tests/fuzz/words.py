"""What a word of the command line may be: sound values of each option, wrong ones, and what no one asks for."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import click
from hypothesis import strategies as st

from fuzz.files import KEPT, NETWORK, ROWS_RUN, RUNS, STORES

Strategy = st.SearchStrategy


class Word(NamedTuple):
    """A value, whether it is certain to be refused, and whether the command may lawfully take long with it."""

    text: str
    refused: bool = False
    long: bool = False


#: Of each operation, small enough to be measured in a moment.
PROBLEMS = (
    "copy/m4n4/f32", "copy/m1n31/f64", "gemm/m4n5k6/f32/NT", "gemm/m3n3k3/f64/TN/alpha1.5/beta0.5/batch2/lda+3",
    "gemm/m3n3k3/f16.f32/NN", "gemm/m3n4k5/f32/NT/epi-bias-relu", "gemm/m3n4k5/f64/TN/epi-update",
    "gemm/m3n3k3/e4m3.f32/NT", "gemm/m3n3k3/e4m3.f32/NT/scale-blocks", "gemm/m3n4k5/s8.s32/NT",
    "transpose/m5n7/f32/out", "transpose/m5n7/bf16/in", "fft/b2h4w4/f32/r2c",
    "fft/b1h1w7/f64/c2c/inverse", "conv/n1c2h5w5k3r3s3/f32/nchw/fprop", "fma/n64k3/f32",
    "transfer/n7/f32/h2h", "transfer/n7/f64/bidir/node3/work2", "transfer/n64/f32/h2h/work2",
    "aggregate/w2n7/f32", "aggregate/w3n5/f64/update/ef", KEPT[1],
    "conv/n1c2h5w5k2r3s3pad0-1x1stride2/f32/nhwc/dgrad/dil2/g2",
)  # fmt: skip
KERNELS = ("copy/numpy.copyto", "gemm/numpy.matmul", "transpose/numpy.out", "conv/cpu.im2col", "fft/pyfftw.plan")
TILED = (
    "gemm/cuda.async@BM=128",
    "gemm/cuda.async@BM=128,BN=64,BK=8",
    "conv/cpu.im2col@DEPTH=64",
    "conv/cpu.im2col@DEPTH=64,AREA=8192",
    "conv/numba.*@STEPS=32,AT_ONCE=16",
    "gemm/cuda.naive@T=16",
)
#: Tiles that a kernel does not have, or that are none.
NO_TILES = (
    "conv/cpu.im2col@DEPTH=4", "conv/cpu.im2col@", "conv/cpu.im2col@DEPTH", "conv/cpu.im2col@DEPTH=64,DEPTH=64",
    "conv/cpu.im2col@X=1", "conv/cpu.im2col@DEPTH=-1", "conv/cpu.im2col@A=1,B=2", "copy/numpy.copyto@T=1",
    "conv/cpu.im2col@DEPTH=\u0661", f"conv/cpu.im2col@DEPTH={'9' * 5000}", "gemm/cuda.naive@T=0", "@", "@A=1,B=2",
)  # fmt: skip
SUITES = ("smoke", "founding", "seed", "square-sweep", "vgg16", "llm")
#: None is a size, a count or a number of seconds.
NO_NUMBERS = ("", " ", "x", "nan", "-1", "1e", "--", "0x10", "1,2;3", "None", "½", "9" * 5000 + "x")
HUGE = ("1099511627776", str(2**62), str(2**63 - 1), str(2**63), str(2**64), "1" + "0" * 20, "9" * 5000)
_ODD = (
    "", " ", "-", "--", "*", "!", "!*", "[", "%", "%s", "{}", "..", "/", "~", "\n", "\t", "\x1b[31m", "a\nb", "\udcff",
    "\xe9",
    "\u0661", "\u200b", "\U0001d4b3", "r" * 60_000, "n" * 300, "'; DROP TABLE run; --", "$(id)", "\\", "CON", "@",
    "a=b",
)  # fmt: skip
TEXTS = st.one_of(st.text(max_size=12), st.sampled_from(_ODD))


def once_in(times: int) -> Strategy[bool]:
    """True once in this many draws; an integer would be 0 far more often."""
    return st.sampled_from([False] * (times - 1) + [True])


def sound(*texts: str) -> Strategy[Word]:
    """Words that nothing is wrong with."""
    return st.sampled_from([Word(text) for text in texts])


def wrong(*texts: str) -> Strategy[Word]:
    """Words that must be refused."""
    return st.sampled_from([Word(text, refused=True) for text in texts])


def lengthy(*texts: str) -> Strategy[Word]:
    """Words with which a command may take long."""
    return st.sampled_from([Word(text, long=True) for text in texts])


def mixed(
    good: Strategy[Word], bad: Strategy[Word] | None = None, rest: Strategy[Word] | None = None
) -> Strategy[Word]:
    """Mostly good words, some bad ones, and anything at all."""
    anything = TEXTS.map(lambda text: Word(text, long=True))
    return st.one_of(good, good, good, anything if bad is None else bad, anything if rest is None else rest)


@st.composite
def _changed(draw: Any, texts: Sequence[str]) -> Word:
    """A text with a few characters replaced, left out or doubled."""
    text = draw(st.sampled_from(texts))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        put = draw(st.one_of(st.sampled_from([*"/mnk0123456789-+.x@=,*!?[]", "f32", "NT", "00", "beta", *HUGE]), TEXTS))
        text = text[:start] + put + text[start + draw(st.integers(0, 3)) :]
    return Word(text, long=True)


def wrong_problems() -> Strategy[Word]:
    """Ids that are none."""
    no_size = st.sampled_from([*NO_NUMBERS, "0", "1.5", "1e3"])
    return st.one_of(
        no_size.map(lambda text: Word(f"copy/m{text}n4/f32", refused=True)),
        wrong("copy", "copy/", "copy/m4n4", "copy/m4n4/f33", "copy/m4n4/f32/NT", "copy/n4m4/f32", "gemm/m4n4k4/f32"),
        wrong("gemm/m4n4k4/f32/NX", "gemm/m4n4k4/f32/NT/betax", "gemm/m4n4k4/f32/NT/alphanan",
            "gemm/m4n4k4/f32/NT/batch0", "gemm/m4n4k4/f32/NT/epi-gelu", "gemm/m4n4k4/f32/NT/beta1/epi-update"),
        wrong("gemm/m4n4k4/f32/NT/lda+-1", "gemm/m4n4k4/f32/NT/ldd+1", "nothing/m4n4/f32", "fft/b2h4w4/f32/r2r"),
        wrong("aggregate/w1n7/f32", "aggregate/w2n7/f16", "aggregate/w2n7/f32/ef/update", "aggregate/w9999n7/f32"),
        wrong("aggregate/w2n7", "transfer/n7/f32", "transfer/n7/f32/h2h/work0", "transfer/m7/f32/h2h"),
        wrong("conv/n1c2h5w5k3r3s3/f32/nchw", "conv/n1c2h5w5k3r9s9/f32/nchw/fprop",
            "conv/n1c3h5w5k3r3s3/f32/nchw/fprop/g2"),
    )  # fmt: skip


def huge_problems() -> Strategy[Word]:
    """Ids of problems that no machine holds, if they are any."""
    sizes = st.sampled_from(HUGE)
    return st.one_of(
        sizes.map(lambda size: Word(f"copy/m{size}n4/f32", long=True)),
        sizes.map(lambda size: Word(f"gemm/m4n4k{size}/f64/NN", long=True)),
        sizes.map(lambda size: Word(f"gemm/m4n4k4/f32/NT/lda+{size}", long=True)),
        sizes.map(lambda size: Word(f"transfer/n{size}/f32/h2h", long=True)),
        sizes.map(lambda size: Word(f"aggregate/w2n{size}/f32/ef", long=True)),
        sizes.map(lambda size: Word(f"conv/n{size}c2h5w5k3r3s3/f32/nchw/fprop", long=True)),
    )


PROBLEM_WORDS = st.one_of(sound(*PROBLEMS), sound(*PROBLEMS), wrong_problems(), _changed(PROBLEMS), huge_problems())
SUITE_WORDS = st.one_of(PROBLEM_WORDS, PROBLEM_WORDS, lengthy(*SUITES), wrong("nothing", "none.toml", "", "smoke2"))
GLOBS = mixed(
    sound(*KERNELS, "*", "copy/*", "*/numpy.*", "!gemm/*", "!*", "[", "no/such.kernel"), _changed(KERNELS + TILED),
    lengthy(*TILED, *NO_TILES)
)  # fmt: skip
#: One kernel, where no pattern does.
KERNEL_WORDS = st.one_of(sound(*KERNELS), lengthy(*TILED), lengthy(*KERNELS, *NO_TILES, "*"), _changed(TILED))
RUN_WORDS = mixed(sound(*RUNS, ROWS_RUN, "2026"), wrong("no-such-run", "20269999-x", "r" * 60_000, "\x1b[31m"))
SECONDS = st.one_of(
    sound("0.01", "0.02", "0.05"), lengthy("1", "60", "1e300", "1e-300"), wrong("nan", "inf", "-1", "", "x")
)
COUNTS = st.one_of(
    sound("1"), lengthy("2", "1,1"), wrong("0", "-1", "1.5", "nan", "", "x", ",", "1,", HUGE[4], HUGE[6])
)
INTEGERS = st.one_of(sound("1", "2"), sound("1"), wrong("-1", "nan", "1.5", "", "x", HUGE[6]), lengthy("0", *HUGE[:6]))
PERCENTS = mixed(sound("2%", "5", "0.1%", "1e300"), wrong("nan", "inf", "-1", "0", "", "%", "x", "2%%"))
FILES_OUT = st.one_of(
    sound("out.csv", "new/place/out.csv"), sound("out.csv"),
    lengthy("folder", "", ".", "n" * 300, "full", "fifo", "rows.db/x", "\udcff"),
)  # fmt: skip
FOLDERS = st.one_of(sound("out", "new/out"), lengthy("rows.db", "folder", ".", "", "n" * 300, "full", "rows.db/x"))
#: Each name of STORES is a sample that lies in the folder, and `hurt.db` one with damage.
STORE_WORDS = st.one_of(
    sound("rows.db", "runs.db"), sound("rows.db", "runs.db"), sound("rows.db", "runs.db", "hurt.db"),
    lengthy(*STORES, "hurt.db", "rows.csv", "none.db", "folder", "fifo", "full", "", "n" * 300, "\udcff"),
)  # fmt: skip
#: Values by the name of the parameter, whatever the command.
BY_NAME: dict[str, Strategy[Word]] = {
    "db": STORE_WORDS,
    "base_db": STORE_WORDS,
    **dict.fromkeys(("run_id", "base", "new", "resume", "delete", "aggregation"), RUN_WORDS),
    "tests": RUN_WORDS,
    "names": st.one_of(PROBLEM_WORDS, RUN_WORDS),
    "shard": mixed(sound("1/2", "2/2"), wrong("0/2", "3/2", "1/0", "x", "", "1/2/3", "1/" + HUGE[6])),
    "gpus": mixed(lengthy("all", "0"), wrong("x", "-1", "", HUGE[6])),
    "executor": mixed(lengthy("plugin.py"), wrong("none.py", "folder", "rows.db", "fifo", "")),
    "device_name": mixed(sound("h100-sxm"), wrong("nothing", "")),
    **dict.fromkeys(("suites", "suite_name"), SUITE_WORDS),
    **dict.fromkeys(("problem", "problem_id"), PROBLEM_WORDS),
    **dict.fromkeys(("kernels", "against"), GLOBS),
    **dict.fromkeys(("kernel", "kernel_id"), KERNEL_WORDS),
    **dict.fromkeys(("max_time_s", "timeout_s", "rel_ci", "spread_s", "max_time", "start_timeout_s"), SECONDS),
    **dict.fromkeys(("threads", "processes"), COUNTS),
    **dict.fromkeys(("seed", "seeds", "page", "budget"), INTEGERS),
    **dict.fromkeys(("fail_slower", "margin"), PERCENTS),
    **dict.fromkeys(("csv_path", "output"), FILES_OUT),
    **dict.fromkeys(("out", "report_to", "figures"), FOLDERS),
    "plugins": mixed(sound("plugin.py"), wrong("none.py", "folder", "rows.db", "fifo", "full", "")),
    "files": mixed(sound("rows.csv", "nvbench.json", "pytest_benchmark.json"),
        wrong("none", "folder", "fifo", ""), sound("rows.db", "runs.db", "hurt.db")),  # which `merge` takes
    "op": mixed(sound("copy", "gemm", "conv")),
    "only": mixed(sound("transpose-first"), wrong("nothing")),
    "name": mixed(sound("mine", "a.b-c"), wrong("1", "a b", "x" * 61, "-", "\n")),
    "network": mixed(sound(NETWORK), wrong("nothing", "", "r" * 60_000), lengthy("alexnet", "copy/m4n4/f32")),
    "workers": mixed(sound("1", "1,2,4", "4,4,1000000"), wrong("", "0", "1,", ",", "-1", "1.5", "x", HUGE[0], HUGE[6])),
    "link": mixed(sound("8GB/s", "10Gbit/s", "0.5kB/s"),
        wrong("", "8", "GB/s", "8GB", "-8GB/s", "nanGB/s", "infGB/s", "1e400GB/s", "0GB/s", "8gb/s", HUGE[6] + "GB/s")),
    "prune": mixed(sound("30d", "2026-01-31"),
        wrong("", "x", "-1d", "0d", "9999-01-01", "30y", "2026-13-01", "9" * 30 + "w")),
    "isas": mixed(lengthy("sse", "avx2", ""), wrong("mmx", "sse,x")),
    "archs": mixed(lengthy("sm_90a"), wrong("sm_9", "x", "sm_999")),
    "arch": mixed(lengthy("sm_90a"), wrong("sm_9", "x", "sm_999")),
    "tile": mixed(lengthy("BM=64", "T=32"), wrong("", "x", "T=", "=1", "T=-1", "T=32,", "T=32,T=64", "A=1;B=2")),
    **dict.fromkeys(("tuned", "where"), lengthy("auto", "tuned.json", "rows.csv", "folder", "full", "fifo", "")),
    "row": mixed(sound("some.fast", "m16n16k16/f32/NN"), wrong("no such case")),
    "prices_path": mixed(sound("prices.toml"), wrong("none.toml", "rows.db", "fifo", "full", "")),
    "file": mixed(sound("kernel.cu"), wrong("none.cu", "folder", "fifo", "full", "")),
    "vs": mixed(sound("kernel.cu"), wrong("none.cu", "folder", "fifo", "full")),
}  # fmt: skip


def values_of(param: click.Parameter) -> Strategy[Word]:
    """Return values of a parameter: by its choices, its name or its type, and anything for one that is new."""
    if isinstance(param.type, click.Choice):
        return mixed(sound(*map(str, param.type.choices)), wrong("", "nothing", "CSV2", "\n"))
    if str(param.name) in BY_NAME:
        return BY_NAME[str(param.name)]
    if isinstance(param.type, click.types.IntParamType):
        return INTEGERS
    if isinstance(param.type, click.types.FloatParamType):
        return SECONDS
    return st.one_of(
        mixed(sound("1", "out.csv", "rows.db", *KERNELS)), *(st.one_of(*BY_NAME.values()) for _ in range(2))
    )
