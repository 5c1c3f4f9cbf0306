// SPDX-License-Identifier: GPL-2.0-or-later
// The host's side of a job: RAM for programs, workers, batches and what spills.
#pragma once

#include "memory.hpp"
#include "range.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>

namespace emuv::estimate {

/// The programs on the host.
struct host_job
{
    double processes = 1; ///< one for each card
    double workers = 0;   ///< of each process, that load data
    double prefetch = 2;  ///< batches that a worker has ready
};

/// Bytes of RAM.
struct host_needs
{
    range programs; ///< Python, PyTorch, CUDA
    range workers;
    range batches; ///< that wait
    range loading; ///< a checkpoint, while it is read
    range spilled;
    range all;
};

/// @param spilled  bytes of one process
[[nodiscard]] host_needs on_host(const model &of, const job &as,
                                 const needs &has, const host_job &with,
                                 const range &spilled);

/// The most workers of a process with which the high answer keeps to so much
/// RAM; nullopt if it does not even without any.
[[nodiscard]] std::optional<double>
safe_workers(const model &of, const job &as, const needs &has, host_job with,
             const range &spilled, double ram);

/// The memory limit of the control group that this process is in, in bytes, or
/// of one above it; nullopt if none has one. Version 1 and 2.
/// @param proc, sys  /proc and /sys
[[nodiscard]] std::optional<std::uint64_t>
cgroup_limit(const std::filesystem::path &proc,
             const std::filesystem::path &sys);

} // namespace emuv::estimate
