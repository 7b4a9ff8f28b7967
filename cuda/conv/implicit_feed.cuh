// Feeds: where the packs that a thread copies (panel_copy.cuh) of an implicit product's panels come from.
//
// In each step a thread is at one place along the reduction, and copies packs of W neighbours from there. Its place
// advances in digits, and its pointer by the distances that belong to the digits and their carries, once per step and
// without a division; what depends on the row or column stays in registers. Zeros are written by copying 0 bytes.
//
// Whether a gathered element lies inside the image: where the reduction runs over at most 32 taps (MASKED), each of a
// thread's pixels has a bit for each tap, and a pack costs one instruction to test and one to address. Otherwise, and
// in a filter's gradient, rows and columns are added and compared.
#pragma once
#include "conv/lowering_dgrad.cuh"
#include "conv/lowering_fprop.cuh"
#include "conv/lowering_wgrad.cuh"
#include "panel_copy.cuh"

// A coordinate so far away that it lies outside every image, whatever is added to it.
constexpr int FAR = 1 << 29;

// A thread's place along the reduction, which advances by BK, and the distances in memory that belong to that.
template <unsigned BK>
struct ReductionWalk {
  Radix radix;
  Digits digits, pace;
  int step, carry, borrow;  // of a step, of a carry into the second digit, of a carry into the third

  __device__ __forceinline__ ReductionWalk(const Radix &sizes, const Slopes &slopes, unsigned first)
      : radix(sizes), digits(sizes.split(first)), pace(sizes.split(BK)), step(int(slopes.at(pace))),
        carry(slopes.mid - int(sizes.fast) * slopes.fast), borrow(slopes.slow - int(sizes.mid) * slopes.mid) {}

  // Advances the digits; returns how far the pointer moves.
  __device__ __forceinline__ int advance() {
    int distance = step;
    digits = {digits.fast + pace.fast, digits.mid + pace.mid, digits.slow + pace.slow};
    if (digits.fast >= radix.fast) digits.fast -= radix.fast, ++digits.mid, distance += carry;
    if (digits.mid >= radix.mid) digits.mid -= radix.mid, ++digits.slow, distance += borrow;
    return distance;
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
  static constexpr __device__ __forceinline__ unsigned ahead(unsigned i) { return Base::below(i) + Base::right(i); }
};

// The operand that is gathered from an image.
template <class Map, class Panel, unsigned W, unsigned THREADS, bool MASKED>
struct GatheredFeed {
  using Mine = FeedShare<Panel, W, THREADS>;
  using T = typename Panel::T;
  static_assert(!(MASKED && Map::GRADIENT), "the taps are along the reduction");
  const Map &map;
  const T *from;
  ReductionWalk<Mine::DEPTH> walk;
  int offset[Mine::PACKS];
  Spot spot[Mine::PACKS];
  unsigned mask[Mine::PACKS];

  // Begins at element k0 of the reduction and element w0 across it. Offsets are relative to the first pixel's image.
  __device__ __forceinline__ GatheredFeed(const Map &map_, const T *source, unsigned k0, unsigned w0)
      : map(map_), from(source + map.image.base()),
        walk(map.reduction_radix(), map.reduction_slopes(), k0 + Mine::depth()) {
    const Radix radix = map.gathered_radix();
    const unsigned first = Map::GRADIENT ? 0 : w0 / (radix.fast * radix.mid);
    from += map.reduction_slopes().at(walk.digits) + static_cast<long long>(first) * map.image.image();
#pragma unroll
    for (unsigned i = 0; i < Mine::PACKS; ++i) {
      const unsigned w = w0 + Mine::across() + Mine::ahead(i);
      Digits at = radix.split(w);
      if constexpr (!Map::GRADIENT) at.slow -= first;
      offset[i] = int(map.gathered_slopes().at(at));
      spot[i] = map.gathered_spot(at);
      if (w >= map.gathered()) spot[i].y = FAR;
      if constexpr (MASKED) mask[i] = taps_inside(spot[i]);
    }
  }

  __device__ __forceinline__ void copy(T *panel, unsigned k0, unsigned k_end) {
    const bool within = k0 + Mine::depth() < k_end;
    const unsigned bit = within ? 1u << (tap() % 32) : 0;
    Spot here = map.reduction_spot(walk.digits);
    if (!within) here.y = FAR;
    copy_panel<Panel, Mine>(panel, [&](unsigned i) {
      const bool inside = MASKED ? (mask[i] & bit) != 0
                                 : unsigned(here.y + spot[i].y) < map.image.height &&
                                       unsigned(here.x + spot[i].x) < map.image.width;
      return Origin<T>{from + offset[i], inside ? unsigned(W * sizeof(T)) : 0};
    });
    from += walk.advance();
  }

 private:
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

// The operand that is not gathered.
template <class Map, class Panel, unsigned W, unsigned THREADS>
struct PlainFeed {
  using Mine = FeedShare<Panel, W, THREADS>;
  using T = typename Panel::T;
  const Map &map;
  const T *from;
  unsigned left;  // elements across the reduction, from this thread's first on
  ReductionWalk<Mine::DEPTH> walk;

  __device__ __forceinline__ PlainFeed(const Map &map_, const T *source, unsigned k0, unsigned w0)
      : map(map_), walk(map.reduction_radix(), map.plain_slopes(), k0 + Mine::depth()) {
    const unsigned w = w0 + Mine::across();
    from = source + map.plain_base() + size_t(w) * map.plain_step();
    if constexpr (Map::PLAIN_EVEN) {
      from += size_t(k0 + Mine::depth()) * map.plain_slopes().fast;
    } else {
      from += map.plain_slopes().at(walk.digits);
    }
    left = w < map.plain ? map.plain - w : 0;
  }

  __device__ __forceinline__ void copy(T *panel, unsigned k0, unsigned k_end) {
    const bool within = k0 + Mine::depth() < k_end;
    copy_panel<Panel, Mine>(panel, [&](unsigned i) {
      const T *pack = from + size_t(Mine::ahead(i)) * map.plain_step();
      return Origin<T>{pack, within && Mine::ahead(i) < left ? unsigned(W * sizeof(T)) : 0};
    });
    from += Map::PLAIN_EVEN ? int(Mine::DEPTH) * map.plain_slopes().fast : walk.advance();
  }
};

// The feeds of a product's rows and columns, which copy WA and WB elements at once.
template <class Map, class PanelA, class PanelB, unsigned WA, unsigned WB, unsigned THREADS, bool MASKED,
          bool rows = Map::GATHERED_ROWS>
struct Feeds {
  using A = PlainFeed<Map, PanelA, WA, THREADS>;
  using B = GatheredFeed<Map, PanelB, WB, THREADS, MASKED>;
};
template <class Map, class PanelA, class PanelB, unsigned WA, unsigned WB, unsigned THREADS, bool MASKED>
struct Feeds<Map, PanelA, PanelB, WA, WB, THREADS, MASKED, true> {
  using A = GatheredFeed<Map, PanelA, WA, THREADS, MASKED>;
  using B = PlainFeed<Map, PanelB, WB, THREADS>;
};
