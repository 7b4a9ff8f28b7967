// Convolution of stride 1 by the spectra of overlapping tiles ("overlap-save"). An image is cut into tiles of T x T
// pixels that begin T - r + 1 apart. All tiles are transformed, as is each filter, padded with zeros to a tile. At each
// frequency the sum over channels is a product of complex matrices. After the inverse transform, the pixels that have
// not wrapped around are kept. Of the r^2 multiply-adds per pixel of direct convolution, 2 T (T + 2) / (T - r + 1)^2
// remain, plus the transforms. The method: fbfft (Vasilache et al., ICLR 2015) and Zlateski et al. (ICS 2019).
//
//   fprop  y = x correlated with w    tiles of x, over channels with conjugate filters; kept from 0
//   dgrad  x = y convolved with w     tiles of y, over its channels with filters; kept from r - 1
//   wgrad  w = x correlated with y    tiles of x, over images and tiles with conjugate tiles of y, which do not overlap
//
// Four launches: fft_tiled_spectrum for each operand, fft_tiled_product, fft_tiled_image. A spectrum is a matrix for
// each frequency and group. The products sum over its rows; its ld columns are padded with zeros to a multiple of what
// a block transforms. With BY_CHANNEL, rows are channels and columns are places (image, tile); otherwise rows are
// places and columns are channels. A filter is an image of one tile.
// Tile: see each kernel.
// Preconditions: compute capability 8.0; stride and dilation 1, layout nchw; r, s < T; scratch aligned to 16 bytes.
// Limit: memory bandwidth where channels are few, since each spectrum is written and read once; FFMA where they are
// many.
#include "conv/fft_tiled_cut.cuh"
#include "conv/fft_tiled_product.cuh"

namespace {

// The matrix of a frequency and group, and the block's part of it: one row, and two columns for each tile.
template <int T, bool BY_CHANNEL>
struct Part {
  using Block = BlockTiles<T, float>;
  static constexpr unsigned HALF = T / 2 + 1, WIDTH = 2 * Block::COUNT;
  unsigned rows, cols, row, col;

  __device__ __forceinline__ Part(const Cut &cut, unsigned ld)
      : rows(BY_CHANNEL ? cut.channels : cut.places()),
        cols(BY_CHANNEL ? cut.places() : cut.channels),
        row(blockIdx.x / (ld / WIDTH)),
        col(blockIdx.x % (ld / WIDTH) * WIDTH) {}

  // Whether column col exists, where its tile is, and where its channel begins in the first image.
  __device__ __forceinline__ bool there(unsigned col) const { return col < cols; }
  __device__ __forceinline__ Place place(const Cut &cut, unsigned col) const {
    return ::place(cut, BY_CHANNEL ? col : row);
  }
  __device__ __forceinline__ size_t channel(const Cut &cut, unsigned col) const {
    return size_t(BY_CHANNEL ? row : col) * cut.h * cut.w;
  }

  // Calls visit(tile, u, v, offset) for each pair of neighbouring columns and each frequency, shared among the threads:
  // T frequencies at a time. Unrolled, so that many accesses are in flight.
  template <class Visit>
  __device__ __forceinline__ void each_pair(unsigned ld, Visit visit) const {
    const unsigned tile = threadIdx.x % Block::COUNT;
#pragma unroll
    for (unsigned i = 0; i < HALF; ++i) {
      const unsigned f = i * T + threadIdx.x / Block::COUNT;
      const size_t matrix = f * gridDim.y + blockIdx.y;
      visit(tile, f / HALF, f % HALF, (matrix * rows + row) * ld + col + 2 * tile);
    }
  }
};

}  // namespace

// Tensor to spectrum. A block has 2 * 128 / T tiles; a thread transforms a column of two of them, then a row. Only
// extent_y x extent_x pixels of each tile are read; the others are zeros.
template <int T, bool BY_CHANNEL, bool CONJUGATE>
__global__ void __launch_bounds__(128, FFT_TILED_BLOCKS_PER_SM)
    fft_tiled_spectrum(const float *__restrict__ image, Complex<float> *spectrum, unsigned channels, unsigned images,
                       unsigned h, unsigned w, unsigned tiles_y, unsigned tiles_x, int first_y, int first_x,
                       unsigned step_y, unsigned step_x, unsigned extent_y, unsigned extent_x, unsigned ld,
                       long long image_stride, long long group_stride) {
  using Block = BlockTiles<T, float>;
  __shared__ __align__(16) Complex<float> smem[Block::ELEMENTS];
  const Cut cut{channels, images, h, w, tiles_y, tiles_x, first_y, first_x, step_y, step_x, size_t(image_stride)};
  const Part<T, BY_CHANNEL> part(cut, ld);
  const Block block{smem};
  image += blockIdx.y * group_stride;

  Complex<float> column[T];
  const unsigned col = part.col + 2 * Block::tile();
  load_tile<false>(column, image + part.channel(cut, col), cut, part.place(cut, col), part.there(col), extent_y,
                   extent_x);
  load_tile<true>(column, image + part.channel(cut, col + 1), cut, part.place(cut, col + 1), part.there(col + 1),
                  extent_y, extent_x);
  block.template columns_then_rows<Shape::PLANE, false>(column);
  __syncthreads();  // the spectra of all tiles are in shared memory
  part.each_pair(ld, [&](unsigned tile, unsigned u, unsigned v, size_t at) {
    Two<float> both = separated(block.at(tile, u, v), block.at(tile, (T - u) % T, (T - v) % T));
    if (CONJUGATE) both = {{both.first.re, -both.first.im}, {both.second.re, -both.second.im}};
    store_two(spectrum + at, both.first, both.second);
  });
}

// C = A^T B at each frequency (blockIdx.z) for each group (blockIdx.y); A is k x m, B is k x n. lda and ldb take the
// place of m and n, except for the number of rows of C; C has the columns of B. A block has BM x BN elements of C.
template <int BM, int BN, int BK, int WM, int WN, int TM, int TN, int STAGES>
__global__ void __launch_bounds__(32 * (BM / WM) * (BN / WN),
                                  PRODUCT_BLOCKS_PER_SM<32 * (BM / WM) * (BN / WN), TM * TN>)
    fft_tiled_product(const Complex<float> *__restrict__ a, const Complex<float> *__restrict__ b, Complex<float> *c,
                      unsigned m, unsigned k, unsigned lda, unsigned ldb) {
  using Block = Product<BM, BN, BK, WM, WN, TM, TN, STAGES>;
  DYN_SHARED(typename Block::Stage, stages);
  const unsigned across = (ldb + BN - 1) / BN, row0 = blockIdx.x / across * BM, col0 = blockIdx.x % across * BN;
  const size_t matrix = blockIdx.z * gridDim.y + blockIdx.y;
  Block block;
  block.accumulate(stages, a + matrix * k * lda, b + matrix * k * ldb, row0, col0, k, lda, ldb);
  block.store(c + matrix * m * ldb, row0, col0, m, ldb);
}

// Spectrum to tensor: the inverse, with the same tiles. step_y x step_x pixels of each tile are kept, after the first
// -first_y rows and -first_x columns.
template <int T, bool BY_CHANNEL>
__global__ void __launch_bounds__(128, FFT_TILED_BLOCKS_PER_SM)
    fft_tiled_image(const Complex<float> *__restrict__ spectrum, float *image, unsigned channels, unsigned images,
                    unsigned h, unsigned w, unsigned tiles_y, unsigned tiles_x, int first_y, int first_x,
                    unsigned step_y, unsigned step_x, unsigned ld, long long image_stride, long long group_stride) {
  using Block = BlockTiles<T, float>;
  __shared__ __align__(16) Complex<float> smem[Block::ELEMENTS];
  const Cut cut{channels, images, h, w, tiles_y, tiles_x, first_y, first_x, step_y, step_x, size_t(image_stride)};
  const Part<T, BY_CHANNEL> part(cut, ld);
  const Block block{smem};
  image += blockIdx.y * group_stride;

  part.each_pair(ld, [&](unsigned tile, unsigned u, unsigned v, size_t at) {
    Complex<float> values[2];
    load_two(values, spectrum + at);
    const Two<float> both{values[0], values[1]};
    block.at(tile, u, v) = joined(both);
    if (v % (T / 2) != 0) block.at(tile, (T - u) % T, T - v) = joined_mirrored(both);
  });
  __syncthreads();  // the spectra of all tiles are in shared memory
  Complex<float> column[T];
  block.take_row(column);
  block.template rows_then_columns<Shape::PLANE, true>(column);
  const unsigned col = part.col + 2 * Block::tile();
  store_tile<false>(column, image + part.channel(cut, col), cut, part.place(cut, col), part.there(col));
  store_tile<true>(column, image + part.channel(cut, col + 1), cut, part.place(cut, col + 1), part.there(col + 1));
}
