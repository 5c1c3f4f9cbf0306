// SPDX-License-Identifier: GPL-2.0-or-later
// The best that an engine could do that knew the future.
#include "oracle.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

namespace bench {

namespace {

constexpr std::size_t never = SIZE_MAX;
// The place of what is not used again, and not freed either.
constexpr std::size_t to_the_end = never - 1;

std::uint64_t ns_for(std::uint64_t bytes, std::uint64_t per_us)
{
    return (bytes * 1000 + per_us - 1) / per_us;
}

bool is_work(const item &of)
{
    return of.what == what::work || of.what == what::copy_in ||
           of.what == what::copy_out;
}

// A graph is handed over as a whole.
bool is_launch(const item &of)
{
    return is_work(of) && (!of.in_graph || of.graph_begins);
}

// When each piece is used: places in the list of work, ascending.
class uses_by_piece
{
public:
    explicit uses_by_piece(const score &of)
    {
        at_.resize(of.pieces.size());
        for (std::size_t i = 0; i < of.items.size(); i++) {
            if (of.items[i].what == what::free) {
                const std::size_t gone = of.items[i].allocation;
                freed_.resize(std::max(freed_.size(), gone + 1), never);
                freed_[gone] = work_.size();
            }
            if (!is_work(of.items[i]))
                continue;
            for (const use &each : of.uses_of(of.items[i]))
                at_[each.piece].push_back(work_.size());
            work_.push_back(i);
        }
    }

    /// The items that are work.
    [[nodiscard]] const std::vector<std::size_t> &work() const { return work_; }

    /// The first work behind the end of an allocation; or to_the_end.
    [[nodiscard]] std::size_t freed(std::uint32_t allocation) const
    {
        return allocation < freed_.size() && freed_[allocation] < work_.size()
                   ? freed_[allocation]
                   : to_the_end;
    }

    /// The first use at or behind a place.
    [[nodiscard]] std::size_t next(std::uint32_t piece, std::size_t from) const
    {
        const auto found =
            std::lower_bound(at_[piece].begin(), at_[piece].end(), from);
        return found != at_[piece].end() ? *found : never;
    }

private:
    std::vector<std::vector<std::size_t>> at_;
    std::vector<std::size_t> work_;
    std::vector<std::size_t> freed_; // by allocation: work behind that
};

class schedule
{
public:
    struct rules
    {
        // Nanoseconds of work by which pieces come early, at most.
        std::uint64_t ahead = UINT64_MAX;
        // A piece that would be the next to leave is read in place also where
        // the kernel takes longer for that.
        bool passes_by = false;
    };
    struct card
    {
        std::uint64_t share; // bytes
        const card_costs &costs;
    };

    schedule(const score &of, const uses_by_piece &uses, const card &on,
             const rules &by)
        : of_(of), share_(on.share), costs_(on.costs), by_(by), uses_(uses),
          state_(of.pieces.size())
    {}

    oracle_result run()
    {
        const std::size_t count = uses_.work().size();
        while (brought_ < count) {
            // Work that ends by the link's next decision is over then.
            while (done_ < brought_ &&
                   (end_if_run() <= in_free_ || ahead_ns_ > by_.ahead))
                execute();
            bring_next();
        }
        while (done_ < count)
            execute();
        host_until(of_.items.size());
        if (out_.steps.empty())
            out_.steps.push_back(now_host_);
        out_.whole_ns = now_host_;
        return std::move(out_);
    }

private:
    struct piece_state
    {
        bool resident = false;
        bool dirty = false;        // unlike what is in system RAM
        bool exists = false;       // somebody wrote to it
        std::uint64_t ready = 0;   // when it is in VRAM
        std::uint64_t used = 0;    // when its last use ends
        std::uint64_t written = 0; // when its last change ends
        std::uint64_t saved = 0;   // when it is in system RAM as it is
        std::size_t next = never;
    };

    [[nodiscard]] const item &work(std::size_t at) const
    {
        return of_.items[uses_.work()[at]];
    }

    // Takes the program's thread up to an item.
    void host_until(std::size_t until)
    {
        for (; host_at_ < until; host_at_++) {
            const item &each = of_.items[host_at_];
            now_host_ += each.gap;
            if (is_launch(each) && handed_over_++ >= most_queued)
                now_host_ =
                    std::max(now_host_, ended_[handed_over_ - 1 - most_queued]);
            if (each.what == what::wait || each.waits)
                now_host_ = std::max(now_host_, device_free_);
            now_host_ += each.host;
            if (each.what == what::mark) {
                if (marked_)
                    out_.steps.push_back(now_host_ - mark_);
                marked_ = true;
                mark_ = now_host_;
            }
            now_host_ += each.after;
        }
    }

    // The start of the next work, with the thread taken so far.
    std::uint64_t start_of_next()
    {
        const std::size_t at = uses_.work()[done_];
        host_until(at);
        const item &next = of_.items[at];
        std::uint64_t start = std::max(device_free_, now_host_ + next.gap);
        for (const use &each : of_.uses_of(next))
            start = std::max(start, state_[each.piece].ready);
        return start;
    }

    std::uint64_t duration(std::size_t at) const
    {
        const item &is = work(at);
        std::uint64_t ns = is.ns;
        if (is.what == what::copy_in)
            ns = std::max(ns, ns_for(is.bytes, costs_.link_in_alone));
        else if (is.what == what::copy_out)
            ns = std::max(ns, ns_for(is.bytes, costs_.link_out_alone));
        return ns;
    }

    std::uint64_t end_if_run() { return start_of_next() + duration(done_); }

    void execute()
    {
        const std::uint64_t start = start_of_next();
        const item &is = work(done_);
        std::uint64_t ns = duration(done_);
        const std::uint64_t in = is.what == what::copy_in ? is.bytes : 0;
        const std::uint64_t out = is.what == what::copy_out ? is.bytes : 0;
        std::uint64_t read = 0;
        while (!in_place_.empty() && in_place_.begin()->first == done_) {
            const piece &each = of_.pieces[in_place_.begin()->second];
            read += each.bytes;
            in_place_.erase(in_place_.begin());
        }
        out_.in_place_bytes += read;
        if (in + read > 0) {
            // Behind what the link has begun to carry.
            in_free_ = std::max(in_free_, start) +
                       ns_for(in + read, read > 0 ? costs_.in_place
                                                  : costs_.link_in_alone);
            ns = std::max(ns, in_free_ - start);
        }
        if (out > 0) {
            out_free_ =
                std::max(out_free_, start) + ns_for(out, costs_.link_out_alone);
            ns = std::max(ns, out_free_ - start);
        }
        device_free_ = start + ns;
        if (is_launch(is) || ended_.empty())
            ended_.push_back(device_free_);
        else
            ended_.back() = device_free_; // of the graph
        ahead_ns_ -= duration(done_);
        const std::size_t behind = done_ + 1;
        for (const use &each : of_.uses_of(is)) {
            piece_state &state = state_[each.piece];
            state.used = std::max(state.used, device_free_);
            if (each.writes)
                state.written = state.used;
            if (state.resident)
                set_next(each.piece, uses_.next(each.piece, behind));
        }
        done_++;
    }

    void set_next(std::uint32_t which, std::size_t next)
    {
        piece_state &state = state_[which];
        by_next_.erase({state.next, which});
        dead_.erase({state.next, which});
        if (next == never && state.dirty && !is_freed(which)) {
            // Until then it has a place, or is copied.
            next = uses_.freed(of_.pieces[which].allocation);
            dead_.insert({next, which});
        }
        state.next = next;
        by_next_.insert({next, which});
    }

    // Pieces that are freed by now leave first: that costs nothing.
    void let_go_of_freed()
    {
        while (!dead_.empty() && dead_.begin()->first <= brought_)
            set_next(dead_.begin()->second, never);
    }

    void enter(std::uint32_t which)
    {
        state_[which].resident = true;
        used_ += of_.pieces[which].bytes;
        set_next(which, uses_.next(which, done_));
    }

    // True if the program has freed it before the work that makes it leave.
    // Until then nobody may lose it, whatever the future is.
    [[nodiscard]] bool is_freed(std::uint32_t which) const
    {
        return uses_.freed(of_.pieces[which].allocation) <= brought_;
    }

    // Makes one piece leave.
    // @return when its frame is free
    std::uint64_t evict(std::uint32_t which)
    {
        piece_state &state = state_[which];
        by_next_.erase({state.next, which});
        dead_.erase({state.next, which});
        state.resident = false;
        used_ -= of_.pieces[which].bytes;
        std::uint64_t free = state.used;
        if (state.dirty && !is_freed(which)) {
            const std::uint64_t bytes = of_.pieces[which].bytes;
            // The copy may be made while it is still read.
            const std::uint64_t start = std::max(out_free_, state.written);
            const bool beside = in_free_ > start;
            out_free_ = start + ns_for(bytes, beside ? costs_.link_out_beside
                                                     : costs_.link_out_alone);
            out_.out_bytes += bytes;
            state.dirty = false;
            state.saved = out_free_;
            free = std::max(free, out_free_);
        }
        return free;
    }

    // Brings the next piece that is not there, or goes on to the next work.
    void bring_next()
    {
        const item &is = work(brought_);
        const auto uses = of_.uses_of(is);
        if (use_at_ == uses.size()) {
            ahead_ns_ += duration(brought_);
            brought_++;
            use_at_ = 0;
            let_go_of_freed();
            return;
        }
        const use &next = uses[use_at_];
        piece_state &state = state_[next.piece];
        if (state.resident) {
            touch(next);
            use_at_++;
            return;
        }
        const std::uint64_t bytes = of_.pieces[next.piece].bytes;
        const bool comes = state.exists && !next.fresh;
        // In its own place if it would be the next to leave, and costs nothing.
        if (comes && !next.writes && share_ - used_ < bytes &&
            is_better_in_place(next.piece, bytes, is)) {
            in_place_.insert({brought_, next.piece});
            use_at_++;
            return;
        }
        std::uint64_t room = 0;
        if (!make_room(bytes, room)) {
            if (done_ < brought_) {
                execute();
                return;
            }
            if (comes || next.fresh)
                in_place_.insert({brought_, next.piece});
            state.exists = state.exists || next.writes;
            use_at_++;
            return;
        }
        if (comes) {
            const std::uint64_t start = std::max({in_free_, room, state.saved});
            const bool beside = out_free_ > start;
            in_free_ = start + ns_for(bytes, beside ? costs_.link_in_beside
                                                    : costs_.link_in_alone);
            state.ready = in_free_;
            out_.in_bytes += bytes;
        } else {
            state.ready = room;
        }
        state.dirty = false;
        enter(next.piece);
        touch(next);
        use_at_++;
    }

    void touch(const use &of)
    {
        piece_state &state = state_[of.piece];
        state.exists = state.exists || of.writes;
        state.dirty = state.dirty || of.writes;
    }

    [[nodiscard]] bool is_better_in_place(std::uint32_t which,
                                          std::uint64_t bytes,
                                          const item &user) const
    {
        if (by_next_.empty())
            return false;
        const auto furthest = *by_next_.rbegin();
        const std::size_t again = uses_.next(which, brought_ + 1);
        std::uint64_t all = bytes;
        for (auto at = in_place_.lower_bound({brought_, 0});
             at != in_place_.end() && at->first == brought_; ++at)
            all += of_.pieces[at->second].bytes;
        return again >= furthest.first && furthest.first != never &&
               (by_.passes_by || ns_for(all, costs_.in_place) <= user.ns);
    }

    // @param when  set to the time at which there is so much room
    bool make_room(std::uint64_t bytes, std::uint64_t &when)
    {
        if (bytes > share_)
            return false;
        // Nothing leaves before it is known that enough can.
        std::uint64_t could = share_ - used_;
        for (auto at = by_next_.rbegin();
             could < bytes && at != by_next_.rend() && at->first > brought_;
             ++at)
            could += of_.pieces[at->second].bytes;
        if (could < bytes)
            return false;
        while (share_ - used_ < bytes)
            when = std::max(when, evict(by_next_.rbegin()->second));
        return true;
    }

    const score &of_;
    const std::uint64_t share_;
    const card_costs &costs_;
    const rules by_;
    const uses_by_piece &uses_;
    std::vector<piece_state> state_;
    std::set<std::pair<std::size_t, std::uint32_t>> by_next_;  // the resident
    std::set<std::pair<std::size_t, std::uint32_t>> dead_;     // of those
    std::set<std::pair<std::size_t, std::uint32_t>> in_place_; // work and piece
    std::uint64_t used_ = 0;
    std::size_t done_ = 0;    // work that has run
    std::size_t brought_ = 0; // the work whose pieces are being brought
    std::size_t use_at_ = 0;
    std::uint64_t ahead_ns_ = 0; // of work whose pieces were brought
    std::uint64_t in_free_ = 0;
    std::uint64_t out_free_ = 0;
    std::uint64_t device_free_ = 0;
    std::vector<std::uint64_t> ended_; // when the launches end that have run
    std::size_t host_at_ = 0;
    std::size_t handed_over_ = 0; // launches before that
    std::uint64_t now_host_ = 0;
    bool marked_ = false;
    std::uint64_t mark_ = 0;
    oracle_result out_;
};

} // namespace

std::uint64_t oracle_result::settled_ns(std::size_t least) const
{
    if (steps.empty())
        return 0;
    std::vector<std::uint64_t> last = steps;
    last.resize(std::max(least, steps.size()), steps.back());
    last.erase(last.begin(),
               last.begin() + static_cast<std::ptrdiff_t>(last.size() / 2));
    std::sort(last.begin(), last.end());
    return last[last.size() / 2];
}

oracle_result run_oracle(const score &of, std::uint64_t share,
                         const card_costs &costs, std::size_t least_steps)
{
    const uses_by_piece uses(of);
    if (share == UINT64_MAX)
        return schedule(of, uses, {share, costs}, {}).run();
    // To come early costs room, so that more has to come. Each way is tried.
    oracle_result best;
    const auto rank = [&](const oracle_result &is) {
        return std::pair(is.settled_ns(least_steps), is.whole_ns);
    };
    const auto attempt = [&](std::uint64_t us, bool passes_by) {
        oracle_result next =
            schedule(of, uses, {share, costs},
                     {.ahead = us != 0 ? us * 1000 : UINT64_MAX,
                      .passes_by = passes_by})
                .run();
        if (best.steps.empty() || rank(next) < rank(best))
            best = std::move(next);
    };
    for (const std::uint64_t us :
         {250u, 500u, 1000u, 2000u, 4000u, 8000u, 16000u, 32000u, 64000u, 0u})
        attempt(us, false);
    for (const std::uint64_t us : {1000u, 8000u, 0u})
        attempt(us, true);
    return best;
}

oracle_bound bound_oracle(const score &of, std::uint64_t share,
                          const card_costs &costs)
{
    oracle_bound out;
    out.native_ns = run_oracle(of, UINT64_MAX, costs).whole_ns;
    const uses_by_piece uses(of);
    std::vector<std::uint64_t> there(of.pieces.size());
    std::vector<bool> exists(of.pieces.size());
    std::vector<std::size_t> next(of.pieces.size(), never);
    std::set<std::pair<std::size_t, std::uint32_t>> by_next;
    std::uint64_t used = 0;
    for (std::size_t at = 0; at < uses.work().size(); at++)
        for (const use &each : of.uses_of(of.items[uses.work()[at]])) {
            const std::uint64_t bytes = of.pieces[each.piece].bytes;
            if (exists[each.piece] && !each.fresh)
                out.in_bytes += bytes - there[each.piece];
            exists[each.piece] = exists[each.piece] || each.writes;
            by_next.erase({next[each.piece], each.piece});
            used += bytes - there[each.piece];
            there[each.piece] = bytes;
            next[each.piece] = uses.next(each.piece, at + 1);
            by_next.insert({next[each.piece], each.piece});
            while (used > share) { // what is used the latest, in part
                const auto last = std::prev(by_next.end());
                std::uint64_t &left = there[last->second];
                const std::uint64_t goes = std::min(left, used - share);
                left -= goes;
                used -= goes;
                if (left == 0)
                    by_next.erase(last);
            }
        }
    out.ns = std::max(
        out.native_ns,
        ns_for(out.in_bytes, std::max(costs.link_in_alone, costs.in_place)));
    return out;
}

} // namespace bench
