#include "checker.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "machine.hpp"

namespace emu {

namespace {

const char *verb(Access kind) { return kind == Access::read ? "read" : "write"; }

std::string place(const Region &region, uintptr_t at) {
  const auto offset = ptrdiff_t(at - region.begin);
  return region.name + (offset < 0 ? "" : "+") + std::to_string(offset);
}

}  // namespace

void Checker::access(uintptr_t address, size_t bytes, Access kind, uintptr_t pc, bool whole) {
  if (!machine.running) return;
  last_pc_ = pc;
  ++accesses_;
  if (machine.stacks.holds(address)) {
    if (AsyncProxy *async = machine.thread().async.get())
      async->check_sums(address, bytes, kind == Access::read, pc);
    return;
  }
  if (machine.launch.cluster > 1 && !machine.memory.find(address))
    if (const Remote remote = find_remote(address); remote.host) {
      check_remote(*remote.host, pc);
      const VisitShared visit(*remote.host);
      away_ = ptrdiff_t(address - remote.own);
      access(remote.own, bytes, kind, pc, whole);
      away_ = 0;
      return;
    }
  const bool word = whole && bytes <= 16 && (bytes & (bytes - 1)) == 0;
  if (Region *region = find(address, bytes, word ? bytes : 1, kind, pc))
    shadow_access(*region, address, bytes, kind, machine.me, uint32_t(pc));
}

void Checker::check_remote(const Block &host, uintptr_t pc) {
  const auto started = [](const Thread &thread) { return thread.started; };
  const std::string what = "access to the shared memory of block " + std::to_string(host.rank) + " of the cluster ";
  if (!host.live)
    machine.reports.add("early-exit", what + "after that block has exited", pc);
  else if (std::none_of(host.threads.begin(), host.threads.end(), started))
    machine.reports.add("shared-address", what + "before a cluster barrier has shown that the block has started", pc);
}

void Checker::bulk(uintptr_t address, size_t bytes, Access kind, uintptr_t pc, uint32_t agent) {
  last_pc_ = pc;
  ++accesses_;
  if (Region *region = find(address, bytes, 1, kind, pc))
    shadow_access(*region, address, bytes, kind, agent, uint32_t(pc));
}

void Checker::land(uintptr_t address, size_t bytes, uint32_t agent, uintptr_t pc) {
  EMU_COUNTING(return;)
  Region &region = *machine.memory.find(address);
  for (uintptr_t at = address; at < address + bytes; at += region.granule()) {
    Cell &cell = region.cell(at);
    cell.write = {agent, machine.time, uint32_t(pc)};
    cell.flag = Cell::plain;
  }
}

void Checker::hold_barrier(uintptr_t address, size_t bytes) {
  EMU_COUNTING(return;)
  Region &region = *machine.memory.find(address);
  for (uintptr_t at = address; at < address + bytes; at += region.granule()) region.cell(at).flag = Cell::new_barrier;
}

// Returns the region of an access, or nullptr if there is nothing to record.
Region *Checker::find(uintptr_t address, size_t bytes, size_t alignment, Access kind, uintptr_t pc) {
  Region *region = machine.memory.find(address);
  if (!region || address + bytes > region->end) out_of_bounds(region, address, bytes, kind, pc);
  if (region->space == Space::program) return nullptr;
  if (address & (alignment - 1)) {  // a power of two
    machine.reports.add("misaligned", std::to_string(bytes) + "-byte access at " + place(*region, address), pc);
    machine.abort_run();
  }
  if (region->read_only) {
    if (kind == Access::read) return nullptr;
    machine.reports.add("write-to-input", "write to input " + place(*region, address), pc);
    machine.abort_run();  // since later threads and orders read this input
  }
  if (kind != Access::read && region->reaches_padding(address, bytes))
    machine.reports.add("write-to-padding", "write past the end of a row at " + place(*region, address), pc);
  return region;
}

namespace {

// The running thread's place in the order of events.
struct Now {
  uint32_t me = machine.me, grid = machine.grid_synchronised, block = machine.block->synchronised;
  uint32_t first = machine.block->first_thread, threads = machine.threads_per_block;

  bool follows(const Event &earlier) const {
    if (earlier.thread == me || earlier.time < grid) return true;
    return (earlier.thread - first < threads && earlier.time < block) || machine.ordered(earlier);
  }
};

}  // namespace

// Most accesses take only this path, so rare cases are in separate functions.
void Checker::shadow_access(Region &region, uintptr_t address, size_t bytes, Access kind, uint32_t who, uint32_t pc) {
  EMU_COUNTING(return;)  // only bounds and alignment are checked, since buffers have no shadow
  const Now now;
  const Event event{who, machine.time, pc};
  const uintptr_t granule = region.granule(), end = address + bytes;
  uintptr_t at = address & ~(granule - 1);
  for (Cell *next = &region.cell(at); at < end; at += granule, ++next) {
    Cell &cell = *next;
    uint8_t mask = uint8_t((1u << granule) - 1);
    if (at < address) mask &= uint8_t(0xff << (address - at));
    if (at + granule > end) mask &= uint8_t((1u << (end - at)) - 1);
    if (cell.flag >= Cell::in_flight) [[unlikely]]
      check_flag(region, cell, at, kind, pc);
    if ((kind == Access::read || kind == Access::atomic) && (cell.initialised & mask) != mask) [[unlikely]]
      machine.reports.add("uninitialised-read", "read of " + place(region, at) + " before any write", pc);
    if (who & Agent::flag) check_proxy(region, cell, mask, at, pc);
    if (kind == Access::read) {
      if ((cell.written & mask) && !now.follows(cell.write)) [[unlikely]]
        unordered_read(region, cell, mask, at, who, pc);
      if (!cell.was_read) region.other_reads(cell) = {event, event};
      else if (cell.read.thread / 32 != who / 32) region.other_reads(cell) = {event, cell.read};
      else if (cell.read.thread != who) region.other_reads(cell).near = cell.read;
      cell.read = event;
      cell.was_read |= mask;
      continue;
    }
    const bool both_atomic = kind == Access::atomic && (cell.flag == Cell::atomic || cell.flag == Cell::barrier);
    if ((cell.written & mask) && !both_atomic && !now.follows(cell.write)) [[unlikely]]
      race("write after write", region, at, cell.write, pc);
    if (cell.was_read & mask) {
      const OtherReads &others = region.other_reads(cell);
      for (const Event &read : {cell.read, others.near, others.far}) {
        if (now.follows(read)) continue;
        race("write after read", region, at, read, pc);
        break;
      }
    }
    const bool again = cell.write.thread == who && cell.write.time == event.time;
    cell.written = again ? uint8_t(cell.written | mask) : mask;
    cell.write = event;
    cell.flag = cell.flag >= Cell::new_barrier ? Cell::barrier
                : kind == Access::atomic       ? Cell::atomic
                : kind == Access::copy_issued  ? Cell::in_flight
                                               : Cell::plain;
    cell.initialised |= mask;
    cell.was_read &= uint8_t(~mask);
  }
}

void Checker::check_flag(const Region &region, Cell &cell, uintptr_t at, Access kind, uint32_t pc) {
  const auto report = [&](const char *name, const char *what) {
    machine.reports.add(name, std::string(verb(kind)) + " of " + place(region, at) + what, pc);
    cell.flag = Cell::plain;
  };
  if (cell.flag == Cell::in_flight && kind != Access::copy_done)
    report("copy-in-flight", ", the destination of a copy that no thread has waited for");
  if (cell.flag >= Cell::new_barrier && kind != Access::atomic) report("mbarrier", ", which is an mbarrier");
}

// The TMA and the tensor cores see a thread's ordinary writes only after a fence.proxy.async, either of that thread or
// of the one that issues the operation.
void Checker::check_proxy(const Region &region, const Cell &cell, uint8_t mask, uintptr_t at, uint32_t pc) {
  const uint32_t writer = cell.write.thread - machine.block->first_thread;
  if (region.space != Space::shared || !(cell.written & mask) || writer >= machine.threads_per_block) return;
  if (!machine.ordered(cell.write)) return;  // it is reported as a race
  for (const uint32_t thread : {writer, machine.current}) {
    const AsyncProxy *async = machine.block->threads[thread].async.get();
    if (async && async->shows(cell.write)) return;
  }
  machine.reports.add("async-proxy", place(region, at) + " was written by a thread, and no fence.proxy.async is "
                      "between the write and its use by the TMA or wgmma", pc);
}

void Checker::unordered_read(const Region &region, const Cell &cell, uint8_t mask, uintptr_t at, uint32_t who,
                             uint32_t pc) {
  if (cell.flag == Cell::atomic && !(who & Agent::flag)) guess(region, at, mask, cell.write, pc);
  else race("read after write", region, at, cell.write, pc);
}

void Checker::guess(const Region &region, uintptr_t at, uint8_t mask, const Event &write, uint32_t pc) {
  constexpr size_t most = 16;
  const uintptr_t bytes_at = at + unsigned(std::countr_zero(mask)) + away_;
  const auto again = [&](const Guess &guess) { return guess.at == bytes_at; };
  if (guesses_.size() == most || std::any_of(guesses_.begin(), guesses_.end(), again)) settle();
  Guess &made = guesses_.emplace_back(Guess{bytes_at, unsigned(std::popcount(mask)), {}, &region, at, write, pc});
  std::memcpy(made.value, reinterpret_cast<const void *>(made.at), made.bytes);
}

void Checker::compare(uintptr_t address, const void *expected, size_t bytes) {
  std::erase_if(guesses_, [&](const Guess &guess) {
    const size_t offset = guess.at - address;
    return guess.at >= address && offset + guess.bytes <= bytes &&
           !std::memcmp(guess.value, static_cast<const char *>(expected) + offset, guess.bytes);
  });
}

void Checker::settle() {
  for (const Guess &guess : guesses_) race("read after write", *guess.region, guess.place, guess.write, guess.pc);
  guesses_.clear();
}

void Checker::race(const char *what, const Region &region, uintptr_t at, const Event &earlier, uint32_t pc) {
  Report *report = machine.reports.add("race", std::string(what) + " on " + place(region, at), pc);
  if (!report) return;
  report->other = machine.who(earlier.thread);
  report->other_pc = earlier.pc;
  report->has_other = true;
}

void Checker::out_of_bounds(const Region *region, uintptr_t address, size_t bytes, Access kind, uintptr_t pc) {
  const Region *near = region ? region : machine.memory.nearest(address);
  std::string what = std::string(verb(kind)) + " of " + counted(bytes, "byte") + " ";
  what += near ? "at " + place(*near, address) + ", but " + near->name + " has " + counted(near->size(), "byte")
               : std::string("at an address outside all buffers and shared memory");
  machine.reports.add("out-of-bounds", what, pc);
  machine.abort_run();
}

void Checker::report_unwritten() {
  for (auto &region : machine.memory.regions()) {
    if (region->space != Space::global || region->read_only || region->pitch == 0) continue;
    size_t missing = 0, first = 0;
    for (const size_t place : region->places) {
      for (size_t offset = place; offset < place + region->piece; ++offset) {
        const uintptr_t at = region->begin + offset;
        const unsigned bit = unsigned(offset & (region->granule() - 1));
        if (region->reaches_padding(at, 1) || region->cell(at).initialised >> bit & 1) continue;
        if (!missing++) first = offset;
      }
    }
    if (!missing) continue;
    const std::string what = counted(missing, "byte") + " of " + region->name + " never written, the first at +";
    machine.reports.add("not-written", what + std::to_string(first), 0);
  }
}

}  // namespace emu
