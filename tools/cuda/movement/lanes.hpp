// SPDX-License-Identifier: LGPL-2.1-or-later
// Copies between VRAM and system RAM, one way and the other.
#pragma once

#include "base/driver.hpp"

#include <cstdint>

namespace emuv::cuda {

/// The two copy streams of one context. Not for several threads at once.
///
/// The driver maps memory with the copy engine that takes bytes away from the
/// card. While one client has more to copy, that engine stays with it for a
/// whole time slice, a millisecond. So a mapping waits for half a slice on
/// average, and for a whole one the second time. But an engine goes on to the
/// next client as soon as it has to wait. So copies to system RAM come in
/// turns, each of which waits for another stream's answer.
///
/// Figures for turns of 8 MiB, with both directions busy
/// (tests/bench/mapping.cu): mapping VRAM takes 0.17 ms instead of 0.66.
/// Mapping 64 MiB of system RAM takes 1.0 ms instead of 1.6. The card sends 44
/// GB/s instead of 51.
class lanes
{
public:
    static constexpr std::uint64_t turn_bytes = std::uint64_t{8} << 20;

    /// @param calls  outlives this object
    explicit lanes(const driver &calls) : calls_(calls) {}
    lanes(const lanes &) = delete;
    lanes &operator=(const lanes &) = delete;

    /// Makes the streams in the current context, for close() to end.
    /// @param priority  of the copies, as for cuStreamCreateWithPriority
    /// @return false where the driver has none; close() is due all the same
    bool open(int priority);

    /// Closes the streams, in the same context. Waits for copies under way.
    void close();

    /// Begins a copy from system RAM to VRAM.
    /// @param done  is recorded behind it
    /// @return false where it could not be begun, or not followed; nothing of
    ///   it runs then
    bool fetch(CUdeviceptr to, CUdeviceptr from, std::uint64_t bytes,
               CUevent done);

    /// Fetches that begin later wait for an event.
    /// @return false where the driver refuses
    bool wait_for(CUevent event)
    {
        return calls_.cuStreamWaitEvent(in_, event, 0) == CUDA_SUCCESS;
    }

    /// Begins a copy from VRAM to system RAM, likewise.
    bool write_back(CUdeviceptr to, CUdeviceptr from, std::uint64_t bytes,
                    CUevent done);

private:
    bool ended(CUstream on);
    void give_turn();

    const driver &calls_;
    CUstream in_ = nullptr;
    CUstream out_ = nullptr;
    CUstream answers_ = nullptr;
    // In VRAM: the number of the last question, and of the last answer.
    CUdeviceptr words_ = 0;
    cuuint32_t turn_ = 0;
    bool takes_turns_ = false;
};

} // namespace emuv::cuda
