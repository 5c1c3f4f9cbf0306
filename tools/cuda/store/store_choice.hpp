// SPDX-License-Identifier: LGPL-2.1-or-later
// The faster store for a device, found by trying both.
#pragma once

#include "store/store.hpp"

#include <atomic>
#include <mutex>

namespace emuv::cuda {

/// One of two stores: the first, unless the second copies faster by more than a
/// measurement's error. Handles come first, since they can be remapped under a
/// running kernel; pages wait for its end.
class store_choice final : public store
{
public:
    /// All outlive this object.
    store_choice(const driver &calls, store &handles, store &pages)
        : calls_(calls), handles_(handles), pages_(pages)
    {}

    const char *name() const override { return chosen().name(); }
    bool by_handle() const override { return chosen().by_handle(); }
    bool can_create() const override { return handles_.can_create(); }
    CUresult map(CUdeviceptr at, std::uint64_t bytes, std::uint64_t unit_bytes,
                 int device, int fd, std::uint64_t offset,
                 std::vector<unit> &units) override
    {
        return chosen().map(at, bytes, unit_bytes, device, fd, offset, units);
    }
    CUresult create(CUdeviceptr at, std::uint64_t bytes,
                    std::uint64_t unit_bytes, int device, std::uint64_t offset,
                    std::vector<unit> &units) override
    {
        return chosen().create(at, bytes, unit_bytes, device, offset, units);
    }
    CUresult unmap(const unit &made) override { return chosen().unmap(made); }
    void choose(int device, budget &shares) override;
    const store_trial *trial() const override
    {
        return tried_.load(std::memory_order_acquire) && trial_.seconds > 0
                   ? &trial_
                   : nullptr;
    }

private:
    // Before the choice there is no host memory, so either answer will do.
    store &chosen() const
    {
        return chose_pages_.load(std::memory_order_acquire) ? pages_ : handles_;
    }
    double rate_of(store &which, int device, budget &shares) const;
    double copy_rate(CUdeviceptr host, CUdeviceptr vram) const;

    const driver &calls_;
    store &handles_;
    store &pages_;
    std::mutex lock_; // one trial, which the others wait for
    store_trial trial_;
    std::atomic<bool> tried_{false};
    std::atomic<bool> chose_pages_{false};
};

} // namespace emuv::cuda
