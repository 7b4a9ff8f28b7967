"""Compares what the source uses of the packages of a GPU with what tools/data/gpu-signatures.json records of them."""

import ast
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gpu_use import Arguments, Use

RECORD = Path(__file__).resolve().parent / "data" / "gpu-signatures.json"
_DRIVER = "cuda.bindings.driver."
Bound = Mapping[str, Mapping[str, str]]


def recorded() -> dict[str, Any]:
    """Return the record: `python`, `versions` by package, and `names` with how each is bound and to what."""
    found: dict[str, Any] = json.loads(RECORD.read_text())
    return found


def complaints(uses: Iterable[Use], names: Bound) -> Iterator[str]:
    """Yield a line for each use that does not fit, with its place."""
    for use in uses:
        bound = names.get(use.name, {"unbound": "it is not recorded; run make conformance"})
        if "unbound" in bound:
            yield f"{use.where}: {use.name}: {bound['unbound']}"
        elif use.arguments is not None:
            yield from (f"{use.where}: {use.name}{bound['is']} {why}" for why in _misfits(use.arguments, bound))


def differences(declared: Mapping[str, str], names: Bound) -> Iterator[str]:
    """Yield a line for each function whose parameters differ from the header's prototype."""
    for name, parameters in declared.items():
        bound = names.get(name, {"unbound": "it is not recorded; run make conformance"})
        if (prototype := bound.get("is", bound.get("unbound"))) != parameters:
            yield f"{name}: ctypes has {parameters}, expected {prototype}"


def _misfits(arguments: Arguments, bound: Mapping[str, str]) -> Iterator[str]:
    if not bound["is"].startswith("("):
        yield f"is {bound['how']}, which is not called"
    elif bound["how"] == "header's prototype":
        count = len(bound["is"].split(",")) if bound["is"] != "()" else 0
        if arguments.positional > count or (arguments.positional < count and not arguments.stars):
            yield f"is called with {arguments.positional} arguments, expected {count}"
    else:
        yield from _unbound(arguments, _parsed(bound["is"]))
        yield from _mistyped(arguments, bound)


def _parsed(signature: str) -> ast.arguments:
    (function,) = ast.parse(f"def f{signature}: ...").body
    assert isinstance(function, ast.FunctionDef)
    return function.args


def _unbound(given: Arguments, taken: ast.arguments) -> Iterator[str]:
    """Yield why the arguments cannot be bound to the parameters."""
    places = [parameter.arg for parameter in (*taken.posonlyargs, *taken.args)]
    named = {parameter.arg for parameter in (*taken.args, *taken.kwonlyargs)}
    if given.positional > len(places) and not taken.vararg:
        yield f"is called with {given.positional} arguments without a name, expected at most {len(places)}"
    for keyword in given.keywords:
        if keyword not in named and not taken.kwarg:
            yield f"has no parameter {keyword}"
        elif keyword in places[: given.positional]:
            yield f"is given {keyword} twice"
    without_default = places[: len(places) - len(taken.defaults)]
    needed = [*without_default[given.positional :]]
    needed += [p.arg for p, default in zip(taken.kwonlyargs, taken.kw_defaults, strict=True) if default is None]
    if (missing := [name for name in needed if name not in given.keywords]) and not given.stars:
        yield f"lacks {', '.join(missing)}"


def _mistyped(given: Arguments, bound: Mapping[str, str]) -> Iterator[str]:
    """Yield where another enumeration or structure of the driver is given than the function asks for."""
    asked = dict(pair.split(":") for pair in bound.get("types", "").split())
    for parameter, values in zip(_parsed(bound["is"]).args, given.types, strict=False):
        for value in values:
            kind = value.removeprefix(_DRIVER).split(".")[0].removesuffix("()")
            if parameter.arg in asked and value.startswith(_DRIVER) and kind != asked[parameter.arg]:
                yield f"is given {kind} for {parameter.arg}, expected {asked[parameter.arg]}"
