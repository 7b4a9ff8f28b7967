"""Files that people and programs write: suites, prices and defaults in TOML, and results in JSON and CSV."""

import copy
import csv
import io
import json
from typing import Any, NamedTuple

import click
from hypothesis import strategies as st

from fuzz.files import DATA
from fuzz.inputs import File
from fuzz.words import HUGE, KERNELS, TEXTS, values_of
from kernelmark.bench.cli.commands import cli

JUNK = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        TEXTS.filter(lambda text: len(text) < 1000),
        st.sampled_from(
            [0, -1, 1, 2**31, 2**62, 2**63, 10**20, 1e308, 5e-324, float("nan"), float("inf"), "f32", "1e5"]
        ),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=2)),
    max_leaves=4,
)
#: What no reader takes.
BROKEN = (
    "", "[", "a", "a =", "= 1", "\ufeff", "\udcff", "\0", "{", "[]", "[[]]", "null", "title = 'x'\ntitle = 'y'",
    f"a = {'[' * 3000}{']' * 3000}", f"a = {HUGE[-1]}", "[" * 100_000, "a" * 1_000_000, "[[sweep]]",
    "title = '\\ud800'",
)  # fmt: skip


class Document(NamedTuple):
    """A file, and whether it must be refused."""

    file: File
    refused: bool = False


def toml(table: dict[str, Any]) -> str:
    """Return a table as TOML, as far as that has its values; a list of tables below a key of its own."""
    lines, tables = [], []
    for key, value in table.items():
        if isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
            tables += [f"[[{_key(key)}]]\n{toml(entry)}" for entry in value]
        else:
            lines.append(f"{_key(key)} = {_value(value)}")
    return "\n".join([*lines, *tables]) + "\n"


def _key(key: str) -> str:
    return json.dumps(key, ensure_ascii=False)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)} = {_value(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False)


@st.composite
def _hurt(draw: Any, sound: Any) -> Any:
    """A value, and in most cases one of its parts replaced, left out, doubled or called by another name."""
    found = copy.deepcopy(sound)
    for _ in range(draw(st.sampled_from([0, 1, 1, 1, 2]))):
        place, depth = found, draw(st.integers(0, 6))
        while isinstance(place, dict | list) and place:
            key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
            if depth == 0 or not isinstance(place[key], dict | list):
                _change(draw, place, key)
                break
            place, depth = place[key], depth - 1
    return found


def _change(draw: Any, place: Any, key: Any) -> None:
    way = draw(st.sampled_from(["replace", "replace", "replace", "drop", "more"]))
    if way == "replace":
        place[key] = draw(JUNK)
    elif way == "drop":
        del place[key]
    elif isinstance(place, list):
        place.append(place[key])
    else:
        place[draw(st.sampled_from(["x", "op", "", "kernels", "m"]))] = place[key]


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


def suites() -> st.SearchStrategy[Document]:
    """Suite files, and what is certainly none."""
    sweeps = st.lists(st.sampled_from(SWEEPS).flatmap(_hurt), min_size=1, max_size=2)
    head = {"title": "T", "source": "S", "max_time": 0.01, "baseline": {"copy": KERNELS[0]}}
    whole = st.tuples(_hurt(head), sweeps).map(
        lambda found: {**(found[0] if isinstance(found[0], dict) else {}), "sweep": found[1]}
    )
    certain = st.sampled_from(
        [{"title": 3}, {"nothing": 1}, {"sweep": []}, {"sweep": 1}, {"sweep": [{"op": "x"}]}, {"max_time": -1.0}]
    )
    return st.one_of(
        *[whole.map(lambda table: Document(File(toml(table))))] * 5,
        certain.map(lambda wrong: Document(File(toml({"sweep": [SWEEPS[0]], **wrong})), refused=True)),
        _broken(),
    )


def prices() -> st.SearchStrategy[Document]:
    """Prices files, and what is certainly none."""
    device = {"device": "cpu", "name": "*", "per_hour": 0.5, "watts": 75.0, "terms": "words"}
    sound = {"currency": "USD", "date": "2026", "device": [device, {**device, "device": "cuda"}]}
    wrong = [{"per_hour": value} for value in (0.0, -1.0, float("nan"), float("inf"), "x")] + [{"nothing": 1}]
    certain = [{**sound, "device": [{**device, **change}]} for change in wrong] + [
        {**sound, "device": []},
        {"currency": "USD"},
    ]
    return st.one_of(
        _hurt(sound).map(lambda table: Document(File(toml(table if isinstance(table, dict) else {})))),
        _hurt(sound).map(lambda table: Document(File(toml(table if isinstance(table, dict) else {})))),
        st.sampled_from(certain).map(lambda table: Document(File(toml(table)), refused=True)),
        _broken(),
    )


def _broken() -> st.SearchStrategy[Document]:
    return st.sampled_from(BROKEN).map(lambda text: Document(File(text), refused=True))


@st.composite
def defaults(draw: Any) -> Document:
    """A file of defaults: names of options with values as people give them, right or wrong."""
    table: dict[str, Any] = {}
    for name in draw(st.lists(st.sampled_from(["", *sorted(cli.commands)]), min_size=1, max_size=2)):
        command = cli.commands[name or "run"]
        option = draw(st.sampled_from([param for param in command.params if isinstance(param, click.Option)]))
        texts = values_of(option).map(lambda word: word.text)
        value = draw(st.one_of(st.just(True) if option.is_flag else texts, texts, JUNK, st.integers(-1, 5)))
        place = table.setdefault(name, {}) if name else table
        if isinstance(place, dict):  # `select` is an option too, and a text by now
            place[option.opts[-1].lstrip("-")] = value
    wrong = draw(st.sampled_from([{}, {}, {}, {"nothing": 1}, {"run": {"nothing": 1}}, {"nothing": {}}, {"name": "x"}]))
    return Document(File(_tables({**table, **wrong})), refused=bool(wrong))


def _tables(table: dict[str, Any]) -> str:
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    return toml(plain) + "".join(f"[{key}]\n{toml(value)}" for key, value in table.items() if isinstance(value, dict))


def foreign_json() -> st.SearchStrategy[File]:
    """What nvbench and pytest-benchmark write, with parts of it changed."""
    known = [json.loads((DATA / name).read_text()) for name in ("nvbench.json", "pytest_benchmark.json")]
    return st.sampled_from(known).flatmap(_hurt).map(lambda found: File(json.dumps(found)))


@st.composite
def own_csv(draw: Any, text: str) -> File:
    """Our own CSV with cells, columns or lines changed."""
    rows = list(csv.reader(io.StringIO(text)))[: draw(st.integers(1, 5))]
    for _ in range(draw(st.integers(0, 3))):
        line, cell = draw(st.integers(0, len(rows) - 1)), draw(st.integers(0, len(rows[0]) - 1))
        way = draw(st.sampled_from(["cell", "cell", "cell", "drop", "double", "short"]))
        if way == "cell" and cell < len(rows[line]):
            rows[line][cell] = str(draw(JUNK))
        elif way == "drop":
            rows = [row[:cell] + row[cell + 1 :] for row in rows]
        elif way == "double":
            rows.append(list(rows[line]))
        else:
            rows[line] = rows[line][:cell]
        if not rows[0]:
            break
    out = io.StringIO()
    csv.writer(out, lineterminator=draw(st.sampled_from(["\n", "\r\n", "\r"]))).writerows(rows)
    return File(out.getvalue())
