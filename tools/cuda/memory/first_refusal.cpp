// SPDX-License-Identifier: LGPL-2.1-or-later
// Tells the user when memory is first refused.
#include "memory/first_refusal.hpp"

#include "base/size.hpp"

namespace emuv::cuda {

std::uint64_t refusal_notice::missing_bytes() const
{
    const std::uint64_t vram =
        limits.spoken_for ? 0 : limits.physical_free_bytes();
    if (only_vram)
        return bytes > vram ? bytes - vram : 0;
    // System RAM is charged in chunks, and a small allocation is in one.
    const std::uint64_t ram = limits.virtual_free_bytes() & ~(chunk_bytes - 1);
    if (bytes < chunk_bytes)
        return bytes <= vram || ram > 0 ? 0 : chunk_bytes;
    const std::uint64_t wanted =
        bytes > UINT64_MAX - chunk_bytes ? bytes : round_up(bytes, chunk_bytes);
    const std::uint64_t free = device_share(wanted, vram) + ram;
    return wanted > free ? wanted - free : 0;
}

void first_refusal::happened(int device, std::uint64_t bytes, kinds allowed)
{
    if (notice_ == nullptr || told_.exchange(true))
        return;
    const ledger &limits = budget_.ledger_of(device);
    notice_({.bytes = bytes,
             .limits = limits.read(),
             .own_vram_bytes = limits.own_physical_bytes(),
             .only_vram = allowed == kinds::vram});
}

} // namespace emuv::cuda
