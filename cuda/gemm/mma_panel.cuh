// Panels for tensor cores: what a block reads of A or B for one step along k, BK deep and WIDTH rows of op(A) or
// columns of op(B) wide. A panel lies in shared memory as its operand lies in global memory, along k or along the
// width, so that copies move whole packs in every layout; fragments are transposed as they are read.
//
// A row is divided into chunks of 16 bytes: what a thread copies, and what ldmatrix reads for each row of a matrix.
// Chunk c of row r is stored at place c ^ key(r). The eight chunks that shared memory serves at once, one place of
// eight rows or all places of one row, then lie in different banks without padding.
#pragma once
#include "panel_share.cuh"
#include "ptx.cuh"

// The operand that a panel belongs to.
enum class Side { A, B };

// A fragment: 16 rows of op(A) or columns of op(B), 32 bytes deep along k, as four matrices of 8 x 16 bytes in the
// order that m16n8k16 and m16n8k8 require. For A, r[0] holds the first rows, r[1] the last, r[2] and r[3] the same for
// the other half of k. For B, r[0] and r[1] hold both halves of k for the first columns, r[2] and r[3] for the last:
// each pair is the operand of one product, and an operand has to be in neighbouring registers.
struct Fragment16 {
  unsigned r[4];
};
// The same of FP64, four elements deep, for m8n8k4 and m16n8k4: r[0] holds the first rows or columns, r[1] the last.
struct Fragment64 {
  double r[2];
};

template <class T>
struct FragmentOf {
  using Type = Fragment16;
};
template <>
struct FragmentOf<double> {
  using Type = Fragment64;
};

template <Side side, class Element, int BK, int WIDTH, bool ALONG>
struct MmaPanel {
  using T = Element;
  using Fragment = typename FragmentOf<T>::Type;
  static constexpr bool ALONG_K = ALONG, RAGGED = true;
  static constexpr unsigned V = 16 / sizeof(T);                                   // elements of a chunk
  static constexpr unsigned ROWS = ALONG_K ? WIDTH : BK, COLS = ALONG_K ? BK : WIDTH;  // as stored
  static constexpr unsigned CHUNKS = COLS / V, ELEMENTS = ROWS * COLS;
  static constexpr bool WORDS = !ALONG_K && sizeof(T) == 4;  // ldmatrix turns 16-bit elements only
  static constexpr bool DOUBLES = sizeof(T) == 8;            // and has no matrices of these
  static_assert((ALONG_K && !DOUBLES) || CHUNKS >= 8, "a key needs eight places");

  // The place of the element `below` rows below and `right` columns right of the stored one at row, col: a constant
  // away from that one's place, where the move changes neither the key nor the bits that the key is XORed with.
  static __device__ __forceinline__ unsigned place(unsigned row, unsigned col, unsigned below, unsigned right) {
    if (below % 8 == 0 && right % (8 * V) == 0) return at(row, col / V) + col % V + (below * COLS + right);
    return at(row + below, (col + right) / V) + (col + right) % V;
  }

  // The fragment of the width's elements first + 16 i to first + 16 i + 15 and of the kk-th 32 bytes along k. Each lane
  // computes one place that does not depend on i and kk; the others follow from it by an XOR and a constant.
  static __device__ __forceinline__ Fragment load(const T *panel, unsigned first, unsigned i, unsigned kk) {
    const unsigned lane_id = threadIdx.x % 32, matrix = lane_id / 8, row = lane_id % 8;
    Fragment f;
    if constexpr (DOUBLES) {
      const unsigned across = lane_id / 4, along = lane_id % 4;
      const unsigned mine = ALONG_K ? at(first + across, along / V) + along % V
                                    : at(along, first / V + across / V) + across % V;
#pragma unroll
      for (unsigned r = 0; r < 2; ++r)
        f.r[r] = ALONG_K ? moved(panel, mine, 2 * kk)[(16 * i + 8 * r) * COLS]
                         : moved(panel, mine, 8 * i + 4 * r)[4 * kk * COLS];
    } else if constexpr (ALONG_K) {
      const unsigned mine = at(first + across(matrix) * 8 + row, along(matrix));
      ptx::ldmatrix_x4(f.r, ptx::smem_address(moved(panel, mine, 2 * kk) + 16 * i * COLS));
    } else if constexpr (!WORDS) {
      const unsigned mine = at(along(matrix) * 8 + row, first / V + across(matrix));
      ptx::ldmatrix_x4_trans(f.r, ptx::smem_address(moved(panel, mine, 2 * i) + 16 * kk * COLS));
    } else {
      const unsigned mine = at(lane_id % 4, first / V + lane_id / 4 / V) + lane_id / 4 % V;
#pragma unroll
      for (unsigned r = 0; r < 4; ++r)
        f.r[r] = __float_as_uint(moved(panel, mine, 4 * i + across(r) * 2)[(8 * kk + along(r) * 4) * COLS]);
    }
    return f;
  }

 private:
  // Which half of the width and of k is in register r.
  static constexpr __device__ __forceinline__ unsigned across(unsigned r) { return side == Side::A ? r % 2 : r / 2; }
  static constexpr __device__ __forceinline__ unsigned along(unsigned r) { return side == Side::A ? r / 2 : r % 2; }

  // Words and doubles are read from four rows at a time, two neighbouring chunks of each. Rows of fewer than eight
  // chunks share the 128 bytes of all banks with their neighbours, and the key, too.
  static __device__ __forceinline__ unsigned key(unsigned row) {
    if constexpr (WORDS || DOUBLES) return row % 4 * 2;
    if constexpr (CHUNKS < 8) return row / (8 / CHUNKS) % CHUNKS;
    return row % 8;
  }
  static __device__ __forceinline__ unsigned at(unsigned row, unsigned chunk) {
    return row * COLS + (chunk ^ key(row)) * V;
  }

  // The element `chunks` chunks further along the row, whose own chunk's number shares no bit with `chunks`: a lane
  // then needs only one address for each value of chunks % 8, and constants.
  static __device__ __forceinline__ const T *moved(const T *panel, unsigned place, unsigned chunks) {
    return panel + (place ^ chunks % 8 * V) + chunks / 8 * 8 * V;
  }
};
