"""Plug-ins that no author means well with: they raise, hang, print, patch modules, exit, or declare what cannot be."""

from typing import Any, NamedTuple

from hypothesis import strategies as st

HEAD = """import ctypes, os, signal, sys, threading, time
import numpy as np
from kernelmark import Operand, Prefer, Problem, Unsupported, kernel, operation


class Mute(Exception):
    def __str__(self):
        raise self


class Base(BaseException):
    pass


def forever(*args, **options):
    while True:
        time.sleep(0.01)


def spins(*args, **options):
    while True:
        pass


def fails(*args, **options):
    raise ZeroDivisionError("fails\\nin two lines")


def deep(*args, **options):
    return deep(*args, **options)


"""


class Plugin(NamedTuple):
    """A file. refused: loading it must be. wild: nothing answers for what it does. lasting: loading it takes long."""

    text: str
    refused: bool = False
    wild: bool = False
    lasting: bool = False


#: When it is imported: refused in one line.
REFUSED = (
    "raise RuntimeError('x' * 100_000)", "raise RuntimeError('a\\nb\\x1b[31m')", "raise Mute", "raise SystemExit(0)",
    "raise SystemExit(3)",
    "raise SystemExit('words')", "sys.exit()", "fails()", "deep()", "def f(", "x = (", "import nothing_of_this_name",
    "1 / 0",
    "raise Unsupported('x')", "'\\ud800'.encode()", f"{'(' * 300}{')' * 300}", f"{'-' * 20_000}1", "\0", "\udcff",
    "raise ExceptionGroup('two', [ValueError(1), TypeError(2)])", "raise StopIteration", "raise MemoryError",
    "assert False",
    "kernel('nothing', provider='bad', device='cpu')(fails)",
    "kernel('copy', provider='bad', device='cpu', nothing=1)(fails)",
    "kernel('copy', provider='', device='cpu')(fails)",
    "kernel('copy', provider='numpy', device='cpu', name='copyto')(fails)",
    "kernel('copy', provider='bad', device='cpu', numerics='x')(fails)", "operation('copy')(Problem)",
    "kernel('copy', provider='bad', device='tpu')(fails)", "kernel('copy', provider=None, device='cpu')(fails)",
    "operation('mine')(int)", "kernel('copy', provider='bad', device='cpu', dtypes='f32')(fails)",
    "kernel('copy', provider='bad', device='cpu', dtypes=('f33',))(fails)",
)  # fmt: skip
#: When it is imported: nothing that a program could answer for.
WILD = (
    "os._exit(9)", "os.abort()", "os.kill(os.getpid(), signal.SIGKILL)", "os.close(1)", "os.close(2)",
    "sys.stdout.close()",
    "sys.stderr.close()", "sys.stdout = None", "sys.stderr = None", "print('x' * 10**6)",
    "print('word', file=sys.stderr)",
    "sys.exit = None", "raise KeyboardInterrupt", "raise Base", "raise GeneratorExit", "os.chdir('/')",
    "sys.path.clear()",
    "import builtins; builtins.print = fails", "import json; json.dumps = fails",
    "import builtins; builtins.len = fails",
    "import sqlite3; sqlite3.connect = fails", "import subprocess; subprocess.Popen = fails",
    "sys.setrecursionlimit(60)",
    "import select; select.select = fails", "os.write = fails", "signal.signal = fails", "np.median = fails",
    "time.sleep = fails", "time.monotonic = lambda: 0.0", "time.perf_counter = lambda: 0.0",
    "time.perf_counter_ns = lambda: 0",
    "time.monotonic = fails", "time.time = fails", "import click; click.echo = fails", "os.environ.clear()",
    "threading.Thread(target=forever, daemon=True).start()", "sys.modules.clear()", "import gc; gc.disable()",
    "signal.alarm(1)", "sys.settrace(lambda *a: None)", "import warnings; warnings.warn('x' * 1000)",
)  # fmt: skip
LASTING = (
    "forever()",
    "spins()",
    "threading.Thread(target=forever).start()",
    "open('/dev/zero').read(10**8)",
    "input()",
)
#: What a set-up, a call, or a function of a declaration may do.
ACTS = (
    "fails()", "raise Mute", "raise Base", "raise KeyboardInterrupt", "raise SystemExit(0)",
    "raise SystemExit('words')", "raise GeneratorExit",
    "raise RuntimeError('x' * 10**7)", "raise Unsupported('x' * 10**6)", "raise Unsupported('')", "raise MemoryError",
    "raise Mute from Mute()",
    "raise RuntimeError('a|b\\n\\x1b[31m\\udcff')", "deep()", "forever()", "spins()", "os._exit(0)", "os._exit(9)",
    "os.abort()", "sys.exit(0)",
    "ctypes.string_at(0)", "os.kill(os.getpid(), 9)", "os.kill(os.getpid(), 19)", "os.closerange(0, 3)",
    "os.closerange(3, 100)",
    "print('word')", "print('x' * 10**6)", "print('\\x1b[31m' * 10**4, file=sys.stderr)", "time.sleep = fails",
    "time.perf_counter = fails",
    "time.monotonic = lambda: 0.0", "time.perf_counter_ns = lambda: 0", "threading.Thread(target=forever).start()",
    "os.fork() or (os.setsid(), forever())", "os.fork() or os._exit(0)", "np.copyto = fails",
    "sys.setrecursionlimit(50)", "return 3",
    "return 'x' * 10**6", "return float('nan')", "return -1", "return 10**400", "return np.ones(3)", "return None",
    "return {}",
    "os.chdir('/')", "signal.signal(signal.SIGTERM, signal.SIG_IGN)", "np.ones(10**9)", "sys.stdout.close()",
    "raise StopIteration",
    "os.write(int(sys.argv[2]), b'\\x03' + bytes(7) + b'abc')",
    "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 60))",
)  # fmt: skip
#: Values of a keyword of a declaration.
VALUES = (
    "None", "3", "''", "'x'", "'a/b'", "'a b'", "'x\\ny'", "'@'", "'*'", "'é' * 400", "object()", "fails", "forever",
    "()", "('f32',)", "(1,)",
    "{}", "{'f32': 'fp32'}", "{1: 2}", "float('nan')", "True", "b'x'", "'cpu'", "'cuda'", "'F'", "'exact'",
    "('numpy',)", "('nothing.x',)",
    "[]", "('f32', 'f32')", "lambda problem: 'no'", "lambda problem: None", "lambda: None",
)  # fmt: skip
KEYWORDS = (
    "provider", "device", "name", "label", "numerics", "supports", "modules", "threaded", "order", "library_scratch",
    "library_version",
    "executed", "synchronises", "dtypes", "ms", "layouts", "setup", "op", "domain", "module", "tunables", "valid",
)  # fmt: skip
FUNCTIONS = ("supports", "executed", "library_scratch", "library_version", "valid", "wire", "prefer", "tunables")
#: Where a function stands in a declaration of tiles.
TILES = {
    "valid": ", tunables={'T': (1, 2)}, valid=act",
    "prefer": ", tunables={'T': (1, 2)}, prefer=Prefer(({'T': 1}, {'T': 2}), act)",
    "tunables": ", tunables={'T': (act,)}, prefer=Prefer(({'T': act},))",
}
#: Of an operation that does this, the command itself would be stopped, and not a worker.
_STOPS = "os.kill(os.getpid(), 19)"
METHODS = (
    "operands",
    "reference",
    "check",
    "flop",
    "traffic_bytes",
    "words",
    "parse_words",
    "suffix",
    "complaint",
    "dims",
    "tolerance",
    "typical",
)


def loading() -> st.SearchStrategy[Plugin]:
    """Plug-ins that do something when they are imported."""
    return st.one_of(
        st.sampled_from(REFUSED).map(lambda text: Plugin(HEAD + text + "\n", refused=True)),
        st.sampled_from(WILD).map(lambda text: Plugin(HEAD + text + "\n", wild=True)),
        st.sampled_from(LASTING).map(lambda text: Plugin(HEAD + text + "\n", wild=True, lasting=True)),
        declarations(),
    )


@st.composite
def declarations(draw: Any) -> Plugin:
    """Plug-ins with declarations of which some cannot be."""
    given = {"provider": "'bad'", "device": "'cpu'"}
    given |= draw(st.dictionaries(st.sampled_from(KEYWORDS), st.sampled_from(VALUES), max_size=3))
    op = draw(st.sampled_from(["'copy'"] * 9 + list(VALUES)))
    words = ", ".join(f"{key}={value}" for key, value in given.items() if value != "forever" or key in FUNCTIONS)
    how = draw(st.sampled_from(["kernel", "kernel", "kernel", "cuda"]))
    if how == "cuda":
        words = words.replace("provider='bad', device='cpu'", "source='copy/none.cu', entry='none'")
        return Plugin(f"{HEAD}from kernelmark import cuda_kernel\ncuda_kernel({op}, {words})(fails)\n")
    return Plugin(f"{HEAD}@kernel({op}, {words})\ndef odd(problem, x):\n    return lambda: np.copyto(x.b, x.a)\n")


@st.composite
def kernels(draw: Any) -> Plugin:
    """Plug-ins with a kernel of `copy` that does one thing: in set-up, in a call, or where it is declared."""
    act, place = draw(st.sampled_from(ACTS)), draw(st.sampled_from(["set-up", "first call", "later call", *FUNCTIONS]))
    options = TILES.get(place, f", {place}=act" if place in FUNCTIONS else "")
    body = "    act()\n" if place == "set-up" else ""
    later = "        calls.append(1)\n        if len(calls) > 3:\n            act()\n"
    call = {"first call": "        act()\n", "later call": later}.get(place, "")
    return Plugin(
        f"{HEAD}calls = []\n\n\ndef act(*args):\n    {act}\n\n\n"
        f"@kernel('copy', provider='bad', device='cpu', numerics='exact'{options})\n"
        f"def odd(problem, x):\n{body}    def launch():\n        np.copyto(x.b, x.a)\n{call}    return launch\n",
        wild=True,
    )


@st.composite
def operations(draw: Any) -> Plugin:
    """Plug-ins with an operation, one of whose methods does one thing."""
    act, method = draw(st.sampled_from([act for act in ACTS if act != _STOPS])), draw(st.sampled_from(METHODS))
    return Plugin(
        f"{HEAD}from kernelmark.bench.plan.registry import REGISTRY\n\nCopy = REGISTRY.operations['copy']\n\n\n"
        "@operation('mine')\nclass Mine(Copy, frozen=True, kw_only=True):\n"
        f"    def {method}(self, *args):\n        {act}\n\n\n"
        "@kernel('mine', provider='bad', device='cpu', numerics='exact')\n"
        "def odd(problem, x):\n    return lambda: np.copyto(x.b, x.a)\n",
        wild=True,
    )
