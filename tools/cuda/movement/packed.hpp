// SPDX-License-Identifier: LGPL-2.1-or-later
// Coded copies of units in system RAM, which take fewer bytes over the link.
#pragma once

#include "account/budget.hpp"
#include "base/driver.hpp"
#include "movement/digests.hpp"
#include "movement/frames.hpp"
#include "movement/lanes.hpp"
#include "movement/packing.hpp"
#include "movement/rooms.hpp"
#include "store/placement.hpp"
#include "store/slab.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace emuv::cuda {

/// A unit's coded copy: of certain contents, whatever the unit holds by now.
struct coded_copy
{
    digests::value of{};     ///< these contents
    std::uint64_t bytes = 0; ///< 0: there is none
    CUdeviceptr at = 0;
    std::uint64_t slab = 0; ///< its number. Without that slab there is none
    bool refused = false;   ///< those contents are not worth one
};

/// One device's coded copies, and the kernels for them (packing.hpp). They lie
/// in system RAM that is mapped where no program knows of it. A copy counts
/// only for contents of its digest. Once it is decoded, a digest tells whether
/// those have come.
///
/// The caller locks, unless a function says otherwise. In a failure of the
/// driver nothing more is coded or decoded, and units come from their rooms.
class packed
{
public:
    /// @param calls, shares  outlive this object
    /// @param most_bytes  of system RAM for coded copies; 0: there are none
    packed(const driver &calls, budget &shares, int device,
           std::uint64_t most_bytes)
        : calls_(calls), budget_(shares), device_(device),
          most_bytes_(most_bytes), sums_(calls)
    {}
    packed(const packed &) = delete;
    packed &operator=(const packed &) = delete;

    /// Loads the kernels in the current context, for close() to end. Not
    /// locked.
    /// @param priority  of the kernels, as for cuStreamCreateWithPriority
    /// @return false where there are to be none, or the driver fails
    bool open(int priority);
    /// Not locked. Nothing is under way, and the buffers and slabs are gone.
    void close();

    /// True if there may be coded copies. It never changes.
    bool is_asked_for() const { return most_bytes_ > 0; }
    /// True while units may be coded and decoded.
    bool is_on() const { return open_ && !failed_; }
    /// The driver has failed, or a kernel has made another thing of a unit.
    void fail() { failed_ = true; }

    // ---- VRAM for coded bytes

    /// So many are needed.
    static constexpr std::size_t buffer_count = 3;
    /// The size of one that a unit needs.
    static constexpr std::uint64_t buffer_for(std::uint64_t unit_bytes)
    {
        return round_up(packing::most_bytes_of(unit_bytes), chunk_bytes);
    }
    std::size_t buffers() const { return buffers_; }
    /// Says that there was no VRAM for those that are missing.
    /// @param bytes  of each; 0: none is missing any more
    void want_buffers(std::uint64_t bytes);
    /// The size of each that is missing; 0: none is, or nobody has asked for
    /// them lately.
    std::uint64_t wanted_buffer_bytes() const;
    /// The size of each; 0: there are none.
    std::uint64_t buffer_bytes() const { return out_.bytes; }
    /// @param one  of the size of the others, with its address
    void add_buffer(const frame &one);
    /// Gives up all buffers. Nothing is under way.
    std::vector<frame> take_buffers();

    // ---- Coding, one unit at a time

    /// True if a unit with these contents may be coded now. If system RAM has
    /// to be made for that first, wanted_bytes() tells of it from now on.
    /// @param has  the copy that it has, or was refused
    bool may_code(std::uint64_t bytes, const digests::value &contents,
                  const coded_copy &has);
    /// Nobody else codes until end_coding().
    void begin_coding() { codes_ = true; }
    void end_coding() { codes_ = false; }
    /// Begins to code a unit into a buffer, and to compare that with the unit.
    /// Not locked, for the mover's thread.
    /// @param done  is recorded behind it
    /// @return false where the driver refuses; nothing runs then
    bool encode(CUdeviceptr from, std::uint64_t bytes, CUevent done);
    /// The outcome, once that is done.
    packing::outcome found() const { return *found_; }
    /// The place of the coded bytes then.
    CUdeviceptr coded() const { return out_.alias; }
    /// Takes system RAM for a copy of so many bytes, which is in use then: see
    /// end_using().
    /// @return false where there is no room
    bool take(coded_copy &made);

    // ---- Copies

    /// True if the copy is there. Slabs may be given up at any time that nobody
    /// uses them.
    bool has(const coded_copy &one) const
    {
        return one.bytes > 0 && slab_of(one) != nullptr;
    }
    /// Gives one up. Nobody uses it.
    void give(coded_copy &gone);
    /// Its bytes are read or written, until end_using(). It is there.
    void begin_using(const coded_copy &one) { slab_of(one)->users++; }
    void end_using(const coded_copy &one) { slab_of(one)->users--; }

    // ---- Decoding

    /// True if a unit may be decoded.
    bool may_decode() const { return is_on() && sums_.any_free(); }
    /// The number of one more digest of what is decoded, to be given back. It
    /// may be decoded.
    std::size_t take_sum() { return sums_.take(); }
    void put_sum(std::size_t number) { sums_.put(number); }
    struct fetch_options
    {
        coded_copy from;
        CUdeviceptr to;
        std::uint64_t bytes; ///< there
        std::size_t sum;     ///< taken of those
        CUevent done;        ///< is recorded behind all
    };
    /// Begins to copy coded bytes to VRAM, to decode them, and to take a digest
    /// of what comes of it. Not locked, for the mover's thread. There are
    /// buffers.
    /// @return false where the driver refuses; nothing writes there then
    bool fetch(lanes &by, const fetch_options &what);
    /// The digest, once that is done.
    digests::value sum(std::size_t number) const
    {
        return sums_.result(number);
    }

    // ---- System RAM

    /// System RAM of this size is to be made. 0: none is.
    std::uint64_t wanted_bytes() const { return wanted_bytes_; }
    /// Makes it. Takes 0.2 s a GiB. Not locked.
    /// @return without a handle where it is not to be had
    room make(std::uint64_t bytes);
    void add_slab(std::uint64_t bytes, const room &made);
    /// Gives up slabs that nobody uses, and the copies in them.
    /// @param bytes  enough, if there are so many
    /// @return how many came free
    std::uint64_t drop(std::uint64_t bytes);
    /// Bytes of all slabs.
    std::uint64_t held_bytes() const { return held_bytes_; }

private:
    static constexpr std::size_t ring_size = buffer_count - 1;
    static constexpr std::uint64_t most_slab_bytes = std::uint64_t{128} << 20;
    static constexpr std::uint64_t ask_again_ns = 1000000000;

    // One is filled while another is decoded.
    struct buffer
    {
        frame of;
        CUevent copied = nullptr;
        CUevent decoded = nullptr;
    };
    struct part_of_ram
    {
        room of;
        std::uint64_t bytes = 0;
        slab parts;
        unsigned users = 0;
        std::uint64_t number = 0;
    };

    bool decode(CUdeviceptr from, std::uint64_t bytes, CUdeviceptr at,
                CUdeviceptr out, CUstream stream);
    const part_of_ram *slab_of(const coded_copy &one) const;
    part_of_ram *slab_of(const coded_copy &one);

    const driver &calls_;
    budget &budget_;
    const int device_;
    const std::uint64_t most_bytes_;
    bool open_ = false;
    bool failed_ = false;
    bool codes_ = false;
    CUmodule module_ = nullptr;
    CUfunction pack_ = nullptr;
    CUfunction unpack_ = nullptr;
    digests sums_;
    CUstream coding_ = nullptr;
    CUstream decoding_ = nullptr;
    CUdeviceptr outcome_ = 0;            // in VRAM
    packing::outcome *found_ = nullptr;  // in pinned memory
    frame out_;                          // for coding
    std::array<buffer, ring_size> ring_; // ... and decoding
    std::size_t ring_count_ = 0;
    std::size_t turn_ = 0;
    std::size_t buffers_ = 0;
    std::uint64_t wanted_buffer_bytes_ = 0;
    std::uint64_t wanted_buffers_ns_ = 0; // since then
    std::vector<part_of_ram> slabs_;      // in order
    std::uint64_t last_number_ = 0;
    std::uint64_t held_bytes_ = 0; // by slabs
    std::uint64_t wanted_bytes_ = 0;
    std::uint64_t refused_ns_ = 0; // when there was no such RAM; 0: never
};

} // namespace emuv::cuda
