"""A process of a run below its keeper, as the run sees it: started, looked at, and ended with all that it started."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from kernelmark.bench.measure.timing import now, pause

#: How long a keeper may take to end what stands below it, before it is ended itself.
EXIT_S = 10.0
_PAUSE_S = 2e-3
#: Held since before a plug-in could replace them.
_kill, _own_number, _SIGKILL, _SIGTERM = os.kill, os.getpid, signal.SIGKILL, signal.SIGTERM


class KeptProcess:
    """A module that runs in a process of its own, with a keeper between that process and this one."""

    def __init__(self, module: str, words: Sequence[str], variables: dict[str, str], **options: Any) -> None:
        """variables: of its environment, beside those of this process. options: as `subprocess.Popen` takes them."""
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "kernelmark.bench.run.keeper", str(_own_number()), module, *words],
            env={**os.environ, **variables, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # an interrupt from the terminal is the parent's to handle
            **options,
        )
        self.pid, self.stdout = self._process.pid, self._process.stdout

    def ended(self, within_s: float = 0.0) -> int | None:
        """Wait at most so long for the end; return the exit status, below 0 the signal, None while it goes on."""
        stop = now() + within_s
        while (status := self._process.poll()) is None and now() < stop:
            pause(_PAUSE_S)
        return status

    def order_end(self) -> None:
        """Let the keeper end the process and all below it; returns at once."""
        if self.ended() is None:
            _kill(self.pid, _SIGTERM)

    def end(self) -> None:
        """End the process and all below it, and wait until nothing is left."""
        self.order_end()
        if self.ended(EXIT_S) is None:
            _kill(self.pid, _SIGKILL)
            self.ended(EXIT_S)
