// Memory: a device's is the host's, in blocks that begin with garbage; fills, checked against the blocks.
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
    state().memory[reinterpret_cast<uintptr_t>(block)] = {bytes, host, current_device()};
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

bool inside(const char *call, uintptr_t address, size_t bytes, bool must) {
    uintptr_t base = 0;
    const Allocation *found = allocation(address, &base);
    if (found ? address + bytes <= base + found->bytes : !must) return true;
    violation("%s: %zu bytes at %p reach beyond the memory that was allocated", call, bytes, (void *)address);
    return false;
}

bool pageable(uintptr_t address) {
    uintptr_t base;
    return !allocation(address, &base);
}

template <class T>
static CUresult fill(const char *call, CUdeviceptr to, T value, size_t count, CUstream stream) {
    log("%s of %zu bytes at %p on %p", call, count * sizeof(T), (void *)to, (void *)stream);
    if (!inside(call, to, count * sizeof(T), true)) return CUDA_ERROR_INVALID_VALUE;
    if (!within_reach(call, device_of(stream), to)) return CUDA_ERROR_INVALID_VALUE;
    auto run = [=] {
        std::fill_n(reinterpret_cast<T *>(to), count, value);
        return CUDA_SUCCESS;
    };
    return submit(stream, {.run = run});
}

}  // namespace stub

using namespace stub;
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
    *out = reinterpret_cast<uintptr_t>(host);
    return pageable(reinterpret_cast<uintptr_t>(host)) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address) {
    ENTER();
    uintptr_t base;
    const Allocation *found = allocation(address, &base);
    if (!found) return CUDA_ERROR_INVALID_VALUE;
    if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
        *static_cast<unsigned *>(data) = found->host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    else if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
        *static_cast<int *>(data) = found->device;
    else if (attribute == CU_POINTER_ATTRIBUTE_IS_MANAGED)
        *static_cast<int *>(data) = 0;
    else
        return CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
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
