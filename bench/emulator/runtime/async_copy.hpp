// cp.async: copies that a thread has issued and has not yet waited for.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../include/emu/runtime.h"

namespace emu {

struct AsyncCopy {
  char *destination;
  const char *source;
  unsigned bytes, source_bytes;
  uintptr_t pc;
  Site site;
};

// The groups of one thread: `open` collects copies until the next commit.
struct AsyncCopies {
  std::vector<AsyncCopy> open;
  std::vector<std::vector<AsyncCopy>> groups;  // no deque: an empty one allocates, and every thread has one

  void wait(size_t pending);
  // The first copy that has not been waited for, or nullptr.
  const AsyncCopy *outstanding() const;
};

}  // namespace emu
