"""The proof of the checker: every planted bug is reported by its kind, and no correct kernel is accused."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _pytest.mark import ParameterSet

from emulator.fixtures import outcomes_among, read, written
from kernelmark.bench.emulator.report import Diagnostic, unwaived
from kernelmark.bench.emulator.worker import Buffer, EmulatedTensorMap, Launch

Array = np.ndarray[Any, Any]
F32 = np.float32


@dataclass(frozen=True)
class Setup:
    """A launch, and the right result: each output, and the error that it may have."""

    launch: Launch
    buffers: Mapping[str, Buffer]
    want: Mapping[str, Array]
    error: float = 0.0
    constants: Mapping[str, Array] = field(default_factory=dict)


def setup(launch: Launch, inputs: Mapping[str, Array], want: Mapping[str, Array], **others: Buffer) -> Setup:
    """Set a launch up; what is wanted is an output of floats, unless it is among the others."""
    buffers = {name: read(array) for name, array in inputs.items()}
    return Setup(launch, {**buffers, **{name: written(array.size) for name, array in want.items()}, **others}, want)


def given(*shape: int) -> Array:
    """Small multiples of 1/4: sums of a few hundred products are exact in float."""
    return (np.random.default_rng(7).integers(-8, 9, shape) / 4).astype(F32)


def tensor(name, rows, cols, box, itemsize=4, swizzle=0) -> EmulatedTensorMap:
    return EmulatedTensorMap(name, (cols, rows, 1), (cols * itemsize, rows * cols * itemsize), box, itemsize, swizzle)


def zeros(count: int, dtype: Any = F32) -> Buffer:
    return Buffer("inout", np.zeros(count, dtype))


def sgemm_tiled() -> Setup:
    m, n, k = 40, 44, 36
    a, b = given(m, k), given(k, n)
    launch = Launch("sgemm", (3, 3), (16, 16), ("a", "b", "c", m, n, k))
    return setup(launch, {"a": a, "b": b}, {"c": a @ b})


def sgemm_pipelined() -> Setup:
    m, n, k = 64, 64, 32
    a, b = given(m, k), given(k, n)
    launch = Launch("sgemm<32, 32, 8, 4, 4>", (2, 2), 64, ("a", "b", "c", n, k), shared_bytes=2 * 8 * 64 * 4)
    return setup(launch, {"a": a, "b": b}, {"c": a @ b})


def transpose_tiled() -> Setup:
    m, n = 70, 50
    a = given(m, n)
    return setup(Launch("transpose<float>", (2, 3), (32, 8), ("a", "b", m, n)), {"a": a}, {"b": a.T})


def transpose_inplace() -> Setup:
    n = 40
    a = given(n, n)
    return setup(Launch("transpose_inplace", (3, 3), (16, 16), ("a", n)), {}, {"a": a.T}, a=Buffer("inout", a.ravel()))


def reduce() -> Setup:
    x = given(1000)
    launch = Launch("reduce", 3, 128, ("x", "out", x.size))
    return setup(launch, {"x": x}, {"out": x.sum(keepdims=True)}, out=zeros(1))


def reduce_warp() -> Setup:
    x = given(64)
    return setup(Launch("reduce", 1, 64, ("x", "out")), {"x": x}, {"out": x.sum(keepdims=True)})


def signs() -> Setup:
    rows, cols = 3, 100
    x = given(rows, cols)
    bits = np.zeros((rows, 128), np.uint32)
    bits[:, :cols] = x >= 0
    words = (bits.reshape(rows, 4, 32) << np.arange(32, dtype=np.uint32)).sum(2).astype(np.uint32)
    launch = Launch("signs", rows, 64, ("x", "bits", cols))
    return setup(launch, {"x": x}, {"bits": words}, bits=written(rows * 4, np.uint32))


def histogram() -> Setup:
    x = np.random.default_rng(3).integers(0, 256, 500, np.uint8)
    counts = np.bincount(x % 16, minlength=16)
    launch = Launch("histogram", 2, 64, ("x", "counts", x.size))
    return setup(launch, {"x": x}, {"counts": counts}, counts=zeros(16, np.uint32))


def conv3x3() -> Setup:
    h, w = 20, 45
    x, taps = given(h, w), given(9)
    padded = np.pad(x, 1)
    want = sum(taps[i] * padded[i // 3 : i // 3 + h, i % 3 : i % 3 + w] for i in range(9))
    launch = Launch("conv3x3", (2, 3), (32, 8), ("in", "out", h, w))
    return replace(setup(launch, {"in": x}, {"out": np.asarray(want)}), constants={"filter": taps})


def hgemm_pipelined() -> Setup:
    m, n, k = 32, 32, 64
    a, b = given(m, k).astype(np.float16), given(k, n).astype(np.float16)
    launch = Launch("hgemm", (n // 8, m // 16), 32, ("a", "b", "c", n, k))
    return setup(launch, {"a": a, "b": b}, {"c": a.astype(F32) @ b.astype(F32)})


def hgemm_wmma() -> Setup:
    m, n, k = 32, 48, 64
    a, b = given(m, k).astype(np.float16), given(k, n).astype(np.float16)
    launch = Launch("hgemm", (n // 16, m // 16), 32, ("a", "b", "c", n, k))
    return setup(launch, {"a": a, "b": b}, {"c": 2 * (a.astype(F32) @ b.astype(F32))})


def softmax_grid() -> Setup:
    x = np.abs(given(150)) + 1
    launch = Launch("normalise", 3, 64, ("x", "partial", "out", x.size), cooperative=True)
    found = setup(launch, {"x": x}, {"out": x / x.sum()}, partial=Buffer("scratch", np.zeros(3, F32)))
    return replace(found, error=1e-7)


def last_block() -> Setup:
    x = given(300)
    launch = Launch("sum", 4, 32, ("x", "partial", "ticket", "out", x.size))
    others = {"partial": Buffer("scratch", np.zeros(4, F32)), "ticket": zeros(1, np.uint32)}
    return setup(launch, {"x": x}, {"out": x.sum(keepdims=True)}, **others)


def scan() -> Setup:
    x = given(64)
    return setup(Launch("scan", 1, 64, ("x", "out")), {"x": x}, {"out": np.cumsum(x)})


def shift() -> Setup:
    x = given(96)
    return setup(Launch("shift", 1, 96, ("x", "out", 96)), {"x": x}, {"out": np.append(F32(0), x[:-1])})


def halves() -> Setup:
    n, a = 301, np.float16(0.5)
    x, y = given(2, n).astype(np.float16)
    return setup(Launch("haxpy", 3, 64, (a, "x", "y", n)), {"x": x}, {"y": a * x + y}, y=Buffer("inout", y))


def stencil3d() -> Setup:
    depth, height, width = 5, 9, 11
    x = given(depth, height, width)
    p = np.pad(x, 1)
    core = slice(1, -1)
    want = p[:-2, core, core] + p[2:, core, core] + p[core, :-2, core] + p[core, 2:, core]
    want = want + p[core, core, :-2] + p[core, core, 2:]
    launch = Launch("stencil", (2, 3, 3), (8, 4, 2), ("in", "out", depth, height, width))
    return setup(launch, {"in": x}, {"out": want})


def split_k() -> Setup:
    m, k = 50, 61
    a, x = given(m, k), given(k)
    return setup(Launch("gemv", (2, 3), 32, ("a", "x", "y", m, k)), {"a": a, "x": x}, {"y": a @ x}, y=zeros(m))


def pyramid() -> Setup:
    x = given(32)
    return setup(Launch("pyramid", 1, 32, ("x", "out")), {"x": x}, {"out": np.full(32, x.sum())})


def lock() -> Setup:
    x = given(6)
    launch = Launch("total", 6, 32, ("x", "lock", "out"), cooperative=True)
    return setup(launch, {"x": x}, {"out": x.sum(keepdims=True)}, lock=zeros(1, np.uint32), out=zeros(1))


def tma_ring() -> Setup:
    x = given(11, 64)
    return setup(Launch("ring", 1, 96, (tensor("x", 11, 64, (64, 1)), "y", 11)), {"x": x}, {"y": 2 * x})


def tma_transpose() -> Setup:
    m, n = 40, 68
    a = given(m, n)
    launch = Launch("transpose", (3, 2), 64, (tensor("a", m, n, (32, 32)), tensor("b", n, m, (32, 32))))
    return setup(launch, {"a": a}, {"b": a.T})


def hgemm_wgmma() -> Setup:
    m, n, k = 64, 128, 320
    a, b = given(m, k).astype(np.float16), given(n, k).astype(np.float16)
    maps = (tensor("a", m, k, (64, 64), 2, 128), tensor("b", n, k, (64, 64), 2, 128))
    launch = Launch("hgemm", (2, 1), 160, (*maps, "c", n, k))
    return setup(launch, {"a": a, "b": b}, {"c": a.astype(F32) @ b.astype(F32).T})


def cluster_multicast() -> Setup:
    x = given(5, 32)
    launch = Launch("broadcast", 2, 32, (tensor("x", 5, 32, (32, 1)), "y", 5), cluster=2)
    return setup(launch, {"x": x}, {"y": np.stack([x, x + 1])})


def named_barriers() -> Setup:
    x = np.random.default_rng(3).integers(-99, 99, 128).astype(np.int32)
    want = x.reshape(2, 64)[:, ::-1].ravel() + np.arange(3)[:, None]
    return setup(Launch("reverse", 1, 128, ("x", "y")), {"x": x}, {"y": want}, y=written(384, np.int32))


def cluster_gemm() -> Setup:
    m, n, k = 256, 128, 192
    a, b = given(m, k).astype(np.float16), given(k, n).astype(np.float16)
    maps = (tensor("a", m, k, (64, 64), 2, 128), tensor("b", k, n, (64, 64), 2, 128))
    launch = Launch("gemm", 2, 384, (*maps, "c", k), cluster=2)
    return setup(launch, {"a": a, "b": b}, {"c": a.astype(F32) @ b.astype(F32)})


def swizzled_by_hand() -> Setup:
    a, b = given(2, 64, 64).astype(np.float16)
    return setup(Launch("product", 1, 128, ("a", "b", "c")), {"a": a, "b": b}, {"c": a.astype(F32) @ b.astype(F32).T})


def narrow_swizzles() -> Setup:
    a, b = given(2, 64, 32).astype(np.float16)
    boxes = (((32, 64), 64), ((16, 64), 32), ((32, 64), 0), ((16, 64), 0), ((16, 64), 64))
    maps = [tensor("a", 64, 32, box, 2, swizzle) for box, swizzle in boxes]
    want = np.stack([a[:, :k].astype(F32) @ b[:, :k].astype(F32).T for k in (32, 16)])
    return setup(Launch("products", 1, 128, (*maps, "b", "c")), {"a": a, "b": b}, {"c": want})


def mbarrier_counts() -> Setup:
    x = given(4, 32)
    return setup(Launch("copy", 1, 32, (tensor("x", 4, 32, (32, 1)), "y", 4)), {"x": x}, {"y": x})


#: `// bug 3 (out-of-bounds): the row guard lets row == m through`
BUG = re.compile(r"^// bug (\d+) \(([\w, -]+)\): (.*)$", re.MULTILINE)
CORPUS = Path(__file__).with_name("corpus")
#: Each file is set up by the function of its name.
SETUPS: dict[str, Callable[[], Setup]] = {path.stem: globals()[path.stem] for path in sorted(CORPUS.glob("*.cu"))}
LIMIT_S = 1


def _bugs() -> Iterator[ParameterSet]:
    for name in SETUPS:
        for number, kinds, title in BUG.findall((CORPUS / f"{name}.cu").read_text()):
            title = f"{name}.cu/{number}-{title.replace(' ', '-')}"
            yield pytest.param(name, int(number), set(kinds.split(", ")), id=title)


BUGS = list(_bugs())


def findings(name: str, bug: int) -> list[Diagnostic | str]:
    """Reports and wrong results of a file with this bug, under all orders; a wrong result is the word `wrong`."""
    setup, text = SETUPS[name](), (CORPUS / f"{name}.cu").read_text()
    # The descriptors of wgmma reach 256 KiB of shared memory, less than all kernels of such a file have.
    bugs = [bug] if "wgmma" in text else [0, *(int(number) for number, *_ in BUG.findall(text))]
    texts = {number: re.sub(r"\bBUG\b", str(number), text) for number in bugs}
    constants = {f"_ZN{len(f'f{bug}')}f{bug}{len(symbol)}{symbol}E": v for symbol, v in setup.constants.items()}
    options = {"constants": constants, "limit_s": LIMIT_S}
    found: list[Diagnostic | str] = []
    for outcome in outcomes_among(texts, bug, setup.launch, setup.buffers, f"{name}.cu", **options):
        found += unwaived(outcome.reports)
        for output, want in setup.want.items():
            if not np.allclose(outcome.outputs[output].reshape(want.shape), want, rtol=0, atol=setup.error):
                found.append("wrong")
    return found


@pytest.mark.parametrize(("name", "number", "kinds"), BUGS)
def test_planted_bug_is_found(name: str, number: int, kinds: set[str]) -> None:
    found = findings(name, number)
    named = {entry.kind if isinstance(entry, Diagnostic) else entry for entry in found}
    assert named & kinds, f"expected one of {kinds}, found {sorted(named)}:\n" + "\n".join(map(str, found))
    for entry in found:
        if isinstance(entry, Diagnostic) and entry.kind != "not-written":
            assert entry.file.endswith(f"{name}.cu"), f"names no line: {entry}"
            assert entry.line > 0, f"names no line: {entry}"


@pytest.mark.parametrize("name", SETUPS)
def test_correct_kernel_is_not_accused(name: str) -> None:
    found = findings(name, 0)
    assert not found, "\n".join(map(str, found))


def test_corpus_is_as_large_as_promised() -> None:
    assert len(BUGS) >= 180
    assert len(SETUPS) >= 29
