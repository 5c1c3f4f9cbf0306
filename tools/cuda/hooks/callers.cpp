// SPDX-License-Identifier: LGPL-2.1-or-later
// Finds which library a call comes from.
#include "hooks/callers.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <execinfo.h>
#include <fnmatch.h>
#include <link.h>

namespace emuv::cuda {

namespace {

// Between the allocator and the driver lies CUDA's runtime, some five deep.
constexpr int max_frames = 24;

struct range
{
    std::uintptr_t first = UINTPTR_MAX;
    std::uintptr_t end = 0;
};

// dladdr() would wait for libraries that start, and they may wait for the
// allocator, which waits here.
int find_allocator(struct dl_phdr_info *info, std::size_t, void *out)
{
    const char *const slash = std::strrchr(info->dlpi_name, '/');
    const char *const name = slash != nullptr ? slash + 1 : info->dlpi_name;
    if (fnmatch("libc10_cuda.so*", name, 0) != 0)
        return 0;
    auto &found = *static_cast<range *>(out);
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const auto &part = info->dlpi_phdr[i];
        if (part.p_type != PT_LOAD)
            continue;
        const std::uintptr_t at = info->dlpi_addr + part.p_vaddr;
        found.first = std::min(found.first, at);
        found.end = std::max(found.end, at + part.p_memsz);
    }
    return 1;
}

} // namespace

void prepare_callers()
{
    void *frame = nullptr;
    backtrace(&frame, 1);
}

bool is_caching_allocator()
{
    range allocator;
    if (dl_iterate_phdr(find_allocator, &allocator) == 0)
        return false;
    void *frames[max_frames];
    const int count = backtrace(frames, max_frames);
    return std::any_of(frames, frames + count, [&](const void *frame) {
        const auto at = reinterpret_cast<std::uintptr_t>(frame);
        return at >= allocator.first && at < allocator.end;
    });
}

} // namespace emuv::cuda
