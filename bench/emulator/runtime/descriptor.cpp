#include "descriptor.hpp"

namespace emu {

// A matrix begins in the first row of a swizzle pattern of eight rows: along k it may begin within that row, and along
// m or n it has whole patterns. PTX ISA, "Matrix descriptor": the base offset is 0 if patterns begin at multiples of
// their size, and otherwise bits 7 to 9 of their address.
std::string Descriptor::fault(bool mn_major) const {
  if (!span) return base_offset ? "a base offset of " + std::to_string(base_offset) + " without a swizzle" : "";
  const unsigned begin = start / span * span, size = 8 * span;
  const std::string swizzle = "a swizzle of " + std::to_string(span) + " bytes ";
  if (begin % 128)
    return swizzle + "begins at shared address " + std::to_string(begin) + ", expected a multiple of " +
           std::to_string(size) + ", or of 128 with a base offset";
  const unsigned expected = begin % size ? begin >> 7 & 7 : 0;
  if (base_offset != expected)
    return swizzle + "begins at shared address " + std::to_string(begin) + " with base offset " +
           std::to_string(base_offset) + ", expected " + std::to_string(expected) + " there, or a multiple of " +
           std::to_string(size) + " and 0";
  if (!mn_major && leading > 16)
    return swizzle + "along k has a leading offset of " + std::to_string(leading) +
           " bytes, which is not used and expected to be 0 or 16; bits 18 to 31 of the address do not belong there";
  return "";
}

}  // namespace emu
