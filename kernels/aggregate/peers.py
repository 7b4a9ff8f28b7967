"""Sums of gradients on several GPUs, one worker per GPU, which access each other's memory."""

from typing import Any

from kernelmark import Launch, kernel
from kernelmark.kernels._gpus import Gpus
from kernelmark.kernels._launches import in_turn
from kernelmark.kernels.aggregate import _wire
from kernelmark.kernels.aggregate._steps import whole
from kernelmark.kernels.aggregate.problem import AggregateOperands, AggregateProblem

P2P: dict[str, Any] = {
    "provider": "p2p",
    "device": "cuda",
    "modules": ("cupy",),
    "spread": True,
    "wire": _wire.between_workers,
}


class _Adding:
    """Adds gradients on the GPUs of a set-up, by kernels that add the rows of an array on one GPU."""

    def __init__(self, problem: AggregateProblem, x: AggregateOperands) -> None:
        x.chose(devices=problem.w)
        self._problem, self._x, self.gpus = problem, x, Gpus(problem.w, x.stream)

    def room(self, gpu: int, *shape: int) -> Any:
        """Return a scratch array on a GPU."""
        return self._x.scratch(shape, self._problem.dtype, gpu=gpu)

    def sum(self, gpu: int, rows: Any, to: Any) -> Launch:
        """Return a launch that adds an array's rows on its GPU; `to` may be the first of two rows or another array."""
        return self._launch(gpu, "tree" if len(rows) == 2 else "device", rows, s=to)

    def deliver(self, gpu: int, rows: Any, part: slice) -> list[Launch]:
        """Return launches that store rows' sum in part of s, or update weights and this GPU's replica by the sum."""
        if self._problem.step == "sum":
            return [self.sum(gpu, rows, self._x.s[part])]
        copies = self.room(gpu, *rows.shape)
        step = self._launch(gpu, "device", rows, "/update", weights=self._x.weights[part], replicas=copies)
        return [step, self.gpus.copy(gpu, self._x.replicas[gpu][part], gpu, copies[0], on=gpu)]

    def pass_on(self, to: int, at: int, part: slice, on: int) -> list[Launch]:
        """Return launches that copy part of GPU `at`'s replica to `to` on GPU `on`'s stream; [] without replicas."""
        if self._problem.step == "sum":
            return []
        source, target = self._x.replicas[at][part], self._x.replicas[to][part]
        return [self.gpus.copy(to, target, at, source, on=on)]

    def _launch(self, gpu: int, name: str, rows: Any, step: str = "", **arrays: Any) -> Launch:
        import cupy

        w, n = rows.shape
        problem, stream = f"aggregate/w{w}n{n}/{self._problem.dtype}{step}", self.gpus.streams[gpu]
        with cupy.cuda.Device(gpu):
            return self._x.launch(f"aggregate/cuda.{name}", problem, stream, g=rows, **arrays)


@kernel("aggregate", **P2P)
def device(problem: AggregateProblem, x: AggregateOperands) -> Launch:
    """MXNet's strategy: all GPUs copy their gradients to the first, which adds them in one pass and returns weights."""
    adding, w, everything = _Adding(problem, x), problem.w, slice(0, problem.n)
    room = adding.room(0, w, problem.n)
    steps = [adding.gpus.copy(0, room[i], i, x.g[i], on=i) for i in range(w)]
    steps += [adding.gpus.after(i, 0) for i in range(1, w)]
    steps += adding.deliver(0, room, everything)
    steps += [copy for to in range(1, w) for copy in adding.pass_on(to, 0, everything, on=0)]
    return in_turn(*adding.gpus.around(steps))


@kernel("aggregate", **P2P)
def stripes(problem: AggregateProblem, x: AggregateOperands) -> Launch:
    """Each GPU owns a stripe: the others copy their gradients there; the owner adds them and sends the weights."""
    adding, w = _Adding(problem, x), problem.w
    owned = {i: slice(*edges) for i, edges in enumerate(whole(problem).stripes()) if edges[0] < edges[1]}
    rooms = {i: adding.room(i, w, part.stop - part.start) for i, part in owned.items()}
    turns = [(i, (i + hop) % w) for hop in range(w) for i in range(w)]  # no two GPUs copy to the same GPU at a time
    steps = [
        adding.gpus.copy(to, rooms[to][i], i, x.g[i][part], on=i)
        for i, to in turns
        if (part := owned.get(to)) is not None
    ]
    steps += [adding.gpus.after(i, *(to for to in owned if to != i)) for i in range(w)]
    for i, part in owned.items():
        steps += adding.deliver(i, rooms[i], part)
    for i, to in turns:
        steps += adding.pass_on(to, i, owned[i], on=i) if i in owned and i != to else []
    return in_turn(*adding.gpus.around(steps))


@kernel("aggregate", **P2P)
def tree(problem: AggregateProblem, x: AggregateOperands) -> Launch:
    """Caffe's strategy: half of the GPUs copy their sums to the others, which add them; weights go down the tree."""
    adding, w, everything = _Adding(problem, x), problem.w, slice(0, problem.n)
    rooms = {i: adding.room(i, 2, problem.n) for i in range(0, w - 1, 2)}
    sums, apart = list(x.g), 1
    steps: list[Launch] = []
    while apart < w:
        for i in range(0, w - apart, 2 * apart):
            rows = rooms[i]
            if sums[i] is x.g[i]:
                steps.append(adding.gpus.copy(i, rows[0], i, x.g[i], on=i))
            steps.append(adding.gpus.after(i + apart, i))
            steps.append(adding.gpus.copy(i, rows[1], i + apart, sums[i + apart], on=i))
            last = 2 * apart >= w
            steps += adding.deliver(i, rows, everything) if last else [adding.sum(i, rows, rows[0])]
            sums[i] = rows[0]
        apart *= 2
    while (apart := apart // 2) and problem.step == "update":
        for i in range(0, w - apart, 2 * apart):
            steps += [adding.gpus.after(i, i + apart), *adding.pass_on(i + apart, i, everything, on=i + apart)]
    return in_turn(*adding.gpus.around(steps))


@kernel("aggregate", **P2P)
def ring(problem: AggregateProblem, x: AggregateOperands) -> Launch:
    """A ring of GPUs: stripes go around it and each GPU adds its gradient; then the weights go around it."""
    adding, w = _Adding(problem, x), problem.w
    parts = [slice(*edges) for edges in whole(problem).stripes()]
    most = max(part.stop - part.start for part in parts)
    rooms = [adding.room(i, 2, 2 * most) for i in range(w)]  # a part is passed on while the next one is added

    def pair(i: int, hop: int, part: slice) -> Any:
        length = part.stop - part.start
        return rooms[i][hop % 2][: 2 * length].reshape(2, length)

    steps: list[Launch] = []
    for hop in range(1, w):
        steps += [adding.gpus.after(i, *{(i + 1) % w, (i - 1) % w}) for i in range(w) if hop > 1]
        for i, part in ((i, parts[(i - hop) % w]) for i in range(w)):
            if part.start == part.stop:
                continue
            rows = pair(i, hop, part)
            before = x.g[i - 1][part] if hop == 1 else pair(i - 1, hop - 1, part)[0]
            steps.append(adding.gpus.copy(i, rows[0], i, x.g[i][part], on=i))
            steps.append(adding.gpus.copy(i, rows[1], (i - 1) % w, before, on=i))
            steps += adding.deliver(i, rows, part) if hop == w - 1 else [adding.sum(i, rows, rows[0])]
    for hop in range(1, w if problem.step == "update" else 1):
        steps += [adding.gpus.after(i, (i + 1) % w) for i in range(w)]
        for i, part in ((i, parts[(i - hop + 1) % w]) for i in range(w)):
            steps += adding.pass_on(i, (i - 1) % w, part, on=i) if part.start < part.stop else []
    return in_turn(*adding.gpus.around(steps))
