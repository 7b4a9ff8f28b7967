#include "layout.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <stdexcept>

namespace emu {

namespace {

// The prefix of the symbols of variables inside a function.
std::string found_scope(const Entry &entry) {
  Dl_info info{};
  if (!dladdr(entry.kernel, &info) || !info.dli_sname) return "";
  const std::string function = info.dli_sname;
  if (function.starts_with("_Z")) return "_ZZ" + function.substr(2) + "E";
  return "_ZZ" + std::to_string(function.size()) + function + "E";  // extern "C"
}

// The prefixes of all entries, in order. They are kept, since each takes a search through all symbols of the program.
const std::vector<std::string> &scopes() {
  static const std::vector<std::string> found = [] {
    std::vector<std::string> all;
    std::transform(entries, entries + entry_count, std::back_inserter(all), found_scope);
    return all;
  }();
  return found;
}

const std::string &scope_of(const Entry &entry) { return scopes()[size_t(&entry - entries)]; }

// Variables of other kernels in the same program do not exist for this one.
bool is_foreign(const SharedVariable &variable, const Entry &entry) {
  const std::string &own = scope_of(entry);
  if (own.empty() || variable.symbol.starts_with(own)) return false;
  return std::ranges::any_of(
      scopes(), [&](const std::string &scope) { return !scope.empty() && variable.symbol.starts_with(scope); });
}

// Returns `smem_a` for `_ZZ5sgemmE6smem_a`.
std::string plain_name(const std::string &symbol) {
  char *demangled = abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, nullptr);
  std::string name = demangled ? demangled : symbol;
  std::free(demangled);
  const size_t scope = name.rfind("::");
  return scope == std::string::npos ? name : name.substr(scope + 2);
}

// The swizzles of shared memory repeat after this many bytes, so pointers and PTX addresses agree modulo this number.
constexpr size_t pattern = 1024;

size_t up(size_t bytes, size_t multiple) { return (bytes + multiple - 1) / multiple * multiple; }

void add_shared(char *begin, size_t bytes, unsigned granule_shift, std::string name) {
  machine.shared_regions.push_back(&machine.memory.add(
      {.begin = uintptr_t(begin), .end = uintptr_t(begin) + bytes, .space = Space::shared,
       .granule_shift = granule_shift, .piece = bytes, .places = {0}, .name = std::move(name), .shadow = nullptr}));
}

}  // namespace

// Places a buffer in the middle of unmapped memory: an access that misses it by less than a gap hits no other buffer.
void place(Buffer &buffer) {
  constexpr size_t gap = size_t(1) << 28;
  const size_t page = size_t(getpagesize()), bytes = (buffer.bytes() + page) / page * page;
  void *reserved = mmap(nullptr, bytes + 2 * gap, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) throw std::runtime_error("no address space for buffer " + buffer.name);
  buffer.data = static_cast<char *>(reserved) + gap;
  EMU_COUNTING(mprotect(buffer.data, bytes, PROT_READ | PROT_WRITE);)  // zeros, which take no memory until written
  for (const size_t at : buffer.places) {
    const size_t begin = at / page * page, end = (at + buffer.piece + page) / page * page;
    mprotect(buffer.data + begin, end - begin, PROT_READ | PROT_WRITE);
  }
}

void restore_buffers(Job &job) {
  for (Buffer &buffer : job.buffers) {
    const char *from = buffer.contents.data();
    for (const size_t at : buffer.places) std::copy_n(from, buffer.piece, buffer.data + at), from += buffer.piece;
  }
}

void map_memory(const Job &job, const Image &image) {
  machine.memory.clear();
  for (const Buffer &buffer : job.buffers) {
    Region region{.begin = uintptr_t(buffer.data), .end = uintptr_t(buffer.data) + buffer.bytes(),
                  .space = Space::global, .read_only = buffer.role == Role::in, .granule_shift = buffer.granule_shift,
                  .row = buffer.row, .pitch = buffer.pitch, .piece = buffer.piece, .places = buffer.places,
                  .name = buffer.name, .shadow = nullptr};
#ifndef EMU_COUNT
    if (!region.read_only) region.forget(buffer.role == Role::inout);
#endif
    machine.memory.add(std::move(region));
  }
  machine.memory.add({.begin = image.begin, .end = image.end, .name = "program", .shadow = nullptr});
}

void map_shared(const Job &job, const Image &image, const Entry &entry, size_t dynamic_bytes) {
  machine.memory.remove_shared();
  machine.shared_regions.clear();
  unsigned finest = 2, own_bytes = 0;
  const std::string &own = scope_of(entry);
  for (const Buffer &buffer : job.buffers) finest = std::min(finest, buffer.granule_shift);
  machine.static_shared = image.shared;
  machine.static_bytes = image.shared_bytes;
  for (const SharedVariable &variable : image.variables)
    if (!is_foreign(variable, entry)) {
      add_shared(image.shared + variable.offset, variable.size, finest, plain_name(variable.symbol));
      if (variable.symbol.starts_with(own)) own_bytes += unsigned(up(variable.size, 16));
    }
  // On the device the first KiB is reserved for the system; the static variables follow, then the dynamic memory
  // without further alignment. Here the static variables lie last, each followed by a red zone.
  constexpr unsigned system_bytes = 1024;
  machine.dynamic_window = system_bytes + own_bytes;
  machine.static_window = unsigned(up(machine.dynamic_window + dynamic_bytes, pattern)) +
                          unsigned(uintptr_t(image.shared) % pattern);
  machine.dynamic_bytes = dynamic_bytes;
  machine.dynamic_shared = nullptr;
  if (!dynamic_bytes) return;
  static std::unique_ptr<char, decltype(&std::free)> memory(nullptr, std::free);
  memory.reset(static_cast<char *>(std::aligned_alloc(pattern, up(dynamic_bytes, pattern) + pattern)));
  machine.dynamic_shared = memory.get() + machine.dynamic_window % pattern;
  add_shared(machine.dynamic_shared, dynamic_bytes, finest, "dynamic shared memory");
}

}  // namespace emu
