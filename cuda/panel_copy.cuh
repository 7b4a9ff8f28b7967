// Copies panels (panel_share.cuh) by cp.async, for all kernels that multiply out of shared memory.
//
// A copy is one instruction without a branch: which packs a thread has is a compile-time constant, and an address is
// formed whether or not it lies inside the operand. For one outside, 0 bytes are read and zeros are written.
// Preconditions: compute capability 8.0.
#pragma once
#include "panel_share.cuh"
#include "ptx.cuh"

// Copies a pack of W elements, PIECE of them at a time; elements past the origin's bytes become zero.
template <unsigned W, unsigned PIECE, class T>
__device__ __forceinline__ void copy_pack(T *to, const Origin<T> &origin) {
  constexpr unsigned BYTES = PIECE * sizeof(T);
  if constexpr (BYTES % 4 != 0) {  // cp.async copies no fewer than 4 bytes: smaller pieces go through registers
#pragma unroll
    for (unsigned e = 0; e < W; ++e) to[e] = e * sizeof(T) < origin.bytes ? origin.from[e] : T(0.0f);
  } else {
#pragma unroll
    for (unsigned e = 0; e < W; e += PIECE) {
      const unsigned before = e * sizeof(T), left = origin.bytes > before ? origin.bytes - before : 0;
      const unsigned bytes = W == PIECE ? origin.bytes : min(left, BYTES);
      if constexpr (BYTES == 16) {
        ptx::cp_async_cg(ptx::smem_address(to + e), origin.from + e, bytes);
      } else {
        ptx::cp_async_ca<BYTES>(ptx::smem_address(to + e), origin.from + e, bytes);
      }
    }
  }
}

// Starts the copies of the thread's packs, or of those from FIRST to END; source(i) is the origin of pack i.
template <class Panel, class Mine, unsigned PIECE = Mine::W, unsigned FIRST = 0, unsigned END = Mine::PACKS,
          class Source>
__device__ __forceinline__ void copy_panel(typename Panel::T *panel, const Source &source) {
  // Copies through registers are not unrolled, since few registers are free.
  constexpr unsigned UNROLL = PIECE * sizeof(typename Panel::T) % 4 != 0 ? 1 : Mine::PACKS;
#pragma unroll UNROLL
  for (unsigned i = FIRST; i < END; ++i) {
    if (!Mine::has(i)) continue;
    typename Panel::T *to = panel + Panel::place(Mine::row(), Mine::col(), Mine::below(i), Mine::right(i));
    copy_pack<Mine::W, PIECE>(to, source(i));
  }
}
