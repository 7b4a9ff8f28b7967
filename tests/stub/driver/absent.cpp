// What PyCUDA links to and this project does not call: without a name here PyCUDA does not load, and a call is refused.
#include "stub.hpp"

static CUresult absent(const char *name) {
    stub::violation("%s was called, which the stub does not have", name);
    return CUDA_ERROR_NOT_SUPPORTED;
}

// By its name in the library alone: the signature is that of cuda.h, where cuda.h still declares it.
#define ABSENT(name)                                 \
    extern "C" CUresult absent_##name() asm(#name); \
    CUresult absent_##name() { return absent(#name); }

ABSENT(cuArray3DCreate_v2) ABSENT(cuArray3DGetDescriptor_v2) ABSENT(cuArrayCreate_v2) ABSENT(cuArrayDestroy)
ABSENT(cuArrayGetDescriptor_v2) ABSENT(cuCtxAttach) ABSENT(cuCtxCreate_v4) ABSENT(cuCtxDetach)
ABSENT(cuCtxDisablePeerAccess) ABSENT(cuCtxGetApiVersion) ABSENT(cuCtxGetCacheConfig)
ABSENT(cuCtxGetLimit) ABSENT(cuCtxGetSharedMemConfig) ABSENT(cuCtxSetCacheConfig) ABSENT(cuCtxSetSharedMemConfig)
ABSENT(cuDeviceComputeCapability) ABSENT(cuDeviceGetByPCIBusId)
ABSENT(cuFuncSetCacheConfig) ABSENT(cuFuncSetSharedSize) ABSENT(cuIpcCloseMemHandle)
ABSENT(cuIpcGetEventHandle) ABSENT(cuIpcGetMemHandle) ABSENT(cuIpcOpenEventHandle) ABSENT(cuIpcOpenMemHandle_v2)
ABSENT(cuLaunch) ABSENT(cuLaunchGrid) ABSENT(cuLaunchGridAsync) ABSENT(cuLinkAddData_v2) ABSENT(cuLinkAddFile_v2)
ABSENT(cuLinkComplete) ABSENT(cuLinkCreate_v2) ABSENT(cuLinkDestroy)
ABSENT(cuMemAllocPitch_v2) ABSENT(cuMemGetAddressRange_v2) ABSENT(cuMemHostGetFlags) ABSENT(cuMemHostRegister_v2)
ABSENT(cuMemHostUnregister) ABSENT(cuMemcpy2DAsync_v2) ABSENT(cuMemcpy2DUnaligned_v2) ABSENT(cuMemcpy2D_v2)
ABSENT(cuMemcpy3DAsync_v2) ABSENT(cuMemcpy3DPeer) ABSENT(cuMemcpy3DPeerAsync) ABSENT(cuMemcpy3D_v2)
ABSENT(cuMemcpyAtoA_v2) ABSENT(cuMemcpyAtoD_v2) ABSENT(cuMemcpyAtoH_v2) ABSENT(cuMemcpyDtoA_v2) ABSENT(cuMemcpyHtoA_v2)
ABSENT(cuMemcpyPeer) ABSENT(cuMemsetD16_v2) ABSENT(cuMemsetD2D16Async)
ABSENT(cuMemsetD2D16_v2) ABSENT(cuMemsetD2D32Async) ABSENT(cuMemsetD2D32_v2) ABSENT(cuMemsetD2D8Async)
ABSENT(cuMemsetD2D8_v2) ABSENT(cuMemsetD32_v2) ABSENT(cuModuleGetGlobal_v2) ABSENT(cuModuleGetSurfRef)
ABSENT(cuModuleGetTexRef) ABSENT(cuModuleLoad) ABSENT(cuParamSetSize) ABSENT(cuParamSetTexRef) ABSENT(cuParamSetf)
ABSENT(cuParamSeti) ABSENT(cuParamSetv) ABSENT(cuProfilerInitialize)
ABSENT(cuStreamAttachMemAsync) ABSENT(cuSurfRefGetArray) ABSENT(cuSurfRefSetArray) ABSENT(cuTexRefCreate)
ABSENT(cuTexRefDestroy) ABSENT(cuTexRefGetAddressMode) ABSENT(cuTexRefGetAddress_v2) ABSENT(cuTexRefGetArray)
ABSENT(cuTexRefGetFilterMode) ABSENT(cuTexRefGetFlags) ABSENT(cuTexRefGetFormat) ABSENT(cuTexRefSetAddress2D_v3)
ABSENT(cuTexRefSetAddressMode) ABSENT(cuTexRefSetAddress_v2) ABSENT(cuTexRefSetArray) ABSENT(cuTexRefSetFilterMode)
ABSENT(cuTexRefSetFlags) ABSENT(cuTexRefSetFormat)
