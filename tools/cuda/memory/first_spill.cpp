// SPDX-License-Identifier: LGPL-2.1-or-later
// Tells the user when memory first goes to system RAM.
#include "memory/first_spill.hpp"

#include "base/captures.hpp"
#include "base/size.hpp"
#include "base/stopwatch.hpp"

#include <algorithm>
#include <vector>

namespace emuv::cuda {

namespace {

// VRAM for a moment, in chunks.
class scratch_vram
{
public:
    // @param bytes  0: none
    scratch_vram(const driver &calls, int device, std::uint64_t bytes)
        : calls_(calls), bytes_(round_up(bytes, chunk_bytes))
    {
        if (bytes_ == 0 ||
            calls_.cuMemAddressReserve(&range_, bytes_, chunk_bytes, 0, 0) !=
                CUDA_SUCCESS)
            return;
        const CUmemAccessDesc access = access_of(device);
        usable_ =
            map_handles(calls_,
                        properties_of(CU_MEM_LOCATION_TYPE_DEVICE, device),
                        range_, bytes_, bytes_, units_) == CUDA_SUCCESS &&
            calls_.cuMemSetAccess(range_, bytes_, &access, 1) == CUDA_SUCCESS;
    }
    scratch_vram(const scratch_vram &) = delete;
    scratch_vram &operator=(const scratch_vram &) = delete;
    ~scratch_vram()
    {
        for (const unit &each : units_) {
            calls_.cuMemUnmap(each.at, each.bytes);
            calls_.cuMemRelease(each.handle);
        }
        if (range_ != 0)
            calls_.cuMemAddressFree(range_, bytes_);
    }

    // 0: there is none.
    CUdeviceptr at() const { return usable_ ? range_ : 0; }

private:
    const driver &calls_;
    const std::uint64_t bytes_;
    CUdeviceptr range_ = 0;
    std::vector<unit> units_;
    bool usable_ = false;
};

} // namespace

double first_spill::measure_link(const spilled_range &of) const
{
    const std::uint64_t bytes = std::min(of.ram_bytes, std::uint64_t{16} << 20);
    const CUdeviceptr from = of.base + of.vram_bytes;
    CUdeviceptr to = of.base;
    // Not by cuMemAlloc: to free that waits for all work in flight.
    const scratch_vram scratch(calls_, of.device,
                               of.vram_bytes < bytes ? bytes : 0);
    if (of.vram_bytes < bytes) {
        if (scratch.at() == 0)
            return 0;
        to = scratch.at();
    }
    const float ms = fastest_ms(calls_, 3, [&](CUstream stream) {
        return calls_.cuMemcpyDtoDAsync_v2(to, from, bytes, stream) ==
               CUDA_SUCCESS;
    });
    return ms > 0
               ? static_cast<double>(bytes) / static_cast<double>(ms) * 1000.0
               : 0;
}

bool first_spill::is_to_be_told(const ledger &limits)
{
    limits.report({.spills = 1});
    return !told_.exchange(true) && notice_ != nullptr;
}

void first_spill::happened(const spilled_range &of, const ledger &limits)
{
    if (!is_to_be_told(limits))
        return;
    spill_notice notice;
    notice.spilled_bytes = of.ram_bytes;
    notice.allocation_bytes = of.allocation_bytes;
    notice.store_name = host_.name();
    notice.trial = host_.trial();
    notice.limits = limits.read();
    {
        const beside_captures apart(calls_);
        notice.link_bytes_per_second = measure_link(of);
    }
    notice_(notice);
}

void first_spill::happened_to_handle(std::uint64_t bytes, const ledger &limits)
{
    if (is_to_be_told(limits))
        notice_({bytes, bytes, "HOST_NUMA handles", limits.read(), 0, nullptr});
}

} // namespace emuv::cuda
