"""`python -m kernelmark` is the command, and so is the script `kernelmark`.

From the first moment on, an interrupt ends it without a traceback; `_signal` is there already, `signal` loads others.
"""

import _signal  # type: ignore[import-not-found]

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # under nohup it is ignored
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

from kernelmark.bench.cli import main

if __name__ == "__main__":
    main()
