// SPDX-License-Identifier: GPL-2.0-or-later
// Tapes of programs that there are not.
#include "made_tapes.hpp"

namespace bench {

using emuv::tape::code;
using emuv::tape::memory_kind;

tape_maker::tape_maker()
{
    made_.assign(emuv::tape::magic.begin(), emuv::tape::magic.end());
    number(emuv::tape::version);
}

tape_maker &tape_maker::number(std::uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        made_.push_back(static_cast<unsigned char>(value | 0x80));
    made_.push_back(static_cast<unsigned char>(value));
    return *this;
}

tape_maker &tape_maker::begin(code what)
{
    made_.push_back(static_cast<unsigned char>(what));
    return *this;
}

tape_maker &tape_maker::timed(code what, std::uint64_t gap, std::uint64_t took)
{
    return begin(what).number(gap).number(took);
}

tape_maker &tape_maker::text(const std::string &what)
{
    number(what.size());
    made_.insert(made_.end(), what.begin(), what.end());
    return *this;
}

std::uint64_t tape_maker::allocate(std::uint64_t size, memory_kind kind)
{
    timed(code::allocate)
        .number(static_cast<std::uint64_t>(kind))
        .number(size)
        .number(0);
    return allocations_++;
}

std::uint64_t tape_maker::hand_out(std::uint64_t size, std::uint64_t of,
                                   std::uint64_t offset)
{
    const std::uint64_t made = allocate(size, memory_kind::part);
    number(of).number(offset);
    return made;
}

void tape_maker::free(std::uint64_t which)
{
    timed(code::free).number(which).number(1);
}

std::uint64_t tape_maker::shape_of(const std::string &kernel, std::size_t names)
{
    const auto [known, is_new] = kernels_.try_emplace(kernel, kernels_.size());
    if (is_new)
        begin(code::kernel).text(kernel);
    const auto [found, made] =
        shapes_.try_emplace({known->second, names}, shapes_.size());
    if (made) {
        begin(code::shape).number(known->second);
        for (const unsigned each : {1, 1, 1, 256, 1, 1, 0})
            number(each);
        number(names);
        for (std::size_t i = 0; i < names; i++)
            number(i == 0 ? 0 : 8);
    }
    return found->second;
}

void tape_maker::launch(const std::string &kernel,
                        const std::vector<name> &names, std::uint64_t ns,
                        std::uint64_t gap)
{
    const std::uint64_t shape = shape_of(kernel, names.size());
    timed(code::launch, gap).number(shape).number(0);
    for (const name &each : names)
        number(each.allocation).number(each.offset);
    begin(code::duration).number(1).number(ns);
}

void tape_maker::copy(emuv::tape::copy_kind way, std::uint64_t size, bool waits,
                      std::uint64_t allocation)
{
    const bool to = way == emuv::tape::copy_kind::to_device;
    timed(code::copy)
        .number(static_cast<std::uint64_t>(way))
        .number(waits ? emuv::tape::flag_waits : 0)
        .number(0)
        .number(size);
    if (to)
        number(allocation + 1).number(0).number(0);
    else
        number(0).number(allocation + 1).number(0);
}

void tape_maker::wait()
{
    timed(code::synchronize).number(0).number(0);
}

void tape_maker::mark()
{
    timed(code::mark).number(0);
}

tape_maker::bytes tape_maker::end()
{
    begin(code::end);
    return made_;
}

tape_maker::bytes make_tape(const circle &of)
{
    tape_maker out;
    std::vector<std::uint64_t> all;
    for (std::uint64_t i = 0; i < of.count; i++)
        all.push_back(out.allocate(of.bytes));
    for (unsigned round = 0; round < of.rounds; round++) {
        out.mark();
        for (const std::uint64_t each : all)
            out.launch("circle", {{each}}, of.ns);
        out.wait();
    }
    out.mark();
    return out.end();
}

tape_maker::bytes make_tape(const forth_and_back &of)
{
    tape_maker out;
    std::vector<std::uint64_t> weights;
    for (unsigned i = 0; i < of.layers; i++)
        weights.push_back(out.allocate(of.weight));
    for (unsigned round = 0; round < of.rounds; round++) {
        out.mark();
        std::vector<std::uint64_t> kept;
        for (unsigned i = 0; i < of.layers; i++) {
            kept.push_back(out.allocate(of.activation, memory_kind::ordered));
            std::vector<tape_maker::name> names = {{kept[i]}, {weights[i]}};
            if (i > 0)
                names.push_back({kept[i - 1]});
            out.launch(i > 0 ? "forth" : "first", names, of.ns);
        }
        for (unsigned i = of.layers; i-- > 0;) {
            out.launch("back", {{weights[i]}, {kept[i]}}, 2 * of.ns);
            out.free(kept[i]);
        }
        out.wait();
    }
    out.mark();
    return out.end();
}

tape_maker::bytes make_tape(const decode &of)
{
    tape_maker out;
    const std::uint64_t cache = out.allocate(of.cache);
    std::vector<std::uint64_t> weights;
    for (unsigned i = 0; i < of.layers; i++)
        weights.push_back(out.allocate(of.weight));
    for (unsigned round = 0; round < of.rounds; round++) {
        out.mark();
        for (unsigned i = 0; i < of.layers; i++)
            out.launch(
                "layer",
                {{weights[i]}, {cache, i * (of.cache / of.layers / 256 * 256)}},
                of.ns);
        out.wait();
    }
    out.mark();
    return out.end();
}

} // namespace bench
