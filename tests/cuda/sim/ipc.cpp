// SPDX-License-Identifier: GPL-2.0-or-later
// A handle names a file of its maker's that lists the frames of an allocation.
// They are mapped from the file of all of the maker's VRAM. As on a card, they
// take none of the VRAM of the process that opens them.
#include "ipc.hpp"

#include "state.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace sim {

namespace {

constexpr std::uint64_t magic = 0x3163706973756d65; // "emusipc1"

struct named
{
    std::uint64_t magic;
    std::uint64_t id; // of the allocation, in its process
    pid_t process;
    int list;
};
static_assert(sizeof(named) <= sizeof(CUipcMemHandle));

struct list_head
{
    std::uint64_t bytes;
    std::uint64_t offset; // in the first frame
    std::uint64_t frames;
    int device;
    int store;
};

// Memory that this process has opened.
struct opened
{
    context *in = nullptr;
    named by{};
    std::uintptr_t reserved = 0;
    unsigned times = 0;
};
// Never destroyed, as all state.
auto &all_opened = *new std::map<std::uintptr_t, opened>;
auto &lists = *new std::map<std::uint64_t, int>; // of its own allocations

int open_of(pid_t process, int number)
{
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/fd/%d", process, number);
    return open(path, O_RDWR | O_CLOEXEC);
}

// @return a file that lists the frames; negative if there is none
int list_of(const mapping &m)
{
    const auto known = lists.find(m.id);
    if (known != lists.end())
        return known->second;
    const auto there = m.owner->memory.location_at(m.base);
    const auto &frames = there.memory->frames();
    const std::size_t first = there.offset / frame_bytes;
    list_head head{};
    head.bytes = m.bytes;
    head.offset = there.offset % frame_bytes;
    head.frames = round_up(head.offset + m.bytes, frame_bytes) / frame_bytes;
    head.device = m.device;
    head.store = m.owner->dev.vram.fd();
    const auto bytes =
        static_cast<ssize_t>(head.frames * sizeof(std::uint32_t));
    const int made = memfd_create("emuv-sim-ipc", MFD_CLOEXEC);
    if (made < 0 || first + head.frames > frames.size() ||
        pwrite(made, &head, sizeof head, 0) != sizeof head ||
        pwrite(made, frames.data() + first, static_cast<std::size_t>(bytes),
               sizeof head) != bytes)
        return -1;
    return lists[m.id] = made;
}

bool read_list(int file, list_head &head, std::vector<std::uint32_t> &frames)
{
    if (pread(file, &head, sizeof head, 0) != sizeof head ||
        head.frames > address_space::arena_bytes / frame_bytes)
        return false;
    frames.resize(head.frames);
    const std::size_t bytes = head.frames * sizeof frames[0];
    return pread(file, frames.data(), bytes, sizeof head) ==
           static_cast<ssize_t>(bytes);
}

bool map_frames(std::uintptr_t at, int store,
                const std::vector<std::uint32_t> &frames)
{
    for (const std::uint32_t frame : frames) {
        if (!map_at(at, frame_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, store,
                    frame * frame_bytes))
            return false;
        at += frame_bytes;
    }
    return true;
}

CUresult open_in(context &where, const named &by, CUdeviceptr *out)
{
    const int file = open_of(by.process, by.list);
    list_head head{};
    std::vector<std::uint32_t> frames;
    const bool there = file >= 0 && read_list(file, head, frames);
    if (file >= 0)
        close(file);
    if (!there || head.device != where.dev.ordinal)
        return CUDA_ERROR_INVALID_CONTEXT;
    const int store = open_of(by.process, head.store);
    if (store < 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    const std::uintptr_t base =
        the().space.reserve(frames.size() * frame_bytes, frame_bytes, 0, false);
    const bool mapped = base != 0 && map_frames(base, store, frames);
    close(store);
    if (!mapped) {
        if (base != 0)
            the().space.unreserve(base);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    mapping m;
    m.base = base + head.offset;
    m.bytes = head.bytes;
    m.what = kind::opened;
    m.owner = &where;
    m.device = where.dev.ordinal;
    m.reads = m.writes = ~host_bit;
    the().space.add(m);
    all_opened[m.base] = {&where, by, base, 1};
    *out = m.base;
    return CUDA_SUCCESS;
}

} // namespace

void close_opened(context &which)
{
    for (auto at = all_opened.begin(); at != all_opened.end();) {
        if (at->second.in != &which) {
            ++at;
            continue;
        }
        the().space.remove(at->first);
        the().space.unreserve(at->second.reserved);
        at = all_opened.erase(at);
    }
}

} // namespace sim

using namespace sim;

CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
    SIM_ENTER(context);
    const mapping *m = the().space.find(dptr);
    if (!pHandle || !m || m->what != kind::device)
        return CUDA_ERROR_INVALID_VALUE;
    const named by{magic, m->id, getpid(), list_of(*m)};
    if (by.list < 0)
        return CUDA_ERROR_INVALID_VALUE;
    std::memset(pHandle->reserved, 0, sizeof pHandle->reserved);
    std::memcpy(pHandle->reserved, &by, sizeof by);
    return CUDA_SUCCESS;
}

// A process may not open its own handle.
CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle,
                            unsigned Flags)
{
    SIM_ENTER(context);
    if (!pdptr)
        return CUDA_ERROR_INVALID_VALUE;
    named by{};
    std::memcpy(&by, handle.reserved, sizeof by);
    if (by.magic != magic || by.process == getpid())
        return CUDA_ERROR_INVALID_CONTEXT;
    if (Flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return CUDA_ERROR_INVALID_VALUE;
    const auto known = std::find_if(
        all_opened.begin(), all_opened.end(), [&](const auto &each) {
            return each.second.in == entered.current &&
                   each.second.by.process == by.process &&
                   each.second.by.id == by.id;
        });
    if (known == all_opened.end())
        return open_in(*entered.current, by, pdptr);
    known->second.times++;
    *pdptr = known->first;
    return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
    SIM_ENTER(context);
    auto known = all_opened.find(dptr);
    if (known == all_opened.end())
        return CUDA_ERROR_INVALID_VALUE;
    wait_device(entered.lock, entered.current->dev.ordinal);
    known = all_opened.find(dptr); // another thread may have been as quick
    if (known == all_opened.end())
        return CUDA_ERROR_INVALID_VALUE;
    if (--known->second.times > 0)
        return CUDA_SUCCESS;
    the().space.remove(known->first);
    the().space.unreserve(known->second.reserved);
    all_opened.erase(known);
    return CUDA_SUCCESS;
}
