// The TMA: boxes of a tensor between global and shared memory.
#pragma once
#include "mbarrier.hpp"

namespace emu {

// Lets a box arrive in the running block's shared memory.
void land(const Landing &landing, uint32_t agent);
// Where a byte of an unswizzled layout goes: bits 4 to 6 of its shared address (4 and 5; 4) are XORed with those 3
// higher, counted from the 128 bytes with which the pattern begins.
inline unsigned swizzled(unsigned address, unsigned span, unsigned base_offset = 0) {
  return span ? address ^ ((address - base_offset * 128) >> 3 & (span - 16)) : address;
}

}  // namespace emu
