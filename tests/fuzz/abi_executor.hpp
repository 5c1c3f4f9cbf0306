// SPDX-License-Identifier: GPL-2.0-or-later
// Carries out a fuzzer's inputs: calls to the driver, by several threads at
// once, and the checks that must hold after all of them.
#pragma once

#include "support.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <semaphore>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace fuzz {

using guest::u64;

/// One call. An input is a sequence of these as they lie in memory; a part of
/// one at its end is not read. All values are valid: they are taken modulo the
/// number of choices.
struct record
{
    std::uint8_t kind;
    /// Bits 0-1: the thread; bit 7: without CAP_SYS_RAWIO.
    std::uint8_t how;
    /// Slots of descriptors, in each half.
    std::uint8_t files;
    /// Low half: the slot of a mapping. High half: a variant of the call.
    std::uint8_t place;
    /// A size, or small numbers.
    std::uint32_t amount;
    /// An offset, flags, or bytes of a structure.
    std::uint64_t value;
};
static_assert(sizeof(record) == 16);

/// More than this of an input is not read. So short an input fits a line of the
/// kernel's log.
inline constexpr std::size_t max_records = 32;

/// The number of kinds of calls, for makers of records.
std::size_t kinds();

/// Loads the module, makes two instances, and then carries out inputs, each of
/// which leaves the driver as it was.
class executor
{
public:
    /// Called in every thread that makes calls, before its first.
    using thread_start = std::function<void(std::size_t thread)>;

    explicit executor(thread_start start = nullptr);
    ~executor();
    executor(const executor &) = delete;
    executor &operator=(const executor &) = delete;

    /// @return the checks that failed; empty if all was well
    std::string run(std::span<const std::uint8_t> input);

    /// The outcomes of the last input: each kind's calls by errno, as small
    /// counts. For feedback.
    static constexpr std::size_t outcome_count = 4096;
    const std::array<std::atomic<std::uint8_t>, outcome_count> &outcomes() const
    {
        return outcomes_;
    }
    /// Called whenever the module's code is about to move, or has.
    std::function<void()> before_unload, after_load;

    static constexpr std::size_t threads = 3;
    /// Instances that an input may make.
    static constexpr int own_count = 4;

private:
    static constexpr std::size_t file_slots = 16;
    static constexpr std::size_t map_slots = 8;
    static constexpr u64 map_bytes = 32 * guest::mib;

    struct worker;

    void run_records(std::size_t thread);
    void run_record(const record &what);
    long perform(const record &what);
    long call_raw(const record &what, int fd);
    long call_driver(const record &what, int fd);
    long call_control(const record &what);
    long change_own(const record &what);
    long transfer(const record &what, int fd);
    long map(const record &what, int fd);
    long change_mapping(const record &what);
    long touch(const record &what);
    long fail_page(const record &what);
    long pass_descriptor(int fd);
    long through_pipe(const record &what, int fd);
    long device(const record &what, int fd, int other);
    long in_child(const record &what);
    long call_in_group(const record &what, int fd);
    long read_debug(const record &what);
    long read_files(const record &what, int fd);
    std::string reload(std::span<const std::uint8_t> input);
    void set_up();
    void clean_up();
    std::string check_idle();
    bool limit_group() const;

    u64 place(u64 value) const;
    static u64 size(std::uint32_t amount);
    int keep(long fd);
    void remember(u64 offset);
    unsigned char *arena(std::size_t slot) const;
    void reset_arena();
    void object(const std::string &text);

    guest::descriptor control_;
    std::optional<guest::memory_cgroup> group_;
    guest::descriptor group_entry_;
    u64 runs_ = 0, failed_before_ = 0;
    std::atomic<u64> failed_pages_ = 0;
    std::array<std::atomic<int>, file_slots> files_;
    std::array<std::atomic<int>, own_count> swap_files_;
    std::array<std::atomic<u64>, 8> regions_{};
    std::atomic<std::size_t> next_file_ = 0, next_region_ = 0;
    unsigned char *arena_ = nullptr;
    std::array<std::vector<record>, threads> programs_;
    std::vector<std::unique_ptr<worker>> workers_;
    std::array<std::atomic<std::uint8_t>, outcome_count> outcomes_{};
    bool alone_ = true;
    bool can_fail_ = false;
    bool can_swap_ = false;
    std::atomic<bool> objected_ = false;
    std::string objection_;
};

} // namespace fuzz
