// The TMA: boxes of a tensor between global and shared memory.
#pragma once
#include "mbarrier.hpp"

namespace emu {

// Lets a box arrive in the running block's shared memory.
void land(const Landing &landing, uint32_t agent);
// Returns the swizzled address of a byte: bits 4 to 6 of its shared address (4 and 5 for a span of 64 bytes, 4 for 32)
// are XORed with the bits 3 places higher, counted from the 128 bytes with which the pattern begins.
inline unsigned swizzled(unsigned address, unsigned span, unsigned base_offset = 0) {
  return span ? address ^ ((address - base_offset * 128) >> 3 & (span - 16)) : address;
}

}  // namespace emu
