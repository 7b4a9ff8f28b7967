"""Suites from logs: the problems of each library's lines, and the lines that are reported as not understood."""

import math
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from kernelmark.bench.measure.present import module_missing
from kernelmark.bench.plan.suites import load_suite
from kernelmark.bench.record.foreign.logs import read_log
from support.tools import needed

#: Made by PyTorch 2.13 with oneDNN 3.12: products, convolutions with padding, strides, dilation and groups, gradients.
ONEDNN = Path(__file__).parents[1] / "data" / "onednn.log"
CONV = "conv/n2c8h14w14k16r3s3"
OF_ONEDNN = {
    f"{CONV}pad1/f32/nchw/fprop": 3,
    f"{CONV}pad1x0stride2/f32/nchw/fprop": 1,
    f"{CONV}pad1/f32/nhwc/fprop": 1,
    "conv/n2c8h14w14k8r3s3/f32/nchw/fprop/g2": 1,
    f"{CONV}/f32/nchw/fprop/dil2": 1,
    "gemm/m64n32k48/bf16/NN": 1,
    "gemm/m16n8k24/bf16/NN/batch3": 1,
    "gemm/m64n32k48/bf16/NT": 1,
    "gemm/m64n32k48/bf16/NT/beta1": 1,
    "conv/n2c4h16w16k8r3s3/f32/nchw/dgrad": 1,
    "conv/n2c8h1w20k4r1s3/f32/nchw/fprop": 1,
    f"{CONV}pad1/f32/nchw/dgrad": 1,
    f"{CONV}pad1/f32/nchw/wgrad": 1,
}
CUBLAS = """\
I! cuBLAS (v13.4.1) function cublasStatus_t cublasSetStream_v2(cublasHandle_t, cudaStream_t) called:
i!  handle: type=cublasHandle_t; val=POINTER (IN HEX:0x0x2d3c1100)
I! cuBLAS (v13.4.1) function cublasStatus_t cublasSgemm_v2(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const float*, const float*, int, const float*, int, const float*, float*, int) called:
i!  handle: type=cublasHandle_t; val=POINTER (IN HEX:0x0x2d3c1100)
i!  transa: type=cublasOperation_t; val=CUBLAS_OP_T(1)
i!  transb: type=cublasOperation_t; val=CUBLAS_OP_N(0)
i!  m: type=int; val=2048
i!  n: type=int; val=1024
i!  k: type=int; val=26752
i!  alpha: type=float; val=POINTER (IN HEX:0x0x7ffd937acafc)
i!  A: type=float; val=POINTER (IN HEX:0x0x504e20400)
i!  lda: type=int; val=26752
i!  B: type=float; val=POINTER (IN HEX:0x0x504e20600)
i!  ldb: type=int; val=26755
i!  beta: type=float; val=POINTER (IN HEX:0x0x7ffd937acaf8)
i!  C: type=float; val=POINTER (IN HEX:0x0x504e20c00)
i!  ldc: type=int; val=2048
i! Time: 2026-09-11T18:38:49 elapsed from start 0.016667 minutes or 1.000000 seconds
"""  # noqa: E501
CUBLASLT = """\
[2023-04-07 04:57:13][cublasLt][8291][Api][cublasLtMatmulDescCreate] matmulDesc=0X7F8E computeType=COMPUTE_32F
[2023-04-07 04:57:13][cublasLt][8291][Trace][cublasLtMatmul] A=0X7F8EB6002300 Adesc=[type=R_16F rows=32 cols=16 ld=32] \
B=0X7F8EB6001B00 Bdesc=[type=R_16F rows=16 cols=64 ld=16] C=0X7F8EB6003200 Cdesc=[type=R_16F rows=32 cols=64 ld=32] \
D=0X7F8EB6003200 Ddesc=[type=R_16F rows=32 cols=64 ld=32] computeDesc=[computeType=COMPUTE_32F scaleType=R_32F] \
algo=[algoId=21 tile=MATMUL_TILE_32x32 stages=MATMUL_STAGES_64x1] workSpace=0X0 workSpaceSizeInBytes=0 beta=? \
outOfPlace=0 stream=0X7EB04D0
[2026-05-04 15:08:47][cublasLt][53055][Trace][cublasLtMatmul] A=0X330220000 Adesc=[type=R_8F_E4M3 rows=1024 cols=2048 \
ld=1024] B=0X32EE50000 Bdesc=[type=R_8F_E4M3 rows=1024 cols=32 ld=1024] C=0X330220000 Cdesc=[type=R_16BF rows=2048 \
cols=32 ld=2048] D=0X32EE58000 Ddesc=[type=R_16BF rows=2048 cols=32 ld=2048] computeDesc=[computeType=COMPUTE_32F \
scaleType=R_32F transa=OP_T aScalePointer=0x32ee30200 bScalePointer=0x32ee30000] algo=[algoId=67] beta=0 outOfPlace=1
"""
CUDNN = """\
I! CuDNN (v8005) function cudnnConvolutionForward() called:
i!     handle: type=cudnnHandle_t; streamId=(nil) (defaultStream);
i!     alpha: type=CUDNN_DATA_FLOAT; val=1.000000;
i!     xDesc: type=cudnnTensorDescriptor_t:
i!         dataType: type=cudnnDataType_t; val=CUDNN_DATA_FLOAT (0);
i!         nbDims: type=int; val=4;
i!         dimA: type=int; val=[32,896,1,832];
i!         strideA: type=int; val=[745472,832,832,1];
i!     xData: location=dev; addr=0x7f1f48d80000;
i!     wDesc: type=cudnnFilterDescriptor_t:
i!         dataType: type=cudnnDataType_t; val=CUDNN_DATA_FLOAT (0);
i!         vect: type=int; val=0;
i!         nbDims: type=int; val=4;
i!         dimA: type=int; val=[1792,896,1,19];
i!         format: type=cudnnTensorFormat_t; val=CUDNN_TENSOR_NCHW (0);
i!     convDesc: type=cudnnConvolutionDescriptor_t:
i!         mode: type=cudnnConvolutionMode_t; val=CUDNN_CROSS_CORRELATION (1);
i!         dataType: type=cudnnDataType_t; val=CUDNN_DATA_FLOAT (0);
i!         arrayLength: type=int; val=2;
i!         padA: type=int; val=[0,9];
i!         strideA: type=int; val=[1,2];
i!         dilationA: type=int; val=[1,1];
i!         groupCount: type=int; val=1;
i! Time: 2021-04-19T00:00:00.000000 (0d+0h+0m+1s since start)
I! CuDNN (v8204) function cudnnBackendExecute() called:
i!     handle: type=cudnnHandle_t; streamId=(nil) (defaultStream);
"""
ROCM = """\
./rocblas-bench -f gemm -r f32_r --transposeA N --transposeB T -m 128 -n 256 -k 64 --alpha 1 --lda 128 --ldb 256 \
--beta 0 --ldc 128
rocblas-bench -f gemm_ex --transposeA T --transposeB N -m 17408 -n 2048 -k 5120 --alpha 1 --a_type f16_r --lda 5120 \
--b_type f16_r --ldb 5120 --beta 0 --c_type f32_r --ldc 17408 --d_type f32_r --ldd 17408 --compute_type f32_r --algo 0
./rocblas-bench -f gemm_strided_batched_ex --transposeA N --transposeB N -m 3072 -n 384 -k 1024 --alpha 1 \
--a_type f32_r --lda 3072 --stride_a 3145728 --b_type f32_r --ldb 1024 --stride_b 393216 --beta 1 --c_type f32_r \
--ldc 3072 --stride_c 1179648 --d_type f32_r --ldd 3072 --stride_d 1179648 --batch_count 64 --compute_type f32_r
./rocblas-bench -f trsm -r f32_r --side L -m 8 -n 8
hipblaslt-bench -m 1024 -n 512 -k 1024 --lda 1024 --ldb 1024 --ldc 1024 --ldd 1024 --lde 1024 --stride_a 0 --alpha 1 \
--beta 1 --transA N --transB N --batch_count 1 --a_type f16_r --b_type f16_r --c_type f16_r --d_type f16_r
"""
HEAD = "Problem,Provider,OperationKind,Operation,Disposition,Status"
CUTLASS = f"""\
CSV Results:

{HEAD},gemm_kind,m,n,k,A,B,C,alpha,beta,split_k_slices,batch_count,op_class,accum,Runtime,GB/s,GFLOPs
1,CUTLASS,gemm,cutlass_simt_sgemm_128x128_8x2_nt_align1,passed,success,universal,512,256,64,f32:column,f32:row,f32:column,1,0,1,1,simt,f32,478.866,6.2648,18369.7
1,CUTLASS,gemm,cutlass_simt_sgemm_128x64_8x2_nt_align1,passed,success,universal,512,256,64,f32:column,f32:row,f32:column,1,0,1,1,simt,f32,479.1,6.26,18360.1
2,CUTLASS,gemm,cutlass_simt_sgemm_128x64_8x2_nt_align1,passed,success,universal,512,256,64,f32:row,f32:column,f32:row,1,0,1,1,simt,f32,479.1,6.26,18360.1
3,CUTLASS,spgemm,cutlass_tensorop_s16832spgemm,passed,success,spgemm,512,256,64,f16:row,f16:column,f32:row,1,0,1,1,tensorop,f32,18.19,97.9,483596
{HEAD},conv_kind,n,h,w,c,k,r,s,p,q,pad_h,pad_w,stride_h,stride_w,dilation_h,dilation_w,Activation,Filter,Output,Runtime
1,CUTLASS,conv2d,cutlass_simt_sfprop,passed,success,fprop,8,224,224,128,128,3,3,224,224,1,1,1,1,1,1,f32:nhwc,f32:nhwc,f32:nhwc,3.6
"""
OLD_ONEDNN = """\
dnnl_verbose,exec,cpu,convolution,jit:avx2,forward_inference,src_f32::blocked:acdb:f0 wei_f32::blocked:Acdb8a:f0 \
bia_undef::undef::f0 dst_f32::blocked:acdb:f0,,alg:convolution_direct,\
mb1_ic3oc64_ih224oh112kh7sh2dh0ph3_iw224ow112kw7sw2dw0pw3,1.5
onednn_verbose,exec,cpu,inner_product,gemm:jit,forward_inference,src_f32::blocked:ab:f0 wei_f32::blocked:ab:f0 \
dst_f32::blocked:ab:f0,,,mb16ic4096oc1000,0.7
onednn_verbose,exec,cpu,convolution,ref,forward_inference,src_f32::blocked:abcde:f0 dst_f32::blocked:abcde:f0,,,\
mb1_ic3oc6_id9od7kd3sd1dd0pd0_ih9oh7kh3sh1dh0ph0_iw9ow7kw3sw1dw0pw0,0.7
onednn_verbose,exec,cpu,convolution,ref,forward_inference,src_f32::blocked:abcd:f0 dst_f32::blocked:abcd:f0,,,\
mb1_ic3oc6_ih8oh4kh3sh2dh0ph0_iw8ow4kw3sw2dw0pw0,0.7
"""
ODD = """\
hello
onednn_verbose,exec,cpu
rocblas-bench -f gemm -r c -m 1 -n 1 -k 1
rocblas-bench -f gemm -r s -m 0 -n 1 -k 1
"""
LOGS = {
    "onednn": (ONEDNN.read_text(), OF_ONEDNN, {"oneDNN information": 7, "oneDNN reorder": 2}),
    "cublas": (CUBLAS, {"gemm/m1024n2048k26752/f32/NT/lda+3": 1}, {"calls of cublasSetStream_v2": 1}),
    "cublaslt": (
        CUBLASLT,
        {"gemm/m64n32k16/f16/NN": 1, "gemm/m32n2048k1024/e4m3.bf16/NT": 1},
        {"calls of cublasLtMatmulDescCreate": 1},
    ),
    "cudnn": (
        CUDNN,
        {"conv/n32c896h1w832k1792r1s19pad0x9stride1x2/f32/nchw/fprop": 1},
        {"calls of cudnnBackendExecute": 1},
    ),
    "rocm": (
        ROCM,
        {
            "gemm/m256n128k64/f32/TN": 1,
            "gemm/m2048n17408k5120/f16.f32/NT": 1,
            "gemm/m384n3072k1024/f32/NN/beta1/batch64": 1,
            "gemm/m512n1024k1024/f16/NN/beta1": 1,
        },
        {"calls of trsm": 1},
    ),
    "cutlass": (
        CUTLASS,
        {
            "gemm/m256n512k64/f32/TN": 1,
            "gemm/m512n256k64/f32/NT": 1,
            "conv/n8c128h224w224k128r3s3pad1/f32/nhwc/fprop": 1,
        },
        {"other lines": 1, "CUTLASS spgemm": 1},
    ),
    "older": (
        OLD_ONEDNN,
        {
            "conv/n1c3h224w224k64r7s7pad3stride2/f32/nhwc/fprop": 1,
            "gemm/m16n1000k4096/f32/NT": 1,
            "conv/n1c3h8w8k6r3s3pad0-1x0-1stride2/f32/nchw/fprop": 1,
        },
        {"convolutions of 3 dimensions": 1},
    ),
    "odd": (
        ODD,
        {},
        {"other lines": 1, "records of another form: onednn_verbose": 1, "storage type c": 1, None: 1},
    ),
}


@pytest.mark.parametrize("name", LOGS)
def test_a_log_has_these_problems_and_names_the_rest(registry, name):
    text, problems, skipped = LOGS[name]
    found = read_log(text.splitlines(), registry)
    assert found.problems == problems
    assert sum(found.skipped.values()) == sum(skipped.values())
    assert {reason: n for reason, n in skipped.items() if reason} == {
        reason: n for reason, n in found.skipped.items() if reason in skipped or None not in skipped
    }


def test_the_suite_of_a_log_has_its_problems_with_their_counts(called, registry, tmp_path):
    (tmp_path / "all.log").write_text("".join(text for text, _, _ in LOGS.values()))
    done = called("suite", "--from", str(tmp_path / "all.log"), "-o", str(tmp_path / "own.toml"))
    assert done.status == 0
    named = "oneDNN information (7), oneDNN reorder (2), other lines (2), 9 other reasons (9)"
    assert done.err.endswith(f" calls; not understood: {named}\n")
    assert len(done.err.splitlines()) == 1
    counts = Counter()
    for _, problems, _ in LOGS.values():
        counts.update(problems)
    assert f"{len(counts)} problems of {counts.total()} calls" in done.err
    entries = list(load_suite(tmp_path / "own.toml", registry).entries())
    assert {entry.problem.id: entry.count for entry in entries} == counts
    assert {entry.part for entry in entries if "grad" in entry.problem.id} == {"backward"}
    (tmp_path / "none.log").write_text("hello\n")
    none = called("suite", "--from", str(tmp_path / "none.log"))
    assert none.status == 2
    assert "has no problem of a known library (1 line not understood); `" in none.err
    assert len(none.err.splitlines()) == 1


CALLS = """
import torch
import torch.nn.functional as F

with torch.no_grad():
    F.conv2d(torch.randn(2, 8, 14, 14), torch.randn(16, 8, 3, 3), padding=1, stride=2)
    torch.randn(64, 48).bfloat16() @ torch.randn(48, 32).bfloat16()
"""


def test_lines_that_pytorch_makes_here_are_understood(registry):
    needed(module_missing("torch"))
    environment = {**os.environ, "ONEDNN_VERBOSE": "1"}
    done = subprocess.run([sys.executable, "-c", CALLS], capture_output=True, text=True, env=environment, check=True)
    if "exec" not in done.stdout:
        pytest.skip("this build of PyTorch calls no oneDNN")
    found = read_log(done.stdout.splitlines(), registry)
    assert found.problems.get(f"{CONV}pad1stride2/f32/nchw/fprop") == 1
    assert all(reason.startswith("oneDNN ") for reason in found.skipped)
    assert math.isfinite(sum(found.problems.values()))
