// CUDA's built-in vector types with their alignments on the device, so that misaligned accesses are detected here too.
#pragma once
#include <cstdint>

#define EMU_VECTOR1(T, name, alignment)                                      \
  struct alignas(alignment) name##1 { T x; };                                \
  constexpr name##1 make_##name##1(T x) { return {x}; }
#define EMU_VECTOR2(T, name, alignment)                                      \
  struct alignas(alignment) name##2 { T x, y; };                             \
  constexpr name##2 make_##name##2(T x, T y) { return {x, y}; }
#define EMU_VECTOR3(T, name, alignment)                                      \
  struct alignas(alignment) name##3 { T x, y, z; };                          \
  constexpr name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }
#define EMU_VECTOR4(T, name, alignment)                                      \
  struct alignas(alignment) name##4 { T x, y, z, w; };                       \
  constexpr name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
#define EMU_VECTORS(T, name, a1, a2, a4) \
  EMU_VECTOR1(T, name, a1) EMU_VECTOR2(T, name, a2) EMU_VECTOR3(T, name, a1) EMU_VECTOR4(T, name, a4)

EMU_VECTORS(signed char, char, 1, 2, 4)
EMU_VECTORS(unsigned char, uchar, 1, 2, 4)
EMU_VECTORS(short, short, 2, 4, 8)
EMU_VECTORS(unsigned short, ushort, 2, 4, 8)
EMU_VECTORS(int, int, 4, 8, 16)
EMU_VECTORS(unsigned, uint, 4, 8, 16)
EMU_VECTORS(long long, longlong, 8, 16, 16)
EMU_VECTORS(unsigned long long, ulonglong, 8, 16, 16)
EMU_VECTORS(float, float, 4, 8, 16)
EMU_VECTORS(double, double, 8, 16, 16)

#undef EMU_VECTORS
#undef EMU_VECTOR1
#undef EMU_VECTOR2
#undef EMU_VECTOR3
#undef EMU_VECTOR4

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};
