"""Ceilings over a worker whose microbenchmarks run at given rates."""

from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.measure.stats import Interval
from kernelmark.bench.plan.case import Budget, Job
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.run import ceilings

#: 2^31 flop on operands of 3 MB.
GEMM = "gemm/m1024n1024k1024/f32/NN"
JOB = Job(
    (GEMM,), ("gemm/numpy.matmul", "gemm/scipy.sgemm"), Mode.COLD, (), 0, Budget(), 1, baseline="gemm/numpy.matmul"
)


class Lab:
    """Ceilings over a worker whose microbenchmarks run at these rates, and what was kept and doubted."""

    def __init__(self, monkeypatch, registry):
        self.rates, self.width = {"fma": 1e11, "copy": 1e10}, 0.0
        self.jobs, self.kept, self.doubts, self.now = [], [], [], 1000.0
        self._registry = registry
        monkeypatch.setattr(ceilings, "now", lambda: self.now)
        self.ever = []
        self.begin()

    def begin(self, known=None):
        """Begin another run on the same machine; known: the ceilings that it has in common with others."""
        doubt = lambda ceiling, reason: self.doubts.append((ceiling.kind, reason))  # noqa: E731
        self.ceilings = ceilings.Ceilings(
            self._registry, lambda *what: self.answer(*what), self.kept.append, doubt, self.highest, known
        )

    def answer(self, job, key):
        self.jobs.append(job)
        (problem,) = map(self._registry.problem, job.problems)
        took = (problem.flop or problem.traffic_bytes) / self.rates[problem.op]
        return [timed(name, took, width=self.width) for name in job.kernels]

    def highest(self, need):
        found = [ceiling for ceiling in (*self.ever, *self.kept) if ceiling.need == need]
        return max(found, key=lambda ceiling: ceiling.best, default=None)

    def apply(self, **took):
        rows = [timed(f"gemm/{name.replace('_', '.')}", seconds) for name, seconds in took.items()]
        self.ceilings.apply(JOB, rows)
        return rows


def timed(kernel, seconds, problem=GEMM, width=0.0):
    interval = Interval(seconds, seconds * (1 - width / 2), seconds * (1 + width / 2))
    return Measurement(kernel=kernel, problem=problem, numerics="fp32", samples=[seconds] * 6, interval=interval)
