// Square tiles of T x T complex numbers in shared memory, transformed by rows and by columns: T threads per tile, each
// with a row or a column in its registers, where T is 8, 16 or 32. Real data are transformed in pairs, one as the real
// part and one as the imaginary part: both spectra are then parts of one.
//
// Threads that read rows of an image side by side hold columns; columns are transformed first on the way to the
// spectrum and last on the way back. A tile's threads belong to one warp, so __syncwarp() suffices between the passes.
// In shared memory rows lie T + 1 apart, and tiles T / 8 more than a multiple of 16: accesses to a row or column at a
// time, and to one element of all tiles, have no bank conflicts in half a warp of 8-byte accesses.
#pragma once
#include "fft/butterfly.cuh"

// What a tile is. PLANE: one transform in two dimensions. LINE: one of length T * T in one dimension, with element j at
// row j / T of column j % T, and in the spectrum at row j % T of column j / T ("four-step": columns, a factor for each
// element, rows). ROWS: T transforms in one dimension, one per row.
enum class Shape { PLANE, LINE, ROWS };

// A block's tiles in shared memory, as each of its threads sees them.
template <int T, class Real>
struct BlockTiles {
  static constexpr unsigned THREADS = sizeof(Real) == 4 ? 128 : 64, COUNT = THREADS / T;
  static constexpr unsigned PITCH = T + 1, TILE = (T * PITCH + 15) / 16 * 16 + T / 8, ELEMENTS = COUNT * TILE;
  Complex<Real> *smem;

  // The thread's tile, and its row or column.
  static __device__ __forceinline__ unsigned tile() { return threadIdx.x / T; }
  static __device__ __forceinline__ unsigned lane() { return threadIdx.x % T; }

  __device__ __forceinline__ Complex<Real> &at(unsigned tile, unsigned row, unsigned col) const {
    return smem[tile * TILE + row * PITCH + col];
  }

  // Copies the thread's row or column to shared memory and back.
  __device__ __forceinline__ void put_row(const Complex<Real> (&x)[T]) const {
#pragma unroll
    for (int i = 0; i < T; ++i) at(tile(), lane(), i) = x[i];
  }
  __device__ __forceinline__ void take_row(Complex<Real> (&x)[T]) const {
#pragma unroll
    for (int i = 0; i < T; ++i) x[i] = at(tile(), lane(), i);
  }
  __device__ __forceinline__ void put_column(const Complex<Real> (&x)[T]) const {
#pragma unroll
    for (int i = 0; i < T; ++i) at(tile(), i, lane()) = x[i];
  }
  __device__ __forceinline__ void take_column(Complex<Real> (&x)[T]) const {
#pragma unroll
    for (int i = 0; i < T; ++i) x[i] = at(tile(), i, lane());
  }

  // From the thread's column of the data to the spectrum in shared memory; other threads need a barrier before they
  // read it.
  template <Shape shape, bool INVERSE>
  __device__ __forceinline__ void columns_then_rows(Complex<Real> (&x)[T]) const {
    if constexpr (shape != Shape::ROWS) transform<T, INVERSE>(x);
    if constexpr (shape == Shape::LINE) twist<INVERSE>(x);
    put_column(x);
    __syncwarp();  // the tile's columns are in shared memory
    take_row(x);
    transform<T, INVERSE>(x);
    put_row(x);
  }

  // From the thread's row of the spectrum to its column of the data, by way of shared memory.
  template <Shape shape, bool INVERSE>
  __device__ __forceinline__ void rows_then_columns(Complex<Real> (&x)[T]) const {
    transform<T, INVERSE>(x);
    put_row(x);
    __syncwarp();  // the tile's rows are in shared memory
    take_column(x);
    if constexpr (shape == Shape::LINE) twist<INVERSE>(x);
    if constexpr (shape != Shape::ROWS) transform<T, INVERSE>(x);
  }

 private:
  // The factors between the passes of a line, exp(-+ 2 pi i lane k / T^2). sincospif is accurate to the last bits.
  template <bool INVERSE>
  __device__ __forceinline__ void twist(Complex<float> (&x)[T]) const {
#pragma unroll
    for (int k = 1; k < T; ++k) {
      Complex<float> root;
      sincospif(float(lane() * k) * (INVERSE ? 2.0f : -2.0f) / (T * T), &root.im, &root.re);
      x[k] = x[k] * root;
    }
  }
};

// What is transformed, or results, in pairs.
template <class Real>
struct Two {
  Complex<Real> first, second;
};

// The spectra at f of two real transforms; the spectrum of first + i second is z at f and `mirrored` at -f.
template <class Real>
__device__ __forceinline__ Two<Real> separated(Complex<Real> z, Complex<Real> mirrored) {
  const Real half = Real(0.5);
  return {{half * (z.re + mirrored.re), half * (z.im - mirrored.im)},
          {half * (z.im + mirrored.im), half * (mirrored.re - z.re)}};
}

// The spectrum of first + i second, at f and at -f, from both spectra at f.
template <class Real>
__device__ __forceinline__ Complex<Real> joined(Two<Real> spectra) {
  return {spectra.first.re - spectra.second.im, spectra.first.im + spectra.second.re};
}
template <class Real>
__device__ __forceinline__ Complex<Real> joined_mirrored(Two<Real> spectra) {
  return {spectra.first.re + spectra.second.im, spectra.second.re - spectra.first.im};
}
