// SPDX-License-Identifier: LGPL-2.1-or-later
// Objects that live as long as someone holds them. std::shared_ptr would bring
// in exceptions, and needs a newer glibc than the library may.
#pragma once

#include <atomic>
#include <utility>

namespace emuv::cuda {

/// A base of what is held so. For any thread.
class counted
{
public:
    unsigned holders() const { return holders_.load(); }

private:
    template <typename Held>
    friend class counted_ref;
    mutable std::atomic<unsigned> holders_{0};
};

/// Holds an object that was made with `new`, or none.
template <typename Held>
class counted_ref
{
public:
    counted_ref() = default;
    explicit counted_ref(Held *which) : held_(which)
    {
        if (held_ != nullptr)
            held_->holders_.fetch_add(1);
    }
    counted_ref(const counted_ref &other) : counted_ref(other.held_) {}
    counted_ref(counted_ref &&other) noexcept
        : held_(std::exchange(other.held_, nullptr))
    {}
    counted_ref &operator=(counted_ref other) noexcept
    {
        std::swap(held_, other.held_);
        return *this;
    }
    ~counted_ref()
    {
        if (held_ != nullptr && held_->holders_.fetch_sub(1) == 1)
            delete held_;
    }
    Held *operator->() const { return held_; }
    Held &operator*() const { return *held_; }
    bool operator==(const counted_ref &other) const = default;
    explicit operator bool() const { return held_ != nullptr; }

private:
    Held *held_ = nullptr;
};

} // namespace emuv::cuda
