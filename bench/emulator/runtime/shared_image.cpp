// The shared memory of blocks that take turns.
#include <cstring>

#include "scheduler.hpp"

namespace emu {

namespace {

void copy_shared(char *to, const char *from, size_t bytes) {
  if (bytes) std::memcpy(to, from, bytes);
}

}  // namespace

void save_shared(SharedImage &image) {
  image.bytes.resize(machine.static_bytes + machine.dynamic_bytes);
  copy_shared(image.bytes.data(), machine.static_shared, machine.static_bytes);
  copy_shared(image.bytes.data() + machine.static_bytes, machine.dynamic_shared, machine.dynamic_bytes);
  image.shadows.clear();
  for (Region *region : machine.shared_regions) image.shadows.push_back(std::move(region->shadow));
}

void restore_shared(SharedImage &image) {
  copy_shared(machine.static_shared, image.bytes.data(), machine.static_bytes);
  copy_shared(machine.dynamic_shared, image.bytes.data() + machine.static_bytes, machine.dynamic_bytes);
  size_t i = 0;
  for (Region *region : machine.shared_regions) region->shadow = std::move(image.shadows[i++]);
}

void poison_shared() {
  if (machine.static_bytes) std::memset(machine.static_shared, 0xff, machine.static_bytes);
  if (machine.dynamic_bytes) std::memset(machine.dynamic_shared, 0xff, machine.dynamic_bytes);
  for (Region *region : machine.shared_regions) region->forget(false);
}

}  // namespace emu
