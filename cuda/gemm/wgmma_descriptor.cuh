// The matrix descriptor, which gives wgmma an operand in shared memory: PTX ISA, "Matrix descriptor".
#pragma once

// 128-byte swizzle. address: in shared memory; wgmma takes the 18 of its 32 bits that lie within the block, and those
// above are the block's rank in its cluster. boxes, atoms: bytes from one to the next, as in gemm/wgmma.cuh.
__device__ __forceinline__ unsigned long long wgmma_descriptor(unsigned address, unsigned boxes, unsigned atoms) {
  constexpr unsigned long long SWIZZLE_128 = 1;
  const unsigned long long begin = (address & 0x3FFFF) >> 4;
  return begin | static_cast<unsigned long long>(boxes >> 4) << 16 | static_cast<unsigned long long>(atoms >> 4) << 32 |
         SWIZZLE_128 << 62;
}
