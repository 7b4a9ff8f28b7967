"""Suites as TOML text, and the lists of problems that they are made from."""

import csv
import json
import textwrap
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parent / "data"
Row = dict[str, str]
#: For filters that FFT is out of question for, and for images that one FFT is.
NO_FFT, NO_FULL_FFT = ["!conv/pyfftw.*", "!conv/numba.fft_tiled"], ["!conv/pyfftw.full"]


def read(name: str) -> list[Row]:
    """The rows of one list, its order kept."""
    with (DATA / name).open(newline="") as lines:
        return list(csv.DictReader(lines))


def header(title: str, source: str, origin: str, notes: str) -> str:
    """What stands above the sweeps."""
    comment = "\n".join(f"# {line}" for line in textwrap.wrap(" ".join(notes.split()), 116))
    return f"# {origin}\ntitle = {json.dumps(title)}\nsource = {json.dumps(source)}\n\n{comment}"


def table(op: str, cases: Counter[Any], axes: tuple[str, ...] | None, **fixed: Any) -> str:
    """A [[sweep]] over cases with their counts; `fixed` holds the other keys, left out where they are empty."""
    lines = [f'\n[[sweep]]\nop = "{op}"']
    lines += [f"{key} = {_value(key, value)}" for key, value in fixed.items() if value != ""]
    lines += [f"axes = {json.dumps(axes)}"] if axes else []
    points = _wrapped(json.dumps(case) for case in cases)
    lines += [f"points = {points}"]
    if set(cases.values()) != {1}:
        lines += [f"count = {_wrapped(map(str, cases.values()))}"]
    return "\n".join(lines)


def _value(key: str, value: Any) -> str:
    text = json.dumps(value if key in ("network", "part") or isinstance(value, list) else [value])
    return text if len(text) < 100 else _wrapped(map(json.dumps, value))


def _wrapped(values: Iterable[str]) -> str:
    """A TOML list over several lines that breaks between values, never inside one."""
    glued = ", ".join(value.replace(" ", "~") for value in values)
    lines = textwrap.wrap(glued, 115, break_long_words=False, break_on_hyphens=False)
    return "[\n" + "\n".join(f"    {line}" for line in lines).replace("~", " ") + ",\n]"
