// Batches of small transforms: T x T in two dimensions, T * T or T in one, where T is 8, 16 or 32. Each element is read
// once and written once; between the passes data stay in shared memory (fft/tile.cuh).
//
// Tile: T threads have a tile of T x T complex numbers: one transform, or T transforms of length T, one per row. Real
// data fill both its real and its imaginary parts, with twice as many transforms. A block has 128 threads in FP32, 64
// in FP64.
// Preconditions: arrays are aligned to a complex number; shape LINE only in FP32, since sincospif computes its factors.
// Limit: memory bandwidth. In FP64, tiles of 32 x 32 take so much that few warps are resident to hide its latency.
#include "fft/tile.cuh"

namespace {

// Half spectra: elements 0 to POINTS of a tile's `transforms`, one after another.
template <Shape shape, unsigned T>
struct Half {
  static constexpr unsigned WIDTH = shape == Shape::LINE ? T * T / 2 + 1 : T / 2 + 1;
  static constexpr unsigned POINTS = shape == Shape::LINE ? WIDTH : T * WIDTH;
  unsigned row, col, mirrored_row, mirrored_col;  // of the element and of its conjugate, in the tile
  unsigned twin;                                  // the element that is its conjugate, where both are in the half
  bool has_twin;

  explicit __device__ __forceinline__ Half(unsigned e) {
    const unsigned u = e / WIDTH, v = e % WIDTH, other_u = shape == Shape::PLANE ? (T - u) % T : u;
    has_twin = v == 0 || v == WIDTH - 1;
    twin = other_u * WIDTH + v;
    if constexpr (shape == Shape::LINE) {
      const unsigned other = (T * T - v) % (T * T);
      row = v % T, col = v / T, mirrored_row = other % T, mirrored_col = other / T;
    } else {
      row = u, col = v, mirrored_row = other_u, mirrored_col = (T - v) % T;
    }
  }
};

// Blocks per multiprocessor. The factors of the longest lines take the registers of half of them.
template <Shape shape, unsigned T>
constexpr unsigned FFT_BLOCKS_PER_SM = shape == Shape::LINE && T == 32 ? 2 : 4;

// Elements of one transform.
template <Shape shape, unsigned T>
constexpr unsigned LENGTH = shape == Shape::ROWS ? T : T *T;

template <class Real, unsigned T>
__device__ __forceinline__ unsigned tile_number() {
  return blockIdx.x * BlockTiles<T, Real>::COUNT + BlockTiles<T, Real>::tile();
}

template <class Real>
__device__ __forceinline__ Complex<Real> conjugate(Complex<Real> z) {
  return {z.re, -z.im};
}

}  // namespace

template <class Real, int T, Shape shape, bool INVERSE>
__global__ void __launch_bounds__(BlockTiles<T, Real>::THREADS, FFT_BLOCKS_PER_SM<shape, T>)
    fft_small_c2c(const Complex<Real> *__restrict__ x, Complex<Real> *y, unsigned b) {
  using Block = BlockTiles<T, Real>;
  __shared__ __align__(16) Complex<Real> smem[Block::ELEMENTS];
  const Block block{smem};
  const size_t count = size_t(b) * LENGTH<shape, T>, first = size_t(tile_number<Real, T>()) * T * T + Block::lane();
  Complex<Real> column[T];
#pragma unroll
  for (int i = 0; i < T; ++i) column[i] = first + i * T < count ? x[first + i * T] : Complex<Real>{};
  block.template columns_then_rows<shape, INVERSE>(column);
  __syncwarp();  // the tile's spectra are in shared memory
#pragma unroll
  for (int i = 0; i < T; ++i) {
    const bool line = shape == Shape::LINE;
    const Complex<Real> value = block.at(Block::tile(), line ? Block::lane() : i, line ? i : Block::lane());
    if (first + i * T < count) y[first + i * T] = value;
  }
}

template <class Real, int T, Shape shape>
__global__ void __launch_bounds__(BlockTiles<T, Real>::THREADS, FFT_BLOCKS_PER_SM<shape, T>)
    fft_small_r2c(const Real *__restrict__ x, Complex<Real> *y, unsigned b) {
  using Block = BlockTiles<T, Real>;
  using Spectrum = Half<shape, T>;
  __shared__ __align__(16) Complex<Real> smem[Block::ELEMENTS];
  const Block block{smem};
  const size_t reals = size_t(b) * LENGTH<shape, T>, first = size_t(tile_number<Real, T>()) * 2 * T * T + Block::lane();
  Complex<Real> column[T];
#pragma unroll
  for (int i = 0; i < T; ++i) {
    const size_t at = first + i * T, second = at + T * T;
    column[i] = {at < reals ? x[at] : Real(0), second < reals ? x[second] : Real(0)};
  }
  block.template columns_then_rows<shape, false>(column);
  __syncwarp();  // the tile's spectra are in shared memory
  const size_t count = size_t(b) * Half<shape, T>::WIDTH * (shape == Shape::PLANE ? T : 1);
  const size_t begin = size_t(tile_number<Real, T>()) * 2 * Spectrum::POINTS;
  for (unsigned e = Block::lane(); e < Spectrum::POINTS; e += T) {
    const Spectrum at(e);
    const Two<Real> both = separated(block.at(Block::tile(), at.row, at.col),
                                     block.at(Block::tile(), at.mirrored_row, at.mirrored_col));
    if (begin + e < count) y[begin + e] = both.first;
    if (begin + Spectrum::POINTS + e < count) y[begin + Spectrum::POINTS + e] = both.second;
  }
}

// Where an element's conjugate is in the half spectrum too, the mean of the element and the conjugate of the other is
// taken: what does not come from a real array drops out, as it does where rows are last.
template <class Real, int T, Shape shape>
__global__ void __launch_bounds__(BlockTiles<T, Real>::THREADS, FFT_BLOCKS_PER_SM<shape, T>)
    fft_small_c2r(const Complex<Real> *__restrict__ x, Real *y, unsigned b) {
  using Block = BlockTiles<T, Real>;
  using Spectrum = Half<shape, T>;
  __shared__ __align__(16) Complex<Real> smem[Block::ELEMENTS];
  const Block block{smem};
  const size_t count = size_t(b) * Half<shape, T>::WIDTH * (shape == Shape::PLANE ? T : 1);
  const size_t begin = size_t(tile_number<Real, T>()) * 2 * Spectrum::POINTS;
  const auto load = [&](const Spectrum &at, size_t from, unsigned e) {
    if (from + e >= count) return Complex<Real>{};
    const Complex<Real> value = x[from + e];
    return at.has_twin ? separated(value, x[from + at.twin]).first : value;
  };
  for (unsigned e = Block::lane(); e < Spectrum::POINTS; e += T) {
    const Spectrum at(e);
    const Two<Real> both{load(at, begin, e), load(at, begin + Spectrum::POINTS, e)};
    block.at(Block::tile(), at.row, at.col) = joined(both);
    if (!at.has_twin) block.at(Block::tile(), at.mirrored_row, at.mirrored_col) = joined_mirrored(both);
  }
  __syncwarp();  // the tile's spectra are in shared memory
  Complex<Real> column[T];
  block.take_row(column);
  block.template rows_then_columns<shape, true>(column);
  const size_t reals = size_t(b) * LENGTH<shape, T>, first = size_t(tile_number<Real, T>()) * 2 * T * T + Block::lane();
#pragma unroll
  for (int i = 0; i < T; ++i) {
    const size_t at = first + i * T, second = at + T * T;
    if (at < reals) y[at] = column[i].re;
    if (second < reals) y[second] = column[i].im;
  }
}
