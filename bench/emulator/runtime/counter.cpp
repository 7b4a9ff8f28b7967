#include "counter.hpp"
#ifdef EMU_COUNT
#include <algorithm>
#include <bit>

#include "scheduler.hpp"

uint32_t *emu_reached;

namespace emu {

namespace {

// A thread lets the others run after this many accesses, which bounds what a warp has to remember.
constexpr unsigned patience = 4096;

const char *name(Does does) {
  constexpr const char *names[] = {"load",         "store",      "atomic",  "copy",   "matrix", "box",
                                   "multiply-add", "collective", "barrier", "product"};
  return names[unsigned(does)];
}

// The lanes that the warp has, which are fewer than 32 only at the end of a block.
uint32_t whole_warp(uint32_t warp) {
  const uint32_t threads = machine.threads_per_block - warp * 32;
  return threads < 32 ? (1u << threads) - 1 : ~0u;
}

bool is_write(Does does) { return does == Does::store || does == Does::atomic; }

}  // namespace

void Count::add(const Count &other, uint64_t times) {
  instructions += other.instructions * times;
  lanes += other.lanes * times;
  requests += other.requests * times;
  cost += other.cost * times;
  least += other.least * times;
  serial += other.serial * times;
}

uint64_t Counter::weight() const {
  const auto &sample = machine.launch.sample;
  return sample.empty() ? 1 : sample.at(machine.block->cluster->number);
}

uint32_t Counter::number(const Instruction &instruction) {
  const auto [place, is_new] = numbers_.try_emplace(instruction, uint32_t(instructions_.size()));
  if (is_new) instructions_.push_back(instruction), counts_.emplace_back();
  return place->second;
}

void Counter::access(uintptr_t address, size_t bytes, Does does, uintptr_t pc, bool whole) {
  if (const Remote remote = find_remote(address); remote.host) address = remote.own;  // costs as much as a local access
  const Region *region = machine.memory.find(address);
  if (!region || region->space == Space::program) return;
  if (region->space == Space::global) touch(*region, address, bytes, is_write(does));
  // nvcc narrows accesses to an aligned type if parts of it are not used; which parts are used is not known here.
  if (const auto asked = widths.find(pc); asked != widths.end() && !(whole && bytes > std::bit_floor(asked->second.bytes))) {
    join(address, bytes, does, region->space, pc, asked->second);
  } else {
    const uint64_t fast = uint64_t(pc) << 16 | uint64_t(does) << 8 | uint64_t(region->space) << 6 | bytes % 64;
    const unsigned width = unsigned(std::min<size_t>(bytes & -bytes, 16));
    auto known = fast_.find(fast);
    if (known == fast_.end())
      known = fast_.emplace(fast, number({.pc = pc, .does = does, .space = region->space, .bytes = width})).first;
    // An access of more than 16 bytes, or of a number that is no power of two, takes several instructions.
    for (size_t at = 0; at < bytes; at += width) remember(known->second, address + at, machine.current);
  }
  if (++since_switch_ < patience) return;
  since_switch_ = 0;
  machine.wait();
}

void Counter::copy(uintptr_t to, uintptr_t from, unsigned bytes, uintptr_t pc) {
  if (from) access(from, bytes, Does::copy, pc);
  else remember(number({.pc = pc, .does = Does::copy, .space = Space::global, .bytes = bytes}), 0, machine.current);
  access(to, bytes, Does::copy, pc);
}

void Counter::reach(Does does, const char *file, unsigned line) {
  remember(number({.file = file, .line = line, .does = does}), 0, machine.current);
}

// Joins accesses: the host's compiler splits constants of a vector type into elements, each with an instruction.
void Counter::join(uintptr_t address, size_t bytes, Does does, Space space, uintptr_t pc, const Widths &asked) {
  WarpTrace &trace = machine.block->traces[machine.current / 32];
  Joined &joined = (does == Does::load ? trace.loads : trace.stores)[machine.current % 32];
  // One instruction that is reached again is in a loop, which the machine code may have unrolled if it lacks that width.
  const bool is_next = pc > joined.last_pc || (pc == joined.last_pc && !(asked.bytes & bytes));
  const bool follows = joined.bytes && joined.begin + joined.bytes == address && joined.space == space &&
                       joined.line == asked.line && is_next && joined.bytes + bytes <= 16;
  if (follows) joined.bytes += unsigned(bytes);
  else release(joined, does, machine.current), joined = {address, pc, pc, unsigned(bytes), asked.line, space};
  joined.last_pc = pc;
  if (joined.bytes >= 16) release(joined, does, machine.current);
}

// Counts joined accesses as the widest aligned instructions of the machine code that cover them.
void Counter::release(Joined &joined, Does does, uint32_t thread) {
  if (!joined.bytes) return;
  const unsigned asked = widths.at(joined.pc).bytes;
  for (unsigned left = joined.bytes, width; left; left -= width, joined.begin += width) {
    for (width = 16; width > 1; width /= 2)
      if (asked & width && joined.begin % width == 0 && width <= left) break;
    if (!(asked & width)) width = std::min(left & -left, 16u);
    remember(number({.pc = joined.pc, .does = does, .space = joined.space, .bytes = width}), joined.begin, thread);
  }
  joined.bytes = 0;
}

void Counter::remember(uint32_t number, uintptr_t address, uint32_t thread) {
  const uint32_t warp = thread / 32, lane = thread % 32;
  WarpTrace &trace = machine.block->traces[warp];
  if (trace.reached.size() <= number) trace.reached.resize(number + 1);
  Reached &reached = trace.reached[number];
  if (reached.instances.empty() && !reached.folded) trace.open.push_back(number);
  const size_t time = reached.times[lane]++ - reached.folded;
  if (time >= reached.instances.size()) reached.instances.emplace_back();
  Instance &instance = reached.instances[time];
  instance.present |= 1u << lane;
  instance.address[lane] = address;
  if (time || instance.present != whole_warp(warp)) return;
  fold(number, instance);
  reached.instances.pop_front();
  ++reached.folded;
}

void Counter::collective(uint32_t warp, unsigned present, const char *file, unsigned line) {
  const uint32_t at = number({.file = file, .line = line, .does = Does::collective});
  counts_[at].add({.instructions = 1, .lanes = unsigned(std::popcount(present))}, weight());
  if (present == live_lanes()) meet(warp);
}

void Counter::meet(uint32_t warp) {
  WarpTrace &trace = machine.block->traces[warp];
  for (uint32_t lane = 0; lane < 32 && !widths.empty(); ++lane) {
    release(trace.loads[lane], Does::load, warp * 32 + lane);
    release(trace.stores[lane], Does::store, warp * 32 + lane);
  }
  for (const uint32_t number : trace.open) {
    Reached &reached = trace.reached[number];
    for (const Instance &instance : reached.instances) fold(number, instance);
    reached.instances.clear();
    reached.times.fill(0);
    reached.folded = 0;
  }
  trace.open.clear();
}

void Counter::meet_all() {
  for (uint32_t warp = 0; warp < machine.block->traces.size(); ++warp) meet(warp);
}

void Counter::fold(uint32_t number, const Instance &instance) {
  const Instruction &what = instructions_[number];
  Count count;
  if (what.space == Space::global) count = global_request(instance, what.bytes, what.does);
  if (what.space == Space::shared) count = shared_request(instance, what.bytes, what.does);
  // ldmatrix is counted as a collective, and a cp.async once, at its write.
  const bool counts = what.does != Does::matrix && !(what.does == Does::copy && what.space == Space::global);
  if (counts) count.instructions = 1, count.lanes = unsigned(std::popcount(instance.present));
  counts_[number].add(count, weight());
}

void Counter::box(bool is_load, const std::vector<std::pair<uintptr_t, size_t>> &rows, unsigned box_bytes,
                  uintptr_t pc) {
  uint64_t sectors = 0, bytes = 0;
  for (const auto &[begin, size] : rows) {
    sectors += (begin + size - 1) / sector - begin / sector + 1;
    bytes += size;
    touch(*machine.memory.find(begin), begin, size, !is_load);
  }
  const unsigned kind = is_load ? 0 : 1;
  const uint32_t global = number({.pc = pc, .does = Does::box, .space = Space::global, .bytes = kind});
  const uint32_t shared = number({.pc = pc, .does = Does::box, .space = Space::shared, .bytes = kind});
  const uint64_t wavefronts = (box_bytes + 127) / 128;
  counts_[global].add({1, 1, 1, sectors, (bytes + sector - 1) / sector, 0}, weight());
  counts_[shared].add({0, 0, 1, wavefronts, wavefronts, 0}, weight());
}

void Counter::touch(const Region &region, uintptr_t address, size_t bytes, bool is_write) {
  Touched &touched = touched_[region.begin];
  auto &stamps = is_write ? touched.written : touched.read;
  const uintptr_t first = region.begin / sector;
  if (stamps.empty()) stamps.resize(region.end / sector - first + 1);
  const uint32_t block = first_block_ + machine.block->linear;
  for (uintptr_t s = address / sector; s <= (address + bytes - 1) / sector; ++s) {
    uint32_t &stamp = stamps[s - first];
    if (stamp == block) continue;
    leave(region, is_write, s - first);
    (is_write ? traffic_.block_written : traffic_.block_read) += weight();
    // What an earlier block has written is read from a cache that keeps everything.
    const bool is_there = !is_write && !touched.written.empty() && touched.written[s - first];
    if (!stamp && !is_there) ++(is_write ? traffic_.written : traffic_.read);
    stamp = block;
  }
}

// Adds a sector to the block's footprint, in samples and launches of few blocks: many footprints take long to read.
void Counter::leave(const Region &region, bool is_write, uint64_t sector_number) {
  constexpr uint32_t few = 27;
  const dim3 &grid = machine.launch.grid;
  if (machine.launch.sample.empty() && size_t(grid.x) * grid.y * grid.z > few * machine.launch.cluster) return;
  const uint32_t block = machine.block->linear;
  const auto own = std::find_if(footprints_.rbegin(), footprints_.rend(), [&](const Footprint &f) {
    return f.launch == launch_ && f.block == block && f.is_write == is_write && f.buffer == region.name;
  });
  if (own != footprints_.rend()) own->sectors.push_back(sector_number);
  else footprints_.push_back({launch_, block, region.name, is_write, {sector_number}});
}

void Counter::end_launch() {
  const dim3 &grid = machine.launch.grid;
  first_block_ += grid.x * grid.y * grid.z;
  ++launch_;
}

// Multiply-adds have no addresses: the k-th time that each lane reaches one is taken as one instruction of the warp.
void Counter::end_block() {
  meet_all();
  const Block &block = *machine.block;
  for (uint64_t i = 0; i < emu_multiply_add_count; ++i) {
    const uint32_t number = this->number({.pc = emu_multiply_adds[i], .does = Does::multiply_add});
    for (uint32_t first = 0; first < block.threads.size(); first += 32) {
      Count count;
      for (uint32_t t = first; t < std::min<size_t>(first + 32, block.threads.size()); ++t) {
        const uint64_t times = block.threads[t].reached[i];
        count.instructions = std::max(count.instructions, times);
        count.lanes += times;
      }
      counts_[number].add(count, weight());
    }
  }
}

uint32_t *Counter::nowhere() {
  nowhere_.resize(emu_multiply_add_count + 1);
  return nowhere_.data();
}

void Counter::write(FILE *out) const {
  for (size_t i = 0; i < counts_.size(); ++i) {
    const Instruction &what = instructions_[i];
    const Count &count = counts_[i];
    if (!count.instructions && !count.requests) continue;
    const char *space = what.space == Space::global ? "global" : what.space == Space::shared ? "shared" : "";
    std::fprintf(out, "count\t%zx\t%s\t%u\t%s\t%s\t%u\t%llu\t%llu\t%llu\t%llu\t%llu\t%llu\n", size_t(what.pc), what.file,
                 what.line, name(what.does), space, what.bytes, (unsigned long long)count.instructions,
                 (unsigned long long)count.lanes, (unsigned long long)count.requests, (unsigned long long)count.cost,
                 (unsigned long long)count.least, (unsigned long long)count.serial);
  }
  for (const Footprint &f : footprints_) {
    std::fprintf(out, "footprint\t%u\t%u\t%s\t%d\t", f.launch, f.block, f.buffer.c_str(), int(f.is_write));
    std::vector<uint64_t> sectors = f.sectors;
    std::sort(sectors.begin(), sectors.end());
    for (size_t i = 0, begin = 0; i < sectors.size(); ++i) {
      if (i + 1 < sectors.size() && sectors[i + 1] == sectors[i] + 1) continue;
      std::fprintf(out, "%llu %llu ", (unsigned long long)sectors[begin], (unsigned long long)(i + 1 - begin));
      begin = i + 1;
    }
    std::fputc('\n', out);
  }
  std::fprintf(out, "traffic\t%llu\t%llu\t%llu\t%llu\n", (unsigned long long)traffic_.block_read,
               (unsigned long long)traffic_.block_written, (unsigned long long)traffic_.read,
               (unsigned long long)traffic_.written);
}

}  // namespace emu
#endif
