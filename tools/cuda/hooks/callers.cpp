// SPDX-License-Identifier: LGPL-2.1-or-later
// Finds which library a call comes from.
#include "hooks/callers.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string_view>

#include <execinfo.h>
#include <fnmatch.h>
#include <link.h>

namespace emuv::cuda {

namespace {

// Between the allocator and the driver lies CUDA's runtime, some five deep.
constexpr int max_frames = 24;

struct bounds
{
    std::uintptr_t first = UINTPTR_MAX;
    std::uintptr_t end = 0;

    bool has(const void *address) const
    {
        const auto at = reinterpret_cast<std::uintptr_t>(address);
        return at >= first && at < end;
    }
};

bool is_in(const dl_phdr_info &library, std::uintptr_t at)
{
    for (int i = 0; i < library.dlpi_phnum; i++) {
        const auto &header = library.dlpi_phdr[i];
        if (header.p_type == PT_LOAD &&
            at - (library.dlpi_addr + header.p_vaddr) < header.p_memsz)
            return true;
    }
    return false;
}

const char *file_name_of(const dl_phdr_info &library)
{
    const char *const slash = std::strrchr(library.dlpi_name, '/');
    return slash != nullptr ? slash + 1 : library.dlpi_name;
}

constexpr const char *private_workers[] = {
    "libnvoptix.so.1",
    "libnvidia-encode.so.1",
    "libnvidia-opticalflow.so.1",
};

struct question
{
    std::uintptr_t at;
    const char *answer;
};

int find_private_worker(struct dl_phdr_info *info, std::size_t, void *out)
{
    auto &asked = *static_cast<question *>(out);
    if (!is_in(*info, asked.at))
        return 0;
    // The file that the link leads to has the driver's version for a number.
    const auto of = [](const char *name) {
        return std::string_view(name).substr(0, std::strlen(name) -
                                                    std::strlen(".1"));
    };
    const std::string_view name = file_name_of(*info);
    for (const char *const each : private_workers)
        if (name.starts_with(of(each)))
            asked.answer = each;
    return 1;
}

// dladdr() would wait for libraries that start, and they may wait for the
// allocator, which waits here.
int find_allocator(struct dl_phdr_info *info, std::size_t, void *out)
{
    if (fnmatch("libc10_cuda.so*", file_name_of(*info), 0) != 0)
        return 0;
    auto &found = *static_cast<bounds *>(out);
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const auto &header = info->dlpi_phdr[i];
        if (header.p_type != PT_LOAD)
            continue;
        const std::uintptr_t at = info->dlpi_addr + header.p_vaddr;
        found.first = std::min(found.first, at);
        found.end = std::max(found.end, at + header.p_memsz);
    }
    return 1;
}

} // namespace

const char *private_worker_at(const void *at)
{
    question asked{reinterpret_cast<std::uintptr_t>(at), nullptr};
    dl_iterate_phdr(find_private_worker, &asked);
    return asked.answer;
}

void prepare_callers()
{
    void *frame = nullptr;
    backtrace(&frame, 1);
}

bool is_caching_allocator()
{
    bounds allocator;
    if (dl_iterate_phdr(find_allocator, &allocator) == 0)
        return false;
    void *frames[max_frames];
    const int count = backtrace(frames, max_frames);
    return std::any_of(frames, frames + count,
                       [&](const void *frame) { return allocator.has(frame); });
}

bool is_in_caching_allocator(const void *at)
{
    // Nobody unloads it. Its end is written first, and read last.
    static constinit std::atomic<std::uintptr_t> first{0};
    static constinit std::atomic<std::uintptr_t> end{0};
    bounds allocator{first.load(), end.load()};
    if (allocator.first == 0) {
        allocator = {};
        if (dl_iterate_phdr(find_allocator, &allocator) == 0)
            return false;
        end.store(allocator.end);
        first.store(allocator.first);
    }
    return allocator.has(at);
}

} // namespace emuv::cuda
