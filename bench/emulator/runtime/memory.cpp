#include "memory.hpp"

#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <new>
#include <span>
#include <stdexcept>

namespace emu {

void Unmap::operator()(Cell *cells) const {
  if (bytes) munmap(cells, bytes);
  else std::free(cells);
}

namespace {

// Returns the shadow of `count` cells. A sparse shadow takes no memory until it is written, and its bytes are zero, as
// those of a new Cell are.
Shadow make_shadow(size_t count, bool sparse) {
  const size_t bytes = (count * (sizeof(Cell) + sizeof(OtherReads)) + alignof(Cell) - 1) / alignof(Cell) * alignof(Cell);
  if (!sparse) {
    void *cells = std::aligned_alloc(alignof(Cell), bytes);
    if (!cells) throw std::bad_alloc();
    return Shadow(static_cast<Cell *>(cells));
  }
  void *cells = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (cells == MAP_FAILED) throw std::runtime_error("no address space for a shadow of " + std::to_string(bytes) + " bytes");
  return Shadow(static_cast<Cell *>(cells), Unmap{bytes});
}

}  // namespace

void Region::forget(bool initialised) {
  if (!shadow) shadow = make_shadow(cells(), piece * places.size() < size());
  Cell fresh;
  fresh.initialised = initialised ? 0xff : 0;
  for (const size_t at : places) std::fill(&cell(begin + at), &cell(begin + at + piece - 1) + 1, fresh);
}

Region &Memory::add(Region region) {
  return *regions_.emplace_back(std::make_unique<Region>(std::move(region)));
}

void Memory::clear() {
  regions_.clear();
  hot_ = warm_ = &nowhere_;
}

void Memory::remove_shared() {
  std::erase_if(regions_, [](const auto &region) { return region->space == Space::shared; });
  hot_ = warm_ = &nowhere_;
}

Region *Memory::search(uintptr_t address) {
  for (auto &region : regions_)
    if (region->contains(address)) return hot_ = region.get();
  return nullptr;
}

Region *Memory::nearest(uintptr_t address) {
  constexpr uintptr_t near = 64 * 1024;
  Region *best = nullptr;
  uintptr_t least = near;
  for (auto &region : regions_) {
    if (region->space == Space::program) continue;
    const uintptr_t distance = address < region->begin ? region->begin - address : address - region->end + 1;
    if (distance < least) least = distance, best = region.get();
  }
  return best;
}

namespace {

// The thread-local symbols in the ELF file of this process.
std::vector<SharedVariable> read_variables() {
  std::ifstream file("/proc/self/exe", std::ios::binary | std::ios::ate);
  std::vector<char> bytes(size_t(file.tellg()));
  file.seekg(0).read(bytes.data(), std::streamsize(bytes.size()));
  const auto *header = reinterpret_cast<const ElfW(Ehdr) *>(bytes.data());
  const auto *sections = reinterpret_cast<const ElfW(Shdr) *>(bytes.data() + header->e_shoff);
  std::vector<SharedVariable> variables;
  for (const auto &section : std::span(sections, header->e_shnum)) {
    if (section.sh_type != SHT_SYMTAB) continue;
    const char *names = bytes.data() + sections[section.sh_link].sh_offset;
    const auto *symbols = reinterpret_cast<const ElfW(Sym) *>(bytes.data() + section.sh_offset);
    for (const auto &symbol : std::span(symbols, section.sh_size / sizeof *symbols))
      if (ELF64_ST_TYPE(symbol.st_info) == STT_TLS && symbol.st_size)
        variables.push_back({symbol.st_value, symbol.st_size, names + symbol.st_name});
  }
  return variables;
}

}  // namespace

Image find_image() {
  Image image;
  auto visit = [](dl_phdr_info *info, size_t, void *found) {
    Image &image = *static_cast<Image *>(found);
    image.begin = UINTPTR_MAX;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      const ElfW(Phdr) &segment = info->dlpi_phdr[i];
      const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
      if (segment.p_type == PT_LOAD) {
        image.begin = std::min(image.begin, begin);
        image.end = std::max(image.end, begin + segment.p_memsz);
      } else if (segment.p_type == PT_TLS) {
        image.shared = static_cast<char *>(info->dlpi_tls_data);
        image.shared_bytes = segment.p_memsz;
      }
    }
    return 1;  // the first object is the program itself
  };
  dl_iterate_phdr(visit, &image);
  image.variables = read_variables();
  return image;
}

}  // namespace emu
