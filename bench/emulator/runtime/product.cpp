// The arithmetic of wgmma: exact products, summed in double, and rounded once per instruction. FP8 is summed with 14
// bits. Sums of integers wrap around in 32 bits.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "descriptor.hpp"
#include "wgmma.hpp"
// Included last, since it redefines words that the standard library uses.
#include "../include/emu/narrow.h"

namespace emu {

namespace {

constexpr unsigned most_n = 256, most_k = 32;

float decode(OperandType type, const char *bytes) {
  if (type == OperandType::tf32) {
    uint32_t word;
    std::memcpy(&word, bytes, 4);
    return __builtin_bit_cast(float, word & 0xffffe000u);  // the low 13 bits are ignored
  }
  const auto byte = uint8_t(*bytes);
  if (type == OperandType::s8) return int8_t(byte);
  if (type == OperandType::e5m2) return Binary16::decode(uint16_t(byte << 8));
  if (type == OperandType::e4m3)  // as binary16, but with a bias of 7 instead of 15
    return (byte & 0x7f) == 0x7f ? NAN : 256 * Binary16::decode(uint16_t((byte & 0x80) << 8 | (byte & 0x7f) << 7));
  uint16_t half;
  std::memcpy(&half, bytes, 2);
  return type == OperandType::f16 ? Binary16::decode(half) : Bfloat16::decode(half);
}

double sum_of(OperandType type, uint32_t word) {
  return type == OperandType::s8 ? double(int32_t(word)) : double(__builtin_bit_cast(float, word));
}

uint32_t word_of(OperandType type, double sum) {
  return type == OperandType::s8 ? uint32_t(int64_t(sum)) : __builtin_bit_cast(uint32_t, float(sum));
}

// Calls put(row, k, value) for each element of an operand that has `rows` rows.
template <class Put> void read_operand(OperandType type, uint64_t descriptor, bool mn, unsigned rows, Put put) {
  const unsigned elements = per_piece(type);
  Descriptor(descriptor).each_piece(mn, 0, rows, elements, [&](unsigned address, unsigned row, unsigned k) {
    const char *bytes = static_cast<const char *>(shared_at(address));
    for (unsigned i = 0; i < elements; ++i)
      put(row + (mn ? i : 0), k + (mn ? 0 : i), decode(type, bytes + i * 16 / elements));
  });
}

// PTX ISA, "wgmma A fragment" of TF32.
void read_registers(const Registers &words, double (&a)[64][most_k]) {
  for (unsigned t = 0; t < warpgroup_size; ++t)
    for (unsigned i = 0; i < 4; ++i)
      a[t / 32 * 16 + t % 32 / 4 + 8 * (i % 2)][t % 4 + 4 * (i / 2)] =
          decode(OperandType::tf32, reinterpret_cast<const char *>(&words[4 * t + i]));
}

// Adds row i of A times B to a row of sums as Hopper adds products of FP8 (DeepSeek-V3 Technical Report,
// arXiv:2412.19437, 3.5.2): products and sum are shifted right to the largest exponent among them, the highest 14 bits
// of each are added, and 14 bits of the result are kept. The shift fills with the sign, so it rounds down (an author of
// that report, in discussion 50 of deepseek-ai/DeepGEMM).
struct Limited {
  static constexpr int bits = 14, none = -100000;  // none: the exponent of 0

  static int exponent(double x) { return x == 0 || !std::isfinite(x) ? none : std::ilogb(x); }
  static double unit(int exponent) { return exponent < none / 2 ? 1 : std::ldexp(1.0, exponent - (bits - 1)); }

  int of_a[64][most_k], of_b[most_k][most_n];

  void add(unsigned i, const double (&a)[most_k], const double (&b)[most_k][most_n], unsigned n, double *row) const {
    static int top[most_n];
    static double most[most_n], sums[most_n];
    for (unsigned j = 0; j < n; ++j) top[j] = exponent(row[j]);
    for (unsigned k = 0; k < most_k; ++k)
      for (unsigned j = 0; j < n; ++j) top[j] = std::max(top[j], of_a[i][k] + of_b[k][j]);
    for (unsigned j = 0; j < n; ++j) {
      most[j] = 1 / unit(top[j]);
      sums[j] = std::floor(row[j] * most[j]);
    }
    for (unsigned k = 0; k < most_k; ++k)
      for (unsigned j = 0; j < n; ++j) sums[j] += std::floor(a[k] * b[k][j] * most[j]);
    for (unsigned j = 0; j < n; ++j) {
      const double sum = sums[j] / most[j], last = unit(exponent(sum));
      row[j] = std::floor(sum / last) * last;
    }
  }
};

}  // namespace

void multiply(const WarpgroupProduct &product, const Registers &registers, Sums &sums) {
  static double a[64][most_k], b[most_k][most_n], row[most_n];
  const unsigned n = product.n, depth = 2 * per_piece(product.type);
  if (product.a_in_registers)
    read_registers(registers, a);
  else
    read_operand(product.type, product.a, product.mn_major_a, 64,
                 [&](unsigned r, unsigned k, float value) { a[r][k] = value; });
  read_operand(product.type, product.b, product.mn_major_b, n,
               [&](unsigned c, unsigned k, float value) { b[k][c] = value; });
  static Limited limited;
  const bool is_limited = is_fp8(product.type);
  for (unsigned k = 0; is_limited && k < most_k; ++k) {
    for (unsigned i = 0; i < 64; ++i) limited.of_a[i][k] = Limited::exponent(a[i][k]);
    for (unsigned j = 0; j < n; ++j) limited.of_b[k][j] = Limited::exponent(b[k][j]);
  }
  for (unsigned i = 0; i < 64; ++i) {
    uint32_t *to = &sums.values[size_t(i) * n];
    for (unsigned j = 0; j < n; ++j) row[j] = product.accumulate ? sum_of(product.type, to[j]) : 0.0;
    if (is_limited) limited.add(i, a[i], b, n, row);
    for (unsigned k = 0; !is_limited && k < depth; ++k)
      for (unsigned j = 0; j < n; ++j) row[j] += a[i][k] * b[k][j];
    for (unsigned j = 0; j < n; ++j) to[j] = word_of(product.type, row[j]);
  }
}

}  // namespace emu
