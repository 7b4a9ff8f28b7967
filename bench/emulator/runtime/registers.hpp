// setmaxnreg, as a deadlock describes it.
#pragma once
#include <cstddef>
#include <string>

namespace emu {

struct Block;

// What a thread that waits at a setmaxnreg waits for.
std::string registers_missing(const Block &block, size_t thread);

}  // namespace emu
