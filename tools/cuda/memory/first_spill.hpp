// SPDX-License-Identifier: LGPL-2.1-or-later
// Tells the user when memory first goes to system RAM.
#pragma once

#include "account/ledger.hpp"
#include "base/driver.hpp"
#include "store/store.hpp"

#include <atomic>
#include <cstdint>

namespace emuv::cuda {

/// The facts that the user is told.
struct spill_notice
{
    std::uint64_t spilled_bytes = 0;
    std::uint64_t allocation_bytes = 0;
    const char *store_name = nullptr;
    usage limits;
    /// The link's rate as one timed copy found it, in bytes a second; 0 when
    /// none could be timed.
    double link_bytes_per_second = 0;
    const store_trial *trial = nullptr; ///< null when none was made
};

/// Counts spills, and tells of the first one. Every call may come from any
/// thread.
class first_spill
{
public:
    /// @param calls, host  outlive this object
    /// @param notice  called once at most; null: nobody is told
    first_spill(const driver &calls, const store &host,
                void (*notice)(const spill_notice &))
        : calls_(calls), host_(host), notice_(notice)
    {}
    first_spill(const first_spill &) = delete;
    first_spill &operator=(const first_spill &) = delete;

    /// A range whose end lies in system RAM, mapped for its device.
    struct spilled_range
    {
        CUdeviceptr base = 0;
        int device = 0;
        std::uint64_t allocation_bytes = 0;
        std::uint64_t vram_bytes = 0; ///< from its start on
        std::uint64_t ram_bytes = 0;  ///< behind those
    };
    void happened(const spilled_range &of, const ledger &limits);

    /// True if anything has spilled so far.
    bool has_happened() const { return told_.load(); }

    /// A handle that the program created is one in system RAM.
    void happened_to_handle(std::uint64_t bytes, const ledger &limits);

private:
    bool is_to_be_told(const ledger &limits);
    double measure_link(const spilled_range &of) const;

    const driver &calls_;
    const store &host_;
    void (*const notice_)(const spill_notice &);
    std::atomic<bool> told_{false};
};

} // namespace emuv::cuda
