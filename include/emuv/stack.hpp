// SPDX-License-Identifier: LGPL-2.1-or-later
// A program's memory by name, in tiers: <emuv/advice.h> for C++17.
//
//   emuv::stack weights;
//   weights.add("layer 0", pointer, bytes);
//   weights.prefetch("layer 0");
//
// As with the C functions, a program builds and runs without emuV: every hint
// is then heard by nobody, and emuv::stack::is_there() says so.
#pragma once

#include <emuv/advice.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

namespace emuv {

/// An error of the program's own in its advice. Without the library there is
/// none.
class advice_error : public std::runtime_error
{
public:
    explicit advice_error(int result)
        : std::runtime_error(emuv_advice_text(result)), result_(result)
    {}
    /// One of emuv_advice_result.
    [[nodiscard]] int result() const noexcept { return result_; }

private:
    int result_;
};

/// A part of an allocation that is registered for as long as the object lives.
/// It does not own the memory. Let it go before an allocator of the program's
/// own has the memory again: what it says would be said of the next owner.
/// Move-only; may be used from any thread.
class advised_memory
{
public:
    advised_memory() noexcept = default;
    /// @param memory  a device address, in an allocation that has @p bytes more
    /// @param priority  EMUV_PRIORITY_LOWEST to EMUV_PRIORITY_HIGHEST
    /// @throws advice_error
    advised_memory(const void *memory, std::size_t bytes,
                   int priority = EMUV_PRIORITY_NORMAL)
    {
        heard(emuv_advice_register(&key_, memory, bytes, priority));
    }
    advised_memory(advised_memory &&other) noexcept
        : key_(std::exchange(other.key_, EMUV_ADVICE_NONE))
    {}
    advised_memory &operator=(advised_memory &&other) noexcept
    {
        std::swap(key_, other.key_);
        return *this;
    }
    advised_memory(const advised_memory &) = delete;
    advised_memory &operator=(const advised_memory &) = delete;
    ~advised_memory()
    {
        if (*this)
            emuv_advice_forget(key_);
    }

    /// True if the library knows it.
    explicit operator bool() const noexcept { return key_ != EMUV_ADVICE_NONE; }

    /// Says one thing of it.
    /// @return true if the library heard it
    /// @throws advice_error
    bool tell(emuv_advice_hint what) const
    {
        return *this && heard(emuv_advice_tell(&key_, 1, what));
    }
    bool access() const { return tell(EMUV_HINT_ACCESS); }
    bool prefetch() const { return tell(EMUV_HINT_PREFETCH); }
    bool promote() const { return tell(EMUV_HINT_PROMOTE); }
    bool demote() const { return tell(EMUV_HINT_DEMOTE); }
    /// Its bytes are undefined from here on, until work writes them.
    bool discard() const { return tell(EMUV_HINT_DISCARD); }
    bool read_mostly() const { return tell(EMUV_HINT_READ_MOSTLY); }
    bool pin() const { return tell(EMUV_HINT_PIN); }
    bool unpin() const { return tell(EMUV_HINT_UNPIN); }

    /// The places of its bytes; all 0 where nobody knows.
    /// @throws advice_error
    [[nodiscard]] emuv_advice_place where() const
    {
        emuv_advice_place found{};
        if (*this)
            heard(emuv_advice_where(key_, &found));
        return found;
    }
    /// Counts since it was registered; all 0 where nobody knows.
    /// @throws advice_error
    [[nodiscard]] emuv_advice_stats stats() const
    {
        return *this ? stats_of(key_) : emuv_advice_stats{};
    }

    /// The same of all memory.
    [[nodiscard]] static emuv_advice_stats stats_of_all()
    {
        return stats_of(EMUV_ADVICE_ALL);
    }

    /// The key for <emuv/advice.h>; EMUV_ADVICE_NONE: the library knows nothing
    /// of it.
    [[nodiscard]] std::uint64_t key() const noexcept { return key_; }

private:
    static bool heard(int result)
    {
        if (result != EMUV_ADVICE_OK && result != EMUV_ADVICE_ABSENT &&
            result != EMUV_ADVICE_IDLE)
            throw advice_error(result);
        return result == EMUV_ADVICE_OK;
    }
    static emuv_advice_stats stats_of(std::uint64_t key)
    {
        emuv_advice_stats found{};
        heard(emuv_advice_statistics(key, &found));
        return found;
    }

    std::uint64_t key_ = EMUV_ADVICE_NONE;
};

/// Memory by name. One thread at a time.
class stack
{
public:
    /// True where emuV's library is loaded.
    [[nodiscard]] static bool is_there() { return emuv_advice_is_there() != 0; }

    /// Registers memory under a name, or anew under the same one. Anew, what
    /// was said before is taken back, but for the priority given now.
    /// @throws advice_error  and all is as before
    const advised_memory &add(const std::string &name, const void *memory,
                              std::size_t bytes,
                              int priority = EMUV_PRIORITY_NORMAL)
    {
        advised_memory made(memory, bytes, priority);
        return all_[name] = std::move(made);
    }
    /// Forgets a name. @return false where there is none
    bool remove(const std::string &name) { return all_.erase(name) > 0; }

    /// @throws std::out_of_range  where there is no such name
    [[nodiscard]] const advised_memory &at(const std::string &name) const
    {
        return all_.at(name);
    }
    bool access(const std::string &name) const { return at(name).access(); }
    bool prefetch(const std::string &name) const { return at(name).prefetch(); }
    bool promote(const std::string &name) const { return at(name).promote(); }
    bool demote(const std::string &name) const { return at(name).demote(); }
    bool discard(const std::string &name) const { return at(name).discard(); }
    bool read_mostly(const std::string &name) const
    {
        return at(name).read_mostly();
    }
    bool pin(const std::string &name) const { return at(name).pin(); }
    bool unpin(const std::string &name) const { return at(name).unpin(); }

    /// @see advised_memory
    [[nodiscard]] emuv_advice_place where(const std::string &name) const
    {
        return at(name).where();
    }
    [[nodiscard]] emuv_advice_stats stats(const std::string &name) const
    {
        return at(name).stats();
    }

    [[nodiscard]] std::size_t size() const noexcept { return all_.size(); }

private:
    std::map<std::string, advised_memory> all_;
};

} // namespace emuv
