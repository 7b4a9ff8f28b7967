// The cost of a warp's memory requests. Sources of the rules: docs/profile.md.
#include "counter.hpp"
#ifdef EMU_COUNT
#include <algorithm>
#include <bit>

namespace emu {

namespace {

constexpr unsigned banks = 32, word = 4;

// The set of the lanes' values.
class Distinct {
 public:
  void add(uintptr_t value) {
    if (size_ && values_[size_ - 1] == value) return;
    if (std::find(values_.begin(), values_.begin() + size_, value) == values_.begin() + size_) values_[size_++] = value;
  }
  const uintptr_t *begin() const { return values_.data(); }
  const uintptr_t *end() const { return values_.data() + size_; }
  unsigned size() const { return size_; }

 private:
  std::array<uintptr_t, 128> values_;  // at most 32 lanes with 4 words each
  unsigned size_ = 0;
};

template <class F> void each_lane(const Instance &instance, unsigned begin, unsigned end, F f) {
  for (unsigned lane = begin; lane < end; ++lane)
    if (instance.present >> lane & 1 && instance.address[lane]) f(instance.address[lane]);
}

unsigned distinct_bytes(const Instance &instance, unsigned bytes) {
  Distinct addresses;
  each_lane(instance, 0, 32, [&](uintptr_t at) { addresses.add(at); });
  return addresses.size() * bytes;
}

// Cycles in which 32 banks deliver these lanes' words: the most words in one bank, each word once.
unsigned cycles(const Instance &instance, unsigned begin, unsigned end, unsigned bytes) {
  Distinct words;
  each_lane(instance, begin, end, [&](uintptr_t at) {
    for (uintptr_t w = at / word; w <= (at + bytes - 1) / word; ++w) words.add(w);
  });
  std::array<unsigned, banks> in_bank{};
  for (const uintptr_t w : words) ++in_bank[w % banks];
  return *std::max_element(in_bank.begin(), in_bank.end());
}

// Whether each lane n has the same address as lane n ^ distance, if both take part.
bool in_pairs(const Instance &instance, unsigned distance) {
  for (unsigned lane = 0; lane < 32; ++lane) {
    const unsigned other = lane ^ distance;
    const bool both = (instance.present >> lane & 1) && (instance.present >> other & 1);
    if (both && instance.address[lane] != instance.address[other]) return false;
  }
  return true;
}

// The most lanes that change one word: atomics on it take turns.
unsigned in_turn(const Instance &instance) {
  unsigned most = 0;
  each_lane(instance, 0, 32, [&](uintptr_t at) {
    unsigned same = 0;
    each_lane(instance, 0, 32, [&](uintptr_t other) { same += other / word == at / word; });
    most = std::max(most, same);
  });
  return most;
}

// The most lanes whose atomics change words of one bank; lanes with the same word count separately.
unsigned changes_in_a_bank(const Instance &instance) {
  std::array<unsigned, banks> in_bank{};
  each_lane(instance, 0, 32, [&](uintptr_t at) { ++in_bank[at / word % banks]; });
  return *std::max_element(in_bank.begin(), in_bank.end());
}

constexpr unsigned quotient(unsigned a, unsigned b) { return (a + b - 1) / b; }

}  // namespace

Count global_request(const Instance &instance, unsigned bytes, Does does) {
  Distinct sectors;
  each_lane(instance, 0, 32, [&](uintptr_t at) {
    for (uintptr_t s = at / sector; s <= (at + bytes - 1) / sector; ++s) sectors.add(s);
  });
  return {.requests = sectors.size() > 0,
          .cost = sectors.size(),
          .least = quotient(distinct_bytes(instance, bytes), sector),
          .serial = does == Does::atomic ? in_turn(instance) : 0};
}

// Accesses of 8 bytes take half of a warp at a time, and accesses of 16 bytes a quarter. A load whose lanes share
// addresses in pairs takes twice as many lanes at a time.
Count shared_request(const Instance &instance, unsigned bytes, Does does) {
  const bool loads = does == Does::load;
  const unsigned lanes = unsigned(std::popcount(instance.present));
  unsigned together = bytes <= 4 ? 32 : 128 / bytes;
  const unsigned most = loads ? std::min(32u, together * 2) : together;
  if (loads && together < 32 && (in_pairs(instance, 1) || in_pairs(instance, 2))) together = most;
  Count count{.requests = 1};
  for (unsigned begin = 0; begin < 32; begin += together) count.cost += cycles(instance, begin, begin + together, bytes);
  if (does == Does::atomic) {
    count.cost = std::max<uint64_t>(count.cost, changes_in_a_bank(instance));
    count.serial = in_turn(instance);
  }
  count.least = std::max(quotient(distinct_bytes(instance, bytes), banks * word), quotient(lanes, most));
  return count;
}

}  // namespace emu
#endif
