#include "descriptor.hpp"

namespace emu {

// A matrix begins in the first row of a swizzle pattern of eight rows: along k it may begin within that row, and along
// m or n it has whole patterns. PTX ISA, "Matrix descriptor": the base offset is 0 if patterns begin at multiples of
// their size, and otherwise bits 7 to 9 of their address.
std::string Descriptor::fault(bool mn_major) const {
  if (!span && !base_offset) return "";
  if (!span) return "a base offset of " + std::to_string(base_offset) + " without a swizzle; expected 0";
  const unsigned begin = start / span * span, size = 8 * span;
  const std::string swizzle = "a " + std::to_string(span) + "-byte swizzle", pattern = "the pattern of " + swizzle;
  if (begin % 128)
    return pattern + " begins at shared address " + std::to_string(begin) + "; expected a multiple of " +
           std::to_string(size) + ", or a multiple of 128 with a base offset";
  const unsigned expected = begin % size ? begin >> 7 & 7 : 0;
  if (base_offset != expected)
    return pattern + " begins at shared address " + std::to_string(begin) + " with base offset " +
           std::to_string(base_offset) + "; expected base offset " + std::to_string(expected) +
           " there, or a multiple of " + std::to_string(size) + " with base offset 0";
  if (!mn_major && leading > 16)
    return "a leading offset of " + std::to_string(leading) + " bytes, which the hardware ignores along k with " +
           swizzle + "; expected 0 or 16: a descriptor takes only bits 4 to 17 of the shared address";
  return "";
}

}  // namespace emu
