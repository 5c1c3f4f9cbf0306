// SPDX-License-Identifier: LGPL-2.1-or-later
// Units are coded as they leave unchanged, and come back from coded bytes.
#include "movement/mover.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace emuv::cuda {

namespace {

// Buffers take no more than this part of a share.
constexpr std::uint64_t least_share_in_buffers = 4;

constexpr const char *refused_why = "the driver refuses to code or decode";
constexpr const char *miscoded_why = "a unit was coded wrong";
constexpr const char *misdecoded_why = "a unit was decoded wrong";

} // namespace

// Makes the buffers that a unit's coded bytes need in VRAM, of frames.
// @return false where there is no VRAM for them at the moment, or too little at
//   all
bool mover::take_buffers(std::unique_lock<std::mutex> &lock,
                         std::uint64_t unit_bytes)
{
    const std::uint64_t bytes = packed::buffer_for(unit_bytes);
    if (least_share_in_buffers * packed::buffer_count * bytes > share_bytes_)
        return false;
    if (packed_.buffer_bytes() < bytes)
        give_up_buffers();
    while (packed_.buffers() < packed::buffer_count) {
        const std::uint64_t size = std::max(bytes, packed_.buffer_bytes());
        frame made;
        std::vector<frame> gone;
        if (!frames_.take(size, made, gone)) {
            packed_.want_buffers(size);
            return false;
        }
        lock.unlock();
        const bool done = frames_.complete(made, gone, true);
        lock_soon(lock);
        if (!done)
            return false;
        packed_.add_buffer(made);
    }
    packed_.want_buffers(0);
    return packed_.buffer_bytes() >= bytes;
}

// Keeps VRAM for the buffers that are missing: units that come would have all.
// A launch that waits comes first.
void mover::keep_for_buffers(vram_view &left) const
{
    left.kept_bytes = 0;
    const std::uint64_t bytes = packed_.wanted_buffer_bytes();
    if (bytes == 0 || waiters_ > 0 || wanted_bytes_ > 0 || !packed_.is_on())
        return;
    for (std::size_t i = packed_.buffers(); i < packed::buffer_count; i++)
        left.keep(bytes);
}

// Others want the VRAM. The next unit to be coded or decoded takes some again.
void mover::give_up_buffers()
{
    for (const motion &each : motions_)
        if (each.codes || each.decodes)
            return;
    packed_.want_buffers(0);
    for (const frame &each : packed_.take_buffers())
        frames_.put(each);
}

// Begins to code a unit that is about to leave, and has not changed. Nothing
// waits for that: the unit may be called off as before.
// @return false if it leaves without
bool mover::begin_coding(std::unique_lock<std::mutex> &lock, motion &which)
{
    slot &of = which.unit();
    // VRAM for buffers is not to be had while others want it.
    if (gate_.is_closed() || wanted_bytes_ > 0 || of.host.peer >= 0)
        return false;
    if (!packed_.may_code(of.bytes, of.digest, of.coded)) {
        if (packed_.wanted_bytes() > 0)
            to_make_.notify_all();
        return false;
    }
    if (!take_buffers(lock, of.bytes))
        return false;
    packed_.begin_coding();
    which.codes = true;
    which.at = stage::code;
    lock.unlock();
    const bool begun = packed_.encode(of.vram_alias, of.bytes, which.event);
    lock_soon(lock);
    if (begun) {
        pace_.disturb();
        return true;
    }
    codes_no_more(refused_why);
    which.at = stage::ready;
    end_coding(which);
    return false;
}

// A unit has been coded, and compared with what its code says.
void mover::coded(std::unique_lock<std::mutex> &lock, motion &which)
{
    slot &of = which.unit();
    const packing::outcome found = packed_.found();
    coded_copy next{.of = of.digest,
                    .bytes = packing::bytes_of(of.bytes, found.escapes)};
    which.at = stage::ready;
    if (next.bytes > packing::most_bytes_of(of.bytes)) {
        packed_.give(of.coded);
        of.coded = {.of = of.digest, .refused = true};
        figures_.refused_to_code(of.bytes);
        end_coding(which);
        return;
    }
    if (found.differing > 0) // a kernel does not do here what it should
        codes_no_more(miscoded_why);
    if (!packed_.is_on() || !packed_.take(next)) {
        end_coding(which);
        return;
    }
    which.coded = next;
    which.at = stage::code_copy;
    lock.unlock();
    const bool begun =
        lanes_.write_back(next.at, packed_.coded(), next.bytes, which.event);
    lock_soon(lock);
    if (begun)
        return;
    which.at = stage::ready;
    end_coding(which);
}

// A coded copy is complete. It counts as long as the unit has these contents.
void mover::keep_coded(motion &which)
{
    slot &of = which.unit();
    packed_.give(of.coded);
    packed_.end_using(which.coded);
    of.coded = std::exchange(which.coded, {});
    figures_.coded(of.bytes, of.coded.bytes);
    which.at = stage::ready;
    end_coding(which);
}

// Begins to fetch a unit from its coded copy, if it has one of the contents
// that are in its room. Those are known only if nobody can have written there.
// @return false if it is to be copied as it is
bool mover::begin_decoding(std::unique_lock<std::mutex> &lock, motion &which)
{
    const slot &of = which.unit();
    const auto may_decode = [&] {
        return packed_.has(of.coded) && of.room_is_known && !of.exposed &&
               of.coded.of == of.digest && packed_.may_decode();
    };
    if (!may_decode() || which.rehouses || of.host.peer >= 0 ||
        !take_buffers(lock, of.bytes) || !may_decode())
        return false;
    which.sum = packed_.take_sum();
    which.coded = of.coded;
    which.decodes = true;
    packed_.begin_using(which.coded);
    lock.unlock();
    const bool begun = packed_.fetch(lanes_, {.from = which.coded,
                                              .to = which.into.alias,
                                              .bytes = of.bytes,
                                              .sum = which.sum,
                                              .done = which.event});
    lock_soon(lock);
    if (begun)
        return true;
    codes_no_more(refused_why);
    end_coding(which);
    return false;
}

// Units come from their rooms from here on.
void mover::codes_no_more(const char *why)
{
    if (!packed_.is_on())
        return; // it was told
    packed_.fail();
    char text[128];
    std::snprintf(text, sizeof text,
                  "packed: %s; nothing is coded any more, and no byte is lost",
                  why);
    tell_of_tier_(text);
}

// True if a unit has come from its coded copy as it left. Otherwise that copy
// is worth nothing, and neither are the others.
bool mover::has_decoded(motion &which)
{
    const slot &of = which.unit();
    if (packed_.sum(which.sum) != which.coded.of)
        codes_no_more(misdecoded_why);
    return packed_.is_on() && of.room_is_known && !of.exposed &&
           of.digest == which.coded.of;
}

// A motion codes and decodes no more, with or without success.
void mover::end_coding(motion &which)
{
    if (which.codes)
        packed_.end_coding();
    if (which.sum != motion::none)
        packed_.put_sum(which.sum);
    if (which.coded.bytes > 0) {
        packed_.end_using(which.coded);
        if (which.codes)
            packed_.give(which.coded);
    }
    which.sum = motion::none;
    which.codes = which.decodes = false;
    which.coded = {};
}

// Makes system RAM for coded copies, in the thread that makes rooms.
// @return false where none is wanted
bool mover::make_slab(std::unique_lock<std::mutex> &lock)
{
    const std::uint64_t bytes = packed_.wanted_bytes();
    // Memory in the file comes before.
    if (bytes == 0 || !packed_.is_on() || on_file_ > 0 || stopping_ || gave_up_)
        return false;
    lock.unlock();
    const room made = packed_.make(bytes);
    enter(lock);
    packed_.add_slab(bytes, made);
    pace_.disturb();
    return true;
}

} // namespace emuv::cuda
