// The state of setmaxnreg, for reports of deadlocks.
#pragma once
#include <cstddef>
#include <string>

namespace emu {

struct Block;

// Returns text on what a thread waits for at a setmaxnreg.
std::string registers_missing(const Block &block, size_t thread);

}  // namespace emu
