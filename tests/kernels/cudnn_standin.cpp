// A stand-in for libcudnn on host memory: the functions that kernelmark calls, under the prototypes of cuDNN 9, which
// compute what cuDNN documents and keep their arguments. -DHEADER=<cudnn.h> holds them against the real header.
#include "cudnn_standin.hpp"

#define NAMED(name) case name: return #name

namespace {
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
