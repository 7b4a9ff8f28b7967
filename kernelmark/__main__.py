"""The command: `python -m kernelmark`, and the script `kernelmark`.

An interrupt ends it without a traceback, even during imports. Unlike `signal`, `_signal` imports nothing.
"""

import _signal  # type: ignore[import-not-found]

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # under nohup it is ignored
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

from kernelmark.bench.cli import main

if __name__ == "__main__":
    main()
