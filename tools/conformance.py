"""Check the calls in bench/ and kernels/ to GPU packages against the packages: `make conformance`, without a GPU.

Runs in the environment of tools/data/gpu-packages.txt, and compiles every kernel. Each signature is written to
tools/data/gpu-signatures.json, against which `make test` checks the calls again. Names are followed from imports
through assignments; OWNERS lists the names that cannot be followed in this way.
"""

import ast
import ctypes
import importlib
import importlib.util
import inspect
import json
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from fnmatch import filter as matching
from importlib import metadata
from pathlib import Path
from types import BuiltinFunctionType
from typing import Any, NamedTuple
from unittest.mock import Mock, patch

from kernelmark.bench.measure import tensormap
from kernelmark.bench.measure.compile import compile_cubin, compiler
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.kernel import CudaKernel
from kernelmark.bench.tune.inspect import sample_problems
from kernelmark.kernels.conv.vendor import _cudnn
from kernelmark.kernels.gemm import _cublas

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "tools" / "data" / "gpu-signatures.json"
PACKAGES = ("cuda", "cudnn", "cupy", "nvmath", "pycuda", "pynvml")
_DRIVER, _CUDNN = "cuda.bindings.driver", "kernels/conv/vendor/cudnn_frontend.py"
_SETTING = r'settings\["(\w+)"\]'
#: Maps modules, functions and instances (with `()`) of packages to their names in our modules that import packages.
#: `api()` is the result of calling `api`; `ways.function` is a name in ways.py, even without an import.
OWNERS = {
    "cuda.core.ObjectCode()": "from_cubin()",
    "cudnn": "cudnn_frontend._frontend()",
    "cudnn.pygraph()": "cudnn_frontend.graph",
    "cudnn.tensor()": "cudnn_frontend.result cudnn_frontend.set_output() cudnn_frontend.set_data_type() "
    "cudnn_frontend.set_dim()",
    "cupy.RawKernel()": "ways.function get_function()",
    "cupy.RawModule()": "cufft.module",
    "cupy.cuda.Device()": "spread.device",
    "cupy.cuda.Graph()": "end_capture()",
    "cupy.cuda.MemoryPool()": "get_default_memory_pool()",
    "cupy.cuda.Stream()": "begun stream _timed host.stream",
    "cupy.cuda.cufft.PlanNd()": "cufft.planned cufft.plans[]",
    "cupy.cuda.nccl": "nccl._library()",
    "cupy.cuda.nccl.NcclCommunicator()": "rank",
    "cupy.ndarray()": "cuda.buffer cuda.source cuda.target cufft.source cufft.copied cupy.matrix draw.flat "
    "draw.reshape() draw.view() host.source host.target operands._buffers[] operands.guard operands.raw spread.part",
    "libcuda": "cuda.CDLL() present.CDLL()",
    "libcuda.cuTensorMapEncodeIm2col": "encode_im2col()",
    "libcuda.cuTensorMapEncodeTiled": "encode_tiled()",
    "libcudnn": "cudnn.cudnn()",
    "nvmath.bindings.cublas": "_cublas.api cublas.api",
    "nvmath.bindings.cublasLt": "_cublaslt.api() cublaslt.api() _cublaslt.lt",
    "pycuda.driver.Context()": "launch_pycuda.context",
    "pycuda.driver.Function()": "launch_pycuda.function",
    "pycuda.driver.Module()": "module_from_buffer()",
    "pynvml": "nvml._nvml",
}
#: Names that our code passes to getattr as strings: the file, a pattern of the strings, and the owner of the names.
STRINGS = (
    ("bench/measure/cuda.py", r'limit\("(\w+)"\)', f"{_DRIVER}.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_"),
    ("bench/measure/launch.py", _SETTING, f"{_DRIVER}.CUfunction_attribute.CU_FUNC_ATTRIBUTE_"),
    ("bench/measure/launch.py", _SETTING, "pycuda.driver.function_attribute."),
    ("bench/measure/nvml.py", r'"(nvml\w+|NVML_\w+)"', "pynvml."),
    ("bench/measure/tensormap.py", r'"(T?B?FLOAT\d+)"', f"{_DRIVER}.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_"),
    ("kernels/gemm/_cublas.py", r'"(\w+geam)"', "nvmath.bindings.cublas."),
    ("kernels/gemm/cublas.py", r'_Routine\("(\w+)", "(\w+)"', "nvmath.bindings.cublas."),
    (_CUDNN, r'"(fprop|dgrad|wgrad)":', "cudnn.pygraph.conv_"),
    (_CUDNN, r'": "([A-Z]\w+)"', "cudnn.data_type."),
    (_CUDNN, r'_MODES = \("(\w+)", "(\w+)", "(\w+)"\)', "cudnn.heur_mode."),
    (_CUDNN, r'(?<!: )"(?!FALLBACK)([A-Z]\w{2,})"', "cudnn.numerical_note."),
)
_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
#: C parameters of 8 bytes: pointers, arrays, handles (which are pointers) and wide integers.
_WIDE = re.compile(r"[*[]|(Handle|Stream|Descriptor)_t|size_t|long|64_t")
Names = Mapping[str, str]


class Arguments(NamedTuple):
    """Arguments of a call: the number of positional ones, the keywords, and whether `*` or `**` adds more."""

    positional: int
    keywords: tuple[str, ...]
    stars: bool


class Use(NamedTuple):
    """A use of a package's name in our code, with the arguments if it is a call. end: its last line and column."""

    name: str
    file: str
    line: int
    end: tuple[int, int]
    arguments: Arguments | None


def all_uses() -> list[Use]:
    folders = (ROOT / folder for folder in ("bench/measure", "bench/selftest", "kernels"))
    files = sorted(path for folder in folders for path in folder.rglob("*.py"))
    return [use for path in files for use in uses_of(str(path.relative_to(ROOT)), path.read_text())]


def uses_of(file: str, text: str) -> Iterator[Use]:
    for wanted, pattern, owner in STRINGS:
        for match in re.finditer(pattern, text) if wanted == file else ():
            line = text.count("\n", 0, match.start()) + 1
            yield from (Use(owner + word, file, line, (line, 0), None) for word in match.groups())
    tree = ast.parse(text)
    module = _Module(file, [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)])
    for target, value in _assigned(ast.walk(tree)):
        if isinstance(target, ast.Attribute):
            module.assign(target, value)
    yield from module.uses(tree)


class _Module:
    def __init__(self, file: str, imports: Iterable[ast.Import | ast.ImportFrom]) -> None:
        self._file, self._stars, imported = file, dict[str, list[ast.expr]](), dict[str, str]()
        for node in imports:
            for alias in node.names:
                name = f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name
                top, whole = name.partition(".")[0], alias.asname or isinstance(node, ast.ImportFrom)
                if top in PACKAGES:
                    imported[alias.asname or (alias.name if whole else top)] = name if whole else top
        owners = {word: owner for owner, words in OWNERS.items() for word in words.split()}
        here = f"{Path(file).stem}."
        self._owners = owners if imported else {}
        self._owners |= {word.removeprefix(here): owners[word] for word in owners if word.startswith(here)} | imported

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        whole = value.body if isinstance(value, ast.IfExp) else value  # both branches are tuples of the same length
        if isinstance(target, ast.Name) and isinstance(whole, ast.Tuple):
            self._stars[target.id] = whole.elts
        is_known = not isinstance(value, ast.Attribute) or _word(value) in self._owners or self._is_constant(value)
        if is_known and (owner := self._owner(value)):
            self._owners[_word(target)] = owner

    def uses(self, tree: ast.AST) -> Iterator[Use]:
        """Yield the uses of packages' names in a function and, recursively, in the functions defined in it."""
        outer, self._owners = self._owners, dict(self._owners)
        for target, value in _assigned(_outside_functions(tree)):
            self.assign(target, value)
        inner = set[ast.AST]()
        for node in _outside_functions(tree):
            if isinstance(node, _FUNCTION):
                yield from self.uses(node)
            elif isinstance(node, ast.Call):
                inner.add(node.func)
                yield from self._call(node)
            if isinstance(node, ast.Attribute):
                if node not in inner and self._is_constant(node):
                    yield from self._use(node, self._owner(node), None)
                inner.add(node.value)
        self._owners = outer

    def _call(self, node: ast.Call) -> Iterator[Use]:
        function, *arguments = node.args if _word(node.func) == "partial" and node.args else (node.func, *node.args)
        flat, keywords = list(self._flat(arguments)), [keyword.arg for keyword in node.keywords]
        count = sum(not isinstance(argument, ast.Starred) for argument in flat)
        given = Arguments(count, tuple(filter(None, keywords)), count < len(flat) or None in keywords)
        yield from self._use(node, self._owner(function).replace("()", ".__call__"), given)

    def _use(self, node: ast.expr, name: str, arguments: Arguments | None) -> Iterator[Use]:
        """Yield the use of a package's name unless it is a method of our own wrapper of a C library."""
        if "." in name and (not name.startswith("lib") or re.match(r"lib\w+\.cu", name)):
            yield Use(name, self._file, node.lineno, (node.end_lineno or 0, node.end_col_offset or 0), arguments)

    def _flat(self, arguments: Iterable[ast.expr]) -> Iterator[ast.expr]:
        """Yield the arguments, with the elements of the tuple `name` in place of `*name`."""
        for argument in arguments:
            match argument:
                case ast.Starred(ast.Name(name)) if name in self._stars:
                    yield from self._flat(self._stars[name])
                case _:
                    yield argument

    def _owner(self, node: ast.expr) -> str:
        """Return the name in a package that an expression refers to, or "" if it refers to none."""
        if full_name := self._owners.get(_word(node)):
            return full_name
        match node:
            case ast.Attribute(value, name):
                return self._member(value, name)
            case ast.Call(ast.Name("getattr"), [value, ast.IfExp(_, ast.Constant(str(name)))]):
                return self._member(value, name)
            case ast.Call(ast.Name("getattr"), [value, ast.JoinedStr(parts)]):
                return self._member(value, "".join(str(p.value) if isinstance(p, ast.Constant) else "*" for p in parts))
            case ast.Call(function):
                owner = self._owner(function)
                return f"{owner}()" if owner.rpartition(".")[2][:1].isupper() and "()" not in owner else ""
            case ast.Subscript(value):
                return self._owner(value)
        return ""

    def _is_constant(self, node: ast.expr) -> bool:
        """Return whether an expression can be looked up; a member of an instance cannot."""
        return "()" not in self._owner(node) and (not isinstance(node, ast.Attribute) or self._is_constant(node.value))

    def _member(self, node: ast.expr, name: str) -> str:
        owner = self._owner(node)
        return f"{owner.removesuffix('()')}.{name}" if owner else ""


def _word(node: ast.expr) -> str:
    match node:
        case ast.Name(name) | ast.Attribute(attr=name):
            return name
        case ast.Call(function):
            return f"{_word(function)}()"
        case ast.Subscript(value):
            return f"{_word(value)}[]"
    return ""


def _outside_functions(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        yield node
        if not isinstance(node, _FUNCTION):
            yield from _outside_functions(node)


def _assigned(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.expr, ast.expr]]:
    for node in nodes:
        match node:
            case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)):
                yield from zip(targets, values, strict=False)
            case ast.Assign([target], value) | ast.AnnAssign(target=target, value=ast.expr() as value):
                yield target, value


def complaints(uses: Iterable[Use], names: Names) -> Iterator[str]:
    for use in uses:
        if use.name not in names:
            yield f"{use.file}:{use.line}: {use.name}: no such name is recorded; run make conformance"
        elif use.arguments and (why := misfit(names[use.name], use.arguments)):
            yield f"{use.file}:{use.line}: {use.name}{names[use.name]}: {why}"


def misfit(signature: str, given: Arguments) -> str:
    """Return why a call with these arguments fails, or "" if it does not."""
    try:
        taken = _parsed(signature)  # raises SyntaxError if the name is not a function
        (taken.bind_partial if given.stars else taken.bind)(*[0] * given.positional, **dict.fromkeys(given.keywords, 0))
    except (SyntaxError, TypeError) as error:
        return str(error)
    return ""


def _parsed(signature: str) -> inspect.Signature:
    scope: dict[str, Any] = {}
    exec(f"def function{signature}: ...", scope)
    return inspect.signature(scope["function"])


def differences(names: Names) -> Iterator[str]:
    """Yield a line for each C function whose parameter sizes differ between `argtypes` and the header."""
    for name, sizes in declared().items():
        expected = [parameter.annotation for parameter in _parsed(names.get(name, "()")).parameters.values()]
        if expected != sizes:
            yield f"{name}: parameters have {sizes} bytes by ctypes, expected {expected}"


class _Library(defaultdict[str, Mock]):
    """A stand-in for a C library that records the types set on its functions."""

    def __getattr__(self, name: str) -> Mock:
        return self[name]


def declared() -> dict[str, list[int]]:
    """Return the bytes of each parameter of the functions that are called through ctypes."""
    library = _Library(Mock)
    with patch("cuda.pathfinder.load_nvidia_dynamic_lib"), patch("ctypes.CDLL", lambda path: library):
        cublas = _cublas._Ctypes()
        cublas.get_version(cublas.create())
    types: dict[str, tuple[Any, ...]] = {"libcuda.cuTensorMapEncodeTiled": tensormap.SIGNATURE}
    types["libcuda.cuTensorMapEncodeIm2col"] = tensormap.IM2COL_SIGNATURE
    types |= {f"libcublas.{name}": function.argtypes for name, function in library.items()}
    types |= {f"libcudnn.{name}": signature for name, signature in _cudnn._SIGNATURES.items()}
    return {name: [ctypes.sizeof(c_type) for c_type in signature] for name, signature in types.items()}


def prototypes(names: Iterable[str]) -> dict[str, str]:
    """Return the parameters of C functions with their sizes in bytes, read from the headers: `(_0: 8, _1: 4)`."""
    (nvidia,) = importlib.import_module("nvidia").__path__
    headers = (Path(nvidia, "cu13/include", name) for name in ("cuda.h", "cublas_api.h"))
    text = "".join(path.read_text() for path in (*headers, *Path(nvidia, "cudnn/include").glob("*.h")))
    text, signatures = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL), {}
    for name in names:
        function = name.partition(".")[2].replace("*", r"\w+")
        function = re.sub(r"_v\d$", r"(?:_v\\d)?", function)  # cuda.h adds the version by a macro
        if prototype := re.search(rf"\b{function}\s*\(([^()]*)\);", text):
            parameters = [] if prototype[1].strip() == "void" else prototype[1].split(",")
            sizes = (f"_{i}: {8 if _WIDE.search(parameter) else 4}" for i, parameter in enumerate(parameters))
            signatures[name] = f"({', '.join(sizes)})"
    return signatures


def bound(name: str) -> str:
    """Return the signature, number or type of a name. Raises AttributeError if the package does not have it."""
    owner, member = _resolved(name)
    if isinstance(member, int):
        return str(int(member))
    if not callable(member):
        return type(member).__name__
    attribute = inspect.getattr_static(owner, name.rpartition(".")[2], None)
    is_static = isinstance(attribute, staticmethod | classmethod) or type(member) is BuiltinFunctionType
    is_method = isinstance(owner, type) and not is_static
    texts = [*_inspected(member), *_documented(name.rpartition(".")[2], member)]
    parameters = (text[1:] if is_method else text for text in texts)
    return next((f"({', '.join(text)})" for text in parameters if text != ["*args", "**kwargs"]), "(*args, **kwargs)")


def _resolved(name: str) -> tuple[Any, Any]:
    """Return the owner of a name and its object; `*` in a name matches any letters."""
    owner: Any = None
    top, *parts = name.split(".")
    member: Any = importlib.import_module(top)
    for part in parts:
        with suppress(ImportError, AttributeError):  # import submodules that the package does not import itself
            importlib.import_module(f"{member.__name__}.{part}")
        owner, member = member, getattr(member, next(iter(matching(dir(member), part)), part))
    return owner, member


def _inspected(member: Any) -> Iterator[list[str]]:
    with suppress(ValueError, TypeError):
        parameters = inspect.signature(member).parameters.values()
        plain = [p.replace(annotation=p.empty, default=p.empty if p.default is p.empty else None) for p in parameters]
        yield str(inspect.Signature(plain))[1:-1].split(", ") if plain else []


def _documented(name: str, member: Any) -> Iterator[list[str]]:
    """Yield parameters from docstrings in the formats of Cython, nanobind and Boost."""
    for called, doc in ((name, member.__doc__), ("__init__", member.__init__.__doc__)):
        python = (doc or "").partition("C++ signature")[0]
        for line in reversed(re.findall(rf"^[ \w.]*?\b{called}\((.*)\)", python, re.MULTILINE)[:2]):
            plain = re.sub(r"\(\w+\)|\[\w[^][]*\]|\\", "", line.strip("[] ").replace("[,", ","))
            parts = [part.partition("=") for part in plain.split(",") if part.strip()]
            names = [head.split(":")[0].split()[-1] + ("=None" if equals else "") for head, equals, _ in parts]
            names = names[:-1] if names[-1:] == ["*"] else names  # Cython also writes a star before **keywords
            with suppress(SyntaxError):
                _parsed(f"({', '.join(names)})")
                yield names[called == "__init__" :]


def main() -> int:
    sys.setdlopenflags(os.RTLD_LAZY)  # PyCUDA is imported with an empty libcuda
    uses = all_uses()
    names = {use.name for use in uses} | declared().keys()
    recorded = json.loads(RECORD.read_text())
    signatures = prototypes(sorted(name for name in names if name.startswith("lib")))
    for name in sorted(names - signatures.keys()):
        if name.startswith("pycuda") and not importlib.util.find_spec("pycuda"):
            signatures[name] = recorded["names"][name]
        else:
            with suppress(AttributeError):
                signatures[name] = bound(name)
    wrong = [*complaints(uses, signatures), *differences(signatures)]
    print("\n".join(wrong), end="\n" * bool(wrong))
    if not wrong:
        installed = {package.name: package.version for package in metadata.distributions()}
        versions = {"pycuda": recorded["versions"]["pycuda"]} | installed
        record = {"python": sys.version.split()[0], "versions": versions, "names": signatures}
        RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
        print(f"{len(signatures)} names were found, and recorded in {RECORD.relative_to(ROOT)}")
        compile_kernels()
    return 1 if wrong else 0


def compile_kernels() -> None:
    registry = discover()
    kernels = [kernel for kernel in registry.kernels.values() if isinstance(kernel, CudaKernel)]
    for kernel in kernels:
        problem = sample_problems(kernel, registry.problem_class(kernel.op, kernel.id))[0]
        calls = kernel.calls(problem, kernel.default_tile(problem))
        compile_cubin(kernel.source, tuple(dict(calls)), "sm_90a", kernel.id)
    print(f"{len(kernels)} kernels compile for sm_90a by {compiler()}")


if __name__ == "__main__":
    sys.exit(main())
