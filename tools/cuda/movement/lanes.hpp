// SPDX-License-Identifier: LGPL-2.1-or-later
// Copies between VRAM and system RAM, one way and the other.
#pragma once

#include "base/driver.hpp"

#include <cstdint>

namespace emuv::cuda {

/// The two copy streams of one context. Not for several threads at once.
///
/// The driver maps memory with the help of the copy engine that takes bytes
/// away from the card, and that engine stays with one who has more to copy for
/// a whole slice of time, a millisecond: whoever maps meanwhile waits for half
/// of it on an average, and for all of it the second time. An engine goes on to
/// the next in turn as soon as what it does has to wait for something. So
/// copies to system RAM come in pieces, each of which waits for another
/// stream's answer (tests/bench/mapping.cu: with 8 MiB, mapping takes 0.17 ms
/// instead of 0.66 for VRAM and 1.0 instead of 1.6 for 64 MiB of system RAM,
/// where 44 GB/s leave the card instead of 51, both directions busy).
class lanes
{
public:
    static constexpr std::uint64_t piece_bytes = std::uint64_t{8} << 20;

    /// @param calls  outlives this object
    explicit lanes(const driver &calls) : calls_(calls) {}
    lanes(const lanes &) = delete;
    lanes &operator=(const lanes &) = delete;

    /// Makes the streams in the current context, for close() to end.
    /// @param priority  of the copies, as for cuStreamCreateWithPriority
    /// @return false where the driver has none; close() is due all the same
    bool open(int priority);

    /// In the same context. Waits for what is under way.
    void close();

    /// Begins a copy from system RAM to VRAM.
    /// @param done  is recorded behind it
    /// @return false where it could not be begun or not be followed; nothing of
    ///   it runs then
    bool fetch(CUdeviceptr to, CUdeviceptr from, std::uint64_t bytes,
               CUevent done);

    /// The same from VRAM to system RAM.
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
