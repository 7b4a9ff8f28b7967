// The memory that a kernel may touch, as regions with a shadow.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace emu {

// The last access to a cell: by which thread, when, and by which instruction.
struct Event {
  uint32_t thread = 0, time = 0, pc = 0;
};

// The shadow of `granule` bytes. Masks have a bit for each byte of the cell. Two cells fit a line of the cache.
struct alignas(32) Cell {
  enum Flag : uint8_t { plain, atomic, in_flight, new_barrier, barrier };  // the last two: an mbarrier, new or used

  Event write, read;  // the last write, and the last read since
  uint8_t written = 0, was_read = 0, initialised = 0;
  Flag flag = plain;
};

// Further reads of a cell since its last write: the last one by another thread of the same warp, and by another warp.
struct OtherReads {
  Event near, far;
};

enum class Space : uint8_t { global, shared, program };

struct Unmap {
  size_t bytes = 0;
  void operator()(Cell *cells) const;
};
// The cells, followed by the other reads of each.
using Shadow = std::unique_ptr<Cell[], Unmap>;

// A range of bytes. Of each `pitch` bytes the first `row` are elements, and the rest is padding. Only `piece`
// bytes from each of the `places` on exist; the shadow of the others takes no memory.
struct Region {
  uintptr_t begin = 0, end = 0;
  Space space = Space::program;
  bool read_only = false;
  unsigned granule_shift = 2;
  size_t row = 0, pitch = 0;
  size_t piece = 0;
  std::vector<size_t> places;
  std::string name;
  Shadow shadow;

  bool contains(uintptr_t address) const { return address >= begin && address < end; }
  size_t size() const { return end - begin; }
  uintptr_t granule() const { return uintptr_t(1) << granule_shift; }
  // Cells are aligned to their size even if the region is not: a lone `__shared__ bool` may lie anywhere.
  size_t cells() const { return (end >> granule_shift) - (begin >> granule_shift) + 1; }
  Cell &cell(uintptr_t address) const { return shadow[(address >> granule_shift) - (begin >> granule_shift)]; }
  OtherReads &other_reads(const Cell &cell) const {
    return reinterpret_cast<OtherReads *>(&shadow[cells()])[&cell - shadow.get()];
  }
  // Whether an access ends past the elements of the row that it begins in.
  bool reaches_padding(uintptr_t address, size_t bytes) const {
    return row < pitch && (address - begin) % pitch + bytes > row;
  }
  void forget(bool initialised);  // a fresh shadow
};

// The regions of a launch, found by address.
class Memory {
 public:
  Region &add(Region region);
  void clear();
  void remove_shared();
  // Tries the two regions found last first, since a product reads two alternately.
  Region *find(uintptr_t address) {
    if (hot_->contains(address)) return hot_;
    std::swap(hot_, warm_);
    return hot_->contains(address) ? hot_ : search(address);
  }
  Region *nearest(uintptr_t address);
  std::vector<std::unique_ptr<Region>> &regions() { return regions_; }

 private:
  Region *search(uintptr_t address);

  Region nowhere_;
  Region *hot_ = &nowhere_, *warm_ = &nowhere_;
  std::vector<std::unique_ptr<Region>> regions_;
};

// A static shared variable: its place in the block of thread-local storage.
struct SharedVariable {
  size_t offset, size;
  std::string symbol;
};

// This program's own data, and its thread-local storage, which holds the static shared variables.
struct Image {
  uintptr_t begin = 0, end = 0;
  char *shared = nullptr;
  size_t shared_bytes = 0;
  std::vector<SharedVariable> variables;
};
Image find_image();

}  // namespace emu
