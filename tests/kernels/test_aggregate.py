"""Aggregation: strategies are right on ragged sizes and in any order of streams, and wrong results are found."""

import ctypes
import random
import sys
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from kernelmark.bench.measure.cuda import Addressed
from kernelmark.bench.plan.dtypes import numpy_dtype
from kernelmark.kernels.aggregate import _plans, _steps, peers
from kernelmark.kernels.aggregate._formats import FORMATS
from kernelmark.kernels.aggregate.problem import LR, AggregateProblem
from support.kernels import REGISTRY, failures, set_up, verified

EXACT = tuple(f"aggregate/cpu.{name}" for name in ("host_serial", "host_parallel", "local", "tree", "ring"))
COMPRESSED = ("aggregate/cpu.onebit", "aggregate/cpu.int8")


@pytest.mark.parametrize("problem", ["w2n1/f32", "w2n33/f32/update", "w3n9001/f32", "w3n1031/f64/update/ef"])
def test_strategies_without_compression_are_right_on_ragged_sizes(problem):
    assert not failures(f"aggregate/{problem}", *EXACT)


@pytest.mark.parametrize("problem", ["w2n512/f32/ef", "w3n9001/f32/ef", "w2n1537/f32/update/ef"])
def test_compressed_strategies_are_right_on_short_last_blocks(problem):
    onebit, int8 = verified(f"aggregate/{problem}", *COMPRESSED, threads=3)
    assert (onebit.reason, int8.reason) == ("", "")
    assert onebit.compression_error == pytest.approx(1 / 3, abs=0.03)
    assert int8.compression_error == pytest.approx(3e-5, abs=1e-5)


def test_gradients_of_several_buckets_are_right(monkeypatch):
    for module in (_steps, _plans):
        monkeypatch.setattr(module, "BUCKET", 1024)
    assert not failures("aggregate/w3n2500/f32/ef", *EXACT, *COMPRESSED)
    assert not failures("aggregate/w3n2500/f32", "aggregate/cpu.bf16")


def test_compression_divides_the_bytes_on_the_wire_by_the_ratio_of_its_format():
    rows = verified("aggregate/w2n5120/f32/ef", "aggregate/cpu.ring", *COMPRESSED)
    ring, onebit, int8 = (row.wire_bytes for row in rows)
    assert ring / onebit == pytest.approx(28.4, abs=0.05)
    assert ring / int8 == pytest.approx(3.94, abs=0.005)


def test_a_kernel_that_declares_fewer_bytes_than_its_format_takes_fails():
    kernel = replace(REGISTRY.kernels["aggregate/cpu.int8"], wire=lambda problem: 8)
    with pytest.raises(ValueError, match="declares 8 bytes on the wire, expected at least 1040 for int8"):
        kernel.wire_bytes_for(REGISTRY.problem("aggregate/w2n512/f32/ef"))


def judged(text, numerics="fp32", **outputs):
    """Return why outputs, which are functions of the drawn operands, are wrong; None if they are right."""
    problem, rng = REGISTRY.problem(f"aggregate/{text}"), np.random.default_rng(0)
    drawn = {o.name: rng.uniform(-1, 1, o.shape).astype("f4") for o in problem.operands() if o.role != "out"}
    arrays = {name: make(drawn).astype("f4") for name, make in outputs.items()}
    return problem.check(arrays, problem.reference(drawn, rng), numerics).reason


def total(drawn):
    return drawn["g"].sum(0)


@pytest.mark.parametrize("words", ["", "/update"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_the_bound_of_a_sum_follows_the_size_of_its_terms(dtype, words):
    problem, rng = REGISTRY.problem(f"aggregate/w4n4000/{dtype}{words}"), np.random.default_rng(0)
    size = 10 ** rng.uniform(-3, 3, 4000)
    drawn = {o.name: size * rng.uniform(-1, 1, o.shape) for o in problem.operands() if o.role != "out"}
    x = {name: values.astype(numpy_dtype(dtype)) for name, values in drawn.items()}
    reference, roundoff = problem.reference(x, rng), 2.0 ** {"f32": -24, "f64": -53}[dtype]

    def reason(g):
        updated = g[::-1].sum(0)
        if words:
            updated = x["weights"] - LR * updated
        outputs = {"weights": updated, "replicas": np.stack([updated] * 4)} if words else {"s": updated}
        return problem.check(outputs, reference, dtype.replace("f", "fp")).reason

    assert reason(x["g"]) is None
    changed = x["g"] * (1 + np.where(size < 0.01, 1000 * roundoff, 0)).astype(x["g"].dtype)
    assert reason(changed) is not None


def test_an_exact_sum_that_changes_residuals_is_wrong():
    assert judged("w2n99/f32/ef", s=total, e=lambda drawn: drawn["e"]) is None
    assert "e has changed" in (judged("w2n99/f32/ef", s=total, e=lambda drawn: 0 * drawn["e"]) or "")


def test_weights_that_do_not_reach_every_replica_are_wrong():
    def weights(drawn):
        return drawn["weights"] - total(drawn) / 64

    def replicas(drawn):
        return np.stack([weights(drawn), weights(drawn)])

    assert judged("w2n99/f32/update", weights=weights, replicas=replicas) is None
    assert "replicas differ" in (
        judged("w2n99/f32/update", weights=weights, replicas=lambda drawn: replicas(drawn) * [[1], [1.5]]) or ""
    )
    assert "weights" in (judged("w2n99/f32/update", weights=lambda drawn: drawn["weights"], replicas=replicas) or "")


def test_residuals_that_are_not_a_number_are_wrong():
    assert judged("w2n999/f32/ef", "int8", s=total, e=lambda drawn: np.nan * drawn["e"])


class OnGpu(np.ndarray[Any, Any]):
    """An array in the host's memory, with the copying methods of CuPy's arrays."""

    def get(self, stream, out):
        out[...] = self

    def set(self, values, stream):
        self[...] = values


@pytest.mark.parametrize("name", ["host_serial", "host_parallel"])
@pytest.mark.parametrize("words", ["", "/ef", "/update", "/update/ef"])
def test_sums_on_the_host_of_a_gpus_gradients_are_right_and_keep_residuals(name, words):
    kernel, rng = REGISTRY.kernels[f"aggregate/cuda.{name}"], np.random.default_rng(0)
    problem = REGISTRY.problem(f"aggregate/w3n1031/f32{words}")
    arrays = {o.name: rng.uniform(-1, 1, o.shape).astype("f4").view(OnGpu) for o in problem.operands()}
    drawn, chosen = {key: np.array(array) for key, array in arrays.items()}, {}
    methods = {"chose": chosen.update, "host_scratch": lambda shape, dtype: np.empty(shape, numpy_dtype(dtype))}
    x = SimpleNamespace(**arrays, **methods, stream=SimpleNamespace(synchronize=lambda: None))
    kernel.launch(problem, x)()
    outputs = {o.name: np.asarray(arrays[o.name]) for o in problem.operands() if o.role != "in"}
    assert problem.check(outputs, problem.reference(drawn, rng), "fp32").reason is None
    assert chosen["devices"] == 1


@pytest.mark.parametrize("name", ["onebit", "int8"])
@pytest.mark.parametrize("block", ["zeros", "negative", "magnitudes"])
def test_blocks_of_zeros_of_one_sign_and_of_all_magnitudes_are_right_on_the_cpu(name, block):
    size, rng = FORMATS[name].block, np.random.default_rng(0)
    problem = REGISTRY.problem(f"aggregate/w2n{3 * size}/f32/ef")
    launch, operands, *_ = set_up(problem.id, f"aggregate/cpu.{name}")
    x = {operand: operands.array(operand, "C") for operand in "ge"}
    for array in x.values():
        array[...] = rng.uniform(-1, 1, array.shape)
        if block == "magnitudes":
            array *= 10 ** rng.uniform(-3, 3, array.shape)
        else:
            array[:, size : 2 * size] = 0 if block == "zeros" else -np.abs(array[:, size : 2 * size])
    drawn = {operand: array.copy() for operand, array in x.items()}
    launch()
    assert problem.check(operands.outputs("C"), problem.reference(drawn, rng), name).reason is None


class Stream:
    """A queue of pieces of work; a piece may wait until another stream has run a number of its pieces."""

    every: ClassVar = []

    def __init__(self, non_blocking=True):
        self.work, self.done, self.ptr = [], 0, self
        Stream.every.append(self)

    def queue(self, run, after=None):
        """Add a piece; after: another stream, and the number of its pieces that have to run before."""
        self.work.append((after or (self, 0), run))

    def wait_event(self, event):
        self.queue(lambda: None, event.at)

    def ready(self):
        if self.done == len(self.work):
            return False
        other, count = self.work[self.done][0]
        return other.done >= count


class Event:
    def __init__(self, disable_timing=True):
        self.at = None

    def record(self, stream):
        stream.queue(lambda: None)
        self.at = stream, len(stream.work)


def copy_between(target, to, source, at, nbytes, stream):
    stream.queue(lambda: ctypes.memmove(target, source, nbytes))


def array(*shape):
    return np.full(shape, np.nan).view(Addressed)


class PeerOperands:
    """Operands in the host's memory, and the sums that strategies launch on streams."""

    def __init__(self, problem, timed, rng):
        self.stream, self.chosen = timed, {}
        self.g = [rng.random(problem.n).view(Addressed) for _ in range(problem.w)]
        self.weights, self.s = rng.random(problem.n).view(Addressed), array(problem.n)
        self.replicas = [array(problem.n) for _ in range(problem.w)]

    def scratch(self, shape, dtype, gpu=0):
        return array(*shape)

    def chose(self, **settings):
        self.chosen |= settings

    def launch(self, kernel, problem, stream, g, s=None, weights=None, replicas=None):
        parsed = AggregateProblem.parse(problem.partition("/")[2])
        assert g.shape == (parsed.w, parsed.n)
        assert g.flags.c_contiguous
        assert kernel == "aggregate/cuda.device" or parsed.w == 2
        run = (lambda: np.copyto(s, sum(g))) if parsed.step == "sum" else (lambda: step(g, weights, replicas))
        return lambda: stream.queue(run)


def step(g, weights, replicas):
    weights -= LR * sum(g)
    replicas[:] = weights


@pytest.fixture
def timed(monkeypatch):
    """Return the timed stream. CuPy is replaced by fakes of the few functions that the strategies call."""
    Stream.every = []
    cuda = SimpleNamespace(Device=lambda gpu: nullcontext(), Stream=Stream, Event=Event)
    cuda.runtime = SimpleNamespace(memcpyPeerAsync=copy_between)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    return Stream()


def run(timed, order):
    """Run pieces in a random order until the timed stream has none; return the number of pieces left on all streams.

    One stream is slow: it runs a piece only if no other stream can.
    """
    slow = order.choice(Stream.every)
    while timed.done < len(timed.work):
        ready = [stream for stream in Stream.every if stream.ready()]
        stream = order.choice([stream for stream in ready if stream is not slow] or ready)
        stream.work[stream.done][1]()
        stream.done += 1
    return sum(len(stream.work) - stream.done for stream in Stream.every)


@pytest.mark.parametrize("step", ["sum", "update"])
@pytest.mark.parametrize(("w", "n"), [(2, 1), (2, 70), (3, 1031), (4, 17), (5, 333), (8, 1056)])
@pytest.mark.parametrize("name", ["device", "stripes", "tree", "ring"])
def test_gradients_are_summed_in_any_order_of_work_on_streams(timed, name, w, n, step):
    problem = AggregateProblem(w=w, n=n, dtype="f64", step=step)
    for seed in range(8):
        x = PeerOperands(problem, timed, np.random.default_rng(seed))
        launch, want, order = getattr(peers, name)(problem, x), 2 * sum(x.g), random.Random(seed)
        weights = x.weights - 2 * LR * want
        timed.queue(lambda x=x: [np.copyto(g, 2 * g) for g in x.g])
        launch()  # queued when the gradients may still be the old ones
        launch()  # queued when the first launch may still be running
        assert run(timed, order) == 0
        for row in [x.s] if step == "sum" else [x.weights, *x.replicas]:
            np.testing.assert_allclose(row, want if step == "sum" else weights, rtol=1e-14, atol=1e-14)
        assert x.chosen == {"devices": w}
