"""Run PyTorch's operations on kernelmark's operands, and report which implementation ran; set-ups import this."""

import ctypes
import os
import re
import sys
import tempfile
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from kernelmark import Array, Launch
from kernelmark.kernels._team import beside, here

TASKS = Path("/proc/self/task")

#: `onednn_verbose,v1,primitive,exec,cpu,convolution,brg_conv_fwd:avx512_core,...`; some versions leave out `v1`.
_LINE = r"^(?:onednn|dnnl)_verbose,.*\bexec,cpu,{},([^,]+),"


def tensor(array: Array) -> Any:
    """Return a tensor that shares the array's memory; ml_dtypes' bfloat16 becomes PyTorch's."""
    torch: Any = import_module("torch")
    if array.dtype.kind in "fi":
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(np.int16)).view(getattr(torch, array.dtype.name))


def on_threads(run: Launch, threads: int) -> Launch:
    """Return a launch that first sets the number of PyTorch's threads, since other kernels may have changed it."""
    torch: Any = import_module("torch")

    def launch() -> None:
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        _pool().run(run, threads)

    return launch


class _Pool:
    """PyTorch's threads except the calling thread, each pinned to its own CPU as in kernelmark's kernels.

    They sleep while other contenders are sampled. If they were not pinned, the scheduler would then wake them on the
    calling thread's CPU, where they compete with it: on two CPUs, every second call of 0.4 ms took 2.6 ms.
    """

    def __init__(self) -> None:
        self._threads: set[int] = set()
        self._most, self._cpu = 1, -1

    def run(self, launch: Launch, threads: int) -> None:
        if threads <= self._most or not TASKS.is_dir():
            self._keep_apart()
            launch()
            return
        before = _tasks()
        launch()
        self._threads |= _tasks() - before
        self._most, self._cpu = threads, -1

    def _keep_apart(self) -> None:
        if self._threads and (cpu := here()) != self._cpu:
            self._cpu = cpu
            for thread, cpus in zip(sorted(self._threads), beside(cpu, len(self._threads)), strict=False):
                with suppress(ProcessLookupError):
                    os.sched_setaffinity(thread, cpus)


@cache
def _pool() -> _Pool:
    return _Pool()


def _tasks() -> set[int]:
    return {int(task.name) for task in TASKS.iterdir()}


def implementation(launch: Launch, primitive: str, otherwise: str) -> str:
    """Return the implementation that a launch uses, as oneDNN reports it: `oneDNN 3.12.0 brg_conv_fwd:avx512_core`.

    primitive: oneDNN's name of the operation, such as `convolution`; otherwise: returned if nothing is reported.
    """
    torch: Any = import_module("torch")
    mkldnn = torch.backends.mkldnn
    if not mkldnn.is_available():
        return "PyTorch without oneDNN"
    with mkldnn.verbose(mkldnn.VERBOSE_ON):
        ran = list(dict.fromkeys(re.findall(_LINE.format(primitive), _printed(launch), re.MULTILINE)))
    if not ran:
        return otherwise
    version = re.search(r"MKL-DNN v([\d.]+)", torch.__config__.show())
    return " ".join(["oneDNN", *(version.groups() if version else ()), *ran])


def _printed(run: Launch) -> str:
    """Return the text that C code writes to file descriptor 1 during a launch."""
    libc = ctypes.CDLL(None)
    sys.stdout.flush()
    libc.fflush(None)
    stdout = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            run()
        finally:
            libc.fflush(None)
            os.dup2(stdout, 1)
            os.close(stdout)
        file.seek(0)
        return file.read().decode(errors="replace")
