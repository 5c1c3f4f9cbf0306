// SPDX-License-Identifier: LGPL-2.1-or-later
// What CUDA itself takes of VRAM for a program.
#include "footprint.hpp"

#include "mover.hpp"

#include <algorithm>

namespace emuv::cuda {

namespace {

// Asking the driver takes 0.1 ms (H200, driver 580.159).
constexpr std::uint64_t interval_ns = 100000000;

} // namespace

footprint::footprint(ledger &limits, measure_call measure, int first_device,
                     int devices,
                     void (*told)(std::uint64_t taken, std::uint64_t missing))
    : limits_(limits), measure_(measure), first_device_(first_device),
      devices_(devices), told_(told)
{}

void footprint::follow(mover *moves, std::uint64_t now_ns)
{
    if (now_ns < next_ns_.load(std::memory_order_relaxed))
        return;
    const std::unique_lock lock(lock_, std::try_to_lock);
    if (!lock) // somebody else does it
        return;
    settle(moves);
    next_ns_.store(now_ns + interval_ns, std::memory_order_relaxed);
}

void footprint::shrink()
{
    const std::lock_guard guard(lock_);
    taken_bytes_ = 0;
    first_bytes_ = 0;
    in_use_ = 0;
    settle(nullptr);
}

std::uint64_t footprint::charged_bytes()
{
    const std::lock_guard guard(lock_);
    return charged_bytes_;
}

std::uint64_t footprint::measured(unsigned &in_use) const
{
    std::uint64_t sum = 0;
    for (int device = first_device_; device < first_device_ + devices_;
         device++) {
        const std::uint64_t bytes = measure_(device);
        sum += bytes;
        in_use += bytes != 0;
    }
    return sum;
}

void footprint::settle(mover *moves)
{
    // A charge comes before its memory and goes after it, so the ledger may
    // have more than is there, but not less. One that goes meanwhile is seen
    // before.
    const std::uint64_t before = limits_.own_physical_bytes();
    unsigned in_use = 0;
    const std::uint64_t held = measured(in_use);
    const std::uint64_t counted =
        std::max(before, limits_.own_physical_bytes()) - charged_bytes_;
    taken_bytes_ = std::max(taken_bytes_, held > counted ? held - counted : 0);
    if (in_use > in_use_) {
        in_use_ = in_use;
        first_bytes_ = taken_bytes_;
    }
    const usage now = limits_.read();
    const std::uint64_t code =
        in_use_ * std::min(code_bytes, now.physical_bytes / 16);
    const std::uint64_t due =
        in_use_ == 0 ? 0 : std::max(taken_bytes_, first_bytes_ + code);
    if (due < charged_bytes_) {
        limits_.uncharge_physical(charged_bytes_ - due);
        charged_bytes_ = due;
        return;
    }
    std::uint64_t more = due - charged_bytes_;
    if (more == 0)
        return;
    if (!limits_.charge_physical(more) &&
        (moves == nullptr || !moves->make_way(more))) {
        more = std::min(more, now.physical_free_bytes());
        if (more != 0 && !limits_.charge_physical(more))
            more = 0;
    }
    charged_bytes_ += more;
    if (charged_bytes_ < taken_bytes_ && now.physical_bytes != 0 && !said_ &&
        told_ != nullptr) {
        said_ = true;
        told_(taken_bytes_, taken_bytes_ - charged_bytes_);
    }
}

} // namespace emuv::cuda
