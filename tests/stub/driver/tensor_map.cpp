// Tensor maps: refused where the driver's reference has a rule against one, else encoded as emulated.py reads them.
#include <cstring>

#include "stub.hpp"

namespace stub {

// The descriptor's 128 bytes, in the stub's own layout, since the hardware's is not public.
struct Encoded {
    char magic[8];
    uint64_t address, sizes[5], pitches[4];
    uint32_t box[5];
    uint8_t rank, type, swizzle, interleave;
    int8_t lower[2], upper[2], stride[2];  // of images, by columns and rows; stride is 0 in other maps
};
static_assert(sizeof(Encoded) <= sizeof(CUtensorMap));

static unsigned bytes_of(CUtensorMapDataType type) {
    switch (type) {
        case CU_TENSOR_MAP_DATA_TYPE_UINT8: return 1;
        case CU_TENSOR_MAP_DATA_TYPE_UINT16:
        case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
        case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: return 2;
        case CU_TENSOR_MAP_DATA_TYPE_INT64:
        case CU_TENSOR_MAP_DATA_TYPE_UINT64:
        case CU_TENSOR_MAP_DATA_TYPE_FLOAT64: return 8;
        default: return 4;
    }
}

static const char *refused(const Encoded &e, unsigned itemsize, const cuuint32_t *steps, unsigned most) {
    if (e.rank < 1 || e.rank > 5) return "has from 1 to 5 dimensions";
    if (e.interleave) return "is not interleaved in the stub";
    if (!e.address || e.address % 16) return "begins at a multiple of 16 bytes";
    for (int i = 0; i < e.rank; i++) {
        if (!e.sizes[i] || e.sizes[i] > uint64_t{1} << 32) return "has from 1 to 2^32 elements along a dimension";
        if (most < 1024 || i < 2)
            if (!e.box[i] || e.box[i] > (i ? most : 256)) return "has a box of 1 to 256 elements along a dimension, or 1024 pixels";
        if (!steps[i] || steps[i] > 8) return "takes a step of 1 to 8 elements along a dimension";
        if (i && (e.pitches[i - 1] % 16 || e.pitches[i - 1] >= uint64_t{1} << 40)) return "has pitches of multiples of 16";
    }
    if (e.box[0] * itemsize % 16) return "has a box of rows of a multiple of 16 bytes";
    if (e.swizzle && e.box[0] * itemsize > 16u << e.swizzle) return "has a box no wider than its swizzle";
    return nullptr;
}

static const char *refused_corners(const int *lower, const int *upper, const cuuint64_t *sizes) {
    for (int i = 0; i < 2; i++) {
        if (lower[i] < -128 || lower[i] > 127 || upper[i] < -128 || upper[i] > 127) return "has corners from -128 to 127";
        if ((int64_t)sizes[i + 1] - 1 + upper[i] < lower[i]) return "has pixels between its corners";
    }
    return nullptr;
}

static CUresult encode(const char *caller, CUtensorMap *out, const Encoded &e, const char *rule) {
    if (reinterpret_cast<uintptr_t>(out) % alignof(CUtensorMap)) {
        violation("%s: a tensor map lies at %p, expected a multiple of %zu", caller, (void *)out, alignof(CUtensorMap));
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (rule) {
        violation("%s: a tensor map %s", caller, rule);
        return CUDA_ERROR_INVALID_VALUE;
    }
    memset(out, 0, sizeof *out);
    memcpy(out, &e, sizeof e);
    return CUDA_SUCCESS;
}

static Encoded of_tensor(CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *sizes,
                         const cuuint64_t *pitches, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle) {
    Encoded e{"KMTMAP1", reinterpret_cast<uintptr_t>(address), {}, {}, {}, (uint8_t)rank, (uint8_t)type, (uint8_t)swizzle,
              (uint8_t)interleave, {}, {}, {}};
    for (unsigned i = 0; i < rank && i < 5; i++) {
        e.sizes[i] = sizes[i];
        if (i) e.pitches[i - 1] = pitches[i - 1];
    }
    return e;
}

}  // namespace stub

using namespace stub;

extern "C" CUresult cuTensorMapEncodeTiled(CUtensorMap *out, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                           const cuuint64_t *sizes, const cuuint64_t *pitches, const cuuint32_t *box,
                                           const cuuint32_t *steps, CUtensorMapInterleave interleave,
                                           CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    ENTER();
    Encoded e = of_tensor(type, rank, address, sizes, pitches, interleave, swizzle);
    for (unsigned i = 0; i < rank && i < 5; i++) e.box[i] = box[i];
    return encode(__func__, out, e, refused(e, bytes_of(type), steps, 256));
}

extern "C" CUresult cuTensorMapEncodeIm2col(CUtensorMap *out, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                            const cuuint64_t *sizes, const cuuint64_t *pitches, const int *lower,
                                            const int *upper, cuuint32_t channels, cuuint32_t pixels,
                                            const cuuint32_t *steps, CUtensorMapInterleave interleave,
                                            CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                                            CUtensorMapFloatOOBfill) {
    ENTER();
    Encoded e = of_tensor(type, rank, address, sizes, pitches, interleave, swizzle);
    if (rank != 4) return encode(__func__, out, e, "of images has 4 dimensions in the stub");
    e.box[0] = channels, e.box[1] = pixels;
    for (int i = 0; i < 2; i++) {
        e.lower[i] = (int8_t)lower[i], e.upper[i] = (int8_t)upper[i], e.stride[i] = (int8_t)steps[i + 1];
    }
    const char *rule = refused(e, bytes_of(type), steps, 1024);
    return encode(__func__, out, e, rule ? rule : refused_corners(lower, upper, sizes));
}
