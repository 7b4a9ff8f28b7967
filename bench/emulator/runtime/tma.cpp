#include "tma.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "machine.hpp"

namespace emu {

namespace {

constexpr unsigned piece = 16;  // bytes that no swizzle splits

// Part of a row of a box: where its 16 bytes lie in shared memory, and which of them are in the tensor.
struct Piece {
  char *shared;
  char *global;          // of the first byte inside, or nullptr if none is
  unsigned skip, bytes;  // the `bytes` bytes after the first `skip` are inside
};

// The number of pixels that the filter's first tap visits along an axis of the images: 0 columns, 1 rows.
int64_t visited(const TensorMap &map, unsigned axis) {
  const int64_t last = int64_t(map.size[axis + 1]) - 1 + map.upper[axis];
  return last < map.lower[axis] ? 0 : (last - map.lower[axis]) / map.stride[axis] + 1;
}

// The place of a row of a box along the axes after the first; for images, see PTX ISA, "im2col mode".
std::array<int64_t, 3> place_of(const TensorMap &map, const Corner &corner, unsigned row) {
  if (!map.is_im2col()) return {int64_t(corner.y) + row, corner.z, 0};
  const int64_t across = visited(map, 0), down = visited(map, 1);
  const int64_t column = (corner.y - map.lower[0]) / map.stride[0] + row;
  const int64_t line = (corner.z - map.lower[1]) / map.stride[1] + column / across;
  return {map.lower[0] + column % across * map.stride[0] + corner.distance[0],
          map.lower[1] + line % down * map.stride[1] + corner.distance[1], corner.image + line / down};
}

Piece piece_at(const TensorMap &map, const Corner &corner, unsigned address, unsigned row, unsigned offset) {
  const unsigned unswizzled = address + row * map.box[0] * map.itemsize + offset;
  Piece found{static_cast<char *>(shared_at(swizzled(unswizzled, map.swizzle))), nullptr, 0, 0};
  size_t line = 0;
  const std::array<int64_t, 3> place = place_of(map, corner, row);
  for (unsigned axis = 0; axis < 3; ++axis) {
    if (place[axis] < 0 || uint64_t(place[axis]) >= map.size[axis + 1]) return found;
    line += uint64_t(place[axis]) * map.pitch[axis];
  }
  const int64_t begin = int64_t(corner.x) * map.itemsize + offset, width = int64_t(map.size[0] * map.itemsize);
  const int64_t from = std::max<int64_t>(begin, 0), to = std::min<int64_t>(begin + piece, width);
  if (from >= to) return found;
  found.global = map.base + line + from;
  found.skip = unsigned(from - begin);
  found.bytes = unsigned(to - from);
  return found;
}

template <class F> void each_piece(const TensorMap &map, const Corner &corner, unsigned address, F f) {
  for (unsigned row = 0; row < map.box[1]; ++row)
    for (unsigned offset = 0; offset < map.box[0] * map.itemsize; offset += piece)
      f(piece_at(map, corner, address, row, offset));
}

// Rounds to the nearest TF32, ties away from zero; infinities and NaNs stay.
void round_to_tf32(char *bytes) {
  for (unsigned i = 0; i < piece; i += 4) {
    uint32_t x;
    std::memcpy(&x, bytes + i, 4);
    if ((x & 0x7fffffff) < 0x7f800000) x = (x + 0x1000) & 0xffffe000u;
    std::memcpy(bytes + i, &x, 4);
  }
}

EMU_COUNTING(void count(bool is_load, const TensorMap &map, Corner corner, unsigned shared, unsigned copies,
                        uintptr_t pc) {
  std::vector<std::pair<uintptr_t, size_t>> rows;
  each_piece(map, corner, shared, [&](const Piece &p) {
    if (!p.bytes) return;
    const auto at = uintptr_t(p.global);
    if (!rows.empty() && rows.back().first + rows.back().second == at) rows.back().second += p.bytes;
    else rows.push_back({at, p.bytes});
  });
  machine.counter.box(is_load, rows, map.bytes() * copies, pc);
})

[[noreturn]] void refuse(const char *message, uintptr_t pc, Site site) {
  machine.reports.add("tma", message, pc, &site);
  machine.abort_run();
}

void check_copy(const TensorMap *map, bool is_im2col, unsigned shared, uintptr_t pc, Site site) {
  if (map->map != TensorMap::is_map) refuse("the address is not that of a tensor map", pc, site);
  if (map->is_im2col() != is_im2col)
    refuse(is_im2col ? "an im2col copy with a tiled tensor map" : "a tiled copy with an im2col tensor map", pc, site);
  if (shared % 128 == 0) return;
  machine.reports.add("misaligned", "a TMA copy at shared address " + std::to_string(shared) +
                      ", which is not a multiple of 128", pc, &site);
  machine.abort_run();
}

// A copy must begin at a pixel that the filter's first tap visits; otherwise no document defines the result. The
// distances of four-dimensional images have 8 bits.
void check_first(const TensorMap &map, const Corner &first, uintptr_t pc, Site site) {
  const int at[] = {first.y, first.z};
  for (unsigned axis = 0; axis < 2; ++axis) {
    const int64_t from_lower = int64_t(at[axis]) - map.lower[axis];
    if (from_lower < 0 || from_lower % map.stride[axis] || from_lower / map.stride[axis] >= visited(map, axis))
      refuse("a copy begins at a pixel that the filter's first tap does not visit", pc, site);
    if (first.distance[axis] > 255) refuse("a tap lies more than 255 pixels from the filter's first one", pc, site);
  }
}

// Issues a load into one block of the cluster: from here on the bytes may land at any time.
void issue_load(Block &target, const Landing &load, unsigned address, Site site) {
  if (!target.live) {
    misuse("early-exit", "a TMA load into a block that has exited", site);
    return;
  }
  Mbarrier &barrier = find_mbarrier(target, address, load.pc, site);
  if (!barrier.published)
    misuse("async-proxy", "a TMA load uses an mbarrier that no fence has published since its init", site);
  machine.agents[barrier.agent & ~Agent::flag].issuer = machine.me;
  const VisitShared visit(target);
  each_piece(load.map, load.corner, load.destination, [&](const Piece &p) {
    machine.checker.bulk(uintptr_t(p.shared), piece, Access::copy_issued, load.pc, barrier.agent);
  });
  barrier.landings.push_back(load);
}

// Issues a load into the blocks of `mask`, or into the running block if it is 0.
void load(unsigned destination, const TensorMap *map, Corner corner, unsigned barrier, unsigned mask, uintptr_t pc,
          Site site) {
  Block &own = *machine.block;
  const unsigned to = shared_offset(destination, site), at = shared_offset(barrier, site);
  if (!mask) mask = 1u << own.rank;
  if (mask >> own.cluster->blocks.size()) {
    misuse("tma", "the mask of a multicast names blocks that the cluster does not have", site);
    machine.abort_run();
  }
  EMU_COUNTING(count(true, *map, corner, to, unsigned(__builtin_popcount(mask)), pc);)
  each_piece(*map, corner, to, [&](const Piece &p) {
    if (p.bytes) machine.checker.bulk(uintptr_t(p.global), p.bytes, Access::read, pc, machine.me);
  });
  for (Block *target : own.cluster->blocks)
    if (mask >> target->rank & 1) issue_load(*target, {*map, corner, to, pc}, at, site);
}

// The bytes of a piece that a store writes. They end at the tensor's edge if that is a multiple of 16 bytes, and at the
// next multiple otherwise, as on an H100 and an H200 (triton-lang/triton issue 11583); the PTX ISA leaves this open.
unsigned written(const Piece &p) {
  const auto end = uintptr_t(p.global) + p.bytes;
  return std::min(p.bytes + unsigned(-end % piece), piece - p.skip);
}

void store(const BulkStore &from) {
  each_piece(from.map, from.corner, from.source, [](const Piece &p) {
    if (p.bytes) std::memcpy(p.global, p.shared + p.skip, written(p));
  });
}

}  // namespace

void land(const Landing &load, uint32_t agent) {
  each_piece(load.map, load.corner, load.destination, [&](const Piece &p) {
    std::memset(p.shared, 0, piece);
    if (p.bytes) std::memcpy(p.shared + p.skip, p.global, p.bytes);
    if (load.map.round_to_tf32) round_to_tf32(p.shared);
    machine.checker.land(uintptr_t(p.shared), piece, agent, load.pc);
  });
}

void tma_load(unsigned destination, const TensorMap *map, Corner corner, unsigned barrier, unsigned mask, Site site) {
  const auto pc = uintptr_t(__builtin_return_address(0)) - 1;
  check_copy(map, false, destination, pc, site);
  load(destination, map, corner, barrier, mask, pc, site);
}

void tma_load_im2col(unsigned destination, const TensorMap *map, Corner first, unsigned barrier, unsigned mask,
                     Site site) {
  const auto pc = uintptr_t(__builtin_return_address(0)) - 1;
  check_copy(map, true, destination, pc, site);
  check_first(*map, first, pc, site);
  load(destination, map, first, barrier, mask, pc, site);
}

void tma_store(const TensorMap *map, unsigned source, Corner corner, Site site) {
  const auto pc = uintptr_t(__builtin_return_address(0)) - 1;
  check_copy(map, false, source, pc, site);
  const unsigned from = shared_offset(source, site);
  AsyncProxy &async = machine.thread().async_proxy();
  if (!async.store_agent) async.store_agent = add_agent();
  EMU_COUNTING(count(false, *map, corner, from, 1, pc);)
  each_piece(*map, corner, from, [&](const Piece &p) {
    if (!p.bytes) return;
    machine.checker.bulk(uintptr_t(p.shared) + p.skip, written(p), Access::read, pc, async.store_agent);
    machine.checker.bulk(uintptr_t(p.global), written(p), Access::write, pc, async.store_agent);
  });
  async.open_stores.push_back({*map, corner, from, pc});
}

void tma_store_commit() {
  AsyncProxy &async = machine.thread().async_proxy();
  async.stores.push_back({std::move(async.open_stores), ++machine.time});
  async.open_stores.clear();
}

void tma_store_wait_read(unsigned pending) { machine.thread().async_proxy().wait_for_stores(pending); }

void AsyncProxy::wait_for_stores(size_t pending) {
  if (stores.size() <= pending) return;
  const auto end = stores.end() - ptrdiff_t(pending);
  for (auto group = stores.begin(); group != end; ++group)
    for (const BulkStore &from : group->stores) store(from);
  if (store_agent) learn(machine.thread(), store_agent, (end - 1)->time);
  stores.erase(stores.begin(), end);
}

}  // namespace emu
