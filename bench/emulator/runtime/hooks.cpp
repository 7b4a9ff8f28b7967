// The functions that compiled kernels call at each access. Kernels are built with -fsanitize=thread and linked without
// libtsan; these functions replace its entry points, and call the checker.
#include <algorithm>
#include <cstring>

#include "machine.hpp"

#define EMU_CALLER (uintptr_t(__builtin_return_address(0)) - 1)

namespace {

EMU_COUNTING(inline void count(const void *p, size_t bytes, emu::Does does, uintptr_t pc, bool whole = true) {
  if (emu::machine.running && !emu::machine.stacks.holds(uintptr_t(p)))
    emu::machine.counter.access(uintptr_t(p), bytes, does, pc, whole);
})

inline void read(const void *p, size_t bytes, uintptr_t pc, bool whole = true) {
  emu::machine.checker.access(uintptr_t(p), bytes, emu::Access::read, pc, whole);
  EMU_COUNTING(count(p, bytes, emu::Does::load, pc, whole);)
}
inline void write(const void *p, size_t bytes, uintptr_t pc, bool whole = true) {
  emu::machine.checker.access(uintptr_t(p), bytes, emu::Access::write, pc, whole);
  EMU_COUNTING(count(p, bytes, emu::Does::store, pc, whole);)
}

}  // namespace

// For a type whose alignment is less than its size, such as a struct of two floats, g++ makes one unaligned access, but
// the device makes one for each member.
#define EMU_HOOKS(bytes)                                                            \
  void __tsan_read##bytes(void *p) { read(p, bytes, EMU_CALLER); }                  \
  void __tsan_write##bytes(void *p) { write(p, bytes, EMU_CALLER); }                \
  void __tsan_unaligned_read##bytes(void *p) { read(p, bytes, EMU_CALLER, false); } \
  void __tsan_unaligned_write##bytes(void *p) { write(p, bytes, EMU_CALLER, false); } \
  void __tsan_volatile_read##bytes(void *p) { read(p, bytes, EMU_CALLER); }         \
  void __tsan_volatile_write##bytes(void *p) { write(p, bytes, EMU_CALLER); }       \
  void __tsan_read_write##bytes(void *p) {                                          \
    read(p, bytes, EMU_CALLER);                                                     \
    write(p, bytes, EMU_CALLER);                                                    \
  }

extern "C" {

EMU_HOOKS(1)
EMU_HOOKS(2)
EMU_HOOKS(4)
EMU_HOOKS(8)
EMU_HOOKS(16)
void __tsan_read_range(void *p, size_t bytes) { read(p, bytes, EMU_CALLER, false); }
void __tsan_write_range(void *p, size_t bytes) { write(p, bytes, EMU_CALLER, false); }
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}

// The memory functions that the compiler calls to copy whole objects; build.py renames the kernel's calls.
void *emu_memcpy(void *to, const void *from, size_t bytes) {
  read(from, bytes, EMU_CALLER, false);
  write(to, bytes, EMU_CALLER, false);
  return std::memcpy(to, from, bytes);
}
void *emu_memmove(void *to, const void *from, size_t bytes) {
  read(from, bytes, EMU_CALLER, false);
  write(to, bytes, EMU_CALLER, false);
  return std::memmove(to, from, bytes);
}
void *emu_memset(void *to, int value, size_t bytes) {
  write(to, bytes, EMU_CALLER, false);
  return std::memset(to, value, bytes);
}

}  // extern "C"

namespace emu {

// Only ldmatrix calls this.
void note_read(const void *p, size_t bytes) {
  machine.checker.access(uintptr_t(p), bytes, Access::read, EMU_CALLER);
  EMU_COUNTING(count(p, bytes, Does::matrix, EMU_CALLER);)
}
void note_write(void *p, size_t bytes) { write(p, bytes, EMU_CALLER); }
void note_atomic(void *p, size_t bytes) {
  machine.checker.access(uintptr_t(p), bytes, Access::atomic, EMU_CALLER);
  EMU_COUNTING(count(p, bytes, Does::atomic, EMU_CALLER);)
}
void note_trips(const char *head, unsigned trips, Site site) {
  unsigned &most = machine.trips[{site.file_name(), site.line(), head}];
  most = std::max(most, trips);
}
void note_compared(const void *p, const void *expected, size_t bytes) {
  machine.checker.compare(uintptr_t(p), expected, bytes);
}

}  // namespace emu
