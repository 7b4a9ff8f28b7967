// PTX names shared memory by 32-bit addresses: static variables from 1 KiB on, dynamic memory from 1 MiB on.
#include "machine.hpp"

namespace emu {

namespace {
constexpr unsigned static_base = 1024, dynamic_base = 1u << 20;
}

void *dyn_smem() { return machine.dynamic_shared; }

unsigned shared_address(const void *pointer, Site site) {
  const auto at = static_cast<const char *>(pointer);
  if (at >= machine.static_shared && at <= machine.static_shared + machine.static_bytes)
    return static_base + unsigned(at - machine.static_shared);
  if (machine.dynamic_shared && at >= machine.dynamic_shared && at <= machine.dynamic_shared + machine.dynamic_bytes)
    return dynamic_base + unsigned(at - machine.dynamic_shared);
  machine.reports.add("shared-address", "the pointer is not into shared memory", 0, &site);
  machine.abort_run();
}

void *shared_pointer(unsigned address) {
  if (address >= dynamic_base) return machine.dynamic_shared + (address - dynamic_base);
  return machine.static_shared + (address - static_base);
}

}  // namespace emu
