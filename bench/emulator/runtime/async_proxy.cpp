#include "async_proxy.hpp"

#include <algorithm>

#include "machine.hpp"

namespace emu {

bool AsyncProxy::is_fenced(uintptr_t begin, size_t bytes) const {
  if (!has_fenced_sums) return false;
  return std::none_of(touched.begin(), touched.end(),
                      [&](const auto &range) { return begin < range.second && range.first < begin + bytes; });
}

void AsyncProxy::fence_sums() {
  has_fenced_sums = true;
  touched.clear();
}

// A loop over an array extends one range, so there are few ranges.
void AsyncProxy::touch(uintptr_t begin, uintptr_t end) {
  const auto adjoins = [&](const auto &range) { return begin <= range.second && range.first <= end; };
  const auto found = std::find_if(touched.begin(), touched.end(), adjoins);
  if (found == touched.end())
    touched.emplace_back(begin, end);
  else
    *found = {std::min(begin, found->first), std::max(end, found->second)};
}

void AsyncProxy::hand_over(uintptr_t begin, size_t bytes) {
  // Other arrays that lay there are no longer alive.
  std::erase_if(sums, [&](const SumRange &r) { return r.overlaps(begin, bytes); });
  sums.push_back({begin, bytes});
}

void AsyncProxy::hand_back(uintptr_t begin) {
  for (SumRange &range : sums)
    if (range.begin == begin) range.in_flight = false;
}

void AsyncProxy::give_back(size_t products) {
  std::erase_if(lent, [&](const LentRange &r) { return r.product <= products; });
}

void AsyncProxy::check_sums(uintptr_t address, size_t bytes, bool is_read, uintptr_t pc) {
  if (has_fenced_sums) touch(address, address + bytes);  // before the first fence there is nothing to compare with
  for (const SumRange &range : sums) {
    if (!range.in_flight || !range.overlaps(address, bytes)) continue;
    const std::string what = std::string(is_read ? "read" : "write") + " of element ";
    machine.reports.add("wgmma-in-flight", what + std::to_string((address - range.begin) / 4) +
                        " of the accumulators of a wgmma that has not been waited for", pc);
  }
  if (is_read) return;
  for (const LentRange &r : lent)
    if (address < r.begin + r.bytes && r.begin < address + bytes) {
      machine.reports.add("wgmma-in-flight", "write to registers from which a wgmma still reads A", pc);
      return;
    }
}

bool AsyncProxy::shows(const Event &write) const {
  const auto fence = std::upper_bound(fences.begin(), fences.end(), write.time);
  return fence != fences.end() && machine.ordered({write.thread, *fence - 1, 0});
}

void AsyncProxy::report_unfinished() const {
  const BulkStore *store = nullptr;
  if (!open_stores.empty()) store = &open_stores.front();
  for (const StoreGroup &group : stores)
    if (!group.stores.empty()) store = &group.stores.front();
  if (store)
    machine.reports.add("copy-not-waited-for", "the thread ended with a TMA store that it never waited for", store->pc);
  if (std::any_of(sums.begin(), sums.end(), [](const SumRange &range) { return range.in_flight; }))
    machine.reports.add("wgmma-in-flight", "the thread ended with a wgmma that it never waited for", last_product);
}

}  // namespace emu
