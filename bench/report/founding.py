"""The founding question of kernelmark: is op_T slow in C = A x B^T, and should B be transposed first?"""

from typing import NamedTuple

from kernelmark.bench.plan.operation import UNIFORM
from kernelmark.bench.record.columns import Result
from kernelmark.bench.report.contest import TIE, Contest, Ratio
from kernelmark.bench.report.format import pace, percent, row_time, short, time
from kernelmark.bench.report.run_data import RunData
from kernelmark.bench.report.variants import no_difference

QUESTION = "Is op_T slower, and what should I do about it?"
#: The sizes of C = A x B^T in the founding text: A 1024x26752, B 2048x26752.
SIZES = {"m": 1024, "n": 2048, "k": 26752}
#: Parts of the names of kernels that transpose B first (gemm/cublas.tnn_geam).
OUT_OF_PLACE, IN_PLACE = ".tnn", ".inplace"
#: A tie counts as not slower only if the interval's lower end is at least this share of op_N's speed.
LEAST_SPEED = 0.95


class TransposeFirst(NamedTuple):
    """A way to transpose B before a GEMM (`out of place` or `in place`). speed: relative to GEMM with op_T."""

    place: str
    row: Result
    speed: Ratio


class FoundingProduct(NamedTuple):
    """Whether GEMM is slow with op_T, in a contest. speed: op_T relative to op_N; ways: ways to transpose B first."""

    contest: Contest
    op_t: Result
    op_n: Result | None
    speed: Ratio | None
    ways: list[TransposeFirst]

    @property
    def subject(self) -> str:
        m, n, k = SIZES.values()
        return f"C = A x B^T, A {m}x{k}, B {n}x{k}, {self.op_t.dtype}; {self.contest.setting.title}"

    @property
    def best(self) -> TransposeFirst | None:
        """Return the fastest way that is certainly faster than op_T, otherwise the fastest; None if there is no way."""
        certain = [way for way in self.ways if way.speed.side == "faster"]
        return max(certain or self.ways, key=lambda way: way.speed.median, default=None)

    @property
    def words(self) -> str:
        """Return two sentences: whether GEMM is slower with op_T than with op_N, and whether to transpose B first."""
        return " ".join(filter(None, (self._is_slower(), self._advice())))

    def _is_slower(self) -> str:
        if self.speed is None:
            return "NT vs NN: OP_N was not measured."
        if self.speed.side in ("faster", "slower"):
            verdict = "not slower here: it is " if self.speed.median > 1 else ""
            here = "" if verdict else " here"
            return f"OP_T is {verdict}{pace(self.speed.median)} OP_N{here}, {self.speed}{_apart(self.speed)}."
        remarks = ", ".join(self.speed.remarks)
        if self.speed.low is not None and self.speed.low >= LEAST_SPEED:
            return f"OP_T is not slower here: {self.speed} ({remarks})."
        return f"NT vs NN: {no_difference(self.speed)}{_apart(self.speed)}."

    def _advice(self) -> str:
        if (best := self.best) is None:
            return ""
        if best.speed.side == "faster":
            than = f"{pace(best.speed.median)} OP_T, {best.speed}{_apart(best.speed)}"
            return f"Transpose B {best.place} first: it is {than}."
        if all(way.speed.side == "slower" for way in self.ways):
            costs = [f"{percent(1 / way.speed.median - 1)} {way.place}" for way in self.ways]
            return f"Don't transpose first: it costs {' and '.join(costs)}."
        how = f"by transposing {best.place} ({', '.join(best.speed.remarks)})"
        return f"Don't transpose first: no gain is certain, at best {best.speed} {how}."

    @property
    def evidence(self) -> list[str]:
        lines = [f"op_T by {short(self.op_t.kernel)}: {time(*row_time(self.op_t))}."]
        if self.op_n is None:
            same = self.contest.problem.replace("/NT", "/NN", 1)
            lines.append(f"op_N on these sizes was not measured; `kernelmark run {same}` measures it.")
        else:
            lines.append(f"op_N on the same sizes ({short(self.op_n.kernel)}): {time(*row_time(self.op_n))}.")
        for place, row, speed in self.ways:
            side = f"a {TIE} (the interval includes 1)" if speed.side == TIE else speed.side
            how = f"{time(*row_time(row))}, {speed} the speed of op_T, {side}{_apart(speed)}"
            lines.append(f"B transposed {place} first ({short(row.kernel)}): {how}.")
        return lines


def _apart(ratio: Ratio) -> str:
    return f", {ratio.apart}" if ratio.apart else ""


def answers(data: RunData) -> list[FoundingProduct]:
    """Return an answer for each contest on C = A x B^T in which B was also transposed first; [] for a tuning run.

    Answers that compare with op_N come first. In each group, GPUs come first, then cold mode, fp32, most threads.
    """
    products = [c for c in data.contests if is_founding(data, c)] if data.tunes is None else []
    products.sort(key=lambda c: (
        c.setting.device != "cuda", c.setting.mode != "cold", c.setting.precision != "fp32", -c.setting.threads
    ))  # fmt: skip
    pairs = ((c, _handing_on(c)) for c in products if _with(c, OUT_OF_PLACE, IN_PLACE))
    return sorted((_answer(data, c, op_t) for c, op_t in pairs if op_t), key=lambda answer: answer.op_n is None)


def is_founding(data: RunData, c: Contest) -> bool:
    """Return whether a contest is on C = A x B^T with `SIZES`, the product of the founding question."""
    dims = data.dims_of[c.problem]
    is_usual = dims.get("distribution", UNIFORM) == UNIFORM
    return c.op == "gemm" and c.fastest.layout == "NT" and is_usual and all(dims.get(k) == SIZES[k] for k in SIZES)


def _with(c: Contest, *marks: str) -> list[Result]:
    return [r for r in c.ranked if any(mark in r.kernel for mark in marks)]


def _handing_on(c: Contest) -> Result | None:
    """Return the row of a kernel that does not transpose B first: the baseline's row, or else the fastest kernel's."""
    handing = [r for r in c.ranked if r not in _with(c, OUT_OF_PLACE, IN_PLACE)]
    return min(handing, key=lambda r: (r.kernel != r.baseline, r.time_s_median), default=None)


def _answer(data: RunData, c: Contest, op_t: Result) -> FoundingProduct:
    places = (("out of place", OUT_OF_PLACE), ("in place", IN_PLACE))
    ways = [
        TransposeFirst(place, rows[0], c.faster(rows[0], op_t)) for place, mark in places if (rows := _with(c, mark))
    ]
    same = c.problem.replace("/NT", "/NN", 1)
    untransposed = next((o for o in data.contests if (o.problem, o.setting) == (same, c.setting)), None)
    op_n = (untransposed.of(op_t.kernel) or untransposed.fastest) if untransposed else None
    return FoundingProduct(c, op_t, op_n, c.faster(op_t, op_n) if op_n else None, ways)
