"""The strategies of aggregation as plans, which threads or processes execute."""

from kernelmark import numpy_dtype
from kernelmark.kernels.aggregate._formats import FORMATS
from kernelmark.kernels.aggregate._steps import BUCKET, Bucket, Part, Plan, Room, Step, buckets, whole
from kernelmark.kernels.aggregate.problem import AggregateProblem


def fused(problem: AggregateProblem) -> Plan:
    """Return a plan that sums all gradients in one pass, in which each worker sums one stripe."""
    everything = whole(problem)
    gradients = everything.of_all("g")
    return Plan([[everything.deliver(gradients, *edges) for edges in everything.stripes()]], {})


def local(problem: AggregateProblem) -> Plan:
    """Return a plan that copies each bucket of the gradients to the host, and sums the copies there."""
    phases = []
    for bucket in buckets(problem):
        copies = tuple(bucket.room("copies", i) for i in range(problem.w))
        pairs = zip(copies, bucket.of_all("g"), strict=True)
        phases.append([Step("total", (copy, (gradient,)), 0, bucket.length) for copy, gradient in pairs])
        phases.append([bucket.deliver(copies, *edges) for edges in bucket.stripes()])
    return Plan(phases, {"copies": Room(problem.w, _most(problem), numpy_dtype(problem.dtype).str)})


def tree(problem: AggregateProblem) -> Plan:
    """Return a plan that sums pairs, then pairs of pairs; with /update, new weights go back down the tree."""
    phases: list[list[Step]] = []
    for bucket in buckets(problem):
        phases += _up(bucket) + (_down(bucket) if problem.step == "update" else [])
    return Plan(phases, {"partial": Room(-(-problem.w // 2), _most(problem), numpy_dtype(problem.dtype).str)})


def _up(bucket: Bucket) -> list[list[Step]]:
    parts: list[Part] = list(bucket.of_all("g"))
    phases, apart, w = [], 1, bucket.problem.w
    while 2 * apart < w:
        pairs = range(0, w - apart, 2 * apart)
        sums = {i: bucket.room("partial", i // 2) for i in pairs}
        phases.append([Step("total", (sums[i], (parts[i], parts[i + apart])), 0, bucket.length) for i in pairs])
        parts = [sums.get(i, part) for i, part in enumerate(parts)]
        apart *= 2
    last = bucket.deliver((parts[0], parts[apart]), 0, bucket.length, (bucket.of("replicas", 0),))
    return [*phases, [last]]


def _down(bucket: Bucket) -> list[list[Step]]:
    rows, w = bucket.of_all("replicas"), bucket.problem.w
    phases, apart = [], 1 << (w - 1).bit_length() - 1
    while apart:
        pairs = range(0, w - apart, 2 * apart)
        phases.append([Step("total_past", (rows[i + apart], (rows[i],)), 0, bucket.length) for i in pairs])
        apart //= 2
    return phases


def ring(problem: AggregateProblem) -> Plan:
    """Return a plan in which stripes go around a ring and each worker adds its gradient; then new weights go around.

    Baidu's ring of 2017 (Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, JPDC 69(2), 2009).
    """
    phases: list[list[Step]] = []
    for bucket in buckets(problem):
        phases += _reduce(bucket) + (_gather(bucket) if problem.step == "update" else [])
    return Plan(phases, {"hops": Room(2, _most(problem), numpy_dtype(problem.dtype).str)})


def _reduce(bucket: Bucket) -> list[list[Step]]:
    w, stripes, gradients = bucket.problem.w, bucket.stripes(), bucket.of_all("g")
    phases = []
    for hop in range(1, w):
        phase = []
        for i in range(w):
            begun = (i - hop) % w
            rows = (gradients[begun] if hop == 1 else bucket.room("hops", hop % 2), gradients[i])
            if hop == w - 1:
                phase.append(bucket.deliver(rows, *stripes[begun], (bucket.of("replicas", i),)))
            else:
                phase.append(Step("total", (bucket.room("hops", (hop + 1) % 2), rows), *stripes[begun]))
        phases.append(phase)
    return phases


def _gather(bucket: Bucket) -> list[list[Step]]:
    w, stripes, rows = bucket.problem.w, bucket.stripes(), bucket.of_all("replicas")
    return [
        [Step("total_past", (rows[i], (rows[i - 1],)), *stripes[(i - hop + 1) % w]) for i in range(w)]
        for hop in range(1, w)
    ]


def bf16(problem: AggregateProblem) -> Plan:
    """Return a plan that sends gradients in BF16 to the stripes' owners, who add in FP32 and send sums in BF16."""
    phases: list[list[Step]] = []
    for bucket in buckets(problem):
        sent, message = tuple(bucket.room("sent", i) for i in range(problem.w)), bucket.room("sent", problem.w)
        pairs = zip(sent, bucket.of_all("g"), strict=True)
        phases.append([Step("to_bf16", pair, 0, bucket.length) for pair in pairs])
        stripes = bucket.stripes()
        phases.append([Step("sum_bf16", (message, sent), *edges) for edges in stripes])
        phases.append([Step("from_bf16", (bucket.of("s"), message), *edges) for edges in stripes])
    return Plan(phases, {"sent": Room(problem.w + 1, _most(problem), "u2")})


def compressed(problem: AggregateProblem, name: str) -> Plan:
    """Return a plan that sends compressed gradients to the stripes' owners, who add, compress the sum and send it."""
    block, words, w = FORMATS[name].block, {"onebit": 16, "int8": 1}[name], problem.w
    scales = FORMATS[name].scales
    blocks = -(-_most(problem) // block)
    rooms = {
        "sent": Room(w + 1, blocks * block // words, {"onebit": "u2", "int8": "i1"}[name]),
        "scales": Room(w + 1, blocks * scales, "f4"),
    }
    sent, numbers = ([Part(key, i, 0, room.length) for i in range(w + 1)] for key, room in rooms.items())
    phases: list[list[Step]] = []
    for bucket in buckets(problem):
        of = bucket.of
        each = [(of("g", i), of("e", i), sent[i], numbers[i]) for i in range(w)]
        phases.append([Step("send", arguments, 0, bucket.length, block) for arguments in each])
        owner = (of("e", w), tuple(sent[:w]), tuple(numbers[:w]), sent[w], numbers[w])
        stripes = bucket.stripes(block)
        phases.append([Step("own", owner, *edges, block) for edges in stripes])
        message = sent[w], numbers[w]
        if problem.step == "sum":
            phases.append([Step("receive", (of("s"), *message), *edges, block) for edges in stripes])
        else:
            arguments = (of("weights"), bucket.of_all("replicas"), *message, bucket.lr)
            phases.append([Step("receive_step", arguments, *edges, block) for edges in stripes])
    return Plan(phases, rooms)


def _most(problem: AggregateProblem) -> int:
    """Return the number of elements of the largest bucket."""
    return min(BUCKET, problem.n)
