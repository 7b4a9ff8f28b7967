// B = A after `steps` multiply-adds of each element, y <- scale y + shift: what follows a transfer on arrival.
//
// Tile: a block moves THREADS x LOADS neighbouring vectors of 16 bytes, works on them in registers, and advances by a
// whole grid until the end is reached; the elements past the last whole vector belong to the first threads of the grid.
// Each step of an element depends on the one before; a thread therefore works on the elements of LOADS vectors in turn.
// Preconditions: A and B begin on 16 bytes and have no padding; B may be A, and overlaps it in no other way.
// Limit: memory bandwidth for few steps, and for many the multiply-adds, 2 x steps operations an element.
#include "common.cuh"

// Storage types by their names in problem ids.
namespace real {
using f64 = double;
using f32 = float;
}  // namespace real

namespace {

template <class T>
struct alignas(16) Vector {
  T e[16 / sizeof(T)];
};

template <class T, unsigned COUNT>
__device__ __forceinline__ void work_on(Vector<T> (&y)[COUNT], unsigned steps, T scale, T shift) {
  for (unsigned step = 0; step < steps; ++step)
#pragma unroll
    for (Vector<T> &vector : y)
#pragma unroll
      for (T &element : vector.e) element = element * scale + shift;
}

}  // namespace

template <class T, unsigned THREADS, unsigned LOADS>
__global__ void __launch_bounds__(THREADS)
    transfer_work(const T *a, T *b, size_t elements, unsigned steps, double scale, double shift) {
  constexpr unsigned V = 16 / sizeof(T);
  const Vector<T> *from = reinterpret_cast<const Vector<T> *>(a);
  Vector<T> *to = reinterpret_cast<Vector<T> *>(b);
  const size_t vectors = elements / V, round = size_t(gridDim.x) * THREADS * LOADS;
  for (size_t first = size_t(blockIdx.x) * THREADS * LOADS + threadIdx.x; first < vectors; first += round) {
    Vector<T> y[LOADS] = {};
    size_t in = first, out = first;
#pragma unroll
    for (Vector<T> &vector : y) {
      if (in < vectors) vector = from[in];
      in += THREADS;
    }
    work_on(y, steps, T(scale), T(shift));
#pragma unroll
    for (const Vector<T> &vector : y) {
      if (out < vectors) to[out] = vector;
      out += THREADS;
    }
  }
  const size_t rest = vectors * V + size_t(blockIdx.x) * THREADS + threadIdx.x;
  if (rest < elements) {
    Vector<T> y[1] = {{{a[rest]}}};
    work_on(y, steps, T(scale), T(shift));
    b[rest] = y[0].e[0];
  }
}
