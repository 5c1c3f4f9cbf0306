// SPDX-License-Identifier: LGPL-2.1-or-later
// Decides what may be unmapped, and when work may go ahead.
#include "movement/gate.hpp"

#include "base/thread.hpp"

#include <algorithm>

namespace emuv::cuda {

namespace {

// Work that may read tables comes again within this time, it seems.
constexpr std::uint64_t lately_ns = 100000000;

} // namespace

void gate::begin(bool trusted)
{
    if (trusted)
        return;
    untrusted_++;
    call_off_all();
}

void gate::hold(block &of, const segment &those)
{
    // A copy made so far does not count.
    may_write(of, those);
    hold_as_is(of, those);
}

void gate::hold_as_is(block &of, const segment &those)
{
    count(of, those, 1);
}

// In most blocks there is one allocation, with many units perhaps.
void gate::count(block &of, const segment &those, unsigned change)
{
    if (those == of.all()) {
        of.in_flight += change;
        return;
    }
    for (std::size_t i = those.first; i < those.end; i++)
        of.marks[i].in_flight += change;
}

void gate::let_go(block &of, const segment &those)
{
    count(of, those, -1u);
}

void gate::note_in_table(block &of)
{
    if (!of.in_table)
        in_tables_.emplace_back(&of);
    of.in_table = true;
    if (is_read()) // it may write there
        may_write(of, of.all());
}

void gate::forget(const block &of)
{
    std::erase_if(in_tables_,
                  [&](const block_ref &each) { return &*each == &of; });
}

// Work that is launched from now on may write to these units. So their contents
// count, also where the program called them dead before.
void gate::may_write(block &of, const segment &those)
{
    of.revive(those);
    of.call_off(those);
    of.may_change(those);
}

void gate::begin_reading(bool any_dead)
{
    reading_ns_ = now_ns();
    const bool first = reading_++ == 0;
    if (!first && !any_dead)
        return;
    // Beside other such work nothing there moves. But the program may have
    // called some of it dead meanwhile.
    for (const block_ref &each : in_tables_) {
        if (first)
            may_write(*each, each->all());
        else
            each->revive(each->all());
    }
}

bool gate::is_found_lately(const block &of) const
{
    return may_be_found(of) || (of.in_table && reading_ns_ != 0 &&
                                now_ns() - reading_ns_ < lately_ns);
}

bool gate::is_address(CUdeviceptr word)
{
    bool any = false;
    blocks_.meant_by(word).each(
        [&](const block &of) { any = any || of.is_given(word); });
    return any;
}

gate::table gate::follow_table(CUdeviceptr at, std::vector<touched> &reached)
{
    const auto there = host_ != nullptr ? host_->from(at) : pinned::area{};
    if (there.managed)
        return table::unknown;
    std::vector<CUdeviceptr> words;
    bool goes_on = there.bytes > 0;
    for (std::size_t offset = 0; goes_on && offset < there.bytes;
         offset += table_window_bytes) {
        if (offset >= max_table_bytes)
            return table::unknown;
        const reading result = read_table(
            reinterpret_cast<const void *>(at + offset),
            std::min(there.bytes - offset, table_window_bytes), words);
        if (result != reading::done)
            return result == reading::denied ? table::denied : table::unknown;
        goes_on = false;
        for (const CUdeviceptr word : words) {
            goes_on = goes_on || is_address(word);
            each_unsettled(word, [&](block &of) {
                const touched one(of, word);
                if (!reached.empty() && reached.back().begin == one.begin)
                    return;
                note_in_table(of);
                reached.push_back(one);
            });
        }
    }
    return table::followed;
}

void gate::begin_move(block &of, std::size_t index, bool in_vain)
{
    slot &one = of.slots[index];
    one.cancel = in_vain || must_stay(of, index);
    of.moving++;
    moving_.push_back(&one);
}

void gate::end_move(block &of, slot &one)
{
    one.cancel = false;
    of.moving--;
    std::erase(moving_, &one);
}

void gate::call_off_all()
{
    for (slot *each : moving_)
        each->cancel = true;
}

void gate::begin_remap(slot &one)
{
    one.unmapped = true;
    unmapped_++;
}

void gate::end_remap(slot &one)
{
    one.unmapped = false;
    unmapped_--;
    if (all_mapped())
        all_mapped_ns_ = now_ns();
}

void gate::set_away(block &of, slot &one, bool away)
{
    if (one.away == away)
        return;
    one.away = away;
    of.away = away ? of.away + 1 : of.away - 1;
    away_ = away ? away_ + 1 : away_ - 1;
    if (all_mapped())
        all_mapped_ns_ = now_ns();
}

} // namespace emuv::cuda
