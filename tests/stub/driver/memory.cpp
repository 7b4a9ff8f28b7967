// Memory: a device's is the host's, in blocks that begin with garbage; copies and fills, checked against the blocks.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "stub.hpp"

namespace stub {

const Allocation *allocation(uintptr_t address, uintptr_t *base) {
    auto &memory = state().memory;
    auto next = memory.upper_bound(address);
    if (next == memory.begin()) return nullptr;
    --next;
    *base = next->first;
    return address < next->first + next->second.bytes ? &next->second : nullptr;
}

static CUresult allocate(const char *call, void **out, size_t bytes, bool host) {
    if (CUresult refused = may_block(call)) return refused;
    if (!bytes) return CUDA_ERROR_INVALID_VALUE;
    void *block = bytes >> 34 || is_out_of_memory() ? nullptr : aligned_alloc(512, (bytes + 511) / 512 * 512);
    if (!block) return CUDA_ERROR_OUT_OF_MEMORY;
    memset(block, 0xCB, bytes);
    state().memory[reinterpret_cast<uintptr_t>(block)] = {bytes, host};
    made("memory", block, call);
    log("%s of %zu bytes at %p", call, bytes, block);
    *out = block;
    return CUDA_SUCCESS;
}

static CUresult give_back(void *block) {
    if (!block) return CUDA_SUCCESS;
    if (!alive("memory", block)) return CUDA_ERROR_INVALID_VALUE;
    released("memory", block);
    state().memory.erase(reinterpret_cast<uintptr_t>(block));
    free(block);
    return CUDA_SUCCESS;
}

static CUresult give_back_now(const char *call, void *block) {
    if (CUresult refused = may_block(call)) return refused;
    return give_back(block);
}

static bool inside(const char *call, uintptr_t address, size_t bytes, bool must) {
    uintptr_t base = 0;
    const Allocation *found = allocation(address, &base);
    if (found ? address + bytes <= base + found->bytes : !must) return true;
    violation("%s: %zu bytes at %p reach beyond the memory that was allocated", call, bytes, (void *)address);
    return false;
}

static bool pageable(uintptr_t address) {
    uintptr_t base;
    return !allocation(address, &base);
}

// A copy that the host waits for where `waits`; otherwise it holds the host back only where its memory is pageable.
static CUresult copy(const char *call, uintptr_t to, uintptr_t from, size_t bytes, CUstream stream, bool waits) {
    log("%s of %zu bytes from %p to %p on %p", call, bytes, (void *)from, (void *)to, (void *)stream);
    if (waits || pageable(to) || pageable(from))
        if (CUresult refused = may_block(call)) return refused;
    std::string name = call;
    bool to_device = name.find("toD") != name.npos, from_device = name.find("cpyD") != name.npos;
    if (!inside(call, to, bytes, to_device) || !inside(call, from, bytes, from_device)) return CUDA_ERROR_INVALID_VALUE;
    auto run = [=] {
        memmove(reinterpret_cast<void *>(to), reinterpret_cast<const void *>(from), bytes);
        return CUDA_SUCCESS;
    };
    CUresult status = submit(stream, {.run = run});
    return status || !waits || is_done(state().work.size() - 1) ? status : cuStreamSynchronize(stream);
}

template <class T>
static CUresult fill(const char *call, CUdeviceptr to, T value, size_t count, CUstream stream) {
    log("%s of %zu bytes at %p on %p", call, count * sizeof(T), (void *)to, (void *)stream);
    if (!inside(call, to, count * sizeof(T), true)) return CUDA_ERROR_INVALID_VALUE;
    auto run = [=] {
        std::fill_n(reinterpret_cast<T *>(to), count, value);
        return CUDA_SUCCESS;
    };
    return submit(stream, {.run = run});
}

}  // namespace stub

using namespace stub;
static uintptr_t number(const void *p) { return reinterpret_cast<uintptr_t>(p); }
static void **block(CUdeviceptr *out) { return reinterpret_cast<void **>(out); }

extern "C" {

CUresult cuMemAlloc(CUdeviceptr *out, size_t bytes) {
    ENTER();
    return allocate(__func__, block(out), bytes, false);
}

CUresult cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream) {
    ENTER();
    return allocate(__func__, block(out), bytes, false);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemoryPool, CUstream) {
    ENTER();
    return allocate(__func__, block(out), bytes, false);
}

CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned) {
    ENTER();
    return allocate(__func__, out, bytes, true);
}

CUresult cuMemAllocHost(void **out, size_t bytes) {
    ENTER();
    return allocate(__func__, out, bytes, true);
}

CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned flags) {
    ENTER();
    return flags == CU_MEM_ATTACH_GLOBAL ? allocate(__func__, block(out), bytes, false) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location) {
    ENTER();
    log("%s %d of %zu bytes at %p for %d", __func__, int(advice), bytes, (void *)address, int(location.type));
    return inside(__func__, address, bytes, true) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemFree(CUdeviceptr address) {
    ENTER();
    return give_back_now(__func__, reinterpret_cast<void *>(address));
}

CUresult cuMemFreeHost(void *address) {
    ENTER();
    return give_back_now(__func__, address);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    ENTER();
    return submit(stream, {.run = [=] { return give_back(reinterpret_cast<void *>(address)); }});
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice) {
    ENTER();
    *pool = reinterpret_cast<CUmemoryPool>(1);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device) { return cuDeviceGetDefaultMemPool(pool, device); }

CUresult cuMemPoolGetAttribute(CUmemoryPool, CUmemPool_attribute, void *value) {
    ENTER();
    memset(value, 0, sizeof(cuuint64_t));
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool, CUmemPool_attribute, void *) {
    ENTER();
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(size_t *available, size_t *total) {
    ENTER();
    *available = size_t{1} << 33;
    return cuDeviceTotalMem(total, 0);
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr *out, void *host, unsigned) {
    ENTER();
    *out = number(host);
    return pageable(number(host)) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address) {
    ENTER();
    uintptr_t base;
    const Allocation *found = allocation(address, &base);
    if (!found) return CUDA_ERROR_INVALID_VALUE;
    if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
        *static_cast<unsigned *>(data) = found->host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    else if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL || attribute == CU_POINTER_ATTRIBUTE_IS_MANAGED)
        *static_cast<int *>(data) = 0;
    else
        return CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
}

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

CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, size_t count) {
    ENTER();
    return fill(__func__, to, value, count, nullptr);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
    ENTER();
    return fill(__func__, to, value, count, stream);
}

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
    ENTER();
    return fill(__func__, to, value, count, stream);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
    ENTER();
    return fill(__func__, to, value, count, stream);
}
}
