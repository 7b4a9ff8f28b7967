// The primary contexts of the devices, those that are current in a thread, and access to the memory of other devices.
#include <set>

#include "stub.hpp"

namespace stub {

struct Primary {
    int device = 0, retained = 0;
    std::set<int> peers = {};  // whose memory it can use
};

static Primary *primary(int device) {
    static auto *all = [] {
        auto *found = new std::vector<Primary>(visible().size());
        for (size_t i = 0; i < found->size(); ++i) (*found)[i].device = static_cast<int>(i);
        return found;
    }();
    return device >= 0 && device < static_cast<int>(all->size()) ? &(*all)[device] : nullptr;
}

static CUcontext handle_of(Primary *context) { return reinterpret_cast<CUcontext>(context); }

static Primary *context_of(CUcontext handle) {
    for (size_t i = 0; i < visible().size(); ++i)
        if (handle_of(primary(static_cast<int>(i))) == handle) return primary(static_cast<int>(i));
    return nullptr;
}

static thread_local std::vector<CUcontext> contexts;

int current_device() {
    Primary *found = contexts.empty() ? nullptr : context_of(contexts.back());
    return found ? found->device : 0;
}

int device_of(CUcontext context) {
    Primary *found = context_of(context);
    return found ? found->device : -1;
}

static bool reaches(int device, int other) { return device == other || primary(device)->peers.count(other); }

bool within_reach(const char *call, int device, uintptr_t address) {
    uintptr_t base;
    const Allocation *found = allocation(address, &base);
    if (!found || found->host || reaches(device, found->device)) return true;
    violation("%s: GPU %d used memory of GPU %d, to which it has no access", call, device, found->device);
    return false;
}

}  // namespace stub

using namespace stub;

extern "C" {

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    ENTER();
    Primary *found = primary(device);
    if (!found) return CUDA_ERROR_INVALID_DEVICE;
    *context = handle_of(found);
    if (found->retained++ == 0) made("the primary context", found, __func__);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    ENTER();
    Primary *found = primary(device);
    if (!found || !alive("the primary context", found)) return CUDA_ERROR_INVALID_CONTEXT;
    if (--found->retained == 0) released("the primary context", found);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    ENTER();
    Primary *found = primary(device);
    if (!found) return CUDA_ERROR_INVALID_DEVICE;
    *flags = 0;
    *active = found->retained > 0;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    ENTER();
    *context = contexts.empty() ? nullptr : contexts.back();
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
    ENTER();
    if (!contexts.empty()) contexts.pop_back();
    if (context) contexts.push_back(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context) {
    ENTER();
    contexts.push_back(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *context) {
    ENTER();
    if (contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (context) *context = contexts.back();
    contexts.pop_back();
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device) {
    ENTER();
    *device = current_device();
    return contexts.empty() ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

// KM_STUB_APART: no GPU can use another's memory.
CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
    ENTER();
    if (!primary(device) || !primary(peer)) return CUDA_ERROR_INVALID_DEVICE;
    *can = device != peer && !setting("KM_STUB_APART", 0);
    return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext context, unsigned flags) {
    ENTER();
    Primary *peer = context_of(context), *own = primary(current_device());
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    if (!peer || contexts.empty() || peer == own) return CUDA_ERROR_INVALID_CONTEXT;
    if (setting("KM_STUB_APART", 0)) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    log("%s of %d to %d", __func__, own->device, peer->device);
    return own->peers.insert(peer->device).second ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context) {
    ENTER();
    *context = handle_of(primary(device_of(stream)));
    return stream_of(stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext *context, CUgreenCtx *green) {
    *green = nullptr;
    return cuStreamGetCtx(stream, context);
}
}
