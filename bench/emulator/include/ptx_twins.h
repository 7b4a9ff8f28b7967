// The emulator's versions (twins) of cuda/ptx.cuh, by the figures of the PTX ISA ("Matrix fragments for
// mma.m16n8k16", "ldmatrix", "cp.async").
#pragma once
#include "emu/tensor.h"

namespace ptx {

EMU_INLINE unsigned smem_address(const void *pointer, EMU_SITE) { return emu::shared_address(pointer, site); }

template <int bytes>
EMU_INLINE void cp_async_ca(unsigned destination, const void *source, unsigned source_bytes = bytes, EMU_SITE) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16, "cp.async.ca copies 4, 8 or 16 bytes");
  emu::copy_async(emu::shared_pointer(destination, site), source, bytes, source_bytes, site);
}
EMU_INLINE void cp_async_cg(unsigned destination, const void *source, unsigned source_bytes = 16, EMU_SITE) {
  emu::copy_async(emu::shared_pointer(destination, site), source, 16, source_bytes, site);
}
EMU_INLINE void cp_async_commit() { emu::commit_copies(); }
template <int pending> EMU_INLINE void cp_async_wait(EMU_SITE) { emu::wait_copies(pending, site); }
EMU_INLINE void cp_async_wait_all(EMU_SITE) {
  emu::commit_copies();
  emu::wait_copies(0, site);
}

namespace twins {

struct Rows {
  const uint16_t *row;
  unsigned *registers;
};

// Row i of matrix m is at the address that lane 8 m + i gives. Lane t receives element (t/4, 2(t%4)) and its right
// neighbour or, transposed, element (2(t%4), t/4) and its lower neighbour.
template <int matrices, bool transposed> struct LoadMatrix {
  static void run(emu::Lanes<Rows> warp) {
    for (unsigned m = 0; m < matrices; ++m)
      for (unsigned lane = 0; lane < 32; ++lane) {
        const unsigned i = lane / 4, j = lane % 4 * 2;
        const unsigned low = transposed ? at(warp, m, j, i) : at(warp, m, i, j);
        const unsigned high = transposed ? at(warp, m, j + 1, i) : at(warp, m, i, j + 1);
        warp[lane].registers[m] = low | high << 16;
      }
  }
  static unsigned at(emu::Lanes<Rows> &warp, unsigned m, unsigned i, unsigned j) {
    return warp[m * 8 + i].row[j];
  }
};

template <int matrices, bool transposed>
EMU_INLINE void load_matrix(unsigned *registers, unsigned address, emu::Site site) {
  Rows payload{static_cast<const uint16_t *>(emu::shared_pointer(address, site)), registers};
  if (emu::lane() < 8 * matrices) emu::note_read(payload.row, 16);
  emu::collective<LoadMatrix<matrices, transposed>>(EMU_FULL_WARP, payload, site);
}

// Element `half` of a register that packs two.
template <class T> EMU_INLINE float unpack(unsigned reg, int half) {
  return float(T::from_bits(uint16_t(half ? reg >> 16 : reg)));
}

// The fragments of m16n8k16 with 16-bit operands of type T.
template <class T> struct Packed {
  static constexpr int k = 16;
  using Product = emu::Product<16, 8, k>;

  static void gather(Product &p, unsigned lane, const unsigned *a,
                                                            const unsigned *b) {
    const unsigned row = lane / 4, col = lane % 4 * 2;
    for (unsigned h = 0; h < 2; ++h) {
      for (unsigned r = 0; r < 4; ++r) p.a[row + r % 2 * 8][col + r / 2 * 8 + h] = unpack<T>(a[r], int(h));
      for (unsigned r = 0; r < 2; ++r) p.b[col + r * 8 + h][row] = unpack<T>(b[r], int(h));
    }
  }
};

// The fragments of m16n8k8 with TF32 operands.
struct Tf32 {
  static constexpr int k = 8;
  using Product = emu::Product<16, 8, k>;

  static void gather(Product &p, unsigned lane, const unsigned *a,
                                                            const unsigned *b) {
    const unsigned row = lane / 4, col = lane % 4;
    for (unsigned r = 0; r < 4; ++r) p.a[row + r % 2 * 8][col + r / 2 * 4] = element(a[r]);
    for (unsigned r = 0; r < 2; ++r) p.b[col + r * 4][row] = element(b[r]);
  }
  EMU_INLINE static float element(unsigned reg) { return emu::tf32_truncate(__builtin_bit_cast(float, reg)); }
};

// The fragments of m16n8k32 with 8-bit integers.
struct Bytes {
  static constexpr int k = 32;
  using Product = emu::Product<16, 8, k>;

  static void gather(Product &p, unsigned lane, const unsigned *a, const unsigned *b) {
    const unsigned row = lane / 4, col = lane % 4 * 4;
    for (unsigned byte = 0; byte < 4; ++byte) {
      for (unsigned r = 0; r < 4; ++r) p.a[row + r % 2 * 8][col + r / 2 * 16 + byte] = element(a[r], byte);
      for (unsigned r = 0; r < 2; ++r) p.b[col + r * 16 + byte][row] = element(b[r], byte);
    }
  }
  EMU_INLINE static float element(unsigned reg, unsigned byte) { return int8_t(reg >> 8 * byte); }
};

// Accumulators of integers, which wrap around.
struct Whole {
  using Register = int;
  EMU_INLINE static double get(const int *d, unsigned e) { return d[e]; }
  EMU_INLINE static void set(int *d, unsigned e, double value) {
    d[e] = int(value - 0x1p32 * __builtin_floor(value * 0x1p-32 + 0.5));
  }
};

// Accumulators of 32 bits.
struct Wide {
  using Register = float;
  EMU_INLINE static float get(const float *d, unsigned e) { return d[e]; }
  EMU_INLINE static void set(float *d, unsigned e, double value) { d[e] = float(value); }
};

// Accumulators of 16 bits, two to a register.
struct Halves {
  using Register = unsigned;
  EMU_INLINE static float get(const unsigned *d, unsigned e) { return unpack<__half>(d[e / 2], int(e % 2)); }
  EMU_INLINE static void set(unsigned *d, unsigned e, double value) {
    const unsigned shift = e % 2 * 16;
    d[e / 2] = (d[e / 2] & ~(0xffffu << shift)) | unsigned(__half(value).bits) << shift;
  }
};

template <class Operands, class Accumulator> struct Multiply {
  struct Payload {
    typename Accumulator::Register *d;
    const unsigned *a, *b;
  };
  static void run(emu::Lanes<Payload> warp) {
    static typename Operands::Product product;
    for (unsigned lane = 0; lane < 32; ++lane) {
      Operands::gather(product, lane, warp[lane].a, warp[lane].b);
      for (unsigned e = 0; e < 4; ++e) element(product, lane, e) = Accumulator::get(warp[lane].d, e);
    }
    product.multiply();
    for (unsigned lane = 0; lane < 32; ++lane)
      for (unsigned e = 0; e < 4; ++e) Accumulator::set(warp[lane].d, e, element(product, lane, e));
  }
  // Element e of a lane's accumulators lies in row lane/4 + 8 (e/2), column 2 (lane%4) + e%2.
  static double &element(typename Operands::Product &product, unsigned lane, unsigned e) {
    return product.c[lane / 4 + e / 2 * 8][lane % 4 * 2 + e % 2];
  }
};

template <class Operands, class Accumulator>
inline void multiply(typename Accumulator::Register *d, const unsigned *a, const unsigned *b, emu::Site site) {
  typename Multiply<Operands, Accumulator>::Payload payload{d, a, b};
  emu::collective<Multiply<Operands, Accumulator>>(EMU_FULL_WARP, payload, site);
}

// m8n8k4 and m16n8k4 in FP64. A lane has one element of A and two adjacent ones of D per eight rows, and one of B.
template <unsigned M> struct MultiplyDoubles {
  struct Payload {
    double *d[M / 4];
    const double *a;
    double b;
  };
  static void run(emu::Lanes<Payload> warp) {
    static emu::Product<M, 8, 4, double> product;
    for (unsigned lane = 0; lane < 32; ++lane) {
      const unsigned row = lane / 4, col = lane % 4;
      for (unsigned r = 0; r < M / 8; ++r) product.a[row + 8 * r][col] = warp[lane].a[r];
      product.b[col][row] = warp[lane].b;
      for (unsigned e = 0; e < M / 4; ++e) product.c[row + e / 2 * 8][2 * col + e % 2] = *warp[lane].d[e];
    }
    product.multiply();
    for (unsigned lane = 0; lane < 32; ++lane)
      for (unsigned e = 0; e < M / 4; ++e) *warp[lane].d[e] = product.c[lane / 4 + e / 2 * 8][lane % 4 * 2 + e % 2];
  }
};

}  // namespace twins

EMU_INLINE void ldmatrix_x1(unsigned (&r)[1], unsigned address, EMU_SITE) {
  twins::load_matrix<1, false>(r, address, site);
}
EMU_INLINE void ldmatrix_x2(unsigned (&r)[2], unsigned address, EMU_SITE) {
  twins::load_matrix<2, false>(r, address, site);
}
EMU_INLINE void ldmatrix_x4(unsigned (&r)[4], unsigned address, EMU_SITE) {
  twins::load_matrix<4, false>(r, address, site);
}
EMU_INLINE void ldmatrix_x1_trans(unsigned (&r)[1], unsigned address, EMU_SITE) {
  twins::load_matrix<1, true>(r, address, site);
}
EMU_INLINE void ldmatrix_x2_trans(unsigned (&r)[2], unsigned address, EMU_SITE) {
  twins::load_matrix<2, true>(r, address, site);
}
EMU_INLINE void ldmatrix_x4_trans(unsigned (&r)[4], unsigned address, EMU_SITE) {
  twins::load_matrix<4, true>(r, address, site);
}

EMU_INLINE void mma_m16n8k16_f16_f32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], EMU_SITE) {
  twins::multiply<twins::Packed<__half>, twins::Wide>(d, a, b, site);
}
EMU_INLINE void mma_m16n8k16_f16_f16(unsigned (&d)[2], const unsigned (&a)[4], const unsigned (&b)[2], EMU_SITE) {
  twins::multiply<twins::Packed<__half>, twins::Halves>(d, a, b, site);
}
EMU_INLINE void mma_m16n8k16_bf16_f32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], EMU_SITE) {
  twins::multiply<twins::Packed<__nv_bfloat16>, twins::Wide>(d, a, b, site);
}
EMU_INLINE void mma_m16n8k8_tf32_f32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], EMU_SITE) {
  twins::multiply<twins::Tf32, twins::Wide>(d, a, b, site);
}
EMU_INLINE void mma_m16n8k32_s8_s32(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], EMU_SITE) {
  twins::multiply<twins::Bytes, twins::Whole>(d, a, b, site);
}
EMU_INLINE void mma_m8n8k4_f64(double &d0, double &d1, double a, double b, EMU_SITE) {
  twins::MultiplyDoubles<8>::Payload payload{{&d0, &d1}, &a, b};
  emu::collective<twins::MultiplyDoubles<8>>(EMU_FULL_WARP, payload, site);
}
EMU_INLINE void mma_m16n8k4_f64(double (&d)[4], const double (&a)[2], double b, EMU_SITE) {
  twins::MultiplyDoubles<16>::Payload payload{{&d[0], &d[1], &d[2], &d[3]}, a, b};
  emu::collective<twins::MultiplyDoubles<16>>(EMU_FULL_WARP, payload, site);
}
EMU_INLINE unsigned to_tf32(float x) { return __builtin_bit_cast(unsigned, emu::tf32_round(x)); }

}  // namespace ptx
