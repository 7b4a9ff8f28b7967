// The tensor map (TMA descriptor) of the emulator. The driver's map has the same contents in 128 opaque bytes.
#pragma once
#include <cstdint>

namespace emu {

// A map of a tensor with three dimensions, x innermost, and the box that one copy moves; or of images (im2col), with
// channels, columns, rows and images, and the channels and pixels that one copy moves. Sizes and boxes are in elements,
// pitches in bytes. swizzle: the bytes in a row of a swizzled box (32, 64, 128), 0 for none. lower, upper, stride: for
// images, by column and row, as cuTensorMapEncodeIm2col takes them; stride is 0 in other maps.
struct alignas(64) TensorMap {
  char *base;
  uint64_t size[4];
  uint64_t pitch[3];
  uint32_t box[2];
  uint32_t itemsize, swizzle;
  uint32_t round_to_tf32, map;  // map: `is_map` once this has been filled in
  int32_t lower[2], upper[2];
  uint32_t stride[2];

  static constexpr uint32_t is_map = 0x7a3a9d15;
  bool is_im2col() const { return stride[0] != 0; }
  uint32_t bytes() const { return box[0] * box[1] * itemsize; }
};
static_assert(sizeof(TensorMap) == 128, "a TensorMap is as large as the driver's");

}  // namespace emu
