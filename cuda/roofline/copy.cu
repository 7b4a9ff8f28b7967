// B = A, with 128-bit accesses and LOADS of them in flight in every thread: the ceiling of everything that only moves
// data.
//
// Tile: a block moves THREADS x LOADS neighbouring vectors of 16 bytes, and advances by a whole grid until the end is
// reached; the elements past the last whole vector are moved one by one by the first threads of the grid.
// All loads of a round are issued before its first store. To fill the memory, a multiprocessor must have bandwidth
// times latency in flight, on Hopper some 20 to 30 KB; 2048 threads with 4 x 16 bytes each have 128 KB.
// Preconditions: A and B do not overlap, begin on 16 bytes, and have no padding. T is any type of the element's width.
// No hint keeps lines out of the caches: on operands that fit in L2 the same kernel measures L2, whereas a streaming
// hint would evict what the next run reads. A grid takes some 2 us to start and to drain, so such operands should be as
// large as L2 allows (33 MB of 50 in the suite `roofline`); repeating the copy inside one launch would hide that, but
// would no longer be a copy.
// Limit: memory bandwidth, or that of L2.
#include "common.cuh"

template <class T, unsigned THREADS, unsigned LOADS>
__global__ void __launch_bounds__(THREADS)
    copy_vectorised(const T *__restrict__ a, T *__restrict__ b, size_t elements) {
  constexpr unsigned V = sizeof(uint4) / sizeof(T);
  const uint4 *from = reinterpret_cast<const uint4 *>(a);
  uint4 *to = reinterpret_cast<uint4 *>(b);
  const size_t vectors = elements / V, round = size_t(gridDim.x) * THREADS * LOADS;
  for (size_t first = size_t(blockIdx.x) * THREADS * LOADS + threadIdx.x; first < vectors; first += round) {
    uint4 moved[LOADS];
    size_t in = first, out = first;
#pragma unroll
    for (uint4 &vector : moved) {
      if (in < vectors) vector = from[in];
      in += THREADS;
    }
#pragma unroll
    for (const uint4 &vector : moved) {
      if (out < vectors) to[out] = vector;
      out += THREADS;
    }
  }
  const size_t behind = vectors * V + size_t(blockIdx.x) * THREADS + threadIdx.x;
  if (behind < elements) b[behind] = a[behind];
}
