// Gives the memory of a job its addresses, and the checker its regions.
#pragma once
#include "job.hpp"

namespace emu {

// Gives a buffer its address.
void place(Buffer &buffer);
void restore_buffers(Job &job);
// Maps operands and the program's own data, for one run.
void map_memory(const Job &job, const Image &image);
// Maps the kernel's shared variables, and dynamic shared memory, for one launch.
void map_shared(const Job &job, const Image &image, const Entry &entry, size_t dynamic_bytes);

}  // namespace emu
