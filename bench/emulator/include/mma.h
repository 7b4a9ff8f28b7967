// nvcuda::wmma. The programming guide does not define which lane's fragment holds which element of a matrix. The
// mapping here is unlike any likely guess: a kernel fails if it relies on a mapping, or assumes that a lane loads what
// the same lane has stored.
#pragma once
#include "emu/tensor.h"

namespace nvcuda::wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32;
}

template <class T> struct Stored {
  using type = T;
};
template <> struct Stored<precision::tf32> {
  using type = float;
};

template <class Use, int M, int N, int K, class T, class Layout = void> struct fragment {
  static constexpr int rows = std::is_same_v<Use, matrix_b> ? K : M;
  static constexpr int cols = std::is_same_v<Use, matrix_a> ? K : N;
  static constexpr int num_elements = rows * cols / 32;
  using element_type = typename Stored<T>::type;

  element_type x[num_elements];

  // The row-major index of element e of a lane, its row and its column.
  EMU_INLINE static unsigned number(unsigned lane, int e) {
    return (5 * lane + 7) % 32 + 32 * ((unsigned(e) + lane) % unsigned(num_elements));
  }
  EMU_INLINE static unsigned row(unsigned lane, int e) { return number(lane, e) / unsigned(cols); }
  EMU_INLINE static unsigned col(unsigned lane, int e) { return number(lane, e) % unsigned(cols); }
};

EMU_INLINE float __float_to_tf32(float x) { return emu::tf32_round(x); }

template <class F, class S> inline void fill_fragment(F &fragment, S value) {
  for (auto &element : fragment.x) element = typename F::element_type(value);
}

namespace detail {

struct Meeting {};
struct Meet {
  static void run(emu::Lanes<Meeting>) {}
};
// Waits for all lanes of the warp, without ordering memory.
inline void meet(emu::Site site) {
  Meeting meeting;
  emu::collective<Meet>(EMU_FULL_WARP, meeting, site);
}

template <class T> inline void check_pointer(const T *pointer, unsigned ld, emu::Site site) {
  if (uintptr_t(pointer) % 32) emu::misuse("wmma", "the pointer is not aligned to 32 bytes", site);
  if (ld * sizeof(T) % 16) emu::misuse("wmma", "the leading dimension is not a multiple of 16 bytes", site);
}

template <class F, class T> EMU_INLINE void load(F &f, const T *from, unsigned ld, bool by_rows, emu::Site site) {
  check_pointer(from, ld, site);
  const unsigned lane = emu::lane();
  for (int e = 0; e < F::num_elements; ++e) {
    const unsigned r = F::row(lane, e), c = F::col(lane, e);
    f.x[e] = from[by_rows ? size_t(r) * ld + c : size_t(c) * ld + r];
  }
  meet(site);
}

// The value of an operand in the tensor core.
template <class T> EMU_INLINE float operand(typename Stored<T>::type x) {
  if constexpr (std::is_same_v<T, precision::tf32>) return emu::tf32_truncate(x);
  else return float(x);
}

template <class D, class A, class B, class C, class T, int M, int N, int K> struct Multiply {
  struct Payload {
    D *d;
    const A *a;
    const B *b;
    const C *c;
  };
  static void run(emu::Lanes<Payload> warp) {
    static emu::Product<M, N, K> product;
    for (unsigned lane = 0; lane < 32; ++lane) {
      const Payload &mine = warp[lane];
      for (int e = 0; e < A::num_elements; ++e) product.a[A::row(lane, e)][A::col(lane, e)] = operand<T>(mine.a->x[e]);
      for (int e = 0; e < B::num_elements; ++e) product.b[B::row(lane, e)][B::col(lane, e)] = operand<T>(mine.b->x[e]);
      for (int e = 0; e < C::num_elements; ++e) product.c[C::row(lane, e)][C::col(lane, e)] = float(mine.c->x[e]);
    }
    product.multiply();
    for (unsigned lane = 0; lane < 32; ++lane)
      for (int e = 0; e < D::num_elements; ++e)
        warp[lane].d->x[e] = typename D::element_type(float(product.c[D::row(lane, e)][D::col(lane, e)]));
  }
};

}  // namespace detail

template <class Use, int M, int N, int K, class T, class L>
EMU_INLINE void load_matrix_sync(fragment<Use, M, N, K, T, L> &f, const typename Stored<T>::type *from, unsigned ld,
                                 EMU_SITE) {
  detail::load(f, from, ld, std::is_same_v<L, row_major>, site);
}
template <int M, int N, int K, class T>
EMU_INLINE void load_matrix_sync(fragment<accumulator, M, N, K, T> &f, const T *from, unsigned ld, layout_t layout,
                                 EMU_SITE) {
  detail::load(f, from, ld, layout == mem_row_major, site);
}
template <int M, int N, int K, class T>
EMU_INLINE void store_matrix_sync(T *to, const fragment<accumulator, M, N, K, T> &f, unsigned ld, layout_t layout,
                                  EMU_SITE) {
  using F = fragment<accumulator, M, N, K, T>;
  detail::check_pointer(to, ld, site);
  detail::meet(site);
  const unsigned lane = emu::lane();
  for (int e = 0; e < F::num_elements; ++e) {
    const unsigned r = F::row(lane, e), c = F::col(lane, e);
    to[layout == mem_row_major ? size_t(r) * ld + c : size_t(c) * ld + r] = f.x[e];
  }
}

template <int M, int N, int K, class T, class LA, class LB, class TD, class TC>
inline void mma_sync(fragment<accumulator, M, N, K, TD> &d, const fragment<matrix_a, M, N, K, T, LA> &a,
                     const fragment<matrix_b, M, N, K, T, LB> &b, const fragment<accumulator, M, N, K, TC> &c,
                     EMU_SITE) {
  using Body = detail::Multiply<fragment<accumulator, M, N, K, TD>, fragment<matrix_a, M, N, K, T, LA>,
                                fragment<matrix_b, M, N, K, T, LB>, fragment<accumulator, M, N, K, TC>, T, M, N, K>;
  typename Body::Payload payload{&d, &a, &b, &c};
  emu::collective<Body>(EMU_FULL_WARP, payload, site);
}

}  // namespace nvcuda::wmma
