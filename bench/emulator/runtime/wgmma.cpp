#include "wgmma.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "descriptor.hpp"
#include "machine.hpp"

namespace emu {

namespace {

constexpr uint32_t poison = 0x7fedbad1;  // a NaN or a large integer, which threads read from sums in flight

bool same(const WarpgroupProduct &x, const WarpgroupProduct &y) {
  return x.type == y.type && x.n == y.n && x.a == y.a && x.b == y.b && x.mn_major_a == y.mn_major_a &&
         x.mn_major_b == y.mn_major_b && x.accumulate == y.accumulate && x.a_in_registers == y.a_in_registers;
}

Sums &find_sums(Warpgroup &group) {
  const unsigned n = group.wanted.n;
  for (auto &sums : group.sums)
    if (sums->n == n && sums->of_thread == group.d) return *sums;
  group.sums.push_back(std::make_unique<Sums>(
      Sums{.n = n, .of_thread = group.d, .values = std::vector<uint32_t>(size_t(64) * n)}));
  return *group.sums.back();
}

// Moves the threads' arrays to the warpgroup.
void take(Sums &sums, uint32_t first) {
  for (unsigned t = 0; t < warpgroup_size; ++t) {
    if (sums.in_flight[t]) continue;
    for (unsigned i = 0; i < sums.n / 2; ++i) {
      sums.at(t, i) = std::exchange(sums.of_thread[t][i], poison);
    }
    sums.in_flight[t] = true;
    machine.block->threads[first + t].async_proxy().hand_over(uintptr_t(sums.of_thread[t]), sums.n * 2);
  }
}

// Each warp reads its 16 rows of A and all of B, from now until the warpgroup has waited.
void check_operands(const Warpgroup &group, uint32_t first, uintptr_t pc) {
  const WarpgroupProduct &what = group.wanted;
  const unsigned elements = per_piece(what.type);
  const auto read = [&](unsigned address, unsigned, unsigned) {
    machine.checker.bulk(uintptr_t(shared_at(address)), 16, Access::read, pc, group.agent);
  };
  const uint32_t current = machine.current;
  for (unsigned warp = 0; warp < 4; ++warp) {
    machine.make_current(first + warp * 32);
    if (!what.a_in_registers) Descriptor(what.a).each_piece(what.mn_major_a, warp * 16, warp * 16 + 16, elements, read);
    Descriptor(what.b).each_piece(what.mn_major_b, 0, what.n, elements, read);
  }
  machine.make_current(current);
}

void issue(Warpgroup &group, uint32_t first, uintptr_t pc, Site site) {
  const WarpgroupProduct &what = group.wanted;
  const std::pair a{what.a, what.mn_major_a}, b{what.b, what.mn_major_b};
  for (const auto &[bits, mn_major] : {what.a_in_registers ? b : a, b})
    if (const std::string fault = Descriptor(bits).fault(mn_major); !fault.empty())
      machine.reports.add("wgmma", fault, pc, &site);
  machine.agents[group.agent & ~Agent::flag].issuer = machine.me;
  check_operands(group, first, pc);
  Sums &sums = find_sums(group);
  take(sums, first);
  group.queue.push_back({group.wanted, &sums, group.a});
  sums.last_product = group.issued();
  group.arrived = 0;
  ++machine.time;
  for (unsigned t = 0; t < warpgroup_size; ++t) machine.block->threads[first + t].state = State::ready;
}

}  // namespace

Warpgroup &own_warpgroup(Site site) {
  Block &block = *machine.block;
  const uint32_t own = machine.current / warpgroup_size;
  if ((own + 1) * warpgroup_size > machine.threads_per_block) {
    misuse("wgmma", "the last warps of the block are not a whole warpgroup of 128 threads", site);
    machine.abort_run();
  }
  if (block.warpgroups.size() <= own) block.warpgroups.resize(own + 1);
  auto &group = block.warpgroups[own];
  if (!group) {
    group = std::make_unique<Warpgroup>();
    group->agent = add_agent();
  }
  return *group;
}

// PTX ISA, "wgmma D fragment".
uint32_t &Sums::at(unsigned thread, unsigned i) {
  const unsigned warp = thread / 32, lane = thread % 32;
  const unsigned row = 16 * warp + lane / 4 + 8 * (i % 4 / 2), col = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
  return values[size_t(row) * n + col];
}

void Warpgroup::run_until(size_t product) {
  const size_t count = product > finished ? product - finished : 0;
  for (size_t i = 0; i < count; ++i) multiply(queue[i].what, queue[i].a, *queue[i].sums);
  queue.erase(queue.begin(), queue.begin() + ptrdiff_t(count));
  finished += count;
}

void wgmma(void *d, const WarpgroupProduct &product, Site site, const uint32_t *a) {
  const auto pc = uintptr_t(__builtin_return_address(0)) - 1;
  EMU_COUNTING(machine.counter.reach(Does::product, site.file_name(), site.line());)
  Warpgroup &group = own_warpgroup(site);
  Thread &me = machine.thread();
  if (!group.arrived) group.wanted = product;
  if (!same(group.wanted, product)) misuse("wgmma", "the threads of a warpgroup issue different products", site);
  if (!me.async_proxy().is_fenced(uintptr_t(d), product.n * 2))
    misuse("wgmma", "the sums were accessed, and no wgmma.fence is between the access and the product", site);
  const uint32_t first = machine.current / warpgroup_size * warpgroup_size;
  if (a) {
    if (!me.async_proxy().is_fenced(uintptr_t(a), 4 * sizeof *a))
      misuse("wgmma", "A's registers were accessed, and no wgmma.fence is between the access and the product", site);
    std::copy_n(a, 4, &group.a[4 * (machine.current - first)]);
    me.async_proxy().lend(uintptr_t(a), 4 * sizeof *a, group.issued() + 1);
  }
  me.async_proxy().last_product = pc;
  group.d[machine.current - first] = static_cast<uint32_t *>(d);
  me.state = State::in_warpgroup;
  me.site = site;
  if (++group.arrived == warpgroup_size)
    issue(group, first, pc, site);
  else
    machine.wait();
}

void wgmma_fence() { machine.thread().async_proxy().fence_sums(); }

void wgmma_commit() {
  const auto &groups = machine.block->warpgroups;
  const size_t own = machine.current / warpgroup_size;
  const size_t issued = own < groups.size() && groups[own] ? groups[own]->issued() : 0;
  machine.thread().async_proxy().groups.push_back({issued, ++machine.time});
}

void wgmma_wait(unsigned pending) {
  AsyncProxy &async = machine.thread().async_proxy();
  if (async.groups.size() <= pending) return;
  const auto last = async.groups.end() - ptrdiff_t(pending) - 1;
  const size_t own = machine.current / warpgroup_size;
  if (last->products) {
    Warpgroup &group = *machine.block->warpgroups[own];
    group.run_until(last->products);
    const size_t t = machine.current % warpgroup_size;
    for (auto &sums : group.sums) {
      if (!sums->in_flight[t] || sums->last_product > last->products) continue;
      for (unsigned i = 0; i < sums->n / 2; ++i) sums->of_thread[t][i] = sums->at(unsigned(t), i);
      sums->in_flight[t] = false;
      async.hand_back(uintptr_t(sums->of_thread[t]));
    }
    async.give_back(last->products);
    learn(machine.thread(), group.agent, last->time);
  }
  async.groups.erase(async.groups.begin(), last + 1);
}

}  // namespace emu
