// SPDX-License-Identifier: LGPL-2.1-or-later
// Objects that live as long as someone holds them. std::shared_ptr would bring
// in exceptions, and needs a newer glibc than the library may.
#pragma once

#include <atomic>
#include <utility>

namespace emuv::cuda {

/// A base of such objects. For any thread.
class counted
{
public:
    unsigned holders() const { return holders_.load(); }

private:
    template <typename Object>
    friend class counted_ref;
    mutable std::atomic<unsigned> holders_{0};
};

/// Holds an object that was made with `new`, or none.
template <typename Object>
class counted_ref
{
public:
    counted_ref() = default;
    explicit counted_ref(Object *which) : object_(which)
    {
        if (object_ != nullptr)
            object_->holders_.fetch_add(1);
    }
    counted_ref(const counted_ref &other) : counted_ref(other.object_) {}
    counted_ref(counted_ref &&other) noexcept
        : object_(std::exchange(other.object_, nullptr))
    {}
    counted_ref &operator=(counted_ref other) noexcept
    {
        std::swap(object_, other.object_);
        return *this;
    }
    ~counted_ref()
    {
        if (object_ != nullptr && object_->holders_.fetch_sub(1) == 1)
            delete object_;
    }
    Object *operator->() const { return object_; }
    Object &operator*() const { return *object_; }
    bool operator==(const counted_ref &other) const = default;
    explicit operator bool() const { return object_ != nullptr; }

private:
    Object *object_ = nullptr;
};

} // namespace emuv::cuda
