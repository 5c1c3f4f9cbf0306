// SPDX-License-Identifier: LGPL-2.1-or-later
// Questions to the driver beside the program's captures.
#pragma once

#include "base/driver.hpp"

#include <atomic>

namespace emuv::cuda {

/// How many of the program's captures have begun and not ended. While there is
/// one, nobody waits for a whole context: that breaks it in any mode.
inline constinit std::atomic<unsigned> open_captures{0};

/// While it lives, what the calling thread asks of the driver breaks no capture
/// of the program's. Without it the driver refuses much of that while a stream
/// is captured, and the capture fails.
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
