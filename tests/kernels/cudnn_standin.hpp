// What the stand-in for libcudnn computes with: cuDNN's types, arrays under their descriptors, products and sums.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>
#ifdef HEADER
#include HEADER
#else
extern "C" {
typedef struct CUstream_st *cudaStream_t;
typedef struct cudnnContext *cudnnHandle_t;
typedef struct cudnnTensorStruct *cudnnTensorDescriptor_t;
typedef struct cudnnFilterStruct *cudnnFilterDescriptor_t;
typedef struct cudnnConvolutionStruct *cudnnConvolutionDescriptor_t;
typedef enum { CUDNN_STATUS_SUCCESS = 0 } cudnnStatus_t;
typedef enum { CUDNN_DATA_FLOAT = 0, CUDNN_DATA_HALF = 2, CUDNN_DATA_BFLOAT16 = 9 } cudnnDataType_t;
typedef enum { CUDNN_TENSOR_NCHW = 0, CUDNN_TENSOR_NHWC = 1 } cudnnTensorFormat_t;
typedef enum { CUDNN_CONVOLUTION = 0, CUDNN_CROSS_CORRELATION = 1 } cudnnConvolutionMode_t;
typedef enum { CUDNN_DEFAULT_MATH = 0, CUDNN_FMA_MATH = 3 } cudnnMathType_t;
typedef enum { CUDNN_CONVOLUTION_FWD_ALGO_DIRECT = 3 } cudnnConvolutionFwdAlgo_t;
typedef enum { CUDNN_CONVOLUTION_BWD_DATA_ALGO_0 = 0 } cudnnConvolutionBwdDataAlgo_t;
typedef enum { CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD = 4 } cudnnConvolutionBwdFilterAlgo_t;
}
#endif

enum { NOT_SUPPORTED = 3000, BAD_PARAM = 2000, SHAPE = 3002, ALLOCATION = 4004, FAILED = 5000 };

struct cudnnContext { cudaStream_t stream; };
struct cudnnTensorStruct { cudnnTensorFormat_t format; cudnnDataType_t type; int n, c, h, w; };
struct cudnnFilterStruct { cudnnDataType_t type; cudnnTensorFormat_t format; int n, c, h, w; };
struct cudnnConvolutionStruct {
    int pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w;
    cudnnConvolutionMode_t mode;
    cudnnDataType_t compute;
    int groups = 1;
    cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};

namespace {
template <class D> struct Array {
    D descriptor;
    char *data;

    char *at(int n, int c, int h, int w) const {
        const auto &d = *descriptor;
        const size_t i = d.format == CUDNN_TENSOR_NHWC ? ((size_t(n) * d.h + h) * d.w + w) * d.c + c
                                                       : ((size_t(n) * d.c + c) * d.h + h) * d.w + w;
        return data + i * (d.type == CUDNN_DATA_FLOAT ? 4 : 2);
    }
    double get(int n, int c, int h, int w) const {
        const char *from = at(n, c, h, w);
        uint32_t bits = 0;
        if (descriptor->type == CUDNN_DATA_HALF) return double(*reinterpret_cast<const _Float16 *>(from));
        if (descriptor->type == CUDNN_DATA_FLOAT) std::memcpy(&bits, from, 4);
        else bits = uint32_t(*reinterpret_cast<const uint16_t *>(from)) << 16;
        float value;
        std::memcpy(&value, &bits, 4);
        return value;
    }
    void set(int n, int c, int h, int w, double value) const {
        char *to = at(n, c, h, w);
        const float single = float(value);
        uint32_t bits;
        std::memcpy(&bits, &single, 4);
        if (descriptor->type == CUDNN_DATA_FLOAT) std::memcpy(to, &bits, 4);
        else if (descriptor->type == CUDNN_DATA_HALF) *reinterpret_cast<_Float16 *>(to) = _Float16(single);
        else *reinterpret_cast<uint16_t *>(to) = uint16_t((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
    }
};
template <class D> Array<D> array(D descriptor, const void *data) {
    return {descriptor, static_cast<char *>(const_cast<void *>(data))};
}

// Calls `visit` with each product's indices: n, channel of x, its row and column, k, channel of w, tap, output.
template <class V>
void products(cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t conv,
              cudnnTensorDescriptor_t y, V visit) {
    const int filters = w->n / conv->groups;
    for (int n = 0; n < y->n; ++n)
        for (int k = 0; k < y->c; ++k)
            for (int p = 0; p < y->h; ++p)
                for (int q = 0; q < y->w; ++q)
                    for (int c = 0; c < w->c; ++c)
                        for (int r = 0; r < w->h; ++r)
                            for (int s = 0; s < w->w; ++s) {
                                const int row = p * conv->stride_h + r * conv->dilation_h - conv->pad_h;
                                const int column = q * conv->stride_w + s * conv->dilation_w - conv->pad_w;
                                if (row < 0 || row >= x->h || column < 0 || column >= x->w) continue;
                                const bool flip = conv->mode == CUDNN_CONVOLUTION;
                                visit(n, k / filters * w->c + c, row, column, k, c, flip ? w->h - 1 - r : r,
                                      flip ? w->w - 1 - s : s, p, q);
                            }
}
// An output's sums in double, stored as alpha sum + beta output; beta 0 does not read.
template <class D> struct Sums {
    Array<D> out;
    std::vector<double> values = std::vector<double>(size_t(out.descriptor->n) * out.descriptor->c * out.descriptor->h *
                                                     out.descriptor->w);

    double &at(int n, int c, int h, int w) {
        const auto &d = *out.descriptor;
        return values[((size_t(n) * d.c + c) * d.h + h) * d.w + w];
    }
    void store(const void *alpha, const void *beta) {
        const double a = *static_cast<const float *>(alpha), b = *static_cast<const float *>(beta);
        const auto &d = *out.descriptor;
        for (int n = 0; n < d.n; ++n)
            for (int c = 0; c < d.c; ++c)
                for (int h = 0; h < d.h; ++h)
                    for (int w = 0; w < d.w; ++w)
                        out.set(n, c, h, w, a * at(n, c, h, w) + (b == 0 ? 0 : b * out.get(n, c, h, w)));
    }
};
}  // namespace
