// The shared memory of blocks that take turns. A block accesses the shared memory of another in that block's image.
#include <cstring>

#include "scheduler.hpp"

namespace emu {

namespace {

void copy_shared(char *to, const char *from, size_t bytes) {
  if (bytes) std::memcpy(to, from, bytes);
}

// Vectors stay aligned, and an index past the end of an image reaches no other image.
constexpr size_t vector = 16, red_zone = 4096;
size_t dynamic_at() { return (machine.static_bytes + vector - 1) / vector * vector; }

}  // namespace

void save_shared(SharedImage &image) {
  image.bytes.resize(dynamic_at() + machine.dynamic_bytes + red_zone);
  copy_shared(image.bytes.data(), machine.static_shared, machine.static_bytes);
  copy_shared(image.bytes.data() + dynamic_at(), machine.dynamic_shared, machine.dynamic_bytes);
  image.shadows.clear();
  for (Region *region : machine.shared_regions) image.shadows.push_back(std::move(region->shadow));
}

void restore_shared(SharedImage &image) {
  copy_shared(machine.static_shared, image.bytes.data(), machine.static_bytes);
  copy_shared(machine.dynamic_shared, image.bytes.data() + dynamic_at(), machine.dynamic_bytes);
  size_t i = 0;
  for (Region *region : machine.shared_regions) region->shadow = std::move(image.shadows[i++]);
}

Remote find_remote(uintptr_t address) {
  if (machine.launch.cluster == 1) return {};
  for (Block *block : machine.block->cluster->blocks) {
    const size_t offset = address - uintptr_t(block->shared.bytes.data());
    if (block == machine.block || offset >= block->shared.bytes.size()) continue;
    const bool is_static = offset < dynamic_at();
    return {block, uintptr_t(is_static ? machine.static_shared : machine.dynamic_shared - dynamic_at()) + offset};
  }
  return {};
}

void *in_image(Block &host, const char *own) {
  const bool is_static = own >= machine.static_shared && own < machine.static_shared + machine.static_bytes;
  const char *begin = is_static ? machine.static_shared : machine.dynamic_shared - dynamic_at();
  return host.shared.bytes.data() + (own - begin);
}

void poison_shared() {
  if (machine.static_bytes) std::memset(machine.static_shared, 0xff, machine.static_bytes);
  if (machine.dynamic_bytes) std::memset(machine.dynamic_shared, 0xff, machine.dynamic_bytes);
  for (Region *region : machine.shared_regions) region->forget(false);
}

}  // namespace emu
