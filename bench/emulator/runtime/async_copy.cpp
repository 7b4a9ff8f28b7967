#include "async_copy.hpp"

#include <cstring>

#include "machine.hpp"

namespace emu {

namespace {

void land(const AsyncCopy &copy) {
  machine.checker.access(uintptr_t(copy.destination), copy.bytes, Access::copy_done, copy.pc);
  std::memcpy(copy.destination, copy.source, copy.source_bytes);
  std::memset(copy.destination + copy.source_bytes, 0, copy.bytes - copy.source_bytes);
}

}  // namespace

void AsyncCopies::wait(size_t pending) {
  const size_t finished = groups.size() > pending ? groups.size() - pending : 0;
  for (size_t i = 0; i < finished; ++i)
    for (const AsyncCopy &copy : groups[i]) land(copy);
  groups.erase(groups.begin(), groups.begin() + ptrdiff_t(finished));
}

const AsyncCopy *AsyncCopies::outstanding() const {
  for (const auto &group : groups)
    if (!group.empty()) return &group.front();
  return open.empty() ? nullptr : &open.front();
}

void copy_async(void *destination, const void *source, unsigned bytes, unsigned source_bytes, Site site) {
  const auto pc = uintptr_t(__builtin_return_address(0)) - 1;
  const auto to = uintptr_t(destination), from = uintptr_t(source);
  if (source_bytes > bytes) {
    misuse("copy", "a cp.async reads more bytes than it writes", site);
    source_bytes = bytes;
  }
  if (to % bytes || from % bytes) {
    const std::string size = std::to_string(bytes), what = "cp.async of " + size + " bytes";
    machine.reports.add("misaligned", what + " whose addresses are not both multiples of " + size, pc, &site);
    machine.abort_run();
  }
  if (source_bytes) machine.checker.access(from, source_bytes, Access::read, pc);
  machine.checker.access(to, bytes, Access::copy_issued, pc);  // the bytes may land at any time from here on
  EMU_COUNTING(machine.counter.copy(to, source_bytes ? from : 0, bytes, pc);)
  machine.thread().copies.open.push_back(
      {static_cast<char *>(destination), static_cast<const char *>(source), bytes, source_bytes, pc, site});
}

void commit_copies() {
  AsyncCopies &copies = machine.thread().copies;
  copies.groups.push_back(std::move(copies.open));
  copies.open.clear();
}

void wait_copies(unsigned pending, Site) { machine.thread().copies.wait(pending); }

}  // namespace emu
