"""Compare the emulator with a GPU: run one emulated case of each kernel on both, and compare the verdicts."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

from kernelmark.bench.emulator.sweep import EmulatedCase, cases, complaints, entries
from kernelmark.bench.measure.cpu import cpu_count
from kernelmark.bench.measure.cuda import present_limits
from kernelmark.bench.measure.devices import get_device
from kernelmark.bench.measure.launch import cuda_launch
from kernelmark.bench.measure.operands import Operands, ScratchBuffers, loaded, place_of
from kernelmark.bench.measure.timing import now
from kernelmark.bench.measure.verify import References, verify
from kernelmark.bench.plan.discovery import discover
from kernelmark.bench.plan.kernel import CudaKernel
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.run.child import Lost, answers

#: Limits of a kernel's time, in seconds and as a share of the total, so that a kernel that hangs leaves time for the
#: others. The first kernel also waits for the emulator's compilations.
SILENCE_S, SHARE = 60.0, 0.5
NOT_FINISHED = "not finished"


def compare(kernels: Sequence[str], until_s: float) -> Iterator[str]:
    """Yield a line for each kernel that is compared before `until_s` (monotonic clock), in watched processes."""
    silence_s = min(SILENCE_S, SHARE * (until_s - now()))
    for kernel, reply in answers("agreement", kernels, silence_s, until_s):
        if isinstance(reply, Lost) and now() >= until_s:
            break
        if isinstance(reply, Lost):  # a process that died is a verdict; one that was ended for its time is not
            reply = f"{NOT_FINISHED if reply.reason.startswith('ended after') else 'differ'}: {reply.reason}"
        yield f"{kernel}: {reply}"


def replies(kernels: Sequence[str]) -> Iterator[str]:
    """Yield, for each kernel, whether emulator and device agree on its smallest case; if not, both verdicts.

    The process ends at a kernel that corrupts the device, since all later kernels would fail.
    """
    registry = discover()
    chosen = [smallest(registry, name) for name in kernels]
    # The emulator spends its time in a compiler, so its cases run on all CPUs while the device works.
    with ThreadPoolExecutor(cpu_count()) as pool:
        emulated_cases = [pool.submit(_guarded, _emulated, case) for case in chosen]
        for case, emulating in zip(chosen, emulated_cases, strict=True):
            on_device = _guarded(_on_device, case)
            if on_device and (error := get_device("cuda").broken()):
                pool.shutdown(wait=False, cancel_futures=True)
                raise RuntimeError(f"the device is lost: {error}")
            emulated = emulating.result()
            agree = (emulated is None) == (on_device is None)
            both = f"emulator {emulated or 'right'}, device {on_device or 'right'}"
            yield f"agree on {case.id}" if agree else f"differ on {case.id}: {both}"


def smallest(registry: Registry, name: str) -> EmulatedCase:
    kernel = registry.kernels[name]
    assert isinstance(kernel, CudaKernel)
    return min(cases(registry, kernel, present_limits()), key=lambda case: case.problem.footprint_bytes)


def _guarded(verdict: Callable[[EmulatedCase], str | None], case: EmulatedCase) -> str | None:
    try:
        return verdict(case)
    except Exception as error:  # such as no compiler for the emulator
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"


def _emulated(case: EmulatedCase) -> str | None:
    return next(complaints(case, entries([case])), None)


def _on_device(case: EmulatedCase) -> str | None:
    device = get_device("cuda")
    place = place_of(case.kernel, case.problem, device)
    draw, operands = loaded(case.problem, device, memory=place.memory, spread=place.spread)
    scratch = ScratchBuffers(device, case.kernel.host_memory)
    x = Operands(operands, case.kernel.order, device, 1, scratch)
    launch = cuda_launch(case.kernel, case.problem, x, tile=case.tile)
    references = References(case.problem, draw, nullcontext)  # no stages are recorded: the whole process is watched
    verdict, _ = verify(case.kernel, case.problem, launch, operands, draw, references, scratch, device, nullcontext)
    return verdict.reason
