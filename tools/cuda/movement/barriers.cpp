// SPDX-License-Identifier: LGPL-2.1-or-later
// Places in streams at which work waits until memory is mapped.
#include "movement/barriers.hpp"

#include "base/thread.hpp"

#include <atomic>
#include <cstring>

namespace emuv::cuda {

namespace {

// How often the trial looks for a word, and how long it looks for one that is
// not to come.
constexpr unsigned trial_looks = 400;
constexpr std::uint64_t trial_look_ns = 50000;
constexpr std::uint64_t trial_wait_ns = 1000000;

// Page-locked memory is where it is for the device, too.
CUdeviceptr address_of(std::uint32_t &word)
{
    return reinterpret_cast<CUdeviceptr>(&word);
}

} // namespace

barriers::~barriers()
{
    if (words_ != nullptr)
        calls_.cuMemFreeHost(words_);
}

void barriers::open()
{
    usable_ = false;
    taken_ = {};
    // Older drivers have no such operations.
    if (calls_.cuStreamWriteValue32_v2 == nullptr ||
        calls_.cuStreamWaitValue32_v2 == nullptr)
        return;
    if (words_ == nullptr) {
        constexpr std::size_t bytes = (most + 1) * sizeof(words);
        void *made = nullptr;
        if (calls_.cuMemHostAlloc(&made, bytes, 0) != CUDA_SUCCESS ||
            made == nullptr)
            return;
        std::memset(made, 0, bytes);
        words_ = static_cast<words *>(made);
    }
    usable_ = works();
}

// Some drivers take the calls and do nothing, or do not wait.
bool barriers::works() const
{
    CUstream trial = nullptr;
    if (calls_.cuStreamCreateWithPriority(&trial, CU_STREAM_NON_BLOCKING, 0) !=
        CUDA_SUCCESS)
        return false;
    const bool works = passes_when_lowered(trial);
    calls_.cuStreamDestroy_v2(trial);
    return works;
}

bool barriers::passes_when_lowered(CUstream trial) const
{
    words &at = words_[most];
    const auto comes = [&](std::uint32_t value) {
        for (unsigned i = 0; i < trial_looks; i++) {
            if (std::atomic_ref(at.reached).load() == value)
                return true;
            sleep_ns(trial_look_ns);
        }
        return false;
    };
    std::atomic_ref(at.reached).store(0);
    std::atomic_ref(at.lowered).store(0);
    const bool raised =
        raise_at(at, 1, trial) &&
        calls_.cuStreamWriteValue32_v2(trial, address_of(at.reached), 2, 0) ==
            CUDA_SUCCESS;
    bool waits = raised && comes(1);
    sleep_ns(trial_wait_ns);
    waits = waits && std::atomic_ref(at.reached).load() == 1;
    std::atomic_ref(at.lowered).store(1);
    return calls_.cuStreamSynchronize(trial) == CUDA_SUCCESS && waits &&
           comes(2);
}

barriers::ticket barriers::take()
{
    if (!usable_)
        return none;
    for (std::size_t i = 0; i <= most; i++) {
        if (++last_ != none && taken_[index_of(last_)] == none)
            return taken_[index_of(last_)] = last_;
    }
    return none;
}

void barriers::put(ticket which)
{
    if (taken_[index_of(which)] == which)
        taken_[index_of(which)] = none;
}

bool barriers::raise(ticket which, CUstream stream) const
{
    return raise_at(words_[index_of(which)], which, stream);
}

// A ticket's word lets those of the same index go that were before it, too.
bool barriers::raise_at(words &at, ticket which, CUstream stream) const
{
    return calls_.cuStreamWriteValue32_v2(stream, address_of(at.reached), which,
                                          0) == CUDA_SUCCESS &&
           calls_.cuStreamWaitValue32_v2(stream, address_of(at.lowered), which,
                                         CU_STREAM_WAIT_VALUE_GEQ) ==
               CUDA_SUCCESS;
}

bool barriers::is_reached(ticket which) const
{
    const std::uint32_t now = std::atomic_ref(words_[index_of(which)].reached)
                                  .load(std::memory_order_acquire);
    return static_cast<std::int32_t>(now - which) >= 0;
}

void barriers::lower(ticket which)
{
    std::atomic_ref(words_[index_of(which)].lowered)
        .store(which, std::memory_order_release);
}

} // namespace emuv::cuda
