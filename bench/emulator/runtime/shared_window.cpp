// PTX addresses shared memory by 32 bits, of which the descriptors of wgmma hold 18.
#include "machine.hpp"

namespace emu {

void *dyn_smem() { return machine.dynamic_shared; }

unsigned shared_address(const void *pointer, Site site) {
  const auto at = static_cast<const char *>(pointer);
  if (at >= machine.static_shared && at <= machine.static_shared + machine.static_bytes)
    return machine.static_window + unsigned(at - machine.static_shared);
  if (machine.dynamic_shared && at >= machine.dynamic_shared && at <= machine.dynamic_shared + machine.dynamic_bytes)
    return machine.dynamic_window + unsigned(at - machine.dynamic_shared);
  machine.reports.add("shared-address", "the pointer is not into shared memory", 0, &site);
  machine.abort_run();
}

void *shared_pointer(unsigned address) {
  if (address >= machine.static_window) return machine.static_shared + (address - machine.static_window);
  return machine.dynamic_shared + (ptrdiff_t(address) - ptrdiff_t(machine.dynamic_window));
}

}  // namespace emu
