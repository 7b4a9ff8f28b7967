"""The options of a plan, each declared once; the command's and pytest's options are derived from these."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from kernelmark.bench.plan.modes import DOES, TIMED, Mode

Value = TypeVar("Value")
#: Seconds that one call of a kernel may take before its worker is ended.
TIMEOUT_S = 60.0
#: A machine drifts over about a minute (docs/measurement.md): processes less than a minute apart agree with each other,
#: but not with the next run.
SPREAD_S = 60.0
#: The limits at which sampling stops: seconds per case, and the width of the 95 % interval divided by the median.
MAX_TIME_S, REL_CI = 2.0, 0.01
LAUNCHERS = ("cuda-core", "pycuda")


class Option(NamedTuple):
    """An option: `--name` of the command and `--km-name` in pytest, for a field of the plan.

    default: if it is a boolean, the option is a flag that negates it. unset: words for a default that depends on the
    machine or the suite. parse: converts a text; raises ValueError with the text and what is expected. choices: the
    accepted words. many: the option may be repeated. times: the option has no effect if nothing is timed.
    """

    name: str
    field: str
    help: str
    default: Any = None
    unset: str = ""
    parse: Callable[[str], Any] = str
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    many: bool = False
    times: bool = False

    @property
    def text(self) -> str:
        """Return the help text, with the default."""
        known = self.default is not None and not isinstance(self.default, bool)
        shown = self.unset or (str(self.default) if known else "")
        return f"{self.help} [default: {shown}]" if shown else self.help


def _checked(expected: str, read: Callable[[str], Value], holds: Callable[[Value], bool]) -> Callable[[str], Value]:
    """Return a parser that reads a text and raises ValueError if `read` raises or `holds` is false."""

    def parse(text: str) -> Value:
        try:
            value = read(text)
        except ValueError:
            value = None
        if value is None or not holds(value):
            raise ValueError(f"is {text!r}, expected {expected}")
        return value

    return parse


def _integers(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(map(int, text.split(","))))


def _share(text: str) -> float:
    return float(text.removesuffix("%")) / 100


def _is_above_zero(value: float) -> bool:
    return 0 < value < math.inf


above_zero = _checked("a number above 0", float, _is_above_zero)
not_negative = _checked("a number, 0 or more", float, lambda value: 0 <= value < math.inf)
per_cent = _checked("a percentage above 0, such as 2%", _share, _is_above_zero)
_processes = _checked("an integer from 1 to 1000", int, lambda value: 1 <= value <= 1000)
_raced = _checked("an integer from 2 to 1000", int, lambda value: 2 <= value <= 1000)
_seed = _checked("an integer from 0 to 9223372036854775807", int, lambda value: 0 <= value < 2**63)
_counts = _checked("integers above 0, separated by commas", _integers, lambda values: min(values) > 0)

PLUGIN = Option(
    "plugin",
    "plugins",
    "A Python file that registers kernels or operations; may be repeated.",
    metavar="FILE.py",
    many=True,
)
_MODES = "; ".join(f"{mode} {does.words}" for mode, does in DOES.items() if does.times) + "."
OPTIONS = (
    Option(
        "kernels",
        "kernels",
        "Use only kernels whose full id matches; !GLOB excludes matching kernels; may be repeated.",
        metavar="GLOB",
        many=True,
    ),
    Option("device", "devices", "Where to measure.", "auto", choices=("auto", "cpu", "cuda")),
    Option("threads", "threads", "CPU thread counts.", unset="all", parse=_counts, metavar="N,.."),
    Option(
        "isa",
        "isas",
        "Instruction sets of the CPU, each in separate processes: sse, avx, avx2, avx512. OpenBLAS, oneDNN, MKL, "
        "NumPy and Numba obey them; kernels of other libraries (pyFFTW) do not, though their rows name the set.",
        unset="what the libraries choose",
        metavar="SET,..",
    ),
    Option(
        "seed",
        "seed",
        "Seed of the operands; 128 random bits of each process are mixed in.",
        0,
        parse=_seed,
        metavar="N",
    ),
    Option(
        "timeout",
        "timeout_s",
        "Seconds for one call of a kernel; set-up and an operation's own code may take ten times as long.",
        TIMEOUT_S,
        parse=above_zero,
        metavar="S",
    ),
    Option("share-gpu", "share_gpu", "Measure even while another run uses the GPU.", False),
    Option(
        "launcher", "launcher", "The library that launches hand-written CUDA kernels.", LAUNCHERS[0], choices=LAUNCHERS
    ),
    PLUGIN,
    Option("mode", "mode", _MODES, Mode.COLD.value, choices=TIMED, times=True),
    Option(
        "max-time",
        "max_time_s",
        "Seconds of sampling for each case, in each process.",
        unset=f"{MAX_TIME_S:g}, or the suite's",
        parse=above_zero,
        metavar="S",
        times=True,
    ),
    Option(
        "rel-ci",
        "rel_ci",
        "Stop when the width of the 95 % interval is below this fraction of the median (0.01 is 1 %).",
        REL_CI,
        parse=not_negative,
        metavar="R",
        times=True,
    ),
    Option("ceilings", "ceilings", "Also measure the ceilings of this machine.", True, unset="yes", times=True),
    Option(
        "processes",
        "processes",
        "Fresh processes for each case. With 2 or more, intervals cover variation between processes; use 5 to publish.",
        1,
        parse=_processes,
        metavar="N",
        times=True,
    ),
    Option(
        "spread",
        "spread_s",
        "Minimum seconds between the starts of these processes; a machine drifts over about a minute.",
        SPREAD_S,
        parse=not_negative,
        metavar="S",
        times=True,
    ),
)
#: The ways to search the tiles of a kernel: all tiles, random tiles, or a strategy of Kernel Tuner. The first of GUIDED
#: is the default strategy (docs/tuning.md compares them).
EXHAUSTIVE, RANDOM = "exhaustive", "random"
GUIDED = ("genetic_algorithm", "hybrid_vndx", "greedy_ils", "simulated_annealing")
STRATEGIES = (EXHAUSTIVE, RANDOM, *GUIDED)
#: If there are at most ALL tiles, all are measured; otherwise BUDGET of them.
ALL, BUDGET = 200, 100
_TAKEN = ("threads", "seed", "timeout", "share-gpu", "launcher", "plugin", "mode", "rel-ci", "ceilings", "spread")
_DIFFERENT: dict[str, dict[str, Any]] = {
    "max-time": {
        "help": "Seconds for each tile in the search; the race takes ten times as many.",
        "default": 0.2,
        "unset": "",
    },
    "processes": {"help": "Fresh processes of the race.", "default": 5, "parse": _raced},
}
#: The options of a plan that `tune` has; the times and processes have other meanings than in a run.
TUNE_OPTIONS = tuple(
    option._replace(**_DIFFERENT.get(option.name, {})) for option in OPTIONS if option.name in (*_TAKEN, *_DIFFERENT)
)
