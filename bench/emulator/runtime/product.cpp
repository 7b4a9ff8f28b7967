// The arithmetic of wgmma: exact products, summed in double, and rounded once per instruction.
#include <algorithm>
#include <cstring>
#include <utility>

#include "descriptor.hpp"
#include "wgmma.hpp"
// Included last, since it redefines words that the standard library uses.
#include "../include/emu/narrow.h"

namespace emu {

namespace {

constexpr unsigned most_n = 256, most_k = 16;

float decode(OperandType type, const char *bytes) {
  if (type == OperandType::tf32) {
    uint32_t word;
    std::memcpy(&word, bytes, 4);
    return __builtin_bit_cast(float, word & 0xffffe000u);  // the low 13 bits are ignored
  }
  uint16_t half;
  std::memcpy(&half, bytes, 2);
  return type == OperandType::f16 ? Binary16::decode(half) : Bfloat16::decode(half);
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

}  // namespace

void multiply(const WarpgroupProduct &product, Sums &sums) {
  static double a[64][most_k], b[most_k][most_n], row[most_n];
  const unsigned n = product.n, depth = 2 * per_piece(product.type);
  read_operand(product.type, product.a, product.mn_major_a, 64,
               [&](unsigned r, unsigned k, float value) { a[r][k] = value; });
  read_operand(product.type, product.b, product.mn_major_b, n,
               [&](unsigned c, unsigned k, float value) { b[k][c] = value; });
  for (unsigned i = 0; i < 64; ++i) {
    float *to = &sums.values[size_t(i) * n];
    for (unsigned j = 0; j < n; ++j) row[j] = product.accumulate ? double(to[j]) : 0.0;
    for (unsigned k = 0; k < depth; ++k)
      for (unsigned j = 0; j < n; ++j) row[j] += a[i][k] * b[k][j];
    std::copy_n(row, n, to);
  }
}

}  // namespace emu
