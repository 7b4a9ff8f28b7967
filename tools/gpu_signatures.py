"""Binds names of a GPU's packages to what the packages have: run by the Python of an environment that has them.

Reads names from its input, a line each, and prints what each is bound to as JSON. No GPU is needed.
"""

import enum
import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

#: Headers below `nvidia` of the libraries that are called by ctypes.
HEADERS = {"libcuda": "cu13/include/cuda.h", "libcublas": "cu13/include/cublas_api.h", "libcudnn": "cudnn/include/*.h"}
_WIDTHS = {"int": "i32", "long long int": "i64", "size_t": "u64", "cuuint32_t": "u32", "cuuint64_t": "u64"}
_WIDTHS |= {"long long": "i64", "int64_t": "i64", "unsigned int": "u32"}
_HANDLES = ("Handle_t", "Stream_t", "Descriptor_t")
_EMPTY = inspect.Parameter.empty


def bound(name: str) -> dict[str, str]:
    """Return how a name is bound (`how`) and to what (`is`). Raises AttributeError where the package has it not."""
    if name.partition(".")[0] in HEADERS:
        return {"how": "header's prototype", "is": prototype(*name.split("."))}
    owner, found = _found(name)
    if isinstance(found, type):
        return _class(found)
    if callable(found) and not isinstance(found, int | enum.Enum):
        return _function(name.rpartition(".")[2], owner, found)
    if isinstance(found, int | enum.Enum):
        number: Any = getattr(found, "value", found)
        return {"how": "value", "is": str(int(number))}
    return {"how": "attribute", "is": type(found).__name__}


def _found(name: str) -> tuple[Any, Any]:
    """Return the object of this name and what holds it. Some attributes are seen in an instance alone."""
    module, rest = _module(name.split("."))
    owner: Any = None
    found: Any = module
    for part in rest:
        owner = found
        if isinstance(owner, type) and not hasattr(owner, part):
            found = _in_instance(owner, part)
        else:
            found = getattr(owner, part, None)
        if found is None:
            raise AttributeError(f"{owner!r} has no {part}")
    return owner, found


def _in_instance(owner: type, part: str) -> Any:
    if isinstance(inspect.getattr_static(owner, part, None), property) or part in getattr(owner, "__annotations__", {}):
        return property()
    instances = (value for value in vars(owner).values() if isinstance(value, owner))
    return next((property() for instance in instances if hasattr(instance, part)), None)


def _module(parts: list[str]) -> tuple[ModuleType, list[str]]:
    for end in range(len(parts), 0, -1):
        try:
            return importlib.import_module(".".join(parts[:end])), parts[end:]
        except ImportError as error:  # cupy.cuda.cufft loads its library only where it is taken from cupy.cuda
            reason = str(error)
    raise AttributeError(reason)


def _class(found: type) -> dict[str, str]:
    """Bind a class by the parameters of its constructor; one that has none written down by a trial call."""
    if issubclass(found, BaseException):
        return {"how": "exception", "is": found.__mro__[1].__name__}
    if isinstance(found, enum.EnumType) or issubclass(found, int):
        return {"how": "enumeration", "is": "(value)"}
    try:
        return _function(found.__name__, None, found)
    except AttributeError:
        most = max((count for count in range(4) if _takes(found, count)), default=None)
        if most is None:
            return {"how": "class", "is": ""}
        return {"how": "trial call", "is": f"({', '.join(f'_{i}=...' for i in range(most))})"}


def _takes(found: type, count: int) -> bool:
    """Return whether a constructor takes `count` zeros: cuda-bindings' structures and handles take addresses."""
    try:
        found(*[0] * count)
    except (TypeError, RuntimeError):
        return False
    return True


def _function(name: str, owner: Any, found: Any) -> dict[str, str]:
    static = isinstance(inspect.getattr_static(owner, name, None), staticmethod)
    method = isinstance(owner, type) and not inspect.ismethod(found) and not static
    for how, parameters in _signatures(name, found):
        left = parameters[1:] if method or (isinstance(found, type) and parameters[:1] == ["self"]) else parameters
        if left != ["*args", "**kwargs"] or (how == "docstring" and owner is not None):
            return {"how": how, "is": f"({', '.join(left)})"} | _enumerations(found)
    raise AttributeError("neither a signature nor a docstring has its parameters")


def _enumerations(found: Any) -> dict[str, str]:
    """Return the enumerations and structures that the first line of the docstring of a driver's function asks for."""
    first = (found.__doc__ or "").strip().split("\n")[0] if "cuda.bindings" in getattr(found, "__module__", "") else ""
    asked = re.findall(r"(\w+): (?:Optional\[)?(CU\w+)", first)
    return {"types": " ".join(f"{name}:{kind}" for name, kind in asked)} if asked else {}


def _signatures(name: str, found: Any) -> Iterator[tuple[str, list[str]]]:
    """Yield parameters by `inspect`, then by each line of the docstring that has some."""
    with suppress(ValueError, TypeError):
        plain = [p.replace(annotation=_EMPTY, default=_stub(p)) for p in inspect.signature(found).parameters.values()]
        text = str(inspect.Signature(plain))[1:-1]
        if text != "self, /, *args, **kwargs":
            yield "signature", text.split(", ") if text else []
    for doc, called in ((found.__doc__, name), (getattr(found.__init__, "__doc__", ""), "__init__")):
        text = (doc or "").partition("C++ signature")[0]
        lines = re.findall(rf"^[ \w.]*?\b{called}\((.*)\)", text, re.MULTILINE)
        found_ = [[part for parameter in _divided(line) if (part := _name(parameter))] for line in lines[:2]]
        for parameters in reversed(found_):
            if all(re.fullmatch(r"[*/]|\*{0,2}[a-zA-Z_]\w*(=\.\.\.)?", part) for part in parameters):
                last = -1 if parameters[-1:] == ["*"] else None  # Cython writes a star also before **keywords alone
                yield "docstring", parameters[called == "__init__" : last]


class _Dots:
    """A default, as it is recorded."""

    def __repr__(self) -> str:
        return "..."


def _stub(parameter: inspect.Parameter) -> Any:
    return parameter.default if parameter.default is _EMPTY else _Dots()


def _divided(text: str) -> Iterator[str]:
    """Yield the parts of a list of parameters, divided at commas outside of brackets."""
    depth, part = 0, ""
    for letter in text.replace("[,", ",").replace("\\", ""):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth <= 0:
            yield part.strip()
            part = ""
        else:
            part += letter
    yield part.strip()


def _name(parameter: str) -> str:
    """Return `size=...` of `size_t size=0`, `(int)size=0` or `size: int = 0`."""
    head, equals, _ = parameter.strip(" []").partition("=")
    words = re.sub(r"^\(\w+\)", "", head.split(":")[0].strip()).split()
    return f"{words[-1]}=..." if words and equals else words[-1] if words else ""


def prototype(library: str, function: str) -> str:
    """Return the parameters of a C function as pointers and integers with their widths."""
    (nvidia,) = importlib.import_module("nvidia").__path__
    for header in sorted(Path(nvidia).glob(HEADERS[library])):
        text = re.sub(r"/\*.*?\*/", "", header.read_text(errors="replace"), flags=re.DOTALL)
        versions = (function, re.sub(r"_v\d$", "", function))  # cuda.h adds the version by a macro
        if found := re.search(rf"\b(?:{'|'.join(versions)})\s*\(([^()]*)\);", text):
            return f"({', '.join(map(_width, _plain(found[1])))})"
    raise AttributeError("no header has its prototype")


def _plain(parameters: str) -> list[str]:
    text = re.sub(r"\bconst\b", "", " ".join(parameters.split()))
    return [] if text.strip() in ("", "void") else [part.strip() for part in text.split(",")]


def _width(parameter: str) -> str:
    kind = parameter.rpartition(" ")[0].strip()
    if "*" in parameter or "[" in parameter or kind.endswith(_HANDLES):
        return "pointer"
    if kind in _WIDTHS:
        return _WIDTHS[kind]
    if re.fullmatch(r"(cu|CU)\w+", kind):  # enumerations are C ints
        return "i32"
    raise AttributeError(f"{parameter}: its width is not known")


def main() -> None:
    """Bind all names; where one cannot be bound, its reason takes the place."""
    found: dict[str, dict[str, str]] = {}
    for name in sys.stdin.read().split():
        try:
            found[name] = bound(name)
        except (AttributeError, ImportError) as error:
            found[name] = {"unbound": str(error).split("\n")[0]}
    versions = {distribution.name: distribution.version for distribution in metadata.distributions()}
    json.dump({"python": sys.version.split()[0], "versions": versions, "names": found}, sys.stdout)


if __name__ == "__main__":
    main()
