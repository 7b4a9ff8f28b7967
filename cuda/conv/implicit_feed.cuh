// Feeds: where the packs that a thread copies (panel_copy.cuh) of an implicit product's panels come from.
//
// In each step a thread is at one place along the reduction, and copies packs of W neighbours from there. The place is
// kept in digits (lowering.cuh), which advance once per step without a division, and the pointer moves by one distance
// for the step and one for each carry; what depends on the row or column stays in registers. Zeros are written by
// copying 0 bytes. In a filter's gradient both operands' packs lie at one place, a pixel, and one walk serves both.
//
// MASKED, where taps are few and near: bits of a mask show which gathered elements lie inside the image, and a pack
// takes one instruction to test and one to address. Where the reduction runs over taps, each of a thread's pixels has a
// mask of the taps inside. In a filter's gradient, each tap has a bit for its row and one for its column, and each
// step's pixel a mask of the rows and columns outside. Otherwise, coordinates are added and compared.
#pragma once
#include "conv/lowering_dgrad.cuh"
#include "conv/lowering_fprop.cuh"
#include "conv/lowering_wgrad.cuh"
#include "panel_copy.cuh"

// A coordinate so far away that it lies outside every image, whatever is added to it.
constexpr int FAR = 1 << 29;

// Which digits a step has carried over.
struct Carries {
  bool fast, mid;
};

// A thread's place along the reduction, which advances by BK.
template <unsigned BK>
struct ReductionWalk {
  Radix radix;
  Digits digits, pace;

  __device__ __forceinline__ ReductionWalk(const Radix &sizes, unsigned first)
      : radix(sizes), digits(sizes.split(first)), pace(sizes.split(BK)) {}

  __device__ __forceinline__ Carries advance() {
    digits = {digits.fast + pace.fast, digits.mid + pace.mid, digits.slow + pace.slow};
    const bool fast = digits.fast >= radix.fast;
    digits.mid += fast ? 1 : 0;
    if (fast) digits.fast -= radix.fast;
    const bool mid = digits.mid >= radix.mid;
    if (mid) digits.mid -= radix.mid, ++digits.slow;
    return {fast, mid};
  }
};

// The distances in memory by which a pointer moves when a walk advances.
struct Distances {
  int step, carry, borrow;  // of a step, of a carry into the second digit, of a carry into the third

  template <unsigned BK>
  __device__ __forceinline__ Distances(const ReductionWalk<BK> &walk, const Slopes &slopes)
      : step(int(slopes.at(walk.pace))), carry(slopes.mid - int(walk.radix.fast) * slopes.fast),
        borrow(slopes.slow - int(walk.radix.mid) * slopes.mid) {}

  __device__ __forceinline__ int after(const Carries &carries) const {
    return step + (carries.fast ? carry : 0) + (carries.mid ? borrow : 0);
  }
};

// A share of a panel in which all packs of a thread lie at one place along the reduction.
template <class Panel, unsigned W, unsigned THREADS>
using FeedColumn =
    Share<Panel::ROWS, Panel::COLS, THREADS, W, Panel::ALONG_K ? Panel::COLS / W : THREADS / Panel::ROWS>;
template <class Panel, unsigned W, unsigned THREADS>
struct FeedShare : FeedColumn<Panel, W, THREADS> {
  using Base = FeedColumn<Panel, W, THREADS>;
  static constexpr unsigned DEPTH = Panel::ALONG_K ? Panel::COLS : Panel::ROWS;  // of a step

  // The thread's place along the reduction, its first pack's place across it, and how far pack i is past that.
  static __device__ __forceinline__ unsigned depth() { return Panel::ALONG_K ? Base::col() : Base::row(); }
  static __device__ __forceinline__ unsigned across() { return Panel::ALONG_K ? Base::row() : Base::col(); }
  // depth(), read from one lane where all lanes have the same: their walk is then kept in uniform registers.
  static __device__ __forceinline__ unsigned common_depth() {
    return !Panel::ALONG_K && THREADS / Panel::ROWS % 32 == 0 ? __shfl_sync(~0u, depth(), 0) : depth();
  }
  static constexpr __device__ __forceinline__ unsigned ahead(unsigned i) { return Base::below(i) + Base::right(i); }
};

// The operand that is gathered from an image.
template <class Map, class Panel, unsigned W, unsigned THREADS, bool MASKED>
struct GatheredFeed {
  using Mine = FeedShare<Panel, W, THREADS>;
  using T = typename Panel::T;
  const Map &map;
  const T *from;
  const unsigned depth;  // the thread's place in a step
  ReductionWalk<Mine::DEPTH> walk;
  Distances distances;
  unsigned offset[Mine::PACKS];
  Spot spot[Mine::PACKS];
  unsigned mask[Mine::PACKS];

  // Begins at element k0 of the reduction and element w0 across it. Offsets are relative to the first pixel's image.
  __device__ __forceinline__ GatheredFeed(const Map &map_, const T *source, unsigned k0, unsigned w0)
      : map(map_), from(source + map.image.base()), depth(Mine::common_depth()),
        walk(map.reduction_radix(), k0 + depth), distances(walk, map.reduction_slopes()) {
    const Radix radix = map.gathered_radix();
    const unsigned first = Map::GRADIENT ? 0 : w0 / (radix.fast * radix.mid);
    from += map.reduction_slopes().at(walk.digits) + static_cast<long long>(first) * map.image.image();
#pragma unroll
    for (unsigned i = 0; i < Mine::PACKS; ++i) {
      const unsigned w = w0 + Mine::across() + Mine::ahead(i);
      Digits at = radix.split(w);
      if constexpr (!Map::GRADIENT) at.slow -= first;
      offset[i] = unsigned(map.gathered_slopes().at(at));
      spot[i] = map.gathered_spot(at);
      const bool there = w < map.gathered();
      if constexpr (MASKED && Map::GRADIENT) {
        mask[i] = there ? 1u << spot[i].y | FIRST_COLUMN << spot[i].x : ALWAYS;
      } else {
        if (!there) spot[i].y = FAR;
        if constexpr (MASKED) mask[i] = taps_inside(spot[i]);
      }
    }
  }

  // remaining: elements of the reduction from this panel's first on; below 1 past its end.
  __device__ __forceinline__ void copy(T *panel, int remaining) const {
    const bool within = int(depth) < remaining;
    unsigned bits = 0;
    Spot here{};
    if constexpr (MASKED) {
      bits = bits_here(within);
    } else {
      here = map.reduction_spot(walk.digits);
      if (!within) here.y = FAR;
    }
    copy_panel<Panel, Mine>(panel, [&](unsigned i) {
      return Origin<T>{from + offset[i], inside(i, bits, here) ? unsigned(W * sizeof(T)) : 0};
    });
  }

  __device__ __forceinline__ Carries advance() {
    const Carries carries = walk.advance();
    from += distances.after(carries);
    return carries;
  }

 private:
  // In a filter's gradient: the bits of rows of taps begin at bit 0, those of columns at 16; bit 15 is always outside.
  static constexpr unsigned FIRST_COLUMN = 1u << 16, ALWAYS = 1u << 15;

  // A mask of the 32 places from `here` on, with a bit set for each that is not in 0 to size - 1; here is at most size.
  static __device__ __forceinline__ unsigned places_outside(int here, unsigned size) {
    return ~__funnelshift_lc(0, ~0u, max(-here, 0)) | __funnelshift_lc(0, ~0u, size - here);
  }
  // The bit of this step's tap; in a filter's gradient, the bits of the rows and columns of taps that lie outside.
  __device__ __forceinline__ unsigned bits_here(bool within) const {
    if constexpr (Map::GRADIENT) {
      const Spot here = map.reduction_spot(walk.digits);
      const unsigned rows = places_outside(here.y, map.image.height) | (within ? ALWAYS : 2 * ALWAYS - 1);
      return __byte_perm(rows, places_outside(here.x, map.image.width), 0x5410);
    } else {
      return within ? 1u << (tap() % 32) : 0;
    }
  }
  // Whether pack i lies inside the image.
  __device__ __forceinline__ bool inside(unsigned i, unsigned bits, const Spot &here) const {
    if constexpr (MASKED) {
      return ((mask[i] & bits) != 0) != Map::GRADIENT;
    } else {
      return unsigned(here.y + spot[i].y) < map.image.height && unsigned(here.x + spot[i].x) < map.image.width;
    }
  }

  __device__ __forceinline__ unsigned tap() const {
    return map.image.tap_y(walk.digits) * map.image.wide.taps + map.image.tap_x(walk.digits);
  }

  // A bit for each tap, set where it meets the image.
  __device__ __forceinline__ unsigned taps_inside(const Spot &pixel) const {
    unsigned columns = 0, all = 0;
#pragma unroll 1
    for (unsigned s = 0; s < map.image.wide.taps; ++s)
      if (unsigned(pixel.x + int(s) * map.image.wide.tap_step) < map.image.width) columns |= 1u << s;
#pragma unroll 1
    for (unsigned r = 0; r < map.image.high.taps; ++r)
      if (unsigned(pixel.y + int(r) * map.image.high.tap_step) < map.image.height)
        all |= columns << r * map.image.wide.taps;
    return all;
  }
};

// The operand that is not gathered. In a filter's gradient it follows the walk of the other one.
template <class Map, class Panel, unsigned W, unsigned THREADS>
struct PlainFeed {
  using Mine = FeedShare<Panel, W, THREADS>;
  using T = typename Panel::T;
  const Map &map;
  const T *from;
  unsigned left;  // elements across the reduction, from this thread's first on
  ReductionWalk<Mine::DEPTH> walk;
  Distances distances;

  __device__ __forceinline__ PlainFeed(const Map &map_, const T *source, unsigned k0, unsigned w0)
      : map(map_), walk(map.reduction_radix(), k0 + Mine::depth()), distances(walk, map.plain_slopes()) {
    const unsigned w = w0 + Mine::across();
    from = source + map.plain_base() + size_t(w) * map.plain_step();
    if constexpr (Map::PLAIN_EVEN) {
      from += size_t(k0 + Mine::depth()) * map.plain_slopes().fast;
    } else {
      from += map.plain_slopes().at(walk.digits);
    }
    left = w < map.plain ? map.plain - w : 0;
  }

  __device__ __forceinline__ void copy(T *panel, int remaining) const {
    const bool within = int(Mine::depth()) < remaining;
    copy_panel<Panel, Mine>(panel, [&](unsigned i) {
      const T *pack = from + size_t(Mine::ahead(i)) * map.plain_step();
      return Origin<T>{pack, within && Mine::ahead(i) < left ? unsigned(W * sizeof(T)) : 0};
    });
  }

  // gathered: the carries of the other operand's walk. Rows of y follow each other without a gap: only `mid` counts.
  __device__ __forceinline__ void advance(const Carries &gathered) {
    if constexpr (Map::PLAIN_EVEN) {
      from += int(Mine::DEPTH) * map.plain_slopes().fast;
    } else {
      from += distances.after(Map::GRADIENT ? Carries{false, gathered.mid} : walk.advance());
    }
  }
};

// The feeds of a product's rows and columns, which copy WA and WB elements at once.
template <class Map, class PanelA, class PanelB, unsigned WA, unsigned WB, unsigned THREADS, bool MASKED,
          bool rows = Map::GATHERED_ROWS>
struct Feeds {
  using A = PlainFeed<Map, PanelA, WA, THREADS>;
  using B = GatheredFeed<Map, PanelB, WB, THREADS, MASKED>;
  static_assert(!Map::GRADIENT || (PanelA::ALONG_K == PanelB::ALONG_K && A::Mine::DOWN == B::Mine::DOWN),
                "one walk serves both");
  static __device__ __forceinline__ void advance(A &plain, B &gathered) { plain.advance(gathered.advance()); }
};
template <class Map, class PanelA, class PanelB, unsigned WA, unsigned WB, unsigned THREADS, bool MASKED>
struct Feeds<Map, PanelA, PanelB, WA, WB, THREADS, MASKED, true> {
  using A = GatheredFeed<Map, PanelA, WA, THREADS, MASKED>;
  using B = PlainFeed<Map, PanelB, WB, THREADS>;
  static_assert(!Map::GRADIENT, "a filter's gradient gathers columns");
  static __device__ __forceinline__ void advance(A &gathered, B &plain) { plain.advance(gathered.advance()); }
};
