// SPDX-License-Identifier: LGPL-2.1-or-later
// The faster store for a device, found by trying both.
#include "store/store_choice.hpp"

#include "base/captures.hpp"
#include "base/stopwatch.hpp"
#include "store/placement.hpp"

#include <chrono>

namespace emuv::cuda {

namespace {

// Enough for a rate: the copy engine is at 95 % of it with copies of a chunk.
constexpr std::uint64_t trial_bytes = std::uint64_t{32} << 20;

// Two rates that differ by less are the same.
constexpr double margin = 1.1;

double seconds_since(std::chrono::steady_clock::time_point start)
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                         start)
        .count();
}

} // namespace

// Bytes a second, over both directions; 0 when it cannot be timed.
double store_choice::copy_rate(CUdeviceptr host, CUdeviceptr vram) const
{
    const float ms = fastest_ms(calls_, 1, [&](CUstream stream) {
        for (const bool out : {false, true})
            for (std::uint64_t at = 0; at < trial_bytes; at += chunk_bytes)
                if (calls_.cuMemcpyDtoDAsync_v2(
                        out ? host + at : vram, out ? vram : host + at,
                        chunk_bytes, stream) != CUDA_SUCCESS)
                    return false;
        return true;
    });
    return ms > 0 ? 2.0 * static_cast<double>(trial_bytes) /
                        static_cast<double>(ms) * 1000.0
                  : 0;
}

// The same for a store. Pages are given back when running kernels have ended,
// as by cuMemFree, so a program waits once. The trial takes one chunk of VRAM,
// which may exceed a used-up share while the trial lasts.
double store_choice::rate_of(store &which, int device, budget &shares) const
{
    CUdeviceptr base = 0;
    const auto charged = shares.charge_ram(device, trial_bytes);
    if (!charged)
        return 0;
    double rate = 0;
    if (calls_.cuMemAddressReserve(&base, trial_bytes + chunk_bytes,
                                   chunk_bytes, 0, 0) == CUDA_SUCCESS) {
        const CUdeviceptr vram = base + trial_bytes;
        std::vector<unit> host;
        std::vector<unit> scratch;
        const CUmemAccessDesc access = access_of(device);
        if (which.map(base, trial_bytes, unit_for(trial_bytes), device,
                      shares.ledger_of(device).region_fd(), charged->token,
                      host) == CUDA_SUCCESS &&
            map_handles(
                calls_, properties_of(CU_MEM_LOCATION_TYPE_DEVICE, device),
                vram, chunk_bytes, chunk_bytes, scratch) == CUDA_SUCCESS &&
            (!which.by_handle() ||
             calls_.cuMemSetAccess(base, trial_bytes, &access, 1) ==
                 CUDA_SUCCESS) &&
            calls_.cuMemSetAccess(vram, chunk_bytes, &access, 1) ==
                CUDA_SUCCESS)
            rate = copy_rate(base, vram);
        for (const unit &each : host)
            which.unmap(each);
        for (const unit &each : scratch) {
            calls_.cuMemUnmap(each.at, each.bytes);
            calls_.cuMemRelease(each.handle);
        }
        calls_.cuMemAddressFree(base, trial_bytes + chunk_bytes);
    }
    shares.uncharge_ram(device, *charged);
    return rate;
}

void store_choice::choose(int device, budget &shares)
{
    if (tried_.load(std::memory_order_acquire))
        return;
    const std::lock_guard guard(lock_);
    if (tried_.load(std::memory_order_relaxed))
        return;
    const beside_captures apart(calls_);
    const auto start = std::chrono::steady_clock::now();
    const double handles = rate_of(handles_, device, shares);
    const double pages = handles > 0 ? rate_of(pages_, device, shares) : 0;
    const bool chose_pages = handles > 0 && pages > handles * margin;
    if (handles > 0 && pages > 0)
        trial_ = {chose_pages ? pages : handles,
                  (chose_pages ? handles_ : pages_).name(),
                  chose_pages ? handles : pages, seconds_since(start)};
    chose_pages_.store(chose_pages, std::memory_order_release);
    tried_.store(true, std::memory_order_release);
}

} // namespace emuv::cuda
