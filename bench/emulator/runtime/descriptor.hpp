// An operand of wgmma, given by its 64-bit descriptor: PTX ISA, "Shared memory matrix layout" and "Matrix descriptor".
#pragma once
#include <cstdint>
#include <string>

#include "tma.hpp"

namespace emu {

struct Descriptor {
  unsigned start, leading, stride;  // offset in the block's shared memory, and byte offsets from there
  unsigned base_offset;
  unsigned span;  // bytes over which the layout is swizzled: 128, 64, 32, or 0

  explicit Descriptor(uint64_t bits)
      : start(unsigned(bits & 0x3fff) << 4), leading(unsigned(bits >> 16 & 0x3fff) << 4),
        stride(unsigned(bits >> 32 & 0x3fff) << 4), base_offset(unsigned(bits >> 49 & 7)) {
    constexpr unsigned spans[] = {0, 128, 64, 32};
    span = spans[bits >> 62];
  }

  // Returns why the hardware would read another matrix than intended, or an empty string.
  std::string fault(bool mn_major) const;

  // The address of 16 bytes, the first or second half of row r, if the matrix is stored along k.
  unsigned k_major(unsigned r, unsigned half) const {
    if (!span) return start + r % 8 * 16 + r / 8 * stride + half * leading;
    return swizzled(start + r % 8 * span + r / 8 * stride + half * 16, span, base_offset);
  }
  // The address of eight rows, from row 8 * eight on, of column k, if the matrix is stored along m or n.
  unsigned mn_major(unsigned eight, unsigned k) const {
    if (!span) return start + eight * stride + k % 8 * 16 + k / 8 * leading;
    const unsigned across = span / 16;
    const unsigned at = eight % across * 16 + eight / across * leading + k % 8 * span + k / 8 * stride;
    return swizzled(start + at, span, base_offset);
  }

  // Calls f(address, row, k) for each 16 bytes of rows [begin, end): the elements of one row from k on or, with `mn`,
  // of column k from `row` on.
  template <class F> void each_piece(bool mn, unsigned begin, unsigned end, unsigned elements, F f) const {
    if (mn) {
      for (unsigned row = begin; row < end; row += 8)
        for (unsigned k = 0; k < 16; ++k) f(mn_major(row / 8, k), row, k);
    } else {
      for (unsigned row = begin; row < end; ++row)
        for (unsigned half = 0; half < 2; ++half) f(k_major(row, half), row, half * elements);
    }
  }
};

}  // namespace emu
