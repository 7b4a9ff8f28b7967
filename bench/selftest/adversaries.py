"""Check that cheating kernels are caught, and that the honest kernel in the same job is not affected."""

import os
from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from kernelmark.bench.measure.devices import devices_present
from kernelmark.bench.measure.disturbance import beyond
from kernelmark.bench.measure.measurement import Measurement
from kernelmark.bench.plan.case import Budget
from kernelmark.bench.plan.modes import Mode
from kernelmark.bench.plan.status import Status
from kernelmark.bench.selftest.finding import Finding, Tick, measured

#: The statuses of a cheat that is caught; a cheat with right results can only be `mistrusted`.
CAUGHT = (Status.WRONG, Status.MISTRUSTED)
#: The time limit of each cheat, in seconds.
MAX_TIME_S = 0.3


class Cheat(NamedTuple):
    """A cheating kernel: the statuses that it may end with, its problem, and an honest kernel in the same job.

    kernel: the kernel's name in the plug-in, if it differs from the cheat's name. note: for a cheat that gets a time,
    the text that must be in its column `disturbed`.
    """

    statuses: tuple[Status, ...] = (Status.WRONG,)
    problem: str = "gemm/m256n256k256/f32/NN"
    honest: str = "gemm/numpy.matmul"
    device: str = "cpu"
    mode: Mode = Mode.HOT
    plugin: str = "cheats"
    kernel: str = ""
    note: str = ""


#: For each operation, the problem on which its cheats are tried, and the honest kernel in the same job.
OPERATIONS = {
    "gemm": ("gemm/m128n128k128/f32/NN", "gemm/numpy.matmul"),
    "transpose": ("transpose/m256n256/f32/out", "transpose/numpy.out"),
    "copy": ("copy/m256n256/f32", "copy/numpy.copyto"),
    "transfer": ("transfer/n65536/f32/h2h", "transfer/numpy.copyto"),
    "fft": ("fft/b16h32w32/f32/r2c", "fft/scipy.pocketfft"),
    "aggregate": ("aggregate/w4n65536/f32", "aggregate/cpu.host_serial"),
    "conv": ("conv/n2c8h18w18k8r3s3/f32/nchw/fprop", "conv/cpu.im2col"),
}
EXPECTED = {
    "cached": Cheat(plugin="habits", kernel="computes_once"),
    "only_when_changed": Cheat((Status.MISTRUSTED,)),
    "incremental": Cheat((Status.MISTRUSTED,), problem="gemm/m512n512k512/f32/NN"),
    "incremental_at_first": Cheat((Status.MISTRUSTED,), problem="gemm/m160n160k160/f32/NN"),
    **{name: Cheat(CAUGHT, problem="gemm/m64n64k64/f32/NN") for name in ("once_a_batch", "unless_apart")},
    "when_read": Cheat(CAUGHT),
    "warms_by_a_trace": Cheat((Status.MISTRUSTED,), "copy/m512n512/f32", "copy/numpy.copyto", mode=Mode.COLD),
    "by_a_signal": Cheat(CAUGHT),
    "wrong_on_a_coin": Cheat(),
    "sends_later": Cheat(CAUGHT, "transfer/n16777216/f32/h2h", "transfer/numpy.copyto"),
    "copies_from_its_last_output": Cheat(problem="copy/m512n512/f32", honest="copy/numpy.copyto", mode=Mode.COLD),
    **{
        f"maps_pages {mode}": Cheat(CAUGHT, "copy/m1024n1024/f32", "copy/numpy.copyto", mode=mode)
        for mode in (Mode.COLD, Mode.HOT)
    },
    "first_half_later": Cheat(problem="transpose/m512n512/f32/out", honest="transpose/numpy.out", mode=Mode.VERIFY),
    "in_set_up": Cheat(plugin="habits", kernel="computes_in_set_up"),
    "foresees": Cheat(mode=Mode.VERIFY),
    "declares_one": Cheat((Status.FAILED,)),
    "declares_tf32": Cheat((Status.UNSUPPORTED,)),
    "zeroes_input": Cheat(),
    "on_another_thread": Cheat(CAUGHT),
    "returns_early": Cheat(CAUGHT),
    "out_of_bounds": Cheat(plugin="habits", kernel="writes_beyond"),
    "right_on_cache_lines": Cheat(),
    "half_fingerprints": Cheat(plugin="habits"),
    **{
        f"computes_when_changed {op}": Cheat(problem=problem, honest=honest, plugin="habits")
        for op, (problem, honest) in OPERATIONS.items()
    },
}
ON_GPU = {"on_another_stream": Cheat(CAUGHT, device="cuda")}

_HABITS = (
    *("computes_once", "computes_in_set_up", "computes_when_changed", "skips_soon", "skips_every_other"),
    *("leaves_a_thread", "skips_when_timed", "spoils_its_input", "writes_beyond", "drops_bits", "copies_when_soon"),
    *("computes_in_a_trace", "clips", "packs", "rounds"),
)
#: Habits that are tried only in hot mode: cold calls are too far apart for them, or cold results are the same.
_HOT = ("skips_soon", "copies_when_soon", "clips", "packs", "rounds")
_IN_PLACE = Cheat(CAUGHT, "transpose/m256n256/f32/in", "transpose/openblas.imatcopy", plugin="habits")
HABITS = {
    f"{habit} {op} {mode}": Cheat(CAUGHT, problem, honest, mode=mode, plugin="habits")
    for op, (problem, honest) in OPERATIONS.items()
    for habit in _HABITS
    for mode in (Mode.COLD, Mode.HOT)
    if habit not in _HOT or mode == Mode.HOT
    if (habit, op) != ("clips", "fft")  # the operands of transforms lie in [-1, 1]
}
HABITS |= {f"in_place transpose {mode}": _IN_PLACE._replace(mode=mode) for mode in (Mode.COLD, Mode.HOT)}
HABITS |= {
    "reads_beyond gemm hot": Cheat(CAUGHT, *OPERATIONS["gemm"]),
    "works_ahead gemm cold": Cheat(CAUGHT, *OPERATIONS["gemm"], mode=Mode.COLD),
    "slows_numpy gemm hot": Cheat((Status.OK,), note="measured without the plug-ins, which had replaced numpy.matmul"),
}
if (os.cpu_count() or 1) > 1:
    HABITS["helped gemm hot"] = Cheat((Status.OK,), "gemm/m512n512k512/f32/NN", note=beyond(""))


def cheats(check: str) -> dict[str, Cheat]:
    """Return the cheats of the check `adversaries` or `habits` that can be tried here."""
    if check == "habits":
        return HABITS
    return EXPECTED | (ON_GPU if "cuda" in devices_present() else {})


def jobs(check: str, seeds: int = 1) -> int:
    """Return the number of jobs of a check."""
    return seeds * len(cheats(check))


def run(check: str, tick: Tick, seeds: int = 1) -> Iterator[Finding]:
    """Run each cheat in fresh processes, in turn with an honest kernel, on `seeds` draws."""
    for name, cheat in cheats(check).items():
        findings = [_tried(f"{check}: {name}", cheat, seed, tick) for seed in range(seeds)]
        missed = [finding for finding in findings if not finding.holds]
        last = (missed or findings)[-1]
        if seeds > 1:
            last = replace(last, found=f"{seeds - len(missed)} of {seeds}; {last.found}")
        yield replace(last, holds=len(missed) <= seeds // 100)


def _tried(check: str, cheat: Cheat, seed: int, tick: Tick) -> Finding:
    kernel = cheat.kernel or check.split()[1]
    honest, cheating = measured(
        (cheat.problem,),
        (cheat.honest, f"{cheat.problem.partition('/')[0]}/selftest.{kernel}"),
        cheat.plugin,
        mode=cheat.mode,
        budget=Budget(MAX_TIME_S),
        device=cheat.device,
        seed=seed,
        baseline=cheat.honest,
    )
    tick()
    return caught(check, honest, cheating, cheat.statuses, cheat.note)


def caught(
    check: str, honest: Measurement, cheating: Measurement, statuses: tuple[Status, ...], note: str = ""
) -> Finding:
    """Check that the cheat has one of `statuses` and no time (or, if given, `note`), and the honest kernel is ok."""
    is_seen = note in cheating.disturbed if note else not cheating.samples
    holds = honest.status == Status.OK and cheating.status in statuses and is_seen
    why = cheating.reason or (note and cheating.disturbed)
    said = f"{cheating.status}: {why}" if why else cheating.status
    beside = "" if honest.status == Status.OK else f"; the honest kernel is {honest.status}: {honest.reason}"
    return Finding(check.replace("_", " "), said + beside, " or ".join(statuses), holds)
