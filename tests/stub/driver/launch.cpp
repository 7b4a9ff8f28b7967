// Launches: what the hardware would refuse is refused, and the rest is handed to the test's process.
#include <cstring>

#include "stub.hpp"

namespace stub {

struct Shape {
    unsigned grid[3], block[3], cluster[3] = {1, 1, 1};
    unsigned shared_bytes;
    bool cooperative = false;
};

static CUresult refuse(const Function &f, CUresult status, const char *why, long found, long expected) {
    violation("%s was launched with %s %ld, expected at most %ld", f.name.c_str(), why, found, expected);
    return status;
}

static CUresult check(const Function &f, const Shape &s) {
    const long threads = static_cast<long>(s.block[0]) * s.block[1] * s.block[2];
    const long blocks = static_cast<long>(s.grid[0]) * s.grid[1] * s.grid[2];
    const long width = static_cast<long>(s.cluster[0]) * s.cluster[1] * s.cluster[2];
    for (int i = 0; i < 3; i++) {
        if (!s.grid[i] || !s.block[i] || !s.cluster[i]) return CUDA_ERROR_INVALID_VALUE;
        const int limit = device_attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i);
        if (s.grid[i] > static_cast<unsigned>(limit)) return refuse(f, CUDA_ERROR_INVALID_VALUE, "a grid of", s.grid[i], limit);
        if (s.grid[i] % s.cluster[i])
            return refuse(f, CUDA_ERROR_INVALID_CLUSTER_SIZE, "blocks beyond whole clusters,", s.grid[i] % s.cluster[i], 0);
    }
    if (threads > f.max_threads) return refuse(f, CUDA_ERROR_INVALID_VALUE, "threads a block,", threads, f.max_threads);
    if (s.shared_bytes > static_cast<unsigned>(f.dynamic_shared))
        return refuse(f, CUDA_ERROR_INVALID_VALUE, "dynamic shared memory of", s.shared_bytes, f.dynamic_shared);
    const int clusters = f.non_portable_cluster ? 16 : 8;
    if (width > clusters) return refuse(f, CUDA_ERROR_INVALID_CLUSTER_SIZE, "clusters of", width, clusters);
    const long resident = static_cast<long>(blocks_per_multiprocessor(f, static_cast<int>(threads), s.shared_bytes)) *
                          device_attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    if (!resident) return refuse(f, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "registers a thread,", f.registers, 0);
    if (s.cooperative && blocks > resident)
        return refuse(f, CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "blocks that synchronise,", blocks, resident);
    return CUDA_SUCCESS;
}

// The parameters' bytes are taken now, as the driver does, though the launch may run later.
static CUresult run(const Function &f, const Shape &s, const std::vector<std::vector<char>> &values) {
    std::vector<const void *> addresses;
    for (const auto &value : values) addresses.push_back(value.data());
    km_launch launch{f.name.c_str(), {}, {}, {}, s.shared_bytes, s.cooperative, (int)values.size(), addresses.data(),
                     f.sizes.data()};
    memcpy(launch.grid, s.grid, sizeof s.grid);
    memcpy(launch.block, s.block, sizeof s.block);
    memcpy(launch.cluster, s.cluster, sizeof s.cluster);
    if (!state().run) return CUDA_SUCCESS;
    const Nanoseconds began = machine_time();
    const auto status = static_cast<CUresult>(state().run(&launch));
    state().emulating += machine_time() - began;
    return status;
}

// The packed parameters and their number of bytes, of a launch that has them in one buffer.
static std::pair<const char *, size_t> unpack(void **extra) {
    std::pair<const char *, size_t> found{};
    for (void **word = extra; word && *word != CU_LAUNCH_PARAM_END; word += 2)
        if (*word == CU_LAUNCH_PARAM_BUFFER_POINTER)
            found.first = static_cast<const char *>(word[1]);
        else if (*word == CU_LAUNCH_PARAM_BUFFER_SIZE)
            found.second = *static_cast<size_t *>(word[1]);
    return found;
}

static CUresult launch(const char *call, const void *kernel, const Shape &s, CUstream stream, void **args, void **extra) {
    Function *found = function_of(kernel);
    if (!found) return CUDA_ERROR_INVALID_HANDLE;
    Function f = *found;  // a library may be unloaded before a held launch runs
    log("%s %s on %p: grid %u %u %u, block %u %u %u, cluster %u %u %u, shared %u, cooperative %d", call, f.name.c_str(),
        (void *)stream, s.grid[0], s.grid[1], s.grid[2], s.block[0], s.block[1], s.block[2], s.cluster[0], s.cluster[1],
        s.cluster[2], s.shared_bytes, s.cooperative);
    if (CUresult refused = check(f, s)) return refused;
    const auto [packed, size] = unpack(extra);
    const size_t needed = f.sizes.empty() ? 0 : f.offsets.back() + f.sizes.back();
    if (needed && !args && !packed) return CUDA_ERROR_INVALID_VALUE;
    if (packed && size != needed) return refuse(f, CUDA_ERROR_INVALID_VALUE, "packed parameters of", size, needed);
    std::vector<std::vector<char>> values;
    for (size_t i = 0; i < f.sizes.size(); i++) {
        const char *from = args ? static_cast<const char *>(args[i]) : packed + f.offsets[i];
        values.emplace_back(from, from + f.sizes[i]);
    }
    for (const auto &value : values) {
        uintptr_t address = 0;
        if (value.size() == sizeof address) memcpy(&address, value.data(), sizeof address);
        if (!within_reach(f.name.c_str(), device_of(stream), address)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    const Nanoseconds known = state().length;
    auto later = [=] { return run(f, s, values); };
    CUDA_KERNEL_NODE_PARAMS shape{.func = nullptr,
                                  .gridDimX = s.grid[0], .gridDimY = s.grid[1], .gridDimZ = s.grid[2],
                                  .blockDimX = s.block[0], .blockDimY = s.block[1], .blockDimZ = s.block[2],
                                  .sharedMemBytes = s.shared_bytes, .kernelParams = nullptr, .extra = nullptr,
                                  .kern = nullptr, .ctx = nullptr};
    if (is_of_module(kernel)) shape.func = (CUfunction)kernel;
    else shape.kern = (CUkernel)kernel;
    return submit(stream, {.entry = f.name, .shape = shape, .run = later, .length = known});
}

}  // namespace stub

using namespace stub;

extern "C" {

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, CUstream stream, void **args, void **extra) {
    ENTER();
    return launch(__func__, f, {{gx, gy, gz}, {bx, by, bz}, {1, 1, 1}, shared}, stream, args, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                   unsigned bz, unsigned shared, CUstream stream, void **args) {
    ENTER();
    return launch(__func__, f, {{gx, gy, gz}, {bx, by, bz}, {1, 1, 1}, shared, true}, stream, args, nullptr);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **args, void **extra) {
    ENTER();
    Shape s{{c->gridDimX, c->gridDimY, c->gridDimZ}, {c->blockDimX, c->blockDimY, c->blockDimZ}, {1, 1, 1}, c->sharedMemBytes};
    for (unsigned i = 0; i < c->numAttrs; i++) {
        const CUlaunchAttribute &a = c->attrs[i];
        if (a.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
            s.cluster[0] = a.value.clusterDim.x;
            s.cluster[1] = a.value.clusterDim.y;
            s.cluster[2] = a.value.clusterDim.z;
        } else if (a.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
            s.cooperative = a.value.cooperative;
        } else {
            violation("%s: the stub has no launch attribute %d", __func__, a.id);
            return CUDA_ERROR_NOT_SUPPORTED;
        }
    }
    return launch(__func__, f, s, c->hStream, args, extra);
}
}
