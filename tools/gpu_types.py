"""What gpu_calls.py cannot see: types of results and of arguments, and the values of names that are put together.

A type is the name of a class with `()` after it, or of a module.
"""

from collections.abc import Mapping
from typing import NamedTuple

#: The modules whose names are bound; libcublas, libcuda and libcudnn are called by ctypes.
MODULES = frozenset(
    {
        *("cuda", "cuda.bindings", "cuda.bindings.driver", "cuda.bindings.nvrtc", "cuda.core", "cuda.pathfinder"),
        *("cudnn", "cupy", "cupy.cuda", "cupy.cuda.cufft", "cupy.cuda.nccl", "cupy.cuda.runtime"),
        *("libcublas", "libcuda", "libcudnn", "nvmath.bindings.cublas", "nvmath.bindings.cublasLt"),
        *("pycuda.driver", "pynvml"),
    }
)
CLASSES = frozenset(
    {"cuda.bindings.driver.cuuint32_t", "cuda.bindings.driver.cuuint64_t", "cudnn.pygraph", "cupy.ndarray"}
)
ARRAY = "cupy.ndarray()"
_STREAM, _MEMORY = "cupy.cuda.Stream()", "cupy.cuda.MemoryPointer()"
_VALUE = "cuda.bindings.driver.CUlaunchAttributeValue"

#: Of attributes by their names, and of what calls result in, by their names with `()`. "" is what is asked nothing.
TYPES: Mapping[str, str] = {
    "cuda.bindings.driver.CUlaunchAttribute.value": f"{_VALUE}()",
    f"{_VALUE}.clusterDim": "cuda.bindings.driver.anon_struct1()",
    "cuda.core.Program.compile()": "cuda.core.ObjectCode()",
    "cuda.core.ObjectCode.from_cubin()": "cuda.core.ObjectCode()",
    "cuda.core.ObjectCode.get_kernel()": "cuda.core.Kernel()",
    "cuda.core.ObjectCode.symbol_mapping": "",
    "cuda.core.ObjectCode.code": "",
    "cuda.core.Kernel.handle": "",
    "cuda.pathfinder.load_nvidia_dynamic_lib()": "cuda.pathfinder.LoadedDL()",
    "cupy.cuda.Device.pci_bus_id": "",
    "cupy.cuda.MemoryPointer.mem": "cupy.cuda.memory.PooledMemory()",
    "cupy.cuda.Stream.end_capture()": "cupy.cuda.Graph()",
    "cupy.cuda.Stream.from_external()": _STREAM,
    "cupy.cuda.alloc_pinned_memory()": "cupy.cuda.PinnedMemoryPointer()",
    "cupy.cuda.cufft.PlanNd.work_area": _MEMORY,
    "cupy.cuda.get_current_stream()": _STREAM,
    "cupy.cuda.nccl.NcclCommunicator.initAll()": "",
    "cupy.cuda.nccl.get_version()": "",
    "cupy.cuda.runtime.deviceCanAccessPeer()": "",
    "cupy.cuda.runtime.getDeviceCount()": "",
    "cupy.cuda.runtime.getDeviceProperties()": "",
    "cupy.empty()": ARRAY,
    "cupy.get_default_memory_pool()": "cupy.cuda.MemoryPool()",
    "cupy.ndarray.data": _MEMORY,
    "cupy.ndarray.device": "cupy.cuda.Device()",
    "cupy.ndarray.dtype": "",
    "cupy.ndarray.get()": "",
    "cupy.ndarray.shape": "",
    "cupy.ndarray.strides": "",
    "cupy.ndarray.reshape()": ARRAY,
    "cupy.ndarray.swapaxes()": ARRAY,
    "cupy.ndarray.view()": ARRAY,
    "cupy.RawKernel.kernel": "cupy.cuda.Function()",
    "cupy.RawModule.get_function()": "cupy.RawKernel()",
    "cudnn.create_handle()": "",
    "cudnn.pygraph.conv_dgrad()": "cudnn.tensor()",
    "cudnn.pygraph.conv_fprop()": "cudnn.tensor()",
    "cudnn.pygraph.conv_wgrad()": "cudnn.tensor()",
    "cudnn.pygraph.tensor()": "cudnn.tensor()",
    "cudnn.tensor.set_data_type()": "cudnn.tensor()",
    "cudnn.tensor.set_dim()": "cudnn.tensor()",
    "cudnn.tensor.set_output()": "cudnn.tensor()",
    "pycuda.driver.Device.retain_primary_context()": "pycuda.driver.Context()",
    "pycuda.driver.Module.get_function()": "pycuda.driver.Function()",
    "pycuda.driver.module_from_buffer()": "pycuda.driver.Module()",
}
_DRIVER = "cuda.bindings.driver"
_NVMATH = ("nvmath.bindings.cublas",)
_LT = ("nvmath.bindings.cublasLt",)
#: Of expressions, by the module and by their text.
PLACES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("bench/measure/cuda.py", "buffer"): (ARRAY,),
    ("bench/measure/cuda.py", "self.stream"): (_STREAM,),
    ("bench/measure/cuda.py", "source.get"): ("cupy.ndarray.get",),
    ("bench/measure/cuda.py", "target"): (ARRAY,),
    ("bench/measure/draw.py", "flat"): (ARRAY,),
    ("bench/measure/launch.py", "function"): ("cuda.core.Kernel()",),
    ("bench/measure/launch.py", "getattr(x, name)"): (ARRAY,),
    ("bench/measure/launch.py", "scratch[value.name]"): (ARRAY,),
    ("bench/measure/launch.py", "stream"): (_STREAM,),
    ("bench/measure/launched.py", "params"): (f"{_DRIVER}.CUDA_KERNEL_NODE_PARAMS()",),
    ("bench/measure/launched.py", "stream"): (_STREAM,),
    ("bench/measure/launch_pycuda.py", "context"): ("pycuda.driver.Context()",),
    ("bench/measure/launch_pycuda.py", "device.stream"): (_STREAM,),
    ("bench/measure/launch_pycuda.py", "own"): ("pycuda.driver.Stream()",),
    ("bench/measure/launch_pycuda.py", "stream.ptr"): ("cupy.cuda.Stream.ptr",),
    ("bench/measure/operands.py", "guard"): (ARRAY,),
    ("bench/measure/operands.py", "raw"): (ARRAY,),
    ("bench/measure/operands.py", "self._buffers[-1]"): (ARRAY,),
    ("bench/measure/pinned.py", "free"): (f"{_DRIVER}.cuMemFree", f"{_DRIVER}.cuMemFreeHost"),
    ("bench/measure/spread.py", "part"): (ARRAY,),
    ("bench/measure/tensormap.py", "array"): (ARRAY,),
    ("bench/measure/timing.py", "self._stream"): (_STREAM,),
    ("bench/measure/timing.py", "stream"): (_STREAM,),
    ("bench/selftest/ways.py", "x.stream"): (_STREAM,),
    ("kernels/_gpus.py", "begun"): (_STREAM,),
    ("kernels/_gpus.py", "event"): ("cupy.cuda.Event()",),
    ("kernels/_gpus.py", "self._cupy"): ("cupy",),
    ("kernels/_gpus.py", "source"): (ARRAY,),
    ("kernels/_gpus.py", "stream"): (_STREAM,),
    ("kernels/_gpus.py", "target"): (ARRAY,),
    ("kernels/aggregate/host.py", "source"): (ARRAY,),
    ("kernels/aggregate/host.py", "stream"): (_STREAM,),
    ("kernels/aggregate/host.py", "target"): (ARRAY,),
    ("kernels/aggregate/nccl.py", "_library()"): ("cupy.cuda.nccl",),
    ("kernels/aggregate/nccl.py", "copy"): (ARRAY,),
    ("kernels/aggregate/nccl.py", "g"): (ARRAY,),
    ("kernels/aggregate/nccl.py", "rank"): ("cupy.cuda.nccl.NcclCommunicator()",),
    ("kernels/aggregate/nccl.py", "s"): (ARRAY,),
    ("kernels/aggregate/nccl.py", "self._nccl"): ("cupy.cuda.nccl",),
    ("kernels/aggregate/nccl.py", "source"): (ARRAY,),
    ("kernels/aggregate/nccl.py", "step"): ("cupy.ElementwiseKernel()",),
    ("kernels/aggregate/nccl.py", "stream"): (_STREAM,),
    ("kernels/aggregate/nccl.py", "target"): (ARRAY,),
    ("kernels/aggregate/nccl.py", "x.s"): (ARRAY,),
    ("kernels/conv/vendor/cudnn.py", "cudnn()"): ("libcudnn",),
    ("kernels/conv/vendor/cudnn.py", "api"): ("libcudnn",),
    ("kernels/conv/vendor/cudnn.py", "getattr(x, name)"): (ARRAY,),
    ("kernels/conv/vendor/cudnn.py", "x.stream"): (_STREAM,),
    ("kernels/conv/vendor/cudnn_frontend.py", "getattr(x, name)"): (ARRAY,),
    ("kernels/conv/vendor/cudnn_frontend.py", "graph"): ("cudnn.pygraph()",),
    ("kernels/conv/vendor/cudnn_frontend.py", "x.stream"): (_STREAM,),
    ("kernels/conv/vendor/cufft.py", "module"): ("cupy.RawModule()",),
    ("kernels/conv/vendor/cufft.py", "plan.work_area"): (_MEMORY,),
    ("kernels/conv/vendor/cufft.py", "plans[name]"): ("cupy.cuda.cufft.PlanNd()",),
    ("kernels/conv/vendor/cufft.py", "plans[output]"): ("cupy.cuda.cufft.PlanNd()",),
    ("kernels/conv/vendor/cufft.py", "spectra[name]"): (ARRAY,),
    ("kernels/copy/cuda.py", "x.stream"): (_STREAM,),
    ("kernels/fft/cufft.py", "copied"): (ARRAY,),
    ("kernels/fft/cufft.py", "source"): (ARRAY,),
    ("kernels/gemm/_cublas.py", "a.data"): (_MEMORY,),
    ("kernels/gemm/_cublas.py", "blas.api"): _NVMATH,
    ("kernels/gemm/_cublas.py", "blas.workspace"): (ARRAY,),
    ("kernels/gemm/_cublas.py", "c.data"): (_MEMORY,),
    ("kernels/gemm/_cublas.py", "x.stream"): (_STREAM,),
    ("kernels/gemm/_cublaslt.py", "api()"): _LT,
    ("kernels/gemm/_cublaslt.py", "lt"): _LT,
    ("kernels/gemm/cublas.py", "blas.api"): _NVMATH,
    ("kernels/gemm/cublas.py", "getattr(x, operand.name)"): (ARRAY,),
    ("kernels/gemm/cublaslt.py", "_cublaslt.api()"): _LT,
    ("kernels/gemm/cublaslt.py", "array"): (ARRAY,),
    ("kernels/gemm/cublaslt.py", "x.scratch((-(-needed // 2),), 'f16')"): (ARRAY,),
    ("kernels/gemm/cublaslt.py", "x.stream"): (_STREAM,),
    ("kernels/transfer/_streams.py", "device"): (ARRAY,),
    ("kernels/transfer/_streams.py", "source"): (ARRAY,),
    ("kernels/transfer/_streams.py", "stream"): (_STREAM,),
    ("kernels/transfer/_streams.py", "target"): (ARRAY,),
    ("kernels/transfer/_streams.py", "timed"): (_STREAM,),
    ("kernels/transfer/cuda.py", "x.b"): (ARRAY,),
    **{(f"{file}.py", x): (ARRAY,) for file in ("bench/selftest/ways", "kernels/copy/cuda") for x in ("x.a", "x.b")},
}
#: Modules that use a package, some of them without importing it.
FILES = frozenset(file for file, _ in PLACES)


class Values(NamedTuple):
    """Values of a name that is put together: each match of `pattern` in a file, put into `template`."""

    template: str
    file: str
    pattern: str


_SETTINGS = r'settings\["(\w+)"\]'
#: Of names that `getattr` is given, by the module and the expression.
DYNAMIC: Mapping[tuple[str, str], Values] = {
    ("bench/measure/cuda.py", "f'CU_DEVICE_ATTRIBUTE_{name}'"): Values(
        "CU_DEVICE_ATTRIBUTE_{}", "bench/measure/cuda.py", r'limit\("(\w+)"\)'
    ),
    ("bench/measure/launch.py", "f'CU_FUNC_ATTRIBUTE_{name}'"): Values(
        "CU_FUNC_ATTRIBUTE_{}", "bench/measure/launch.py", _SETTINGS
    ),
    ("bench/measure/launch_pycuda.py", "name"): Values("{}", "bench/measure/launch.py", _SETTINGS),
    ("bench/measure/nvml.py", "function"): Values("{}", "bench/measure/nvml.py", r'_read\("(\w+)"'),
    ("bench/measure/nvml.py", "name"): Values("{}", "bench/measure/nvml.py", r'"(NVML_\w+)"'),
    ("bench/measure/tensormap.py", "f'CU_TENSOR_MAP_DATA_TYPE_{element}'"): Values(
        "CU_TENSOR_MAP_DATA_TYPE_{}", "bench/measure/tensormap.py", r'"(T?B?FLOAT\d+)"'
    ),
    ("bench/measure/tensormap.py", "f'CU_TENSOR_MAP_SWIZZLE_{swizzle.upper()}'"): Values(
        "CU_TENSOR_MAP_SWIZZLE_{}", "bench/plan/kernel.py", r"`(\d+B|none)`"
    ),
    ("kernels/conv/vendor/cudnn.py", "f'cudnnConvolution{function}'"): Values(
        "cudnnConvolution{}", "kernels/conv/vendor/cudnn.py", r'": \("(\w+)", \('
    ),
    ("kernels/conv/vendor/cudnn.py", "f'cudnnGetConvolution{function}WorkspaceSize'"): Values(
        "cudnnGetConvolution{}WorkspaceSize", "kernels/conv/vendor/cudnn.py", r'": \("(\w+)", \('
    ),
    ("kernels/conv/vendor/cudnn_frontend.py", "_DATA_TYPE[problem.dtype]"): Values(
        "{}", "kernels/conv/vendor/cudnn_frontend.py", r'": "([A-Z]\w+)"'
    ),
    ("kernels/conv/vendor/cudnn_frontend.py", "f'conv_{problem.direction}'"): Values(
        "conv_{}", "kernels/conv/vendor/cudnn_frontend.py", r'"(fprop|dgrad|wgrad)":'
    ),
    ("kernels/conv/vendor/cudnn_frontend.py", "mode"): Values(
        "{}", "kernels/conv/vendor/cudnn_frontend.py", r'_MODES = \("(\w+)", "(\w+)", "(\w+)"\)'
    ),
    ("kernels/conv/vendor/cudnn_frontend.py", "name"): Values(
        "{}", "kernels/conv/vendor/cudnn_frontend.py", r'(?<!: )"(?!FALLBACK)([A-Z]\w{2,})"'
    ),
    ("kernels/gemm/cublas.py", "routine.batched if problem.batch > 1 else routine.name"): Values(
        "{}", "kernels/gemm/cublas.py", r'_Routine\("(\w+)", "(\w+)"'
    ),
}
