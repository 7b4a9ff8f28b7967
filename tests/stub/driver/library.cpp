// Libraries and modules, their kernels, and the attributes of these.
#include <algorithm>
#include <cstring>

#include "stub.hpp"

namespace stub {

static std::map<const void *, std::shared_ptr<Library>> &libraries() {
    static auto *all = new std::map<const void *, std::shared_ptr<Library>>;
    return *all;
}

// Kernels and functions are the same things here, as the driver also takes one for the other.
Function *function_of(const void *handle) {
    for (auto &[key, library] : libraries())
        for (auto &[name, f] : library->functions)
            if (&f == handle) return &f;
    violation("%p is no kernel of a library that is loaded", handle);
    return nullptr;
}

bool is_of_module(const void *function) {
    for (auto &[key, library] : libraries())
        for (auto &[name, f] : library->functions)
            if (&f == function) return library->as_module;
    return false;
}

static CUresult load(const char *call, const char *kind, void **out, const char *image) {
    if (CUresult refused = may_block(call)) return refused;
    auto library = read_cubin(image);
    if (!library) return CUDA_ERROR_INVALID_IMAGE;
    *out = library.get();
    library->as_module = !strcmp(kind, "a module");
    libraries()[*out] = library;
    made(kind, *out, call);
    log("%s of %zu kernels", call, library->functions.size());
    return CUDA_SUCCESS;
}

static CUresult unload(const char *call, const char *kind, const void *handle) {
    if (!alive(kind, handle)) return CUDA_ERROR_INVALID_HANDLE;
    if (CUresult refused = may_block(call)) return refused;
    libraries().erase(handle);
    released(kind, handle);
    return CUDA_SUCCESS;
}

static CUresult find(void **out, const char *kind, const void *handle, const char *name) {
    if (!alive(kind, handle)) return CUDA_ERROR_INVALID_HANDLE;
    auto &functions = libraries()[handle]->functions;
    auto found = functions.find(name);
    if (found == functions.end()) return CUDA_ERROR_NOT_FOUND;
    *out = &found->second;
    return CUDA_SUCCESS;
}

static CUresult set_attribute(const char *call, const void *handle, CUfunction_attribute attribute, int value) {
    Function *f = function_of(handle);
    if (!f) return CUDA_ERROR_INVALID_HANDLE;
    log("%s %d of %s to %d", call, attribute, f->name.c_str(), value);
    const int limit = device_attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) - f->static_shared;
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
            if (value < 0 || value > limit) return CUDA_ERROR_INVALID_VALUE;
            f->dynamic_shared = value;
            return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED: f->non_portable_cluster = value; return CUDA_SUCCESS;
        case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: f->carve_out = value; return CUDA_SUCCESS;
        default: return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult get_attribute(int *value, CUfunction_attribute attribute, const void *handle) {
    Function *f = function_of(handle);
    if (!f) return CUDA_ERROR_INVALID_HANDLE;
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = f->max_threads; break;
        case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = f->static_shared; break;
        case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = f->registers; break;
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = f->dynamic_shared; break;
        case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED: *value = f->non_portable_cluster; break;
        case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: *value = f->carve_out; break;
        case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = 90; break;
        default: *value = 0;
    }
    return CUDA_SUCCESS;
}

static CUresult parameter(const void *handle, size_t index, size_t *offset, size_t *size) {
    Function *f = function_of(handle);
    if (!f) return CUDA_ERROR_INVALID_HANDLE;
    if (index >= f->sizes.size()) return CUDA_ERROR_INVALID_VALUE;
    *offset = f->offsets[index];
    if (size) *size = f->sizes[index];
    return CUDA_SUCCESS;
}

// After NVIDIA's occupancy calculator (cuda_occupancy.h), for compute capability 9.0.
int blocks_per_multiprocessor(const Function &f, int threads, size_t dynamic_shared) {
    const int warps = (threads + 31) / 32;
    if (threads < 1 || threads > f.max_threads) return 0;
    const int of_a_warp = (f.registers * 32 + 255) / 256 * 256;
    const int by_registers = of_a_warp ? 65536 / 4 / of_a_warp * 4 / warps : 32;
    const int reserved = device_attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
    const size_t shared = (f.static_shared + dynamic_shared + reserved + 127) / 128 * 128;
    const size_t by_shared = device_attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) / shared;
    return std::min({64 / warps, 32, by_registers, static_cast<int>(by_shared)});
}

}  // namespace stub

using namespace stub;

template <class T>
static void **handle(T *out) {
    return reinterpret_cast<void **>(out);
}

extern "C" {

CUresult cuLibraryLoadData(CUlibrary *out, const void *code, CUjit_option *, void **, unsigned, CUlibraryOption *, void **,
                           unsigned) {
    ENTER();
    return load(__func__, "a library", handle(out), static_cast<const char *>(code));
}

CUresult cuLibraryUnload(CUlibrary library) {
    ENTER();
    return unload(__func__, "a library", library);
}

CUresult cuLibraryGetKernel(CUkernel *out, CUlibrary library, const char *name) {
    ENTER();
    return find(handle(out), "a library", library, name);
}

CUresult cuKernelGetFunction(CUfunction *out, CUkernel kernel) {
    ENTER();
    *out = reinterpret_cast<CUfunction>(function_of(kernel));
    return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice) {
    ENTER();
    return set_attribute(__func__, kernel, attribute, value);
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice) {
    ENTER();
    return get_attribute(value, attribute, kernel);
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *size) {
    ENTER();
    return parameter(kernel, index, offset, size);
}

CUresult cuModuleLoadData(CUmodule *out, const void *code) {
    ENTER();
    return load(__func__, "a module", handle(out), static_cast<const char *>(code));
}

CUresult cuModuleLoadDataEx(CUmodule *out, const void *code, unsigned, CUjit_option *, void **) {
    return cuModuleLoadData(out, code);
}

CUresult cuModuleUnload(CUmodule module) {
    ENTER();
    return unload(__func__, "a module", module);
}

CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name) {
    ENTER();
    return find(handle(out), "a module", module, name);
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    ENTER();
    return set_attribute(__func__, function, attribute, value);
}

// The block of launches that name none; PyCUDA sets it before each launch, which names its own.
CUresult cuFuncSetBlockShape(CUfunction function, int x, int y, int z) {
    ENTER();
    Function *f = function_of(function);
    if (!f) return CUDA_ERROR_INVALID_HANDLE;
    return x * y * z > f->max_threads ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char **name, CUfunction function) {
    ENTER();
    Function *f = function_of(function);
    if (!f) return CUDA_ERROR_INVALID_HANDLE;
    *name = f->name.c_str();
    return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
    ENTER();
    return get_attribute(value, attribute, function);
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size) {
    ENTER();
    return parameter(function, index, offset, size);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads, size_t shared) {
    ENTER();
    Function *f = function_of(function);
    if (!f) return CUDA_ERROR_INVALID_HANDLE;
    *blocks = blocks_per_multiprocessor(*f, threads, shared);
    return CUDA_SUCCESS;
}
}
