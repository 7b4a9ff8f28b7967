"""How kernelmark measures: plan, measure, record, report. Users import `kernelmark`."""

import os
import sys

# OpenBLAS's idle workers spin for 2^26 ticks of the time-stamp counter before they sleep. Contenders that stand on
# two OpenBLAS builds (NumPy's and SciPy's) and are measured in turn would then run against each other's spinning
# threads: a 256^3 SGEMM was seen 22x slower. 2^20 ticks keep a pool awake within a batch and let it sleep between
# contenders. The library reads this once, when it is loaded, so it has to stand before NumPy's first import.
SPIN_TIMEOUT_SET = "numpy" not in sys.modules or os.environ.get("OPENBLAS_THREAD_TIMEOUT") == "20"
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")
# The same of libgomp, on which the threads of pyFFTW's and PyTorch's wheels stand: by default they spin up to 10 ms,
# longer than contenders are apart; 30000 rounds are about 1 ms. Read once too, when it is loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "30000")
