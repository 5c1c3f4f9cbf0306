// SPDX-License-Identifier: LGPL-2.1-or-later
// Allocations in system RAM that are smaller than a chunk, and share one.
#include "memory/pieces.hpp"

#include "base/around.hpp"
#include "base/size.hpp"

namespace emuv::cuda {

CUresult pieces::make(std::uint64_t bytes, int device, piece &made)
{
    {
        const std::lock_guard guard(lock_);
        if (take(bytes, device, made))
            return CUDA_SUCCESS;
    }
    range fresh;
    const CUresult result =
        ranges_.make(chunk_bytes, device, placing::ram_for_good, fresh);
    const std::lock_guard guard(lock_);
    // Other threads may have left room by now.
    if (result != CUDA_SUCCESS)
        return take(bytes, device, made) ? CUDA_SUCCESS : result;
    // The piece goes into this chunk, whatever has become free in others. A
    // chunk goes with its last piece, and one that never had any would stay.
    chunk &own = chunks_[fresh.base];
    own.device = device;
    take_from(fresh.base, own, bytes, made);
    return CUDA_SUCCESS;
}

// Under the lock.
bool pieces::take(std::uint64_t bytes, int device, piece &made)
{
    for (auto &[base, each] : chunks_)
        if (each.device == device && take_from(base, each, bytes, made))
            return true;
    return false;
}

// Under the lock.
bool pieces::take_from(CUdeviceptr base, chunk &from, std::uint64_t bytes,
                       piece &made)
{
    std::uint64_t offset = 0;
    if (!from.taken.take(bytes, offset))
        return false;
    made = {base + offset, base, bytes};
    return true;
}

CUresult pieces::drop(const piece &gone)
{
    {
        const std::lock_guard guard(lock_);
        const auto found = chunks_.find(gone.chunk);
        if (found == chunks_.end())
            return CUDA_ERROR_INVALID_VALUE;
        found->second.taken.give(gone.at - gone.chunk, gone.bytes);
        if (!found->second.taken.empty())
            return CUDA_SUCCESS;
        chunks_.erase(found);
    }
    return ranges_.drop(gone.chunk);
}

bool pieces::touches(CUdeviceptr at, std::uint64_t bytes)
{
    const std::lock_guard guard(lock_);
    return any_within(chunks_, at, bytes,
                      [](const chunk &) { return chunk_bytes; });
}

} // namespace emuv::cuda
