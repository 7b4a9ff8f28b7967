"""The proof of the checker: every planted bug is reported by its kind, and no correct kernel is accused."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _pytest.mark import ParameterSet

from emulator.fixtures import outcomes_among, read, written
from kernelmark.bench.emulator.report import Diagnostic, unwaived
from kernelmark.bench.emulator.worker import Array, Buffer, EmulatedTensorMap, Launch

F32 = np.float32


@dataclass(frozen=True)
class Setup:
    """A launch with its right outputs (`want`), and the accepted absolute error."""

    launch: Launch
    buffers: Mapping[str, Buffer]
    want: Mapping[str, Array]
    error: float = 0.0
    constants: Mapping[str, Array] = field(default_factory=dict)


def setup(launch: Launch, inputs: Mapping[str, Array], want: Mapping[str, Array], **others: Buffer) -> Setup:
    """Return the set-up of a launch. Each output in `want` gets a new buffer of floats unless `others` has one."""
    buffers = {name: read(array) for name, array in inputs.items()}
    return Setup(launch, {**buffers, **{name: written(array.size) for name, array in want.items()}, **others}, want)


def given(*shape: int) -> Array:
    """Return random small multiples of 1/4, so that sums of a few hundred products are exact in float."""
    return (np.random.default_rng(7).integers(-8, 9, shape) / 4).astype(F32)


def tensor(name, rows, cols, box, itemsize=4, swizzle=0) -> EmulatedTensorMap:
    return EmulatedTensorMap(name, (cols, rows, 1), (cols * itemsize, rows * cols * itemsize), box, itemsize, swizzle)


def zeros(count: int, dtype: Any = F32) -> Buffer:
    return Buffer("inout", np.zeros(count, dtype))


def halves(*shape: int) -> Array:
    return given(*shape).astype(np.float16)


def product(launch: Launch, a: Array, b: Array, by_columns: bool = False, factor: int = 1) -> Setup:
    """Set up c = factor * a @ b; by_columns: `b` is stored by columns."""
    right = b.T if by_columns else b
    return setup(launch, {"a": a, "b": b}, {"c": factor * (a.astype(F32) @ right.astype(F32))})


def signs(x: Array) -> Array:
    """Return the bits of `x >= 0`, each row of x packed into four 32-bit words."""
    bits = np.zeros((len(x), 128), np.uint32)
    bits[:, : x.shape[1]] = x >= 0
    return (bits.reshape(-1, 4, 32) << np.arange(32, dtype=np.uint32)).sum(2).astype(np.uint32)


def neighbours(x: Array) -> Array:
    """Return the sum of the six neighbours of each element."""
    p, core = np.pad(x, 1), slice(1, -1)
    planes = p[:-2, core, core] + p[2:, core, core] + p[core, :-2, core] + p[core, 2:, core]
    return planes + p[core, core, :-2] + p[core, core, 2:]


def filtered(x: Array, taps: Array) -> Array:
    (h, w), padded = x.shape, np.pad(x, 1)
    return np.asarray(sum(taps[i] * padded[i // 3 : i // 3 + h, i % 3 : i % 3 + w] for i in range(9)))


def products_of_swizzles() -> Setup:
    a, b = halves(2, 64, 32)
    boxes = (((32, 64), 64), ((16, 64), 32), ((32, 64), 0), ((16, 64), 0), ((16, 64), 64))
    maps = [tensor("a", 64, 32, box, 2, swizzle) for box, swizzle in boxes]
    want = np.stack([a[:, :k].astype(F32) @ b[:, :k].astype(F32).T for k in (32, 16)])
    return setup(Launch("products", 1, 128, (*maps, "b", "c")), {"a": a, "b": b}, {"c": want})


POSITIVE = np.abs(given(150)) + 1
BYTES = np.random.default_rng(3).integers(0, 256, 500, np.uint8)
WORDS = np.random.default_rng(3).integers(-99, 99, 128).astype(np.int32)
#: The set-up of each kernel, by the name of its file.
SETUPS = {
    "cluster_gemm": product(
        Launch("gemm", 2, 384, (tensor("a", 256, 192, (64, 64), 2, 128), tensor("b", 192, 128, (64, 64), 2, 128),
                                "c", 192), cluster=2), halves(256, 192), halves(192, 128)),
    "cluster_multicast": setup(
        Launch("broadcast", 2, 32, (tensor("x", 5, 32, (32, 1)), "y", 5), cluster=2),
        {"x": given(5, 32)}, {"y": np.stack([given(5, 32), given(5, 32) + 1])}),
    "conv3x3": replace(
        setup(Launch("conv3x3", (2, 3), (32, 8), ("in", "out", 20, 45)),
              {"in": given(20, 45)}, {"out": filtered(given(20, 45), given(9))}), constants={"filter": given(9)}),
    "halves": setup(
        Launch("haxpy", 3, 64, (np.float16(0.5), "x", "y", 301)), {"x": halves(2, 301)[0]},
        {"y": np.float16(0.5) * halves(2, 301)[0] + halves(2, 301)[1]}, y=Buffer("inout", halves(2, 301)[1])),
    "hgemm_pipelined": product(Launch("hgemm", (4, 2), 32, ("a", "b", "c", 32, 64)), halves(32, 64), halves(64, 32)),
    "hgemm_wgmma": product(
        Launch("hgemm", (2, 1), 160, (tensor("a", 64, 320, (64, 64), 2, 128), tensor("b", 128, 320, (64, 64), 2, 128),
                                      "c", 128, 320)), halves(64, 320), halves(128, 320), by_columns=True),
    "hgemm_wmma": product(
        Launch("hgemm", (3, 2), 32, ("a", "b", "c", 48, 64)), halves(32, 64), halves(64, 48), factor=2),
    "histogram": setup(
        Launch("histogram", 2, 64, ("x", "counts", BYTES.size)), {"x": BYTES},
        {"counts": np.bincount(BYTES % 16, minlength=16)}, counts=zeros(16, np.uint32)),
    "last_block": setup(
        Launch("sum", 4, 32, ("x", "partial", "ticket", "out", 300)), {"x": given(300)},
        {"out": given(300).sum(keepdims=True)},
        partial=Buffer("scratch", np.zeros(4, F32)), ticket=zeros(1, np.uint32)),
    "lock": setup(
        Launch("total", 6, 32, ("x", "lock", "out"), cooperative=True), {"x": given(6)},
        {"out": given(6).sum(keepdims=True)}, lock=zeros(1, np.uint32), out=zeros(1)),
    "mbarrier_counts": setup(
        Launch("copy", 1, 32, (tensor("x", 4, 32, (32, 1)), "y", 4)), {"x": given(4, 32)}, {"y": given(4, 32)}),
    "named_barriers": setup(
        Launch("reverse", 1, 128, ("x", "y")), {"x": WORDS},
        {"y": WORDS.reshape(2, 64)[:, ::-1].ravel() + np.arange(3)[:, None]}, y=written(384, np.int32)),
    "narrow_swizzles": products_of_swizzles(),
    "pyramid": setup(Launch("pyramid", 1, 32, ("x", "out")), {"x": given(32)}, {"out": np.full(32, given(32).sum())}),
    "reduce": setup(
        Launch("reduce", 3, 128, ("x", "out", 1000)), {"x": given(1000)}, {"out": given(1000).sum(keepdims=True)},
        out=zeros(1)),
    "reduce_warp": setup(
        Launch("reduce", 1, 64, ("x", "out")), {"x": given(64)}, {"out": given(64).sum(keepdims=True)}),
    "scan": setup(Launch("scan", 1, 64, ("x", "out")), {"x": given(64)}, {"out": np.cumsum(given(64))}),
    "sgemm_pipelined": product(
        Launch("sgemm<32, 32, 8, 4, 4>", (2, 2), 64, ("a", "b", "c", 64, 32), shared_bytes=2 * 8 * 64 * 4),
        given(64, 32), given(32, 64)),
    "sgemm_tiled": product(
        Launch("sgemm", (3, 3), (16, 16), ("a", "b", "c", 40, 44, 36)), given(40, 36), given(36, 44)),
    "shift": setup(
        Launch("shift", 1, 96, ("x", "out", 96)), {"x": given(96)}, {"out": np.append(F32(0), given(96)[:-1])}),
    "signs": setup(
        Launch("signs", 3, 64, ("x", "bits", 100)), {"x": given(3, 100)}, {"bits": signs(given(3, 100))},
        bits=written(3 * 4, np.uint32)),
    "softmax_grid": replace(
        setup(Launch("normalise", 3, 64, ("x", "partial", "out", POSITIVE.size), cooperative=True), {"x": POSITIVE},
              {"out": POSITIVE / POSITIVE.sum()}, partial=Buffer("scratch", np.zeros(3, F32))), error=1e-7),
    "split_k": setup(
        Launch("gemv", (2, 3), 32, ("a", "x", "y", 50, 61)), {"a": given(50, 61), "x": given(61)},
        {"y": given(50, 61) @ given(61)}, y=zeros(50)),
    "stencil3d": setup(
        Launch("stencil", (2, 3, 3), (8, 4, 2), ("in", "out", 5, 9, 11)), {"in": given(5, 9, 11)},
        {"out": neighbours(given(5, 9, 11))}),
    "swizzled_by_hand": product(Launch("product", 1, 128, ("a", "b", "c")), *halves(2, 64, 64), by_columns=True),
    "tma_ring": setup(
        Launch("ring", 1, 96, (tensor("x", 11, 64, (64, 1)), "y", 11)), {"x": given(11, 64)}, {"y": 2 * given(11, 64)}),
    "tma_transpose": setup(
        Launch("transpose", (3, 2), 64, (tensor("a", 40, 68, (32, 32)), tensor("b", 68, 40, (32, 32)))),
        {"a": given(40, 68)}, {"b": given(40, 68).T}),
    "transpose_inplace": setup(
        Launch("transpose_inplace", (3, 3), (16, 16), ("a", 40)), {}, {"a": given(40, 40).T},
        a=Buffer("inout", given(40, 40).ravel())),
    "transpose_tiled": setup(
        Launch("transpose<float>", (2, 3), (32, 8), ("a", "b", 70, 50)), {"a": given(70, 50)}, {"b": given(70, 50).T}),
}  # fmt: skip
#: `// bug 3 (out-of-bounds): the row guard lets row == m through`
BUG = re.compile(r"^// bug (\d+) \(([\w, -]+)\): (.*)$", re.MULTILINE)
CORPUS = Path(__file__).with_name("corpus")
LIMIT_S = 1


def _bugs() -> Iterator[ParameterSet]:
    for name in SETUPS:
        for number, kinds, title in BUG.findall((CORPUS / f"{name}.cu").read_text()):
            title = f"{name}.cu/{number}-{title.replace(' ', '-')}"
            yield pytest.param(name, int(number), set(kinds.split(", ")), id=title)


BUGS = list(_bugs())


def findings(name: str, bug: int) -> list[Diagnostic | str]:
    """Return the reports on a file with this bug, under all orders, and `wrong` for each wrong result."""
    setup, text = SETUPS[name], (CORPUS / f"{name}.cu").read_text()
    # wgmma descriptors address 256 KiB of shared memory, less than all kernels of a file have together.
    bugs = [bug] if "wgmma" in text else [0, *(int(number) for number, *_ in BUG.findall(text))]
    texts = {number: re.sub(r"\bBUG\b", str(number), text) for number in bugs}
    constants = {f"_ZN{len(f'f{bug}')}f{bug}{len(symbol)}{symbol}E": v for symbol, v in setup.constants.items()}
    options = {"constants": constants, "limit_s": LIMIT_S}
    entries: list[Diagnostic | str] = []
    for outcome in outcomes_among(texts, bug, setup.launch, setup.buffers, f"{name}.cu", **options):
        entries += unwaived(outcome.reports)
        for output, want in setup.want.items():
            if not np.allclose(outcome.outputs[output].reshape(want.shape), want, rtol=0, atol=setup.error):
                entries.append("wrong")
    return entries


@pytest.mark.parametrize(("name", "number", "kinds"), BUGS)
def test_planted_bug_is_found(name: str, number: int, kinds: set[str]) -> None:
    entries = findings(name, number)
    named = {entry.kind if isinstance(entry, Diagnostic) else entry for entry in entries}
    assert named & kinds, f"expected one of {kinds}, found {sorted(named)}:\n" + "\n".join(map(str, entries))
    for entry in entries:
        if isinstance(entry, Diagnostic) and entry.kind != "not-written":
            assert entry.file.endswith(f"{name}.cu"), f"names no line: {entry}"
            assert entry.line > 0, f"names no line: {entry}"


@pytest.mark.parametrize("name", SETUPS)
def test_correct_kernel_is_not_accused(name: str) -> None:
    entries = findings(name, 0)
    assert not entries, "\n".join(map(str, entries))


def test_corpus_is_as_large_as_promised() -> None:
    assert len(BUGS) >= 180
    assert len(SETUPS) >= 29
    assert SETUPS.keys() == {path.stem for path in CORPUS.glob("*.cu")}
