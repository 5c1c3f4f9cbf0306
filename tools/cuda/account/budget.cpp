// SPDX-License-Identifier: LGPL-2.1-or-later
// Charges what a process holds to its share, and asks for memory if it is
// short.
#include "account/budget.hpp"

#include "base/current.hpp"
#include "base/thread.hpp"

#include <pthread.h>

namespace emuv::cuda {

budget::budget(const options &asked)
    : calls_(asked.calls), ledgers_(asked.ledgers),
      footprints_(asked.footprints), report_(asked.report),
      asks_again_(asked.asks_again), pools_(asked.calls, asked.ledgers)
{}

// True if nothing was asked for in the current context before.
bool budget::is_new_context()
{
    const CUcontext context = current_context(calls_);
    if (context == nullptr)
        return false;
    const std::lock_guard guard(lock_);
    return contexts_.insert(context).second;
}

void budget::forget_context(CUcontext context)
{
    const std::lock_guard guard(lock_);
    contexts_.erase(context);
}

void budget::shrink_footprints()
{
    for (footprint *each : footprints_)
        each->shrink();
}

void budget::follow_footprint(int device)
{
    if (footprints_.empty())
        return;
    if (is_new_context())
        of_device(footprints_, current_device(calls_)).expect();
    of_device(footprints_, device).follow(now_ns(), [&](std::uint64_t missing) {
        return (pools_.trim(device) && charge_free_vram(device, missing)) ||
               make_way(device, missing);
    });
}

bool budget::make_way(int device, std::uint64_t bytes)
{
    return std::any_of(reliefs_.begin(), reliefs_.end(), [&](relief *each) {
        return each->make_way(device, bytes);
    });
}

bool budget::charge_vram(int device, std::uint64_t bytes)
{
    follow_footprint(device);
    return charge_free_vram(device, bytes) ||
           (pools_.trim(device) && charge_free_vram(device, bytes));
}

bool budget::charge_vram_alone(int device, std::uint64_t bytes)
{
    return charge_vram(device, bytes) || make_way(device, bytes);
}

// Another thread may charge between the question and the answer. Each round
// asks for less, so it ends.
std::uint64_t budget::charge_share_of_vram(int device, std::uint64_t bytes)
{
    if (charge_vram(device, bytes))
        return bytes;
    do {
        const usage now = ledger_of(device).read();
        if (now.spoken_for)
            return 0;
        bytes = device_share(bytes - chunk_bytes, now.physical_free_bytes());
    } while (bytes > 0 && !charge_free_vram(device, bytes));
    return bytes;
}

std::optional<ram_charge> budget::charge_ram(int device, std::uint64_t bytes)
{
    ram_charge made{bytes};
    if (!charged_to(device).charge_virtual(bytes, made.token))
        return {};
    return made;
}

std::optional<charge> budget::take(int device, std::uint64_t bytes,
                                   bool may_be_virtual)
{
    if (may_be_virtual ? charge_vram(device, bytes)
                       : charge_vram_alone(device, bytes))
        return charge{};
    if (!may_be_virtual || bytes > UINT64_MAX - chunk_bytes)
        return {};
    // The driver makes it: it lies in system RAM.
    charge beyond{charge_kind::host};
    if (!charged_to(device).charge_ram(round_up(bytes, chunk_bytes),
                                       beyond.token))
        return {};
    return beyond;
}

void budget::give_back(int device, std::uint64_t bytes, const charge &taken)
{
    if (taken.kind == charge_kind::host)
        uncharge_ram(device, {round_up(bytes, chunk_bytes), taken.token});
    else if (taken.kind == charge_kind::pooled)
        pools_.freed(taken.token, bytes);
    else
        uncharge_vram(device, bytes);
}

bool budget::is_refused(int device, std::uint64_t bytes)
{
    if (asks_again_ == nullptr)
        return false;
    follow_footprint(device);
    const auto free_now = [&] {
        std::size_t free = 0;
        std::size_t total = 0;
        const std::uint64_t ours =
            ledger_of(device).read().physical_free_bytes();
        return calls_.cuMemGetInfo_v2(&free, &total) == CUDA_SUCCESS
                   ? std::min<std::uint64_t>(ours, free)
                   : ours;
    };
    std::uint64_t free = free_now();
    if (bytes > free && pools_.trim(device))
        free = free_now();
    const auto thread = pthread_self();
    if (reclaim_.comes_again(thread, device, bytes, bytes <= free, now_ns()) ||
        bytes <= free || !asks_again_())
        return false;
    // PyTorch asks in this mode in a capture only, and does not ask again then.
    auto mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (calls_.cuThreadExchangeStreamCaptureMode(&mode) != CUDA_SUCCESS)
        return false;
    const bool captures = mode == CU_STREAM_CAPTURE_MODE_RELAXED;
    calls_.cuThreadExchangeStreamCaptureMode(&mode);
    return !captures &&
           reclaim_.refuse(thread, device, bytes, bytes - free, now_ns());
}

std::uint64_t budget::total_of(const usage &now, std::uint64_t real) const
{
    switch (report_) {
    case report_kind::total:
        return now.physical_bytes + now.virtual_bytes;
    case report_kind::physical:
        return now.physical_bytes;
    case report_kind::free:
        break;
    }
    return real;
}

void budget::show_total(int device, std::size_t &real_total) const
{
    real_total = total_of(ledger_of(device).read(), real_total);
}

void budget::show_info(int device, std::uint64_t kept, std::size_t &real_free,
                       std::size_t &real_total) const
{
    const usage now = ledger_of(device).read();
    real_total = total_of(now, real_total);
    // VRAM that others on the card hold cannot be had. Memory that does not fit
    // then comes out of the virtual part.
    const std::uint64_t physical_free =
        std::min<std::uint64_t>(now.physical_free_bytes(), real_free);
    const std::uint64_t all_free =
        physical_free + now.virtual_free_bytes() + kept;
    switch (report_) {
    case report_kind::total:
        real_free = all_free;
        break;
    case report_kind::physical:
        real_free = physical_free;
        break;
    case report_kind::free:
        real_free = std::min<std::uint64_t>(all_free, real_total);
        break;
    }
}

} // namespace emuv::cuda
