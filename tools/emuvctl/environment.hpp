// SPDX-License-Identifier: GPL-2.0-or-later
// All that emuvctl touches outside itself, so that a test can give it another.
#pragma once

#include <emuv/sysfs.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace emuv {
class kernel_api;
class module_api;
} // namespace emuv

namespace emuvctl {

/// The reader of the output has gone; nothing more is to be said.
struct closed_pipe
{};

/// A place that text is written to.
class sink
{
public:
    sink() = default;
    sink(const sink &) = delete;
    sink &operator=(const sink &) = delete;
    virtual ~sink();
    /// Writes all of it at once. @throws closed_pipe, std::system_error
    virtual void write(std::string_view text) = 0;
    /// True if a person looks at it.
    [[nodiscard]] virtual bool terminal() const { return false; }
    /// Its width in columns, or 0 if it has none.
    [[nodiscard]] virtual unsigned width() const { return 0; }
};

/// The CUDA driver's answers about itself.
struct cuda_state
{
    bool present = false; ///< there is a libcuda.so.1
    std::string problem;  ///< why it could not be used; empty if it can be
    int version = 0;      ///< 13000 for 13.0; 0 if unknown
    int devices = 0;      ///< how many it shows
};

/// A card as NVML shows it.
struct nvml_card
{
    std::string address; ///< on the PCI bus: "0000:01:00.0"
    std::string name;    ///< "NVIDIA GeForce RTX 4070"
    std::uint64_t memory_bytes = 0;
    std::uint16_t pci_device_id = 0;
    int minor = -1; ///< N of /dev/nvidiaN; -1 if unknown
};

/// NVML's answers.
struct nvml_state
{
    bool present = false; ///< there is a libnvidia-ml.so.1
    std::string problem;  ///< why it could not be used; empty if it can be
    std::string driver;   ///< its version: "580.159.03"
    std::vector<nvml_card> cards;
};

struct environment
{
    sink &out;
    sink &err;
    emuv::kernel_api &kernel;
    emuv::module_api &modules;
    std::filesystem::path sys;  ///< /sys, or EMUV_SYSFS_ROOT
    std::filesystem::path proc; ///< /proc, or EMUV_PROC_ROOT
    std::filesystem::path dev;  ///< /dev, or EMUV_DEV_ROOT
    std::filesystem::path run;  ///< /run, or EMUV_RUN_ROOT
    /// Waits so many seconds. @return false if it is time to end
    std::function<bool(double)> wait;
    /// Seconds on a clock that only goes forward.
    std::function<double()> clock;
    /// Asks the CUDA driver for itself.
    std::function<cuda_state()> cuda;

    [[nodiscard]] emuv::sysfs sysfs() const { return emuv::sysfs(sys); }
    /// The node's path as the user is told it.
    [[nodiscard]] std::string node(int id) const;
    /// Writes "emuvctl: VERB: message" and a newline to err.
    void say(std::string_view message) const;

    std::string verb; ///< the verb at work, for messages
    /// Asks NVML for the cards it shows.
    std::function<nvml_state()> nvml = [] { return nvml_state(); };
    bool no_color = false;              ///< see refuses_color()
    std::filesystem::path etc = "/etc"; ///< /etc, or EMUV_ETC_ROOT
};

/// True if NO_COLOR is set and not empty, or the terminal is a dumb one.
bool refuses_color();

/// Runs one command line and words whatever goes wrong.
/// @param arguments  without the program's name
/// @return the exit status: 0 done, 1 failed, 2 wrong usage, 3 a text that is
///   not recognised. For "run" 125 stands for the first two failures. 126 or
///   127: a program cannot be started. "batch" has 123 and 130 as well
int run(std::span<const std::string> arguments, environment &env);

/// Asks libcuda.so.1 for itself. @param library  what to hand to dlopen()
cuda_state probe_cuda(const char *library = "libcuda.so.1");

/// Asks libnvidia-ml.so.1. @param library  what to hand to dlopen()
nvml_state probe_nvml(const char *library = "libnvidia-ml.so.1");

} // namespace emuvctl
