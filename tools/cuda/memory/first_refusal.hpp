// SPDX-License-Identifier: LGPL-2.1-or-later
// Tells the user when memory is first refused.
#pragma once

#include "account/budget.hpp"
#include "base/driver.hpp"

#include <atomic>
#include <cstdint>

namespace emuv::cuda {

/// The facts that the user is told.
struct refusal_notice
{
    std::uint64_t bytes = 0; ///< that were asked for
    usage limits;            ///< as they were just after
    /// The VRAM that is charged to this process.
    std::uint64_t own_vram_bytes = 0;
    bool only_vram = false; ///< it could not be in system RAM

    /// The bytes that the limits lack for this; 0 where they have room, so that
    /// the card or the machine has none.
    std::uint64_t missing_bytes() const;
};

/// Tells of the first answer that is out of memory. Requests that are refused
/// for their program to give back what it caches are none. Every call may come
/// from any thread.
class first_refusal
{
public:
    /// @param shares  outlives this object
    /// @param notice  called once at most; null: nobody is told
    first_refusal(const budget &shares, void (*notice)(const refusal_notice &))
        : budget_(shares), notice_(notice)
    {}
    first_refusal(const first_refusal &) = delete;
    first_refusal &operator=(const first_refusal &) = delete;

    /// The kinds of memory that a request can be given.
    enum class kinds
    {
        both,
        vram, ///< it cannot be in system RAM
    };
    /// @return @p result, the answer to a request for so many bytes
    CUresult answered(CUresult result, int device, std::uint64_t bytes,
                      kinds allowed)
    {
        if (result == CUDA_ERROR_OUT_OF_MEMORY)
            happened(device, bytes, allowed);
        return result;
    }

private:
    void happened(int device, std::uint64_t bytes, kinds allowed);

    const budget &budget_;
    void (*const notice_)(const refusal_notice &);
    std::atomic<bool> told_{false};
};

} // namespace emuv::cuda
