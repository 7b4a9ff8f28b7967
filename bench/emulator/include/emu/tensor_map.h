// The tensor map (TMA descriptor) of the emulator: the driver encodes the same in 128 opaque bytes.
#pragma once
#include <cstdint>

namespace emu {

// A tensor of three dimensions, x innermost, and the box that one copy moves. Sizes and boxes in elements, pitches in
// bytes. swizzle: how many bytes a row of the swizzled box spans (32, 64, 128), 0 for none.
struct alignas(64) TensorMap {
  char *base;
  uint64_t size[3];
  uint64_t pitch[2];
  uint32_t box[2];
  uint32_t itemsize, swizzle;
  uint32_t round_to_tf32, map;  // map: `is_map` once this has been filled in

  static constexpr uint32_t is_map = 0x7a3a9d15;
  uint32_t bytes() const { return box[0] * box[1] * itemsize; }
};
static_assert(sizeof(TensorMap) == 128, "as large as the driver's");

}  // namespace emu
