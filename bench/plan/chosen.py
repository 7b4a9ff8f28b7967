"""Which kernels contend on a problem: by device, by domain, and by the globs of the suite and of the user."""

from fnmatch import fnmatchcase

from kernelmark.bench.plan.kernel import Kernel
from kernelmark.bench.plan.registry import Registry
from kernelmark.bench.plan.sweep import Entry
from kernelmark.bench.plan.tunable import tiled

#: What the globs of a suite and of the user make of a kernel, by its id and those of the suite.
Tiled = dict[tuple[str, tuple[str, ...]], list[Kernel]]


def contenders(
    entry: Entry,
    registry: Registry,
    devices: tuple[str, ...],
    globs: tuple[str, ...] = (),
    known: Tiled | None = None,
) -> list[Kernel]:
    """The kernels that devices, suite and the user's globs select, and whose domain holds the problem.

    A kernel that is named in full stays, whatever its device and domain: its row is `unsupported`, with the reason.
    One that contends on request has to be selected by a glob.
    known: what was found before for the same globs of the user, and is found here.
    """
    known = {} if known is None else known
    named = {glob.partition("@")[0] for glob in globs}
    of_operation = (kernel for kernel in registry.kernels.values() if kernel.op == entry.problem.op)
    asked = [glob.partition("@")[0] for glob in (*entry.kernels, *globs)]
    able = (k for k in of_operation if k.base_id in named or (k.device in devices and k.outside(entry.problem) is None))
    found = []
    for kernel in able:
        if kernel.on_request and not any(fnmatchcase(kernel.base_id, glob) for glob in asked):
            continue
        key = kernel.id, entry.kernels
        if key not in known:
            known[key] = [chosen for listed in tiled(kernel, entry.kernels) for chosen in tiled(listed, globs)]
        found += known[key]
    return found
