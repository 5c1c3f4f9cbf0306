// SPDX-License-Identifier: GPL-2.0-or-later
// Physical memory: frames of VRAM or of host memory, and handles to them.
#pragma once

#include "cuda.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace sim {

inline constexpr std::size_t frame_bytes = std::size_t{2} << 20;

constexpr std::size_t round_up(std::size_t value, std::size_t unit)
{
    return (value + unit - 1) / unit * unit;
}

// Puts a mapping in place of what is at an address inside the arena. It calls
// the kernel, not the mmap() of a sanitizer. ThreadSanitizer's forgets what it
// knows of the range, and then takes page faults for four times its bytes.
bool map_at(std::uintptr_t address, std::size_t bytes, int protection,
            int flags, int fd = -1, std::size_t offset = 0);

// So many frames behind one memfd. A freed frame keeps its content, as on a
// card: nobody may count on zeros.
class frame_store
{
public:
    frame_store(const char *name, std::size_t frames, bool give_back);
    ~frame_store();
    frame_store(const frame_store &) = delete;
    frame_store &operator=(const frame_store &) = delete;

    int fd() const { return fd_; }
    std::size_t capacity() const { return capacity_; }
    std::size_t used() const { return used_; }

    // False when there are not enough frames. The frames come sorted.
    bool take(std::size_t count, std::vector<std::uint32_t> &out);
    void give(const std::vector<std::uint32_t> &frames);

    // Room for memory that lies in a file of its own.
    bool charge(std::size_t count);
    void uncharge(std::size_t count) { used_ -= count; }

private:
    int fd_;
    std::size_t capacity_;
    bool give_back_; // pages of most free frames go back to the system
    std::size_t used_ = 0;
    std::uint32_t next_ = 0;
    std::vector<std::uint32_t> free_;
};

// The memory that cuMemCreate makes: frames, not yet at any address. It lives
// as long as a handle or a mapping of it does.
class physical
{
public:
    // Null when the store is full.
    static std::shared_ptr<physical> create(frame_store &store,
                                            std::size_t bytes,
                                            const CUmemAllocationProp &prop);
    // Memory that came as a file descriptor (duplicated), from this process
    // or another. Null when it is not memory of this driver or does not fit.
    static std::shared_ptr<physical> import(int fd);
    ~physical();
    physical(const physical &) = delete;
    physical &operator=(const physical &) = delete;

    std::size_t bytes() const { return bytes_; }
    const CUmemAllocationProp &prop() const { return prop_; }
    bool on_device() const
    {
        return prop_.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    }
    std::uint64_t id() const { return id_; }
    int file() const { return file_; } // -1: in the store's file
    const std::vector<std::uint32_t> &frames() const { return frames_; }

    // Maps the first `bytes` at an address inside the arena.
    bool map(std::uintptr_t address, std::size_t bytes, int protection) const;

private:
    physical(frame_store &store, std::size_t bytes,
             const CUmemAllocationProp &prop);

    frame_store &store_;
    std::size_t bytes_;
    CUmemAllocationProp prop_;
    std::uint64_t id_;
    int file_ = -1;
    std::vector<std::uint32_t> frames_;
};

} // namespace sim
