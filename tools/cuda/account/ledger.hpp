// SPDX-License-Identifier: LGPL-2.1-or-later
// Ledgers: the limits of a device, and what is charged to them, by process.
#pragma once

#include "base/statistics.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

struct emuv_query_instance;

namespace emuv::cuda {

/// Limits and the sums against them, in bytes, over all processes that share
/// the ledger.
struct usage
{
    std::uint64_t physical_bytes = 0;
    std::uint64_t virtual_bytes = 0;
    std::uint64_t physical_used_bytes = 0;
    std::uint64_t virtual_used_bytes = 0;
    /// Of virtual_bytes: VRAM of other cards.
    std::uint64_t lent_bytes = 0;
    /// Of virtual_bytes, and of those used: in a file.
    std::uint64_t file_bytes = 0;
    std::uint64_t file_used_bytes = 0;
    /// Free physical bytes belong to charges that wait: others fail.
    bool spoken_for = false;

    std::uint64_t physical_free_bytes() const
    {
        return physical_used_bytes < physical_bytes
                   ? physical_bytes - physical_used_bytes
                   : 0;
    }
    std::uint64_t virtual_free_bytes() const
    {
        return virtual_used_bytes < virtual_bytes
                   ? virtual_bytes - virtual_used_bytes
                   : 0;
    }
    /// All that is used beyond the sum of all limits: memory that
    /// moves may exceed the file's.
    std::uint64_t over_bytes() const
    {
        const std::uint64_t used = physical_used_bytes + virtual_used_bytes;
        const std::uint64_t all = physical_bytes + virtual_bytes;
        return used > all ? used - all : 0;
    }
    /// Of the free virtual bytes, those that are in no file.
    std::uint64_t memory_free_bytes() const
    {
        const std::uint64_t all = virtual_bytes - file_bytes;
        const std::uint64_t used = virtual_used_bytes - file_used_bytes;
        return used < all ? all - used : 0;
    }
};

/// Marks the token of a charge on another card; the rest is its ordinal. No
/// region of an instance begins so far up.
inline constexpr std::uint64_t lent_mark = std::uint64_t{1} << 63;

/// The card where the memory lies that a charge of virtual memory stands for.
/// @param token  as charge_virtual() gave it
/// @return -1 for system RAM
constexpr int peer_of(std::uint64_t token)
{
    return (token & lent_mark) != 0 ? static_cast<int>(token & ~lent_mark) : -1;
}

/// Counts of what a process has done, as emuv_report has them.
struct counters
{
    std::uint64_t fetched_bytes = 0; ///< moved to VRAM
    std::uint64_t evicted_bytes = 0; ///< moved to system RAM
    std::uint64_t spills = 0;        ///< allocations placed in system RAM
    std::uint64_t faults = 0;        ///< work that lacked what was to be there
    std::uint64_t hit_bytes = 0;     ///< that work was given, in VRAM
    std::uint64_t miss_bytes = 0;    ///< that it was given, in system RAM
    std::uint64_t stalled_ns = 0;    ///< that work waited for memory

    bool operator==(const counters &) const = default;
};

/// The ledger of one device. A charge happens whole or not at all; every call
/// may come from any thread. A const one is for those who only read it, and
/// report to it: all but account charge by a budget.
class ledger
{
public:
    ledger() = default;
    ledger(const ledger &) = delete;
    ledger &operator=(const ledger &) = delete;
    virtual ~ledger() = default;

    /// @return false when the limit leaves no room; nothing is charged then
    bool charge_physical(std::uint64_t bytes)
    {
        return note_charged(take_physical(bytes), bytes);
    }
    /// As charge_physical(), but sleeps until there is room, if can_wait(), or
    /// for a moment where nothing wakes it. Clients of one ledger are served in
    /// order. The caller holds no lock that is needed to make room.
    /// @param ns  the longest sleep
    bool charge_physical_within(std::uint64_t bytes, std::uint64_t ns)
    {
        return note_charged(take_physical_within(bytes, ns), bytes);
    }
    /// True if uncharging wakes charges that wait.
    virtual bool can_wait() const { return false; }
    /// Ends the sleep of all threads in charge_physical_within(), which then
    /// return false. Later calls sleep again.
    virtual void call_off_waits() {}

    void uncharge_physical(std::uint64_t bytes)
    {
        // Before another thread can charge them, or both would show as charged.
        vram_ -= bytes;
        if (shown_ != nullptr)
            note_less(shown_->vram, bytes);
        give_physical(bytes);
    }

    /// As charge_physical(), for memory of another device of this process.
    bool charge_lent(std::uint64_t bytes)
    {
        if (!charge_physical(bytes))
            return false;
        if (shown_ != nullptr)
            std::atomic_ref(shown_->lends) += bytes;
        return true;
    }
    void uncharge_lent(std::uint64_t bytes)
    {
        if (shown_ != nullptr)
            note_less(shown_->lends, bytes);
        uncharge_physical(bytes);
    }

    /// The bytes of VRAM that are charged here to this process. While a charge
    /// or its return is under way, its bytes are left out.
    std::uint64_t own_physical_bytes() const { return vram_; }

    /// Shows the bytes that are charged to this process there, too. Others may
    /// read them and write to them: nothing is decided by them. Before the
    /// first charge. @param where  outlives this object
    virtual void show_in(charged_bytes &where) { shown_ = &where; }

    /// The sum of all bytes that were ever charged, uncharged ones included.
    std::uint64_t ever_physical_bytes() const { return ever_physical_bytes_; }

    /// @param bytes  a multiple of chunk_bytes
    /// @param token  out: what uncharge_virtual() takes; for an instance it is
    ///   the offset of the region that stands for the charge
    bool charge_virtual(std::uint64_t bytes, std::uint64_t &token)
    {
        if (!take_virtual(bytes, token))
            return false;
        note_beyond(bytes, token);
        return true;
    }
    /// The same, of system RAM alone.
    bool charge_ram(std::uint64_t bytes, std::uint64_t &token)
    {
        if (!take_ram(bytes, token))
            return false;
        note_beyond(bytes, token);
        return true;
    }
    void uncharge_virtual(std::uint64_t bytes, std::uint64_t token)
    {
        if (shown_ != nullptr)
            note_less(peer_of(token) < 0 ? shown_->ram : lent(token).now,
                      bytes);
        give_virtual(bytes, token);
    }

    /// Charges the file, where there is one, for memory that has no room in
    /// system RAM.
    /// @param is_new  the memory is being made; else it moves there
    bool charge_file(std::uint64_t bytes, bool is_new)
    {
        if (!take_file(bytes, is_new))
            return false;
        if (shown_ != nullptr)
            note_more(shown_->file, shown_->most_file, bytes);
        return true;
    }
    void uncharge_file(std::uint64_t bytes)
    {
        if (shown_ != nullptr)
            note_less(shown_->file, bytes);
        give_file(bytes);
    }

    /// Says that there is no memory where what this charge stands for would lie
    /// (peer_of()). For a moment none is charged there.
    /// @return true if such memory may be had elsewhere
    virtual bool avoid(std::uint64_t token)
    {
        (void)token;
        return false;
    }

    virtual usage read() const = 0;

    /// True if some of its virtual memory may lie in a file. It never changes.
    virtual bool has_file() const { return false; }

    /// Adds to the counters that the instance shows. Does nothing if there is
    /// no instance. A call costs a system call, so a caller that moves much
    /// adds up first.
    virtual void report(const counters &since_last_report) const
    {
        (void)since_last_report;
    }

    /// The open /dev/emuvN whose regions the charges are; -1 if there is no
    /// instance.
    virtual int region_fd() const { return -1; }

private:
    virtual bool take_physical(std::uint64_t bytes) = 0;
    virtual bool take_physical_within(std::uint64_t bytes, std::uint64_t ns)
    {
        (void)ns;
        return take_physical(bytes);
    }
    virtual void give_physical(std::uint64_t bytes) = 0;
    virtual bool take_virtual(std::uint64_t bytes, std::uint64_t &token) = 0;
    virtual bool take_ram(std::uint64_t bytes, std::uint64_t &token)
    {
        return take_virtual(bytes, token);
    }
    virtual void give_virtual(std::uint64_t bytes, std::uint64_t token) = 0;
    virtual bool take_file(std::uint64_t, bool) { return false; }
    virtual void give_file(std::uint64_t) {}

    bool note_charged(bool charged, std::uint64_t bytes)
    {
        if (charged) {
            vram_ += bytes;
            if (shown_ != nullptr)
                note_more(shown_->vram, shown_->most_vram, bytes);
            ever_physical_bytes_ += bytes;
        }
        return charged;
    }

    // Of a token of another card, where that is shown.
    lent_bytes &lent(std::uint64_t token) const
    {
        return shown_
            ->lent[static_cast<unsigned>(peer_of(token)) % max_devices];
    }

    void note_beyond(std::uint64_t bytes, std::uint64_t token)
    {
        if (shown_ == nullptr)
            return;
        if (peer_of(token) < 0)
            note_more(shown_->ram, shown_->most_ram, bytes);
        else
            note_more(lent(token).now, lent(token).most, bytes);
    }

    static void note_more(std::uint64_t &sum, std::uint64_t &most,
                          std::uint64_t bytes)
    {
        const std::uint64_t now = std::atomic_ref(sum) += bytes;
        const std::atomic_ref peak(most);
        std::uint64_t before = peak.load();
        while (before < now && !peak.compare_exchange_weak(before, now)) {
        }
    }

    static void note_less(std::uint64_t &sum, std::uint64_t bytes)
    {
        std::atomic_ref(sum) -= bytes;
    }

    std::atomic<std::uint64_t> vram_{0}; // charged to this process
    charged_bytes *shown_ = nullptr;
    std::atomic<std::uint64_t> ever_physical_bytes_{0};
};

/// The one of these that a device has; devices behind the last one share it.
/// @param all  one at least
template <typename Kind>
Kind &of_device(const std::vector<Kind *> &all, int device)
{
    return *all[std::min(static_cast<std::size_t>(device), all.size() - 1)];
}

/// A file in which every process that shares the limits has a row. A process
/// owns its row as long as it holds a lock on it. The kernel drops the lock
/// when the process ends, however it ends. The memory of a dead one is
/// returned when somebody next runs into the limit.
class ledger_file
{
public:
    ledger_file() = default;
    ledger_file(const ledger_file &) = delete;
    ledger_file &operator=(const ledger_file &) = delete;
    ~ledger_file();

    /// Opens @p path, or an anonymous file of this process's own when it is
    /// null, and takes a row of it.
    /// @return 0, or an errno: ENOSPC when all rows are taken, EINVAL when the
    ///   file is not a ledger
    int open(const char *path);

    /// Adds @p bytes to this process's row if the sum over all rows stays
    /// within @p limit.
    bool charge(unsigned column, std::uint64_t bytes, std::uint64_t limit);
    void uncharge(unsigned column, std::uint64_t bytes);
    std::uint64_t used(unsigned column);

    /// In the child of a fork(): drops the row, which stays the parent's.
    void close_after_fork();

private:
    struct layout;
    class update;

    std::uint64_t sum(unsigned column) const;
    void drop_dead_rows();

    // Guards the rows against other threads of this process; the lock on the
    // file's first byte guards them against other processes.
    std::mutex lock_;
    layout *rows_ = nullptr;
    int fd_ = -1;
    unsigned row_ = 0;
    bool shared_ = false;
};

/// Limits from the environment, kept by a ledger_file.
class file_ledger final : public ledger
{
public:
    file_ledger(ledger_file &file, unsigned device,
                std::uint64_t physical_bytes, std::uint64_t virtual_bytes)
        : file_(file), device_(device), physical_bytes_(physical_bytes),
          virtual_bytes_(virtual_bytes)
    {}

    usage read() const override;

private:
    bool take_physical(std::uint64_t bytes) override;
    void give_physical(std::uint64_t bytes) override;
    bool take_virtual(std::uint64_t bytes, std::uint64_t &token) override;
    void give_virtual(std::uint64_t bytes, std::uint64_t token) override;

    ledger_file &file_;
    const unsigned device_;
    const std::uint64_t physical_bytes_;
    const std::uint64_t virtual_bytes_;
};

/// The system calls an instance_ledger makes, so that tests can answer them.
struct instance_calls
{
    int (*open)(const char *path, int flags);
    int (*ioctl)(int fd, unsigned long request, void *argument);
    int (*close)(int fd);
    /// poll() of one descriptor for POLLPRI.
    /// @return revents, 0 after @p ms milliseconds, or -1 with errno
    int (*poll)(int fd, int ms);
};

/// The system calls themselves.
extern const instance_calls system_instance_calls;

/// Limits of /dev/emuvN, kept by the driver.
class instance_ledger final : public ledger
{
public:
    explicit instance_ledger(
        const instance_calls &calls = system_instance_calls)
        : calls_(calls)
    {}
    ~instance_ledger() override;

    /// Becomes a client of instance @p id.
    /// @param why  out: on failure, a sentence without its end, of at most
    ///   @p length characters with the NUL
    bool open(int id, char *why, std::size_t length);

    /// In the child of a fork(): lets go of the client, which stays the
    /// parent's and ends with it. No other call may follow.
    void close_after_fork();

    /// Sleeps until other clients wait for VRAM. If they did when anybody last
    /// asked, sleeps until there is news, at most a second.
    /// @return false once the node cannot be polled any more
    bool await_others();

    usage read() const override;
    void report(const counters &since_last_report) const override;
    int region_fd() const override { return fd_; }
    bool can_wait() const override { return can_wait_; }
    void call_off_waits() override;

private:
    bool take_physical(std::uint64_t bytes) override;
    bool take_physical_within(std::uint64_t bytes, std::uint64_t ns) override;
    void give_physical(std::uint64_t bytes) override;
    bool take_virtual(std::uint64_t bytes, std::uint64_t &token) override;
    void give_virtual(std::uint64_t bytes, std::uint64_t token) override;
    bool ask(emuv_query_instance &query) const;

    const instance_calls &calls_;
    int fd_ = -1;
    std::atomic<bool> can_wait_{true};             // until the driver refuses
    mutable std::atomic<bool> others_wait_{false}; // as of the last ask()
};

} // namespace emuv::cuda
