// Copies, checked against the blocks and against what each device can use.
#include <cstring>

#include "stub.hpp"

namespace stub {

// A copy that the host waits for where `waits`; otherwise it holds the host back only where its memory is pageable.
static CUresult copy(const char *call, uintptr_t to, uintptr_t from, size_t bytes, CUstream stream, bool waits) {
    log("%s of %zu bytes from %p to %p on %p", call, bytes, (void *)from, (void *)to, (void *)stream);
    if (waits || pageable(to) || pageable(from))
        if (CUresult refused = may_block(call)) return refused;
    std::string name = call;
    bool to_device = name.find("toD") != name.npos, from_device = name.find("cpyD") != name.npos;
    if (!inside(call, to, bytes, to_device) || !inside(call, from, bytes, from_device)) return CUDA_ERROR_INVALID_VALUE;
    // A copy may be queued on a stream of any GPU: of them only copies between two take no access.
    const int on = device_of(stream);
    const bool between = name.find("Peer") != name.npos;
    if (!between && !(within_reach(call, on, to) && within_reach(call, on, from))) return CUDA_ERROR_INVALID_VALUE;
    auto run = [=] {
        memmove(reinterpret_cast<void *>(to), reinterpret_cast<const void *>(from), bytes);
        return CUDA_SUCCESS;
    };
    CUresult status = submit(stream, {.run = run});
    return status || !waits || is_done(state().work.size() - 1) ? status : cuStreamSynchronize(stream);
}

}  // namespace stub

using namespace stub;
static uintptr_t number(const void *p) { return reinterpret_cast<uintptr_t>(p); }

extern "C" {

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t n) {
    ENTER();
    return copy(__func__, to, from, n, nullptr, true);
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t n) {
    ENTER();
    return copy(__func__, to, number(from), n, nullptr, true);
}

CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t n) {
    ENTER();
    return copy(__func__, number(to), from, n, nullptr, true);
}

CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t n) {
    ENTER();
    return copy(__func__, to, from, n, nullptr, true);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream) {
    ENTER();
    return copy(__func__, to, from, n, stream, false);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t n, CUstream stream) {
    ENTER();
    return copy(__func__, to, number(from), n, stream, false);
}

CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t n, CUstream stream) {
    ENTER();
    return copy(__func__, number(to), from, n, stream, false);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream) {
    ENTER();
    return copy(__func__, to, from, n, stream, false);
}

// Both ends must lie on the GPUs of the contexts that are named.
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t n, CUstream stream) {
    ENTER();
    for (auto [address, context] : {std::pair{to, there}, std::pair{from, here}}) {
        uintptr_t base;
        const Allocation *found = allocation(address, &base);
        if (!found || found->host || device_of(context) != found->device) {
            violation("%s: %p lies elsewhere than on the GPU that is named", __func__, (void *)address);
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return copy(__func__, to, from, n, stream, false);
}
}
