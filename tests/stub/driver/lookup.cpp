// Functions by name and version, as cuda-bindings asks for them. A signature that is not that of the version does not
// compile. What the stub lacks is not found, and the packages then name it where they call it.
#include <cstring>

#include "stub.hpp"

namespace stub {

struct Export {
    const char *name;
    int since;  // the version of CUDA that brought this signature
    void *function;
};

#define EXPORT(name, version) {#name, version, reinterpret_cast<void *>(static_cast<PFN_##name##_v##version>(name))}
static const Export exports[] = {
    EXPORT(cuInit, 2000), EXPORT(cuDriverGetVersion, 2020), EXPORT(cuDeviceGetCount, 2000), EXPORT(cuDeviceGet, 2000),
    EXPORT(cuDeviceGetName, 2000), EXPORT(cuDeviceGetUuid, 11040), EXPORT(cuDeviceGetPCIBusId, 4010),
    EXPORT(cuDeviceTotalMem, 3020), EXPORT(cuDeviceGetAttribute, 2000), EXPORT(cuDevicePrimaryCtxRetain, 7000),
    EXPORT(cuDevicePrimaryCtxRelease, 11000), EXPORT(cuDevicePrimaryCtxGetState, 7000), EXPORT(cuCtxGetCurrent, 4000),
    EXPORT(cuCtxSetCurrent, 4000), EXPORT(cuCtxPushCurrent, 4000), EXPORT(cuCtxPopCurrent, 4000),
    EXPORT(cuCtxGetDevice, 2000), EXPORT(cuStreamGetCtx, 9020), EXPORT(cuCtxGetStreamPriorityRange, 5050),
    EXPORT(cuGetErrorName, 6000), EXPORT(cuGetErrorString, 6000), EXPORT(cuGetExportTable, 3000),
    EXPORT(cuMemAlloc, 3020), EXPORT(cuMemAllocAsync, 11020), EXPORT(cuMemAllocFromPoolAsync, 11020),
    EXPORT(cuMemHostAlloc, 2020), EXPORT(cuMemAllocHost, 3020), EXPORT(cuMemFree, 3020), EXPORT(cuMemFreeHost, 2000),
    EXPORT(cuMemAllocManaged, 6000), EXPORT(cuMemAdvise, 12020),
    EXPORT(cuMemFreeAsync, 11020), EXPORT(cuDeviceGetDefaultMemPool, 11020), EXPORT(cuDeviceGetMemPool, 11020),
    EXPORT(cuMemPoolGetAttribute, 11020), EXPORT(cuMemPoolSetAttribute, 11020), EXPORT(cuMemGetInfo, 3020),
    EXPORT(cuMemHostGetDevicePointer, 3020), EXPORT(cuPointerGetAttribute, 4000), EXPORT(cuMemcpy, 4000),
    EXPORT(cuMemcpyHtoD, 3020), EXPORT(cuMemcpyDtoH, 3020), EXPORT(cuMemcpyDtoD, 3020), EXPORT(cuMemcpyAsync, 4000),
    EXPORT(cuMemcpyHtoDAsync, 3020), EXPORT(cuMemcpyDtoHAsync, 3020), EXPORT(cuMemcpyDtoDAsync, 3020),
    EXPORT(cuMemcpyPeerAsync, 4000), EXPORT(cuDeviceCanAccessPeer, 4000), EXPORT(cuCtxEnablePeerAccess, 4000),
    EXPORT(cuMemsetD8, 3020), EXPORT(cuMemsetD8Async, 3020), EXPORT(cuMemsetD16Async, 3020),
    EXPORT(cuMemsetD32Async, 3020), EXPORT(cuStreamCreateWithPriority, 5050), EXPORT(cuStreamCreate, 2000),
    EXPORT(cuStreamDestroy, 4000), EXPORT(cuStreamSynchronize, 2000), EXPORT(cuStreamQuery, 2000),
    EXPORT(cuCtxSynchronize, 2000), EXPORT(cuStreamGetFlags, 5050), EXPORT(cuStreamGetPriority, 5050),
    EXPORT(cuCtxSetLimit, 3010), EXPORT(cuCtxResetPersistingL2Cache, 11000),
    EXPORT(cuStreamGetId, 12000), EXPORT(cuStreamSetAttribute, 11000), EXPORT(cuStreamWaitValue32, 11070),
    EXPORT(cuEventCreate, 2000),
    EXPORT(cuEventDestroy, 4000), EXPORT(cuEventRecord, 2000), EXPORT(cuEventRecordWithFlags, 11010),
    EXPORT(cuStreamWaitEvent, 3020), EXPORT(cuEventQuery, 2000), EXPORT(cuEventSynchronize, 2000),
    EXPORT(cuEventElapsedTime, 12080), EXPORT(cuLibraryLoadData, 12000), EXPORT(cuLibraryUnload, 12000),
    EXPORT(cuLibraryGetKernel, 12000), EXPORT(cuKernelGetFunction, 12000), EXPORT(cuKernelSetAttribute, 12000),
    EXPORT(cuKernelGetAttribute, 12000), EXPORT(cuKernelGetParamInfo, 12040), EXPORT(cuModuleLoadData, 2000),
    EXPORT(cuModuleLoadDataEx, 2010), EXPORT(cuModuleUnload, 2000), EXPORT(cuModuleGetFunction, 2000),
    EXPORT(cuFuncSetAttribute, 9000), EXPORT(cuFuncGetAttribute, 2020), EXPORT(cuFuncGetParamInfo, 12040),
    EXPORT(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050), EXPORT(cuLaunchKernel, 4000),
    EXPORT(cuLaunchCooperativeKernel, 9000), EXPORT(cuLaunchKernelEx, 11060), EXPORT(cuStreamBeginCapture, 10010),
    EXPORT(cuStreamEndCapture, 10000), EXPORT(cuStreamIsCapturing, 10000), EXPORT(cuStreamGetCaptureInfo, 12030),
    EXPORT(cuGraphDestroy, 10000), EXPORT(cuGraphInstantiateWithFlags, 11040),
    EXPORT(cuGraphInstantiateWithParams, 12000), EXPORT(cuGraphExecDestroy, 10000), EXPORT(cuGraphUpload, 11010),
    EXPORT(cuGraphGetNodes, 10000), EXPORT(cuGraphNodeGetType, 10000), EXPORT(cuGraphKernelNodeGetParams, 12000),
    EXPORT(cuFuncGetName, 12030), EXPORT(cuGraphLaunch, 10000), EXPORT(cuTensorMapEncodeTiled, 12000),
    EXPORT(cuTensorMapEncodeIm2col, 12000),
    EXPORT(cuUserObjectCreate, 11030), EXPORT(cuUserObjectRelease, 11030), EXPORT(cuGraphRetainUserObject, 11030),
    EXPORT(cuGraphReleaseUserObject, 11030),
    {"cuProfilerStart", 4000, reinterpret_cast<void *>(cuProfilerStart)},  // their types are in a header of their own
    {"cuProfilerStop", 4000, reinterpret_cast<void *>(cuProfilerStop)},
    {"cuStreamGetCtx", 12050, reinterpret_cast<void *>(static_cast<PFN_cuStreamGetCtx_v12050>(cuStreamGetCtx_v2))},
};

}  // namespace stub

extern "C" CUresult cuGetProcAddress(const char *name, void **out, int version, cuuint64_t,
                                     CUdriverProcAddressQueryResult *found) {
    const stub::Export *best = nullptr;
    for (const auto &one : stub::exports)
        if (!strcmp(one.name, name) && one.since <= version && (!best || one.since > best->since)) best = &one;
    *out = best ? best->function : nullptr;
    if (found) *found = best ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return best ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
