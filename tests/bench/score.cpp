// SPDX-License-Identifier: GPL-2.0-or-later
// A tape as an engine sees it: pieces of memory, and work that uses them.
#include "score.hpp"

#include <algorithm>
#include <set>
#include <stdexcept>

namespace bench {

namespace tape = emuv::tape;

namespace {

class maker
{
public:
    maker(const tape::tape &from, written how) : from_(from), how_(how) {}

    score make()
    {
        find_bounds();
        cut();
        written_.assign(out_.pieces.size(), false);
        last_use_.assign(out_.pieces.size(), 0);
        alive_.assign(from_.allocations.size(), false);
        for (const tape::step &each : from_.steps)
            add(each);
        return std::move(out_);
    }

private:
    bool is_part(std::uint32_t which) const
    {
        return from_.allocations[which].kind == tape::memory_kind::part;
    }

    // The place as the score has it: no part of what is used as a whole.
    tape::place resolve(const tape::place &at) const
    {
        if (at.allocation == tape::none || !is_part(at.allocation))
            return at;
        const tape::place &of = from_.allocations[at.allocation].of;
        return divided_[of.allocation]
                   ? at
                   : tape::place{of.allocation, of.offset + at.offset};
    }

    // True if an address is but the end of a part that the same work is given.
    bool is_end_of_one(const tape::place &at,
                       std::span<const tape::place> names) const
    {
        return std::any_of(names.begin(), names.end(), [&](const auto &each) {
            const tape::allocation &is = from_.allocations[each.allocation];
            return is_part(each.allocation) &&
                   is.of.allocation == at.allocation &&
                   is.of.offset + is.bytes == at.offset;
        });
    }

    void unite(const tape::place &at)
    {
        if (at.allocation != tape::none)
            divided_[at.allocation] = false;
    }

    // Finds which allocations are used by their parts alone. As in movement,
    // one counts as a whole if work uses what is free of it, or if a graph has
    // any of it.
    void find_divided()
    {
        divided_.assign(from_.allocations.size(), false);
        for (const tape::allocation &each : from_.allocations)
            if (each.kind == tape::memory_kind::part)
                divided_[each.of.allocation] = true;
        for (const tape::step &each : from_.steps) {
            if (each.what == tape::code::launch) {
                const auto names = from_.names_of(each);
                for (const tape::place &one : names)
                    if (!is_part(one.allocation) && !is_end_of_one(one, names))
                        unite(one);
            }
            unite(each.to);
            unite(each.from);
        }
        const auto unite_node = [&](const tape::node &of) {
            std::vector<tape::place> all = of.names;
            all.insert(all.end(), {of.to, of.from});
            for (const tape::place &one : all) {
                unite(one);
                if (one.allocation != tape::none)
                    unite(from_.allocations[one.allocation].of);
            }
        };
        for (const tape::graph &each : from_.graphs) {
            for (const tape::node &node : each.nodes)
                unite_node(node);
            for (const auto &[place, node] : each.changes)
                unite_node(node);
        }
    }

    void bound(const tape::place &named)
    {
        const tape::place at = resolve(named);
        if (at.allocation != tape::none)
            bounds_[at.allocation].insert(at.offset);
    }

    void find_bounds()
    {
        bounds_.resize(from_.allocations.size());
        find_divided();
        for (const tape::step &each : from_.steps) {
            if (each.what == tape::code::launch)
                for (const tape::place &one : from_.names_of(each))
                    bound(one);
            bound(each.to);
            bound(each.from);
        }
        for (const tape::graph &each : from_.graphs) {
            for (const tape::node &node : each.nodes)
                bound_node(node);
            for (const auto &[place, node] : each.changes)
                bound_node(node);
        }
    }

    void bound_node(const tape::node &of)
    {
        for (const tape::place &one : of.names)
            bound(one);
        bound(of.to);
        bound(of.from);
    }

    // Divides the device's allocations.
    void cut()
    {
        first_.resize(from_.allocations.size() + 1);
        for (std::uint32_t i = 0; i < from_.allocations.size(); i++) {
            first_[i] = static_cast<std::uint32_t>(out_.pieces.size());
            const tape::allocation &is = from_.allocations[i];
            if (!tape::on_device(is.kind) || divided_[i] || is_of_whole(i))
                continue;
            std::vector<std::uint64_t> starts = {0};
            for (const std::uint64_t each : bounds_[i])
                if (each >= starts.back() + least_piece &&
                    is.bytes - each >= least_piece)
                    starts.push_back(each);
            starts.push_back(is.bytes);
            if (out_.pieces.size() + starts.size() + is.bytes / most_piece >
                most_pieces)
                throw std::length_error("more memory than a run can hold");
            for (std::size_t j = 0; j + 1 < starts.size(); j++)
                for (std::uint64_t at = starts[j]; at < starts[j + 1];
                     at += most_piece)
                    out_.pieces.push_back(
                        {i, at, std::min(most_piece, starts[j + 1] - at)});
        }
        first_.back() = static_cast<std::uint32_t>(out_.pieces.size());
    }

    // The pieces that work uses from an address on.
    // @param bytes  0: to the next bound
    void use_from(const tape::place &named, std::uint64_t bytes, bool writes)
    {
        const tape::place at = resolve(named);
        if (at.allocation == tape::none ||
            !tape::on_device(from_.allocations[at.allocation].kind))
            return;
        out_.names.push_back(at);
        const std::uint32_t begin = first_[at.allocation];
        const std::uint32_t end = first_[at.allocation + 1];
        if (begin == end)
            return; // the end of a part
        const tape::allocation &is = from_.allocations[at.allocation];
        std::uint64_t until = is.bytes;
        if (bytes > 0) {
            until = std::min(until, at.offset + bytes);
        } else {
            const auto &bounds = bounds_[at.allocation];
            // A view of a matrix begins within its first row.
            const std::uint64_t row =
                std::min(is.bytes, most_piece) / first_row_divisor;
            const auto next =
                bounds.lower_bound(at.offset + std::max(row, least_piece));
            until = next != bounds.end() ? *next : is.bytes;
        }
        auto found = std::upper_bound(
            out_.pieces.begin() + begin, out_.pieces.begin() + end, at.offset,
            [](std::uint64_t offset, const piece &each) {
                return offset < each.offset;
            });
        for (--found; found != out_.pieces.begin() + end &&
                      (found->offset <= at.offset || found->offset < until);
             ++found) {
            const auto which =
                static_cast<std::uint32_t>(found - out_.pieces.begin());
            if (const std::size_t before = last_use_[which];
                before > begin_uses_) {
                out_.uses[before - 1].writes =
                    out_.uses[before - 1].writes || writes;
                continue;
            }
            if (out_.uses.size() >= most_uses)
                throw std::length_error("more work than a run can hold");
            const bool fresh = !written_[which];
            out_.uses.push_back(
                {which, writes || fresh || how_ == written::all, fresh});
            last_use_[which] = out_.uses.size();
        }
    }

    item &begin(const tape::step &of, bench::what as)
    {
        if (out_.items.size() >= most_items)
            throw std::length_error("more work than a run can hold");
        item &next = out_.items.emplace_back();
        next.what = as;
        next.gap = of.gap;
        // The time of a call that waits is the device's.
        next.host = of.waits ? 0 : of.took;
        next.stream = of.stream;
        next.kernel = tape::none;
        begin_uses_ = out_.uses.size();
        begin_names_ = out_.names.size();
        return next;
    }

    void end(item &made)
    {
        made.first_use = begin_uses_;
        made.uses = out_.uses.size() - begin_uses_;
        made.first_name = begin_names_;
        made.names = out_.names.size() - begin_names_;
        for (const use &each : out_.uses_of(made))
            written_[each.piece] = written_[each.piece] || each.writes;
    }

    void comes(std::uint32_t which)
    {
        const tape::allocation &is = from_.allocations[which];
        if (!tape::on_device(is.kind) || is_of_whole(which))
            return;
        item &made = out_.items.emplace_back();
        made.what = what::allocate;
        made.allocation = which;
        made.stream = is.stream;
        alive_[which] = true;
        now_ += bytes_of(which);
        out_.peak_bytes = std::max(out_.peak_bytes, now_);
    }

    // True for a part of what counts as a whole.
    bool is_of_whole(std::uint32_t which) const
    {
        return is_part(which) &&
               !divided_[from_.allocations[which].of.allocation];
    }

    // The bytes of it that the program needs. An allocation in parts has none
    // but theirs.
    std::uint64_t bytes_of(std::uint32_t which) const
    {
        return divided_[which] ? 0 : from_.allocations[which].bytes;
    }

    // @return its item, or null if it is not the device's, or gone already
    item *goes(std::uint32_t which, const tape::step &by)
    {
        const tape::allocation &was = from_.allocations[which];
        if (!tape::on_device(was.kind) || !alive_[which])
            return nullptr;
        alive_[which] = false;
        item &made = begin(by, what::free);
        made.allocation = which;
        now_ -= std::min(now_, bytes_of(which));
        return &made;
    }

    // A graph comes, changes or goes, with memory of its own.
    void change_graph(const tape::step &by)
    {
        const std::size_t before = out_.items.size();
        graph_memory_.change(from_, by, [&](std::uint32_t which, bool now) {
            if (now)
                comes(which);
            else if (item *const made = goes(which, by))
                made->gap = made->host = 0;
        });
        if (out_.items.size() > before) {
            out_.items[before].gap = by.gap;
            out_.items[before].host = by.took;
        } else {
            on_the_host(by);
        }
    }

    // A call that takes the program's thread alone: with the last item before.
    void on_the_host(const tape::step &of)
    {
        if (!out_.items.empty())
            out_.items.back().after += of.gap + of.took;
    }

    static bool is_host(const tape::tape &in, const tape::place &at)
    {
        return at.allocation == tape::none ||
               !tape::on_device(in.allocations[at.allocation].kind);
    }

    // @param as  the step that it is, or that launches it
    void add_copy(const tape::step &as, tape::copy_kind way,
                  const tape::place &to, const tape::place &from,
                  std::uint64_t bytes, std::uint64_t ns, std::uint64_t kind)
    {
        const bool to_host = is_host(from_, to);
        const bool from_host = is_host(from_, from);
        const bool comes_in =
            way == tape::copy_kind::to_device || (from_host && !to_host);
        const bool goes_out =
            way == tape::copy_kind::to_host || (to_host && !from_host);
        item &made = begin(as, comes_in   ? what::copy_in
                               : goes_out ? what::copy_out
                                          : what::work);
        made.kind = kind;
        made.bytes = comes_in || goes_out ? bytes : 0;
        made.ns = ns;
        made.waits = as.waits && as.what == tape::code::copy;
        if (!to_host)
            use_from(to, std::max<std::uint64_t>(bytes, 1), true);
        if (!from_host)
            use_from(from, std::max<std::uint64_t>(bytes, 1), false);
        end(made);
    }

    void add_graph(const tape::step &launch)
    {
        const std::vector<const tape::node *> nodes =
            tape::nodes_of(from_, launch.which);
        const std::vector<std::uint64_t> times = tape::times_of(from_, launch);
        tape::step each = launch;
        const bool whole = std::any_of(nodes.begin(), nodes.end(), [](auto at) {
            return at->kind != tape::node_kind::kernel &&
                   at->kind != tape::node_kind::copy &&
                   at->kind != tape::node_kind::fill;
        });
        bool first = true;
        for (std::size_t i = 0; i < nodes.size(); i++) {
            const tape::node &node = *nodes[i];
            const std::size_t before = out_.items.size();
            switch (node.kind) {
            case tape::node_kind::kernel: {
                item &made = begin(each, what::work);
                made.kind = kind_of_kernel + node.shape;
                made.kernel = from_.shapes[node.shape].kernel;
                made.ns = times[i];
                for (const tape::place &one : node.names)
                    use_from(one, 0, false);
                end(made);
                break;
            }
            case tape::node_kind::copy:
                add_copy(each, tape::copy_kind::any, node.to, node.from,
                         node.bytes, times[i], kind_of_copy);
                break;
            case tape::node_kind::fill: {
                item &made = begin(each, what::work);
                made.kind = kind_of_fill;
                made.ns = times[i];
                use_from(node.to, std::max<std::uint64_t>(node.bytes, 1), true);
                end(made);
                break;
            }
            case tape::node_kind::allocate:
            case tape::node_kind::free:
            case tape::node_kind::other:
            case tape::node_kind::count:
                break;
            }
            if (out_.items.size() == before)
                continue;
            out_.items.back().in_graph = true;
            out_.items.back().is_whole = whole;
            out_.items.back().graph_begins = first;
            first = false;
            each.gap = 0;
            each.took = 0;
        }
    }

    void add(const tape::step &each)
    {
        using tape::code;
        switch (each.what) {
        case code::allocate:
            if (!tape::on_device(from_.allocations[each.which].kind) ||
                is_of_whole(each.which)) {
                on_the_host(each);
                break;
            }
            comes(each.which);
            out_.items.back().gap = each.gap;
            out_.items.back().host = each.took;
            break;
        case code::free:
            // Without a stream: it waits for the device.
            if (item *const made = goes(each.which, each))
                made->waits = each.waits;
            else
                on_the_host(each);
            break;
        case code::launch: {
            item &made = begin(each, what::work);
            made.kind = kind_of_kernel + each.which;
            made.kernel = from_.shapes[each.which].kernel;
            made.ns = tape::time_of(from_, each);
            for (const tape::place &one : from_.names_of(each))
                use_from(one, 0, false);
            end(made);
            break;
        }
        case code::copy:
            add_copy(each, each.way, each.to, each.from, each.bytes,
                     1500 + each.bytes / 1000, kind_of_copy);
            break;
        case code::fill: {
            item &made = begin(each, what::work);
            made.kind = kind_of_fill;
            made.ns = 1500 + each.bytes / 2000;
            made.waits = each.waits;
            use_from(each.to, std::max<std::uint64_t>(each.bytes, 1), true);
            end(made);
            break;
        }
        case code::graph:
        case code::graph_changed:
        case code::graph_gone:
            change_graph(each);
            break;
        case code::graph_launch:
            add_graph(each);
            break;
        case code::synchronize:
            // Its own time depends on the device.
            begin(each, what::wait).host = 0;
            break;
        case code::mark:
            begin(each, what::mark).host = 0;
            break;
        default: // of the host alone
            on_the_host(each);
            break;
        }
    }

    static constexpr std::size_t most_pieces = std::size_t{1} << 22;
    static constexpr std::size_t most_items = std::size_t{1} << 26;
    static constexpr std::size_t most_uses = std::size_t{1} << 27;
    static constexpr std::uint64_t kind_of_copy = 1;
    static constexpr std::uint64_t kind_of_fill = 2;
    static constexpr std::uint64_t kind_of_kernel = 16;

    const tape::tape &from_;
    const written how_;
    score out_;
    std::vector<std::set<std::uint64_t>> bounds_; // by allocation
    std::vector<bool> divided_;                   // by allocation: into parts
    std::vector<std::uint32_t> first_;            // piece, by allocation
    std::vector<bool> written_;                   // by piece
    std::vector<std::size_t> last_use_;           // by piece; 1: the first
    std::vector<bool> alive_;                     // by allocation
    tape::graph_memory graph_memory_;
    std::size_t begin_uses_ = 0;
    std::size_t begin_names_ = 0;
    std::uint64_t now_ = 0;
};

} // namespace

score make_score(const tape::tape &from, written how)
{
    try {
        return maker(from, how).make();
    } catch (const std::length_error &why) {
        score none;
        none.problem = why.what();
        return none;
    }
}

} // namespace bench
