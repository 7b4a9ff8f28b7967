"""Read the problems that an application solved from the logs of its libraries.

The libraries are oneDNN, cuBLAS, cuBLASLt, cuDNN, rocBLAS and hipBLASLt; the CSV of CUTLASS's profiler is read as well.

BLAS is column-major: its C = op(A) op(B) becomes the row-major C^T = op(B)^T op(A)^T. If a log shows only pointers to
alpha and beta, they are assumed to be 1 and 0. Biases and other post-operations are ignored.
"""

import csv
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from kernelmark.bench.plan.errors import UsageError
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.text import one_line

#: Storage types by the libraries' names for them, in upper case, without prefixes and suffixes.
_TYPES = {
    **dict.fromkeys(("F64", "64F", "D", "DOUBLE", "F64_R"), "f64"),
    **dict.fromkeys(("F32", "32F", "S", "FLOAT", "F32_R"), "f32"),
    **dict.fromkeys(("F16", "16F", "H", "HALF", "F16_R"), "f16"),
    **dict.fromkeys(("BF16", "16BF", "BFLOAT16", "BF16_R"), "bf16"),
    **dict.fromkeys(("8F_E4M3", "FP8_E4M3", "F8_R", "FE4M3", "E4M3", "F8_E4M3"), "e4m3"),
    **dict.fromkeys(("8F_E5M2", "FP8_E5M2", "BF8_R", "FE5M2", "E5M2", "F8_E5M2"), "e5m2"),
    **dict.fromkeys(("S8", "8I", "I8_R", "INT8"), "s8"),
    **dict.fromkeys(("S32", "32I", "I32_R", "INT32"), "s32"),
}


class NotUnderstood(Exception):
    """A log record has a property that no kernelmark problem has; the message names the property."""


class Logged(NamedTuple):
    """The problems of a log, and the records that no problem describes, each with its number of occurrences."""

    problems: dict[str, int]
    skipped: dict[str, int]


def read_log(lines: Iterable[str], registry: Registry) -> Logged:
    """Return the problems of a log in order of appearance, and the records that were skipped, each with a count."""
    problems, skipped = Counter[str](), Counter[str]()
    seen: set[tuple[str, str]] = set()
    for op, values, number in _records(lines):
        try:
            if isinstance(values, NotUnderstood):
                raise values
            problem = registry.problem_class(op, op).make(values, "")
            name = registry.problem(problem.id).id
        except (UsageError, NotUnderstood) as error:
            skipped[one_line(str(error)).removeprefix(": ")] += 1
            continue
        if not number or (number, name) not in seen:  # a profiler lists a problem once for each kernel
            seen.add((number, name))
            problems[name] += 1
    return Logged(dict(problems), dict(skipped))


#: An operation, the fields of its problem (or why there is no problem), and a profiler's number of the problem.
_Record = tuple[str, dict[str, Any] | NotUnderstood, str]


def _records(lines: Iterable[str]) -> Iterator[_Record]:
    header: list[str] = []
    call: list[str] = []
    for line in map(str.rstrip, lines):
        if call and line[:2] == "i!":
            call.append(line)
            continue
        if call:
            yield _tried(_api_call, call)
            call = []
        if line[:2] == "I!" and " function " in line:
            call = [line]
        elif line.startswith("Problem,Provider,"):
            header = line.split(",")
        elif header and line.count(",") == len(header) - 1:
            yield _tried(_cutlass, dict(zip(header, next(csv.reader([line])), strict=True)))
        elif re.match(r"(onednn|dnnl|mkldnn)_verbose,", line):
            yield _tried(_onednn, line.split(","))
        elif match := re.search(r"\[Trace\]\[(\w*[mM]atmul)\] (A=.*)", line):
            yield _tried(_blaslt, match[2])
        elif match := re.search(r"(?:rocblas|hipblas|hipblaslt)-bench (.*)", line):
            yield _tried(_bench, match[1])
        elif line.strip():
            named = re.match(r"(?:\[[^\]]*\]){3,}\[(\w+)\]", line)
            yield "", NotUnderstood(f"calls of {named[1]}" if named else "other lines"), ""
    if call:
        yield _tried(_api_call, call)


def _tried(read: Any, entry: Any) -> _Record:
    try:
        op, values = read(entry)
        return op, values, entry.get("Problem", "") if isinstance(entry, dict) else ""
    except NotUnderstood as error:
        return "", error, ""
    except (LookupError, ValueError, TypeError, AttributeError):
        first = entry if isinstance(entry, str) else entry[0] if isinstance(entry, list) else ""
        return "", NotUnderstood(f"records of another form: {first[:60]}"), ""


def _type(text: str) -> str:
    name = re.sub(r"^(CUDA_R_|HIP_R_|R_|CUDNN_DATA_)|[( ].*$", "", text.upper())
    if name not in _TYPES:
        raise NotUnderstood(f"storage type {text.partition('(')[0].strip()}")
    return _TYPES[name]


def _types(read: str, written: str) -> str:
    read_type, other = _type(read), _type(written)
    return read_type if read_type == other else f"{read_type}.{other}"


class _Product(NamedTuple):
    """A product in BLAS's convention: column-major, C (m x n) = op(A) op(B)."""

    sizes: Sequence[int]
    ops: Sequence[str]
    dtype: str
    leads: Sequence[int] = ()
    batch: int = 1
    alpha: float = 1.0
    beta: float = 0.0

    def row_major(self) -> tuple[str, dict[str, Any]]:
        (m, n, k), (op_a, op_b) = self.sizes, self.ops
        rows = (m if op_a == "N" else k), (k if op_b == "N" else n), m
        ldb_pad, lda_pad, ldc_pad = (max(0, lead - least) for lead, least in zip(self.leads or rows, rows, strict=True))
        pads = {"lda_pad": lda_pad, "ldb_pad": ldb_pad, "ldc_pad": ldc_pad}
        how = {"dtype": self.dtype, "layout": op_b + op_a, "alpha": self.alpha, "beta": self.beta}
        return "gemm", {"m": n, "n": m, "k": k, "batch": self.batch} | pads | how


def _op(text: str) -> str:
    """Return `N` or `T`; for real matrices the conjugate transpose is the transpose."""
    letter = re.sub(r"^(CUBLAS_|HIPBLAS_|OP_)+|\(.*$", "", text.strip().upper())
    if letter[:1] not in ("N", "T", "C"):
        raise NotUnderstood(f"operation {text}")
    return "N" if letter[0] == "N" else "T"


def _api_call(lines: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return the problem of a call in a log of cuBLAS or cuDNN, where a line for each argument follows the name."""
    name = re.search(r"function (?:\w+ )?(\w+)\(", lines[0])
    called = name[1] if name else lines[0][:60]
    values: dict[str, str] = {}
    path: list[str] = []
    for line in lines[1:]:
        match = re.match(r"i!( +)(\w+): type=([^;]*?);?(?: val=(.*?))?;?$", line)
        if not match:
            continue
        if match[4] is None:
            path = [match[2]]
        else:
            nested = len(match[1]) > 5 and path
            values[".".join([*(path if nested else ()), match[2]])] = match[4]
    if gemm := re.fullmatch(r"cublas([SDH])?[gG]emm(Ex)?(StridedBatched)?(Ex)?(_v2)?(_64)?", called):
        return _cublas(gemm[1], values)
    if match := re.fullmatch(r"cudnnConvolution(Forward|BackwardData|BackwardFilter|BiasActivationForward)", called):
        return _cudnn(match[1], values)
    raise NotUnderstood(f"calls of {called}")


def _cublas(letter: str | None, values: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    kind = [values["Atype"], values["Ctype"]] if letter is None else [letter, letter]
    numbers = [int(values[name]) for name in ("m", "n", "k")]
    leads = [int(values[name]) for name in ("lda", "ldb", "ldc")]
    batch = int(values.get("batchCount", 1))
    ops = _op(values["transa"]), _op(values["transb"])
    return _Product(numbers, ops, _types(*kind), leads, batch).row_major()


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"-?\d+", text)]


def _cudnn(called: str, values: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    image = "dxDesc" if called == "BackwardData" else "xDesc"
    filters = "dwDesc" if called == "BackwardFilter" else "wDesc"
    dims, strides = _numbers(values[f"{image}.dimA"]), _numbers(values[f"{image}.strideA"])
    if len(dims) != 4:
        raise NotUnderstood(f"convolutions of {len(dims) - 2} dimensions")
    k, _, r, s = _numbers(values[f"{filters}.dimA"])
    return "conv", {
        **dict(zip("nchwkrs", (*dims, k, r, s), strict=True)),
        "dtype": _type(values[f"{image}.dataType"]),
        **{name: _pair(_numbers(values[f"convDesc.{name}A"])) for name in ("pad", "stride", "dilation")},
        "groups": int(values.get("convDesc.groupCount", 1)),
        "layout": "nhwc" if strides[1] == 1 and dims[1] > 1 else "nchw",
        "direction": {"BackwardData": "dgrad", "BackwardFilter": "wgrad"}.get(called, "fprop"),
    }


def _pair(values: Sequence[object]) -> str:
    """Return the numbers of both axes as in a problem's id: `1x2`, or one number if they are equal."""
    return "x".join(map(str, values))


def _blaslt(text: str) -> tuple[str, dict[str, Any]]:
    parts = re.findall(r"(\w+)=\[([^\]]*)\]", text)
    described = {name: dict(re.findall(r"(\w+)=(\S+)", inner)) for name, inner in parts}
    a, b, d = (described.get(f"{name}desc", {}) for name in "ABD")
    how = {key.lower(): value for key, value in described.get("computeDesc", {}).items()}
    op_a, op_b = _op(how.get("transa", "N")), _op(how.get("transb", "N"))
    if "order" in a or "order" in d:
        raise NotUnderstood(f"order {a.get('order') or d['order']}")
    if any("VEC" in how.get(name, "") for name in ("ascalemode", "bscalemode")):
        raise NotUnderstood(f"scales {how['ascalemode']}")
    m, n = int(d["rows"]), int(d["cols"])
    k = int(a["cols"] if op_a == "N" else a["rows"])
    match = re.search(r" beta=([-\d.e]+)", text)
    leads = [int(each["ld"]) for each in (a, b, d)]
    batch = int(a.get("batchCount", 1))
    beta = float(match[1]) if match else 0.0
    return _Product((m, n, k), (op_a, op_b), _types(a["type"], d["type"]), leads, batch, 1.0, beta).row_major()


def _bench(text: str) -> tuple[str, dict[str, Any]]:
    words = shlex.split(text.replace("=", " "))
    given = {w.lstrip("-"): v for w, v in pairwise(words) if re.match(r"--?[a-zA-Z]", w)}
    function = given.get("f", given.get("function", "matmul"))
    if not re.fullmatch(r"gemm(_strided_batched)?(_ex)?|matmul", function):
        raise NotUnderstood(f"calls of {function}")
    read = given.get("a_type") or given.get("r") or given["precision"]
    written = given.get("d_type") or given.get("c_type") or read
    ops = [_op(given.get(f"transpose{x}") or given.get(f"trans{x}") or "N") for x in "AB"]
    sizes = [int(given[name]) for name in "mnk"]
    leads = [int(given.get(name, 0)) for name in ("lda", "ldb", "ldd" if "ldd" in given else "ldc")]
    scalars = [float(given.get(name, default)) for name, default in (("alpha", 1), ("beta", 0))]
    batch = int(given.get("batch_count", 1))
    return _Product(sizes, ops, _types(read, written), leads, batch, *scalars).row_major()


def _cutlass(row: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    kind = row["OperationKind"]
    if kind == "conv2d":
        activation, layout = row["Activation"].split(":")
        pads = [[int(row[f"{name}_{side}"]) for side in "hw"] for name in ("pad", "stride", "dilation")]
        return "conv", {
            **{name: int(row[name]) for name in ("n", "c", "h", "w", "k", "r", "s")},
            "dtype": _types(activation, row["Output"].split(":")[0]),
            "layout": layout,
            "direction": row["conv_kind"],
            **{name: _pair(pair) for name, pair in zip(("pad", "stride", "dilation"), pads, strict=True)},
            "groups": int(row.get("groups", 1)),
        }
    if kind != "gemm":
        raise NotUnderstood(f"CUTLASS {kind}")
    a, b, c = (row[name].split(":") for name in ("A", "B", "D" if ":" in row.get("D", "") else "C"))
    column = [matrix[1] in ("column", "n") for matrix in (a, b, c)]
    ops = ["N" if is_column == column[2] else "T" for is_column in column[:2]]
    m, n, k, batch = (int(row[name]) for name in ("m", "n", "k", "batch_count"))
    alpha, beta, dtype = float(row["alpha"]), float(row["beta"]), _types(a[0], c[0])
    if column[2]:
        return _Product((m, n, k), ops, dtype, (), batch, alpha, beta).row_major()
    sizes = {"m": m, "n": n, "k": k, "batch": batch}
    return "gemm", sizes | {"dtype": dtype, "layout": "".join(ops), "alpha": alpha, "beta": beta}


def _onednn(fields: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return the problem in a line of oneDNN: ..., exec, engine, primitive, implementation, kind, memory, ..., time."""
    if "exec" not in fields:
        raise NotUnderstood("oneDNN information" if "info" in fields else "oneDNN creations")
    _, _, primitive, _, prop, memory, attributes, _, problem, *_ = fields[fields.index("exec") :]
    tensors = {name: (kind, tag) for name, kind, tag in _tensors(memory)}
    directions = {"forward": "fprop", "backward_data": "dgrad", "backward_weights": "wgrad"}
    direction = directions.get(re.sub(r"_(training|inference)$", "", prop), "fprop" if prop == "undef" else "")
    if primitive in ("convolution", "deconvolution") and direction:
        return "conv", _onednn_conv(problem, tensors, direction, primitive == "deconvolution")
    if primitive == "matmul":
        return "gemm", _onednn_matmul(problem, tensors) | ({"beta": 1.0} if re.search(r"sum\b", attributes) else {})
    if primitive == "inner_product" and direction:
        sizes = {name: int(number) for name, number in re.findall(r"([a-z]+)(\d+)", problem)}
        rows, inner = sizes["mb"], sizes["ic"] * sizes.get("ih", 1) * sizes.get("iw", 1) * sizes.get("id", 1)
        m, n, k, layout = {
            "fprop": (rows, sizes["oc"], inner, "NT"),
            "dgrad": (rows, inner, sizes["oc"], "NN"),
            "wgrad": (sizes["oc"], inner, rows, "TN"),
        }[direction]
        return "gemm", {"m": m, "n": n, "k": k, "dtype": _type(tensors["src"][0]), "layout": layout}
    raise NotUnderstood(f"oneDNN {primitive}")


def _tensors(memory: str) -> Iterator[tuple[str, str, str]]:
    """Yield name, type and format of `src:f32:a:blocked:abcd::f0 ...`. Older versions write `src_f32::...`."""
    for text in memory.split():
        head, *rest = text.split(":")
        name, _, kind = head.rpartition("_") if re.search(r"_[a-z]+\d+$", head) else (head, "", rest.pop(0))
        tag = rest[rest.index("blocked") + 1] if "blocked" in rest else ""
        yield name.removeprefix("diff_"), kind, tag


def _onednn_matmul(problem: str, tensors: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    sides = problem.split(":")[:2]
    (*batches, m, k), (*others, _, n) = ([int(size) for size in side.split("x")] for side in sides)
    if batches != others:
        raise NotUnderstood("oneDNN matmul with a broadcast matrix")
    ops = []
    for name in ("src", "wei"):
        plain = "abcdefgh"[: len(batches) + 2]
        turned = plain[:-2] + plain[:-3:-1]
        if (tag := tensors[name][1]) not in (plain, turned):
            raise NotUnderstood(f"oneDNN matmul with format {tag or 'any'}")
        ops.append("N" if tag == plain else "T")
    dtype = _types(tensors["src"][0], tensors["dst"][0])
    return {"m": m, "n": n, "k": k, "dtype": dtype, "layout": "".join(ops), "batch": math.prod(batches)}


def _onednn_conv(problem: str, tensors: Mapping[str, tuple[str, str]], direction: str, turned: bool) -> dict[str, Any]:
    sizes = {name: int(number) for name, number in re.findall(r"([a-z]+?)(\d+)", problem)}
    if "id" in sizes:
        raise NotUnderstood("convolutions of 3 dimensions")
    inner, outer = ("o", "i") if turned else ("i", "o")  # a deconvolution is the gradient of a convolution's input
    if turned:
        direction = {"fprop": "dgrad", "dgrad": "fprop"}.get(direction, direction)
    pads, steps, gaps = [], [], []
    pairs = ("k", 1), ("s", 1), ("d", 0), ("p", 0)
    for axis in "hw":
        size, out = sizes.get(f"{inner}{axis}", 1), sizes.get(f"{outer}{axis}", 1)
        taps, step, gap, pad = (sizes.get(name + axis, default) for name, default in pairs)
        span = (taps - 1) * (gap + 1) + 1
        end = pad if (size + 2 * pad - span) // step + 1 == out else (out - 1) * step + span - size - pad
        pads.append((pad, end))
        steps.append(step)
        gaps.append(gap + 1)
    sided = [f"{pad}-{end}" for pad, end in pads]
    names = {"n": "mb", "c": f"{inner}c", "h": f"{inner}h", "w": f"{inner}w", "k": f"{outer}c", "r": "kh", "s": "kw"}
    return {
        **{name: sizes.get(letter, 1) for name, letter in names.items()},
        "pad": _pair(sided),
        "stride": _pair(steps),
        "dilation": _pair(gaps),
        "groups": sizes.get("g", 1),
        "dtype": _types(tensors["src"][0], tensors["dst"][0]) if direction == "fprop" else _type(tensors["src"][0]),
        "layout": "nhwc" if tensors["src"][1] == "acdb" else "nchw",
        "direction": direction,
    }


def suite_toml(log: Logged, registry: Registry, title: str) -> str:
    """Return a TOML suite with the problems of a log. Problems that differ only in sizes are put in one sweep."""
    sweeps: dict[tuple[str, ...], list[tuple[list[int], int]]] = {}
    for name, number in log.problems.items():
        problem = registry.problem(name)
        fields = {each.name: each for each in msgspec.structs.fields(type(problem))}
        axes = {axis: getattr(problem, axis) for axis in problem.axes() if axis not in problem.sizes}
        shown = {axis: value for axis, value in axes.items() if fields[axis].required or value != fields[axis].default}
        part = "backward" if axes.get("direction", "fprop") != "fprop" else "forward"
        head = (f"op = {_toml(problem.op)}", *(f"{axis} = [{_toml(value)}]" for axis, value in shown.items()))
        sizes = [getattr(problem, axis) for axis in problem.sizes]
        sweeps.setdefault((*head, f"part = {_toml(part)}"), []).append((sizes, number))
    lines = [f"title = {_toml(title)}"]
    for head, points in sweeps.items():
        lines += ["", "[[sweep]]", *head, f"points = {_toml([sizes for sizes, _ in points])}"]
        lines += [f"count = {_toml([number for _, number in points])}"]
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    return msgspec.json.encode(value).decode()
