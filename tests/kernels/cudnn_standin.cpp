// A stand-in for libcudnn on host memory: the functions that kernelmark calls, under the prototypes of cuDNN 9, which
// compute what cuDNN documents and keep what they were told. -DHEADER=<cudnn.h> holds them against the real header.
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
#define NAMED(name) case name: return #name

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
size_t workspace(int algo) { return algo ? 1000 + 2 * algo + 1 : 0; }

cudnnStatus_t begin(cudnnHandle_t handle, int direction, int algo, void *space, size_t nbytes,
                    cudnnConvolutionDescriptor_t conv);
template <class T> cudnnStatus_t status(T value) { return static_cast<cudnnStatus_t>(value); }
cudnnStatus_t described(cudnnDataType_t type, cudnnTensorFormat_t format) {
    const bool known = type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16;
    return status(known && (format == CUDNN_TENSOR_NCHW || format == CUDNN_TENSOR_NHWC) ? 0 : int(BAD_PARAM));
}
}  // namespace

extern "C" {
// What the tests read: the last run, and a status that the next run shall return.
int standin_direction, standin_algo, standin_math, standin_compute, standin_next_status;
size_t standin_nbytes;
void *standin_stream;
cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
    *handle = new cudnnContext{};
    return CUDNN_STATUS_SUCCESS;
}
size_t cudnnGetVersion(void) { return 91203; }
const char *cudnnGetErrorString(cudnnStatus_t number) {
    switch (int(number)) {
        NAMED(NOT_SUPPORTED); NAMED(BAD_PARAM); NAMED(SHAPE); NAMED(ALLOCATION); NAMED(FAILED);
    }
    return "UNKNOWN";
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *made) {
    *made = new cudnnTensorStruct{};
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *made) {
    *made = new cudnnFilterStruct{};
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *made) {
    *made = new cudnnConvolutionStruct{};
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
    *tensor = {format, type, n, c, h, w};
    return described(type, format);
}
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
    *filter = {type, format, k, c, h, w};
    return described(type, format);
}
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t conv, int pad_h, int pad_w, int u, int v,
                                              int dilation_h, int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute) {
    *conv = {pad_h, pad_w, u, v, dilation_h, dilation_w, mode, compute};
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t conv, int groups) {
    conv->groups = groups;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t conv, cudnnMathType_t math) {
    conv->math = math;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t, const cudnnTensorDescriptor_t,
                                                      const cudnnFilterDescriptor_t,
                                                      const cudnnConvolutionDescriptor_t,
                                                      const cudnnTensorDescriptor_t, cudnnConvolutionFwdAlgo_t algo,
                                                      size_t *nbytes) {
    *nbytes = workspace(algo);
    return status(algo == CUDNN_CONVOLUTION_FWD_ALGO_DIRECT ? int(NOT_SUPPORTED) : 0);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t, const cudnnFilterDescriptor_t,
                                                           const cudnnTensorDescriptor_t,
                                                           const cudnnConvolutionDescriptor_t,
                                                           const cudnnTensorDescriptor_t,
                                                           cudnnConvolutionBwdDataAlgo_t algo, size_t *nbytes) {
    *nbytes = workspace(algo);
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t, const cudnnTensorDescriptor_t,
                                                             const cudnnTensorDescriptor_t,
                                                             const cudnnConvolutionDescriptor_t,
                                                             const cudnnFilterDescriptor_t,
                                                             cudnnConvolutionBwdFilterAlgo_t algo, size_t *nbytes) {
    *nbytes = workspace(algo);
    return status(algo == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD ? int(BAD_PARAM) : 0);
}
cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void *alpha, const cudnnTensorDescriptor_t x_desc,
                                      const void *x_data, const cudnnFilterDescriptor_t w_desc, const void *w_data,
                                      const cudnnConvolutionDescriptor_t conv, cudnnConvolutionFwdAlgo_t algo,
                                      void *space, size_t nbytes, const void *beta,
                                      const cudnnTensorDescriptor_t y_desc, void *y_data) {
    if (auto wrong = begin(handle, 0, algo, space, nbytes, conv)) return wrong;
    const auto x = array(x_desc, x_data);
    const auto w = array(w_desc, w_data);
    Sums<cudnnTensorDescriptor_t> sums{array(y_desc, y_data)};
    products(x_desc, w_desc, conv, y_desc,
             [&](int n, int xc, int row, int col, int k, int c, int r, int s, int p, int q) {
                 sums.at(n, k, p, q) += x.get(n, xc, row, col) * w.get(k, c, r, s);
             });
    sums.store(alpha, beta);
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void *alpha,
                                           const cudnnFilterDescriptor_t w_desc,
                                           const void *w_data, const cudnnTensorDescriptor_t dy_desc, const void *dy,
                                           const cudnnConvolutionDescriptor_t conv, cudnnConvolutionBwdDataAlgo_t algo,
                                           void *space, size_t nbytes, const void *beta,
                                           const cudnnTensorDescriptor_t dx_desc, void *dx) {
    if (auto wrong = begin(handle, 1, algo, space, nbytes, conv)) return wrong;
    const auto w = array(w_desc, w_data);
    const auto y = array(dy_desc, dy);
    Sums<cudnnTensorDescriptor_t> sums{array(dx_desc, dx)};
    products(dx_desc, w_desc, conv, dy_desc,
             [&](int n, int xc, int row, int col, int k, int c, int r, int s, int p, int q) {
                 sums.at(n, xc, row, col) += y.get(n, k, p, q) * w.get(k, c, r, s);
             });
    sums.store(alpha, beta);
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void *alpha,
                                             const cudnnTensorDescriptor_t x_desc, const void *x_data,
                                             const cudnnTensorDescriptor_t dy_desc, const void *dy,
                                             const cudnnConvolutionDescriptor_t conv,
                                             cudnnConvolutionBwdFilterAlgo_t algo, void *space, size_t nbytes,
                                             const void *beta, const cudnnFilterDescriptor_t dw_desc, void *dw) {
    if (auto wrong = begin(handle, 2, algo, space, nbytes, conv)) return wrong;
    const auto x = array(x_desc, x_data);
    const auto y = array(dy_desc, dy);
    Sums<cudnnFilterDescriptor_t> sums{array(dw_desc, dw)};
    products(x_desc, dw_desc, conv, dy_desc,
             [&](int n, int xc, int row, int col, int k, int c, int r, int s, int p, int q) {
                 sums.at(k, c, r, s) += y.get(n, k, p, q) * x.get(n, xc, row, col);
             });
    sums.store(alpha, beta);
    return CUDNN_STATUS_SUCCESS;
}
}

namespace {
cudnnStatus_t begin(cudnnHandle_t handle, int direction, int algo, void *space, size_t nbytes,
                    cudnnConvolutionDescriptor_t conv) {
    if (nbytes < workspace(algo) || (nbytes && !space)) return status(int(BAD_PARAM));
    if (nbytes) std::memset(space, 0xFF, nbytes);
    standin_direction = direction, standin_algo = algo, standin_math = conv->math, standin_compute = conv->compute;
    standin_nbytes = nbytes, standin_stream = handle->stream;
    const int next = standin_next_status;
    standin_next_status = 0;
    return status(next);
}
}  // namespace
