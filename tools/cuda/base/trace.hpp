// SPDX-License-Identifier: LGPL-2.1-or-later
// A record of movement in time, for chrome://tracing and Perfetto.
#pragma once

#include <cstdint>
#include <cstdio>
#include <mutex>

namespace emuv::cuda {

/// A file in Chrome's trace event format, as an array without its end, which
/// the format allows: a program may end at any time.
class trace
{
public:
    trace() = default;
    trace(const trace &) = delete;
    trace &operator=(const trace &) = delete;
    ~trace();

    /// Called once, before other threads use the object.
    /// @return 0 or an errno
    int open(const char *path);

    /// False until a file is open: then nothing is recorded.
    bool is_on() const { return file_ != nullptr; }

    enum class row
    {
        to_vram = 1,
        to_ram,
        waits,
        calls, ///< of the driver, that take long
    };

    /// One bar in one row of the picture.
    /// @param address, bytes  the memory it is about
    void span(row where, const char *name, std::uint64_t start_ns,
              std::uint64_t end_ns, std::uint64_t address, std::uint64_t bytes,
              std::uint64_t next_use);

    /// A mark: this kernel ran for the first time. It is not trusted, so all
    /// movement stops while it runs.
    /// @param why  the reason
    void kernel(const char *name, const char *why);

private:
    std::mutex lock_; // one event at a time
    std::FILE *file_ = nullptr;
};

} // namespace emuv::cuda
