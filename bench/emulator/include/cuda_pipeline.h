// The primitives for cp.async of NVIDIA's cuda_pipeline.h.
#pragma once
#include "emulator.h"

EMU_INLINE void __pipeline_memcpy_async(void *to, const void *from, size_t bytes, size_t zeros = 0, EMU_SITE) {
  emu::copy_async(to, from, unsigned(bytes), unsigned(bytes - zeros), site);
}
EMU_INLINE void __pipeline_commit() { emu::commit_copies(); }
EMU_INLINE void __pipeline_wait_prior(size_t pending, EMU_SITE) { emu::wait_copies(unsigned(pending), site); }
