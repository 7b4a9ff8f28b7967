"""A plug-in with which a command's workers run launches in the emulator: those of the case that KM_STUB_CASE names."""

import os

from bench.plan.kernel import CudaKernel
from bench.plan.registry import REGISTRY
from stub.emulated import Emulator

name, problem = os.environ["KM_STUB_CASE"].split()
kernel = REGISTRY.kernels[name]
assert isinstance(kernel, CudaKernel)
Emulator().know(kernel, REGISTRY.problem(problem))
