"""A plug-in of copies whose work depends on the tile: a call copies WORK squared times."""

import os
import signal
from pathlib import Path

import numpy as np

from kernelmark import kernel

WORK = (4, 1, 2, 3, 5, 6, 7, 8)


def declare(name, tunables, act=lambda x: None, **options):
    def set_up(problem, x):
        act(x)
        work = getattr(x.tile, "WORK", 1) ** 2  # clearly different even on a loaded machine

        def launch():
            for _ in range(work):
                np.copyto(x.b, x.a)

        return launch

    kernel("copy", provider="mine", device="cpu", numerics="exact", name=name, tunables=tunables, **options)(set_up)


def _fail(x):
    if x.tile.WORK in (2, 3):
        raise ValueError("no luck")


def _interrupt(x):
    """Interrupt the command when the tile WORK=6 is set up, but only once per folder."""
    if x.tile.WORK == 6 and not Path("interrupted").exists():
        Path("interrupted").touch()
        keeper = Path(f"/proc/{os.getppid()}/stat").read_text()  # the process between worker and command
        os.kill(int(keeper.rpartition(")")[2].split()[1]), signal.SIGINT)


def _odd(problem, tile, device):
    return f"{tile.A} is odd" if tile.A % 2 else None


declare("counted", {"WORK": WORK})
declare("failing", {"WORK": WORK}, _fail)
declare("interrupting", {"WORK": WORK}, _interrupt)
declare("none", {})
declare("odd", {"A": (1, 3)}, valid=_odd)
declare("one", {"A": (2, 3)}, valid=_odd)
declare("vast", {name: tuple(range(10)) for name in "ABCDEFGHI"})


@kernel("copy", provider="mine", device="cpu", numerics="exact", tunables={"WORK": WORK})
def wrong(problem, x):
    """Writes zeros with every tile."""
    return lambda: x.b.fill(0)
