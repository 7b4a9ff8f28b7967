"""Contents of files: suites, prices and defaults in TOML, results in JSON and CSV, damaged stores, and plug-ins."""

import copy
import csv
import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import click
from hypothesis import strategies as st

from fuzz.commands import HUGE, KERNELS, TEXTS, values_of
from fuzz.inputs import DATA, Damage, File
from kernelmark.bench.cli.commands import cli
from kernelmark.bench.record.schema import SCHEMA_VERSION

_NUMBERS = (0, -1, 1, 2**31, 2**62, 2**63, 10**20, 1e308, 5e-324, float("nan"), float("inf"), "f32", "1e5")
_TEXTS = TEXTS.filter(lambda text: len(text) < 1000)
JUNK = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), _TEXTS, st.sampled_from(_NUMBERS)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=2)),
    max_leaves=4,
)
#: Texts that every reader refuses.
BROKEN = (
    *("", "[", "a", "a =", "= 1", "\ufeff", "\udcff", "\0", "{", "[]", "[[]]", "null", "title = 'x'\ntitle = 'y'"),
    *(f"a = {'[' * 3000}{']' * 3000}", f"a = {HUGE[-1]}", "[" * 100_000, "a" * 1_000_000, "[[sweep]]"),
    "title = '\\ud800'",
)
SUITE = {"title": "T", "source": "S", "max_time": 0.01, "baseline": {"copy": KERNELS[0]}}
SWEEPS: tuple[dict[str, Any], ...] = (
    {"op": "copy", "dtype": "f32", "m": [2, 3], "n": {"pow2": [0, 2]}},
    {"op": "gemm", "dtype": ["f32", "f64"], "layout": ["NN", "NT"], "points": [[2, 3, 4], [3, 3, 3]], "count": [1, 2]},
    {"op": "gemm", "dtype": "f32", "m": 2, "axes": ["n", "k"], "points": [[2, 3]], "together": [], "kernels": ["*"]},
    {"op": "transpose", "dtype": "f32", "place": "out", "m": {"linear": [1, 9, 4]}, "n": 3, "max_time": 0.01},
    {"op": "conv", "dtype": "f32", "layout": "nchw", "direction": "fprop", "points": [[1, 2, 5, 5, 3, 3, 3]], "pad": 1,
     "network": "net", "part": "forward", "count": 3},
    {"op": "copy", "dtype": "f32", "m": {"linear": [1, 10**20, 1]}, "n": 3},
    {"op": "copy", "dtype": "f32", "m": {"linear": [1, 10**6, 1]}, "n": 3},
)  # fmt: skip
WRONG_SUITES = [{"title": 3}, {"nothing": 1}, {"sweep": []}, {"sweep": 1}, {"sweep": [{"op": "x"}]}, {"max_time": -1.0}]
DEVICE = {"device": "cpu", "name": "*", "per_hour": 0.5, "watts": 75.0, "terms": "words"}
PRICES = {"currency": "USD", "date": "2026", "device": [DEVICE, {**DEVICE, "device": "cuda"}]}
WRONG_PRICES = [
    {"device": []},
    *({"device": [{**DEVICE, "per_hour": value}]} for value in (0.0, -1.0, float("nan"), float("inf"), "x")),
    {"device": [{**DEVICE, "nothing": 1}]},
]
WRONG_DEFAULTS = [{"nothing": 1}, {"run": {"nothing": 1}}, {"nothing": {}}, {"name": "x"}]


class Document(NamedTuple):
    """A file, and whether it must be refused."""

    file: File
    refused: bool = False


def toml(table: dict[str, Any]) -> str:
    """Return a table as TOML, each value as JSON with ` = ` after keys. A null stays, though TOML does not have it."""
    lines = (
        f"{json.dumps(key)} = {json.dumps(value, separators=(', ', ' = '), ensure_ascii=False)}\n"
        for key, value in table.items()
    )
    return "".join(lines).replace("NaN", "nan").replace("Infinity", "inf")


@st.composite
def hurt(draw: Any, sound: Any) -> Any:
    """Draw a copy of a value, mostly with a part replaced, left out, doubled or copied to another name."""
    document = copy.deepcopy(sound)
    for _ in range(draw(st.sampled_from([0, 1, 1, 1, 2]))):
        place, depth = document, draw(st.integers(0, 6))
        while isinstance(place, dict | list) and place:
            key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
            if depth == 0 or not isinstance(place[key], dict | list):
                way = draw(st.sampled_from(["replace", "replace", "replace", "drop", "more"]))
                if way == "replace":
                    place[key] = draw(JUNK)
                elif way == "drop":
                    del place[key]
                elif isinstance(place, list):
                    place.append(place[key])
                else:
                    place[draw(st.sampled_from(["x", "op", "", "kernels", "m"]))] = place[key]
                break
            place, depth = place[key], depth - 1
    return document


@st.composite
def documents(draw: Any, sound: dict[str, Any], wrong: list[dict[str, Any]]) -> Document:
    """Draw a sound or hurt table; one draw in six is a table with a wrong entry, and one in six a text in BROKEN."""
    kind = draw(st.sampled_from(["hurt"] * 4 + ["wrong", "broken"]))
    if kind == "broken":
        return Document(File(draw(st.sampled_from(BROKEN))), refused=True)
    table = {**sound, **draw(st.sampled_from(wrong))} if kind == "wrong" else draw(hurt(sound))
    return Document(File(toml(table)), refused=kind == "wrong")


@st.composite
def defaults(draw: Any) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for name in draw(st.lists(st.sampled_from(["", *sorted(cli.commands)]), min_size=1, max_size=2)):
        options = [param for param in cli.commands[name or "run"].params if isinstance(param, click.Option)]
        option = draw(st.sampled_from(options))
        texts = st.just(True) if option.is_flag else values_of(option).map(lambda word: word.text)
        place = table.setdefault(name, {}) if name else table
        if isinstance(place, dict):  # `select` is also an option, which may be a text already
            place[option.opts[-1].lstrip("-")] = draw(st.one_of(texts, texts, JUNK, st.integers(-1, 5)))
    return table


def foreign_json() -> st.SearchStrategy[File]:
    known = [json.loads((DATA / name).read_text()) for name in ("nvbench.json", "pytest_benchmark.json")]
    return st.sampled_from(known).flatmap(hurt).map(lambda document: File(json.dumps(document)))


@st.composite
def own_csv(draw: Any, text: str) -> File:
    rows = list(csv.reader(io.StringIO(text)))[: draw(st.integers(1, 5))]
    if draw(st.sampled_from([False, False, True])):
        cell = draw(st.integers(0, len(rows[0]) - 1))
        rows = [row[:cell] + row[cell + 1 :] for row in rows]
    rows = [row if isinstance(row, list) else [row] for row in draw(hurt(rows))]
    out = io.StringIO()
    csv.writer(out, lineterminator=draw(st.sampled_from(["\n", "\r\n", "\r"]))).writerows(rows)
    return File(out.getvalue())


_VALUES = (
    "'x'", "''", "-1", "0", "1.5", "1e999", "-1e999", "x'ff00'", "9223372036854775807", "'[]'", "'{}'", "'null'",
    "NULL", "zeroblob(8)", "zeroblob(7)", "'NaN'", "CAST(x'ff' AS TEXT)", "'{\"a\": 1e999}'",
    "printf('%.*c', 100000, 'x')", "'a|b' || char(10) || char(27)",
)  # fmt: skip
_STATEMENTS = (
    *(f"PRAGMA user_version = {number}" for number in (-1, 0, 1, 4, 5, SCHEMA_VERSION - 1, SCHEMA_VERSION + 1, 99)),
    "ALTER TABLE result DROP COLUMN reason",
    "ALTER TABLE run RENAME COLUMN plan TO plans",
    "CREATE TRIGGER t BEFORE INSERT ON result BEGIN SELECT RAISE(FAIL, 'no'); END",
    "PRAGMA journal_mode = DELETE",
    "PRAGMA journal_mode = DELETE; PRAGMA encoding = 'UTF-16'; VACUUM",
)


def outside() -> st.SearchStrategy[Damage]:
    at, texts = st.floats(0, 1, exclude_max=True), st.sampled_from(["\udcff" * 64, "\0" * 16, "x" * 5000])
    return st.one_of(
        st.builds(Damage, st.just("flip"), at, st.integers(0, 7)),
        st.builds(Damage, st.just("zero"), at, st.sampled_from([1, 2, 7, 16, 100, 512, 4096, 10_000])),
        st.builds(Damage, st.just("cut"), at),
        st.builds(Damage, st.sampled_from(["over", "insert"]), at, text=texts),
    )


def damages(store: Path) -> st.SearchStrategy[tuple[Damage, ...]]:
    with closing(sqlite3.connect(store)) as db:
        columns = db.execute(
            "SELECT t.name, c.name FROM sqlite_master t, pragma_table_info(t.name) c WHERE t.type = 'table'"
        ).fetchall()
    tables = sorted({table for table, _ in columns})
    statements = [*_STATEMENTS, *(f"{verb} {table}" for verb in ("DROP TABLE", "DELETE FROM") for table in tables)]
    updates = st.builds('UPDATE {0[0]} SET "{0[1]}" = {1}'.format, st.sampled_from(columns), st.sampled_from(_VALUES))
    within = st.one_of(updates, updates, st.sampled_from(statements)).map(lambda sql: Damage("sql", text=sql))
    return st.lists(st.one_of(outside(), within), min_size=1, max_size=3).map(tuple)


HEAD = """import ctypes, os, signal, sys, threading, time
import numpy as np
from kernelmark import Operand, Prefer, Problem, Unsupported, kernel, operation
from kernelmark.bench.plan.registry import REGISTRY

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
#: Statements that raise: the import of a plug-in with one is refused in one line, and a call of a function fails.
RAISING = (
    *("raise RuntimeError('x' * 10**7)", "raise RuntimeError('a|b\\n\\x1b[31m\\udcff')", "raise Mute", "1 / 0"),
    *("raise Mute from Mute()", "raise SystemExit(0)", "raise SystemExit(3)", "raise SystemExit('words')"),
    *("sys.exit()", "fails()", "deep()", "import nothing_of_this_name", "raise Unsupported('x' * 10**6)"),
    *("raise Unsupported('')", "'\\ud800'.encode()", "raise StopIteration", "raise MemoryError", "assert False"),
    "raise ExceptionGroup('two', [ValueError(1), TypeError(2)])",
)
#: Further statements with which the import of a plug-in is refused; they are not for functions.
REFUSED = (
    *("def f(", "x = (", f"{'(' * 300}{')' * 300}", f"{'-' * 20_000}1", "\0", "\udcff", "operation('copy')(Problem)"),
    "kernel('nothing', provider='bad', device='cpu')(fails)",
    "kernel('copy', provider='bad', device='cpu', nothing=1)(fails)",
    "kernel('copy', provider='', device='cpu')(fails)",
    "kernel('copy', provider='numpy', device='cpu', name='copyto')(fails)",
    "kernel('copy', provider='bad', device='cpu', numerics='x')(fails)",
    "kernel('copy', provider='bad', device='tpu')(fails)",
    "kernel('copy', provider='bad', device='cpu', dtypes='f32')(fails)",
    "operation('mine')(int)",
)
#: Statements after which a command may end in any way, in a module or in a function.
WILD = (
    *("os._exit(0)", "os._exit(9)", "os.abort()", "os.kill(os.getpid(), 9)", "os.close(1)", "os.close(2)"),
    *("sys.stdout.close()", "sys.stderr.close()", "sys.stdout = None", "sys.stderr = None", "print('x' * 10**6)"),
    *("print('word', file=sys.stderr)", "print('\\x1b[31m' * 10**4, file=sys.stderr)", "sys.exit = None", "raise Base"),
    *("raise KeyboardInterrupt", "raise GeneratorExit", "os.chdir('/')", "sys.path.clear()", "sys.modules.clear()"),
    *("import builtins; builtins.print = fails", "import builtins; builtins.len = fails", "os.environ.clear()"),
    *("import json; json.dumps = fails", "import sqlite3; sqlite3.connect = fails", "import gc; gc.disable()"),
    *("import subprocess; subprocess.Popen = fails", "import select; select.select = fails", "os.write = fails"),
    *("import click; click.echo = fails", "signal.signal = fails", "np.median = fails", "np.copyto = fails"),
    *("time.sleep = fails", "time.monotonic = fails", "time.time = fails", "time.perf_counter = fails"),
    *("time.monotonic = lambda: 0.0", "time.perf_counter = lambda: 0.0", "time.perf_counter_ns = lambda: 0"),
    *("threading.Thread(target=forever, daemon=True).start()", "signal.alarm(1)", "sys.settrace(lambda *a: None)"),
    *("sys.setrecursionlimit(60)", "import warnings; warnings.warn('x' * 1000)"),
)
LASTING = (
    *("forever()", "spins()", "threading.Thread(target=forever).start()", "input()"),
    "open('/dev/zero').read(10**8)",
)
#: Stops its process; in an operation this would be the command itself, not a worker.
_STOPS = "os.kill(os.getpid(), 19)"
#: Further statements for a set-up, a call, or a function of a declaration.
WITHIN = (
    *("return 3", "return 'x' * 10**6", "return float('nan')", "return -1", "return 10**400", "return np.ones(3)"),
    *("return None", "return {}", "ctypes.string_at(0)", "os.closerange(0, 3)", "os.closerange(3, 100)"),
    *("os.fork() or (os.setsid(), forever())", "os.fork() or os._exit(0)", "np.ones(10**9)"),
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
    "os.write(int(sys.argv[2]), b'\\x03' + bytes(7) + b'abc')",
    "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 60))",
)
ACTS = (*RAISING, *WILD, *LASTING, *WITHIN)
#: Values of a keyword of a declaration.
VALUES = (
    "None", "3", "''", "'x'", "'a/b'", "'a b'", "'x\\ny'", "'@'", "'*'", "'é' * 400", "object()", "fails", "forever",
    "()", "('f32',)", "(1,)", "{}", "{'f32': 'fp32'}", "{1: 2}", "float('nan')", "True", "b'x'", "'cpu'", "'cuda'",
    "'F'", "'exact'", "('numpy',)", "('nothing.x',)", "[]", "('f32', 'f32')", "lambda problem: 'no'",
    "lambda problem: None", "lambda: None",
)  # fmt: skip
#: Options of a declaration that are functions; those of tiles need the other options in TILES.
FUNCTIONS = ("supports", "executed", "library_scratch", "library_version", "valid", "wire", "prefer", "tunables")
KEYWORDS = (
    *FUNCTIONS, "provider", "device", "name", "label", "numerics", "modules", "threaded", "order", "synchronises",
    "dtypes", "ms", "layouts", "setup", "op", "domain", "module",
)  # fmt: skip
TILES = {
    "valid": "tunables={'T': (1, 2)}, valid=act",
    "prefer": "tunables={'T': (1, 2)}, prefer=Prefer(({'T': 1}, {'T': 2}), act)",
    "tunables": "tunables={'T': (act,)}, prefer=Prefer(({'T': act},))",
}
METHODS = (
    "operands", "reference", "check", "flop", "traffic_bytes", "words", "parse_words", "suffix", "complaint", "dims",
    "tolerance", "typical",
)  # fmt: skip


class Plugin(NamedTuple):
    """A plug-in. refused: it must be refused. wild: the command may end in any way. lasting: its import takes long."""

    text: str
    refused: bool = False
    wild: bool = False
    lasting: bool = False


def loading() -> st.SearchStrategy[Plugin]:
    return st.one_of(
        st.sampled_from(RAISING + REFUSED).map(lambda text: Plugin(f"{HEAD}{text}\n", refused=True)),
        st.sampled_from(WILD).map(lambda text: Plugin(f"{HEAD}{text}\n", wild=True)),
        st.sampled_from(LASTING).map(lambda text: Plugin(f"{HEAD}{text}\n", wild=True, lasting=True)),
        declarations(),
    )


@st.composite
def declarations(draw: Any) -> Plugin:
    given = draw(st.dictionaries(st.sampled_from(KEYWORDS), st.sampled_from(VALUES), max_size=3))
    given = {key: value for key, value in given.items() if value != "forever" or key in FUNCTIONS}
    op, how = draw(st.sampled_from(["'copy'"] * 9 + list(VALUES))), draw(st.sampled_from(["kernel"] * 3 + ["cuda"]))
    usual = (
        {"source": "'copy/none.cu'", "entry": "'none'"} if how == "cuda" else {"provider": "'bad'", "device": "'cpu'"}
    )
    words = ", ".join([op, *(f"{key}={value}" for key, value in (usual | given).items())])
    if how == "cuda":
        return Plugin(f"{HEAD}from kernelmark import cuda_kernel\ncuda_kernel({words})(fails)\n")
    return Plugin(f"{HEAD}@kernel({words})\ndef odd(problem, x):\n    return lambda: np.copyto(x.b, x.a)\n")


@st.composite
def failing(draw: Any, op: str) -> Plugin:
    """Draw a plug-in of a kernel or of the operation `mine`, with a statement from ACTS in one of its functions."""
    mine = op == "mine"
    places = METHODS if mine else ["set-up", "first call", "later call", *FUNCTIONS]
    act, place = draw(st.sampled_from(ACTS if mine else (*ACTS, _STOPS))), draw(st.sampled_from(places))
    option = TILES.get(place, f"{place}=act") if place in FUNCTIONS else ""
    operation = (
        "@operation('mine')\nclass Mine(REGISTRY.operations['copy'], frozen=True, kw_only=True):\n"
        f"    def {place}(self, *args):\n        return act()\n\n"
    )
    calls = {"first call": "act()", "later call": "calls.append(1)\n        len(calls) > 3 and act()"}
    return Plugin(
        f"{HEAD}calls = []\n\ndef act(*args):\n    {act}\n\n{operation if mine else ''}"
        f"@kernel('{op}', provider='bad', device='cpu', numerics='exact', {option})\n"
        f"def odd(problem, x):\n    {'act()' if place == 'set-up' else 'pass'}\n"
        f"    def launch():\n        np.copyto(x.b, x.a)\n        {calls.get(place, 'pass')}\n    return launch\n",
        wild=True,
    )
