// Reads what a launch needs from a cubin, a 64-bit ELF file: the kernels and what each takes.
#include <elf.h>

#include <cstring>

#include "stub.hpp"

namespace stub {

// Of `.nv.info.NAME`, as cuobjdump -elf names them.
constexpr int EIATTR_MAX_THREADS = 0x05, EIATTR_KPARAM_INFO = 0x17, EIFMT_SVAL = 4;

static void read_attributes(Function &f, const char *at, size_t size) {
    for (const char *end = at + size; at < end;) {
        const auto form = static_cast<unsigned char>(at[0]), attribute = static_cast<unsigned char>(at[1]);
        uint16_t length;
        memcpy(&length, at + 2, 2);
        at += 4;
        if (form != EIFMT_SVAL) continue;
        if (attribute == EIATTR_MAX_THREADS) {
            memcpy(&f.max_threads, at, 4);
        } else if (attribute == EIATTR_KPARAM_INFO) {
            uint16_t which, offset;
            uint32_t info;
            memcpy(&which, at + 4, 2);
            memcpy(&offset, at + 6, 2);
            memcpy(&info, at + 8, 4);
            f.sizes.resize(std::max<size_t>(f.sizes.size(), which + 1));
            f.offsets.resize(f.sizes.size());
            f.sizes[which] = info >> 18;
            f.offsets[which] = offset;
        }
        at += length;
    }
}

std::shared_ptr<Library> read_cubin(const char *image) {
    Elf64_Ehdr header;
    memcpy(&header, image, sizeof header);
    if (memcmp(header.e_ident, ELFMAG, SELFMAG)) return nullptr;
    std::vector<Elf64_Shdr> sections(header.e_shnum);
    for (size_t i = 0; i < sections.size(); i++)
        memcpy(&sections[i], image + header.e_shoff + i * header.e_shentsize, sizeof sections[i]);
    const char *names = image + sections[header.e_shstrndx].sh_offset;
    auto library = std::make_shared<Library>();
    auto called = [&](const Elf64_Shdr &section, const char *prefix) -> const char * {
        const char *name = names + section.sh_name;
        return strncmp(name, prefix, strlen(prefix)) ? nullptr : name + strlen(prefix);
    };
    for (const auto &section : sections)
        if (const char *name = called(section, ".text.")) {
            Function &f = library->functions[name];
            f.name = name;
            f.registers = static_cast<int>(section.sh_info >> 24);
        }
    for (const auto &section : sections) {
        const char *info = called(section, ".nv.info."), *shared = called(section, ".nv.shared.");
        auto found = library->functions.find(info ? info : shared ? shared : "");
        if (found == library->functions.end()) continue;
        if (info) read_attributes(found->second, image + section.sh_offset, section.sh_size);
        if (shared) found->second.static_shared = static_cast<int>(section.sh_size);
    }
    for (auto &[name, f] : library->functions) f.dynamic_shared = std::max(0, 48 * 1024 - f.static_shared);
    return library;
}

}  // namespace stub
