// The GPUs of the machine, which differ by their UUIDs alone, and those of them that a process sees.
#include <cstdlib>

#include "stub.hpp"

namespace stub {

// The identity of a GPU by its number on the machine. Two processes whose GPUs had one identity would wait for each other.
std::string identity(int number) {
    const char *own = getenv("KM_STUB_UUID");
    std::string found = own ? own : "kernelmark stub.";
    found.resize(sizeof(CUuuid), '.');
    found.back() = char(found.back() + number);
    return found;
}

static std::string uuid_text(int number) {
    std::string found = "GPU", bytes = identity(number);
    for (size_t i = 0; i < bytes.size(); ++i) {
        char text[4];
        snprintf(text, sizeof text, "%s%02x", i == 0 || (i >= 4 && i <= 10 && i % 2 == 0) ? "-" : "", bytes[i]);
        found += text;
    }
    return found;
}

// The GPUs that this process sees: KM_STUB_DEVICES of them (one), or of these the one that CUDA_VISIBLE_DEVICES has.
const std::vector<int> &visible() {
    static const auto *all = [] {
        const char *count = getenv("KM_STUB_DEVICES"), *chosen = getenv("CUDA_VISIBLE_DEVICES");
        auto *found = new std::vector<int>;
        for (int number = 0; number < (count ? atoi(count) : 1); ++number)
            if (!chosen || uuid_text(number) == chosen) found->push_back(number);
        return found;
    }();
    return *all;
}

}  // namespace stub
