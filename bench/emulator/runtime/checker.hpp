// Checks each access of a kernel against the shadow of the memory that it touches.
#pragma once
#include <cstddef>
#include <cstdint>

#include "memory.hpp"

namespace emu {

struct Block;

enum class Access : uint8_t { read, write, atomic, copy_issued, copy_done };

class Checker {
 public:
  // Checks the running thread's access to `bytes` bytes. Does not return if the access would corrupt memory. whole: it
  // is one access on the device too, aligned to its width.
  void access(uintptr_t address, size_t bytes, Access kind, uintptr_t pc, bool whole = true);
  // Checks an access, of any alignment, by an agent that the running thread has started. The agent may do what the
  // thread may do, but the access is recorded under the agent's number.
  void bulk(uintptr_t address, size_t bytes, Access kind, uintptr_t pc, uint32_t agent);
  // Records that the bytes of a copy, which `bulk` has checked, have arrived.
  void land(uintptr_t address, size_t bytes, uint32_t agent, uintptr_t pc);
  // Marks bytes as an mbarrier, which only the runtime may access, atomically.
  void hold_barrier(uintptr_t address, size_t bytes);
  // Drops the running thread's guesses (see Guess) whose values it now passes to a compare-and-swap.
  void compare(uintptr_t address, const void *expected, size_t bytes);
  // Reports the running thread's remaining guesses as races, since another thread may run now.
  void settle();
  // Reports bytes of outputs that were never written.
  void report_unwritten();
  uintptr_t last_pc() const { return last_pc_; }
  uint64_t accesses() const { return accesses_; }
  void reset() { accesses_ = 0, last_pc_ = 0, away_ = 0, guesses_.clear(); }

 private:
  // A plain read of bytes that other threads change only by atomics. It is no race if the thread then passes the value
  // to a compare-and-swap.
  struct Guess {
    uintptr_t at;
    unsigned bytes;
    unsigned char value[4];
    const Region *region;
    uintptr_t place;  // in the region
    Event write;
    uint32_t pc;
  };

  Region *find(uintptr_t address, size_t bytes, size_t alignment, Access kind, uintptr_t pc);
  void shadow_access(Region &region, uintptr_t address, size_t bytes, Access kind, uint32_t who, uint32_t pc);
  void check_remote(const Block &host, uintptr_t pc);
  void check_flag(const Region &region, Cell &cell, uintptr_t at, Access kind, uint32_t pc);
  void check_proxy(const Region &region, const Cell &cell, uint8_t mask, uintptr_t at, uint32_t pc);
  void unordered_read(const Region &region, const Cell &cell, uint8_t mask, uintptr_t at, uint32_t who, uint32_t pc);
  void guess(const Region &region, uintptr_t at, uint8_t mask, const Event &write, uint32_t pc);
  void race(const char *what, const Region &region, uintptr_t at, const Event &earlier, uint32_t pc);
  [[noreturn]] void out_of_bounds(const Region *region, uintptr_t address, size_t bytes, Access kind, uintptr_t pc);

  uintptr_t last_pc_ = 0;
  uint64_t accesses_ = 0;
  std::vector<Guess> guesses_;
  ptrdiff_t away_ = 0;  // from the checked address to the bytes, if these are another block's
};

}  // namespace emu
