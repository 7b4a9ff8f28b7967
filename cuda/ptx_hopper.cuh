// The asm of Hopper: mbarriers, the tensor memory accelerator (TMA), clusters and wgmma, one function per instruction,
// named after it. Needs sm_90a.
//
// Shared memory is given by its 32-bit address (ptx::smem_address). The emulator's twins are in ptx_hopper_twins.h.
#pragma once
#include "ptx.cuh"

#ifndef CUDA_EMU

// A TMA descriptor as the driver encodes it; pass it by value, as `const __grid_constant__ TensorMap map`.
struct alignas(64) TensorMap {
  unsigned char opaque[128];
};

namespace ptx {

// mbarrier: a phase ends when `arrivals` threads have arrived and the bytes that were announced have landed.
__device__ __forceinline__ void mbarrier_init(unsigned barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(arrivals) : "memory");
}
// Makes initialised barriers visible to the cluster and to the TMA, before the block or the cluster synchronises.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Arrives, and announces that `bytes` more bytes will land in this phase.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void mbarrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(barrier) : "memory");
}
// Arrives at the barrier that lies at the same address in block `rank` of the cluster. It does not publish ordinary
// stores to that block: `release.cluster` would, and compiles to a fence of the whole device at every arrival.
__device__ __forceinline__ void mbarrier_arrive_cluster(unsigned barrier, unsigned rank) {
  asm volatile("{\n.reg .b32 remote;\n"
               "mapa.shared::cluster.u32 remote, %0, %1;\n"
               "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}"
               :: "r"(barrier), "r"(rank) : "memory");
}
// Waits until the phase of this parity has ended: 0 for the first phase, then alternating. This thread then sees what
// its block and the TMA wrote; `acquire.cluster` would also show other blocks' ordinary stores, but empty the L1 cache
// at every wait.
__device__ __forceinline__ void mbarrier_wait(unsigned barrier, unsigned parity) {
  asm volatile("{\n.reg .pred done;\n"
               "again:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@!done bra again;\n}"
               :: "r"(barrier), "r"(parity) : "memory");
}

// Orders this thread's ordinary accesses to shared memory before those of the TMA and of wgmma.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Copies one box of a three-dimensional tensor from global to shared memory; x is the innermost coordinate. What lies
// outside the tensor arrives as zeros. `barrier` counts all bytes of the box, these zeros included.
__device__ __forceinline__ void tma_load(unsigned destination, const TensorMap *map, int x, int y, int z,
                                         unsigned barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
               :: "r"(destination), "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier) : "memory");
}
// Copies a box into every block of the cluster whose bit is set in `mask`, at the same addresses, barrier included.
__device__ __forceinline__ void tma_load_multicast(unsigned destination, const TensorMap *map, int x, int y, int z,
                                                   unsigned barrier, unsigned short mask) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
               "[%0], [%1, {%2, %3, %4}], [%5], %6;"
               :: "r"(destination), "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier), "h"(mask) : "memory");
}
// Copies pixels of images with channels last, for one tap of a filter. The map sets how many, and how many channels of
// each. From (column, row, image) on, the copy takes the pixels that the filter's first tap visits, row by row and
// image by image, each moved by `right` and `down`: this tap's distance from the first. Pixels outside arrive as zeros.
__device__ __forceinline__ void tma_load_im2col(unsigned destination, const TensorMap *map, int channel, int column,
                                                int row, int image, unsigned short right, unsigned short down,
                                                unsigned barrier) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cta.global.im2col.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8};"
               :: "r"(destination), "l"(map), "r"(channel), "r"(column), "r"(row), "r"(image), "r"(barrier), "h"(right),
                  "h"(down) : "memory");
}
// Copies them into every block of the cluster whose bit is set in `mask`, as tma_load_multicast does.
__device__ __forceinline__ void tma_load_im2col_multicast(unsigned destination, const TensorMap *map, int channel,
                                                          int column, int row, int image, unsigned short right,
                                                          unsigned short down, unsigned barrier, unsigned short mask) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.multicast::cluster "
               "[%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8}, %9;"
               :: "r"(destination), "l"(map), "r"(channel), "r"(column), "r"(row), "r"(image), "r"(barrier), "h"(right),
                  "h"(down), "h"(mask) : "memory");
}
// Copies one box from shared to global memory; outside the tensor, it only completes the last 16 bytes of a row.
__device__ __forceinline__ void tma_store(const TensorMap *map, unsigned source, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];"
               :: "l"(map), "r"(x), "r"(y), "r"(z), "r"(source) : "memory");
}
__device__ __forceinline__ void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Waits until at most the `pending` youngest groups of this thread's stores have still to read shared memory.
template <int pending>
__device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(pending) : "memory");
}
__device__ __forceinline__ void tma_prefetch(const TensorMap *map) {
  asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory");
}

// Clusters: this block's rank in its cluster, and the barrier of all threads of the cluster.
__device__ __forceinline__ unsigned cluster_rank() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Waits at barrier `id` (1 to 15) for `threads` threads of the block, a multiple of 32.
__device__ __forceinline__ void named_barrier_sync(unsigned id, unsigned threads) {
  asm volatile("barrier.sync %0, %1;" :: "r"(id), "r"(threads) : "memory");
}

// Lowers or raises the registers of each thread of a warpgroup to this number, a multiple of 8; all four warps call it.
template <int registers>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(registers));
}
template <int registers>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(registers));
}

// wgmma: issued by the four warps of a warpgroup, and executed asynchronously. wgmma_fence() is needed before the first
// one and after every other access to the sums; wgmma_commit() makes one group of all issued since the last commit.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most the `pending` youngest groups are in flight.
template <int pending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(pending) : "memory");
}

// D = A B + D, or A B where `accumulate` is 0. A is 64 x K, B is K x N, both in shared memory and given by descriptors
// (gemm/wgmma_descriptor.cuh), K 32 bytes deep. D is 64 x N. A thread has 4 elements of each 8 columns, in the order of
// "wgmma D fragment" in the PTX ISA: d[4 j + e] lies in row 16 warp + lane / 4 + 8 (e / 2), column 8 j + 2 (lane % 4) +
// e % 2. mn_major_a, mn_major_b: 1 where the operand is stored along m or n instead of along k (16-bit types only).
// Sums are FP32, those of s8 32-bit integers, which wrap around.
#define WGMMA_8(C, i) \
  C(d[i]), C(d[i + 1]), C(d[i + 2]), C(d[i + 3]), C(d[i + 4]), C(d[i + 5]), C(d[i + 6]), C(d[i + 7])
#define WGMMA_SUMS_32(C, i) WGMMA_8(C, i), WGMMA_8(C, i + 8), WGMMA_8(C, i + 16), WGMMA_8(C, i + 24)
#define WGMMA_SUMS_64(C, i) WGMMA_SUMS_32(C, i), WGMMA_SUMS_32(C, i + 32)
#define WGMMA_SUMS_128(C, i) WGMMA_SUMS_64(C, i), WGMMA_SUMS_64(C, i + 64)
#define WGMMA_NAMES_32 \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15" \
  ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define WGMMA_NAMES_64 \
  WGMMA_NAMES_32 \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47" \
  ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define WGMMA_NAMES_128 \
  WGMMA_NAMES_64 \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79" \
  ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95" \
  ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111" \
  ",%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"

// One product of N columns. A thread has SUMS sums; C is the constraint of their type in asm, NAME its name in PTX. The
// operands that follow the sums are both descriptors and `accumulate`; A, B and P are their numbers. ENDS is the end of
// the instruction, and the last arguments are the operands from `accumulate` on.
#define WGMMA_OF(SUM, C, NAME, TYPE, N, K, SUMS, A, B, P, ENDS, ...)                                                   \
  __device__ __forceinline__ void wgmma_##TYPE(SUM (&d)[SUMS], unsigned long long a, unsigned long long b,             \
                                               int accumulate) {                                                       \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #P ", 0;\n"                                                      \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k" #K "." NAME "." #TYPE "." #TYPE                            \
                 " {" WGMMA_NAMES_##SUMS "}, %" #A ", %" #B ", p" ENDS ";\n}"                                          \
                 : WGMMA_SUMS_##SUMS(C, 0)                                                                             \
                 : "l"(a), "l"(b), __VA_ARGS__);                                                                       \
  }
#define WGMMA(TYPE, N, K, SUMS, A, B, P, MAJORS, ...) \
  WGMMA_OF(float, "+f", "f32", TYPE, N, K, SUMS, A, B, P, ", 1, 1" MAJORS, __VA_ARGS__)
#define WGMMA_16_BIT(TYPE, N, SUMS, A, B, P, MAJOR_A, MAJOR_B)                                                         \
  template <int mn_major_a, int mn_major_b>                                                                            \
  WGMMA(TYPE, N, 16, SUMS, A, B, P, ", %" #MAJOR_A ", %" #MAJOR_B, "r"(accumulate), "n"(mn_major_a),                   \
        "n"(mn_major_b))
WGMMA_16_BIT(f16, 64, 32, 32, 33, 34, 35, 36)
WGMMA_16_BIT(f16, 128, 64, 64, 65, 66, 67, 68)
WGMMA_16_BIT(f16, 256, 128, 128, 129, 130, 131, 132)
WGMMA_16_BIT(bf16, 64, 32, 32, 33, 34, 35, 36)
WGMMA_16_BIT(bf16, 128, 64, 64, 65, 66, 67, 68)
WGMMA_16_BIT(bf16, 256, 128, 128, 129, 130, 131, 132)
WGMMA(tf32, 64, 8, 32, 32, 33, 34, "", "r"(accumulate))
WGMMA(tf32, 128, 8, 64, 64, 65, 66, "", "r"(accumulate))
WGMMA(tf32, 256, 8, 128, 128, 129, 130, "", "r"(accumulate))
WGMMA(e4m3, 64, 32, 32, 32, 33, 34, "", "r"(accumulate))
WGMMA(e4m3, 128, 32, 64, 64, 65, 66, "", "r"(accumulate))
WGMMA(e4m3, 256, 32, 128, 128, 129, 130, "", "r"(accumulate))
WGMMA(e5m2, 64, 32, 32, 32, 33, 34, "", "r"(accumulate))
WGMMA(e5m2, 128, 32, 64, 64, 65, 66, "", "r"(accumulate))
WGMMA(e5m2, 256, 32, 128, 128, 129, 130, "", "r"(accumulate))
WGMMA_OF(int, "+r", "s32", s8, 64, 32, 32, 32, 33, 34, "", "r"(accumulate))
WGMMA_OF(int, "+r", "s32", s8, 128, 32, 64, 64, 65, 66, "", "r"(accumulate))
WGMMA_OF(int, "+r", "s32", s8, 256, 32, 128, 128, 129, 130, "", "r"(accumulate))
// The same with A in registers, four to a thread, which must not change before the wait: a[i] lies in row 16 warp +
// lane / 4 + 8 (i % 2), column lane % 4 + 4 (i / 2).
#define WGMMA_TF32_FROM(N, SUMS, A0, A1, A2, A3, B, P)                                                                 \
  __device__ __forceinline__ void wgmma_tf32(float (&d)[SUMS], const unsigned (&a)[4], unsigned long long b,           \
                                             int accumulate) {                                                         \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #P ", 0;\n"                                                      \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k8.f32.tf32.tf32 {" WGMMA_NAMES_##SUMS "}, "                  \
                 "{%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", p, 1, 1;\n}"                                      \
                 : WGMMA_SUMS_##SUMS("+f", 0)                                                                          \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));                               \
  }
WGMMA_TF32_FROM(64, 32, 32, 33, 34, 35, 36, 37)
WGMMA_TF32_FROM(128, 64, 64, 65, 66, 67, 68, 69)
WGMMA_TF32_FROM(256, 128, 128, 129, 130, 131, 132, 133)
#undef WGMMA_8
#undef WGMMA_SUMS_32
#undef WGMMA_SUMS_64
#undef WGMMA_SUMS_128
#undef WGMMA_NAMES_32
#undef WGMMA_NAMES_64
#undef WGMMA_NAMES_128
#undef WGMMA_OF
#undef WGMMA
#undef WGMMA_16_BIT
#undef WGMMA_TF32_FROM

}  // namespace ptx

#else
#include "ptx_hopper_twins.h"
#endif
