// SPDX-License-Identifier: LGPL-2.1-or-later
// Questions to the driver beside the program's captures.
#pragma once

#include "base/driver.hpp"

#include <atomic>

namespace emuv::cuda {

/// The number of the program's open captures. While there is one, nobody waits
/// for a whole context: that breaks a capture in any mode.
inline constinit std::atomic<unsigned> open_captures{0};

/// While it lives, the calling thread's calls of the driver break no capture of
/// the program's. Otherwise the driver refuses many calls while a stream is
/// captured, and the capture fails.
class beside_captures
{
public:
    /// @param calls  outlives this object
    explicit beside_captures(const driver &calls) : calls_(calls)
    {
        calls_.cuThreadExchangeStreamCaptureMode(&mode_);
    }
    beside_captures(const beside_captures &) = delete;
    beside_captures &operator=(const beside_captures &) = delete;
    ~beside_captures() { calls_.cuThreadExchangeStreamCaptureMode(&mode_); }

private:
    const driver &calls_;
    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

} // namespace emuv::cuda
