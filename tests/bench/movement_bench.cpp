// SPDX-License-Identifier: GPL-2.0-or-later
// Times rounds of made-up programs whose memory moves, before a simulated card.
// Copies, kernels and mappings last as long as they did on an H200
// (docs/notebook/2026-11-measurements.md), and nothing is computed. The result
// measures no card. It compares one way of moving with another on machines
// without one. Time is virtual: a row is the same each time (virtual_time.cpp).
//
//     movement_bench [--json FILE] [TEXT [TRACE]]
//     movement_bench --tape FILE [OPTION]...     recorded programs: --help
//
// With TEXT only the rows that have it in their names ("prefill 12288 mapped"),
// with TRACE a trace of them.
#include "apart.hpp"
#include "made_card.hpp"
#include "memory/memory.hpp"
#include "movement/mover.hpp"
#include "results.hpp"
#include "tape_run.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

using namespace emuv::cuda;
using bench::card;
using bench::costs;
using bench::MiB;
using bench::sleep_until;

namespace {

constexpr unsigned ever_other = 1u << 20; // rounds, more than there are

// A program's kernel: its time, and the blocks it uses.
struct kernel
{
    struct use
    {
        std::size_t block;
        bool writes;
    };
    std::vector<use> uses;
    std::uint64_t ns;       // with all of it in VRAM
    double passes = 1;      // over memory in system RAM
    bool settles = false;   // the program waits for it
    std::uint64_t what = 0; // identifies it; 0: none is like it
    unsigned turns = 1;     // another one in so many rounds, by turns
    bool at_random = false; // in any order, rather
    // Blocks, in stream order: just before it and just behind.
    std::vector<std::size_t> allocates{};
    std::vector<std::size_t> frees{};
};

struct program
{
    std::string name;
    std::vector<std::uint64_t> blocks; // bytes
    std::vector<kernel> round;
    bool varies = false; // see varied()

    // For each block, true if it is ever written to.
    std::vector<bool> written() const
    {
        std::vector<bool> out(blocks.size());
        for (const kernel &each : round)
            for (const kernel::use &one : each.uses)
                out[one.block] = out[one.block] || one.writes;
        return out;
    }
    // For each block, true if it is there all the time.
    std::vector<bool> kept() const
    {
        std::vector<bool> out(blocks.size(), true);
        for (const kernel &each : round)
            for (const std::size_t block : each.allocates)
                out[block] = false;
        return out;
    }
    // At most, at any time.
    std::uint64_t bytes() const
    {
        std::uint64_t now = 0;
        const std::vector<bool> is_kept = kept();
        for (std::size_t i = 0; i < blocks.size(); i++)
            now += is_kept[i] ? blocks[i] : 0;
        std::uint64_t most = now;
        for (const kernel &each : round) {
            for (const std::size_t block : each.allocates)
                now += blocks[block];
            most = std::max(most, now);
            for (const std::size_t block : each.frees)
                now -= blocks[block];
        }
        return most;
    }
    std::uint64_t ns() const
    {
        std::uint64_t sum = 0;
        for (const kernel &each : round)
            sum += each.ns;
        return sum;
    }
    // Kernels take a part each of so long.
    void take(std::uint64_t whole_ns)
    {
        const double times =
            static_cast<double>(whole_ns) / static_cast<double>(ns());
        for (kernel &each : round)
            each.ns = static_cast<std::uint64_t>(static_cast<double>(each.ns) *
                                                 times);
    }
};

// A model of 32 layers with so many MiB of weights each.
constexpr int layers = 32;
constexpr std::uint64_t layer_mib[] = {32, 8, 8, 32, 112, 112, 112};

// That model, whose 13.2 GiB of weights are used once each. Its layers do the
// same with the same activations.
program prefill()
{
    constexpr std::uint64_t activations[] = {16, 16, 48, 48, 111, 111};
    constexpr std::size_t count = std::size(activations);
    program out{"prefill", {}, {}};
    for (const std::uint64_t mib : activations)
        out.blocks.push_back(mib * MiB);
    const auto multiply = [&](std::uint64_t mib, std::size_t by) {
        out.round.push_back(
            {{{out.blocks.size(), false}, {by, true}}, mib, 8.5});
        out.blocks.push_back(mib * MiB);
    };
    for (int layer = 0; layer < layers; layer++) {
        std::uint64_t place = 0;
        for (const std::uint64_t mib : layer_mib) {
            multiply(mib, place % count);
            for (int i = 0; i < 2; i++) {
                const std::size_t from = place % count;
                const std::size_t to = ++place % count;
                // A product does 18 times as much with a byte.
                out.round.push_back(
                    {{{from, false}, {to, true}},
                     1 + (activations[from] + activations[to]) / 18});
                out.round.back().what = place;
            }
        }
    }
    multiply(250, 0);
    out.round.back().turns = 2; // PyTorch has two places for its result
    out.take(62000000);
    out.round.back().settles = true;
    return out;
}

// Tuning that model with adapters: its weights are read forth and back, and a
// layer's activations are used by its backward pass.
// @param frees  that is allocated and freed in stream order
program tuning(bool frees)
{
    program out{frees ? "tuning-freed" : "tuning", {}, {}};
    struct product
    {
        std::size_t weights, saved;
    };
    std::vector<product> products;
    for (int layer = 0; layer < layers; layer++)
        for (const std::uint64_t mib : layer_mib) {
            products.push_back({out.blocks.size(), out.blocks.size() + 1});
            out.blocks.push_back(mib * MiB);
            out.blocks.push_back(mib * 13 / 16 * MiB);
        }
    for (const product &each : products) {
        out.round.push_back({{{each.weights, false}, {each.saved, true}},
                             out.blocks[each.weights] / MiB,
                             8.5});
        if (frees)
            out.round.back().allocates = {each.saved};
    }
    for (std::size_t i = products.size(); i-- > 0;) {
        out.round.push_back(
            {{{products[i].weights, false}, {products[i].saved, false}},
             2 * out.blocks[products[i].weights] / MiB,
             8.5});
        if (frees)
            out.round.back().frees = {products[i].saved};
    }
    out.take(179000000);
    out.round.back().settles = true;
    return out;
}

// The same as PyTorch does it, with all that comes and goes in between.
class lora
{
public:
    program made()
    {
        std::size_t hidden = make(16, {});
        for (int layer = 0; layer < layers; layer++)
            hidden = forth(hidden);
        // The loss.
        const std::size_t logits = make(125, {hidden}, 125);
        const std::size_t wide = make(250, {logits});
        const std::size_t likely = make(250, {wide});
        drop({logits, wide});
        const std::size_t grown = make(250, {likely});
        const std::size_t narrow = make(125, {grown});
        drop({likely, grown});
        std::size_t gradient = make(16, {narrow}, 125);
        drop({narrow, hidden});
        for (std::size_t layer = saved_.size(); layer-- > 0;)
            gradient = back(saved_[layer], gradient);
        drop({gradient});
        out_.take(181000000);
        out_.round.back().settles = true;
        return std::move(out_);
    }

private:
    using tensors = std::vector<std::size_t>;

    // The tensors that a layer leaves behind.
    struct remains
    {
        tensors weights;
        std::size_t first_wide, normal, query, key, value, attention;
        std::size_t second_wide, gate, bent, up;
    };

    std::size_t block(std::uint64_t mib)
    {
        out_.blocks.push_back(mib * MiB);
        return out_.blocks.size() - 1;
    }

    // A kernel that reads these and allocates its result. Without weights its
    // time is that of its bytes to read and write.
    std::size_t make(std::uint64_t mib, const tensors &from,
                     std::uint64_t weights_mib = 0)
    {
        const std::size_t result = block(mib);
        kernel next{{{result, true}}, 0};
        next.allocates = {result};
        std::uint64_t bytes = mib;
        for (const std::size_t each : from) {
            next.uses.push_back({each, false});
            bytes += out_.blocks[each] / MiB;
        }
        next.ns = 10 * (weights_mib > 0 ? weights_mib : bytes / 8 + 1);
        next.passes = weights_mib > 0 ? 8.5 : 1;
        out_.round.push_back(std::move(next));
        return result;
    }
    std::size_t multiply(std::uint64_t mib, std::size_t weights, std::size_t by)
    {
        return make(mib, {weights, by}, out_.blocks[weights] / MiB);
    }

    // Nobody needs these behind the last kernel.
    void drop(const tensors &these)
    {
        auto &frees = out_.round.back().frees;
        frees.insert(frees.end(), these.begin(), these.end());
    }

    // @param wide  out: the tensor that the backward pass needs
    std::size_t normalize(std::size_t hidden, std::size_t &wide)
    {
        wide = make(32, {hidden});
        const std::size_t squares = make(32, {wide});
        drop({squares});
        const std::size_t even = make(32, {wide});
        const std::size_t narrow = make(16, {even});
        drop({even});
        const std::size_t normal = make(16, {narrow});
        drop({narrow});
        return normal;
    }

    std::size_t adapt(std::size_t weights, std::uint64_t mib, std::size_t by)
    {
        const std::size_t base = multiply(mib, weights, by);
        const std::size_t more = make(mib, {by});
        const std::size_t scaled = make(mib, {more});
        drop({more});
        const std::size_t sum = make(mib, {base, scaled});
        drop({base, scaled});
        return sum;
    }

    std::size_t rotate(std::size_t which, std::uint64_t mib)
    {
        const std::size_t one = make(mib, {which});
        const std::size_t half = make(mib, {which});
        const std::size_t other = make(mib, {half});
        drop({half});
        const std::size_t sum = make(mib, {one, other});
        drop({which, one, other});
        return sum;
    }

    std::size_t forth(std::size_t hidden)
    {
        remains of;
        for (const std::uint64_t mib : layer_mib)
            of.weights.push_back(block(mib));
        of.normal = normalize(hidden, of.first_wide);
        of.query = rotate(adapt(of.weights[0], 16, of.normal), 16);
        const std::size_t key =
            rotate(multiply(4, of.weights[1], of.normal), 4);
        const std::size_t value = adapt(of.weights[2], 4, of.normal);
        of.key = make(16, {key});
        of.value = make(16, {value});
        drop({key, value});
        of.attention = make(16, {of.query, of.key, of.value}, 32);
        const std::size_t mixed = multiply(16, of.weights[3], of.attention);
        const std::size_t middle = make(16, {hidden, mixed});
        drop({hidden, mixed});
        const std::size_t normal = normalize(middle, of.second_wide);
        of.gate = multiply(56, of.weights[4], normal);
        of.bent = make(56, {of.gate});
        of.up = multiply(56, of.weights[5], normal);
        drop({normal});
        const std::size_t product = make(56, {of.bent, of.up});
        const std::size_t down = multiply(16, of.weights[6], product);
        drop({product});
        const std::size_t next = make(16, {middle, down});
        drop({middle, down});
        saved_.push_back(of);
        return next;
    }

    // The gradient of the normalized tensor, added to another.
    std::size_t normalize_back(std::size_t wide, std::size_t gradient,
                               std::size_t also)
    {
        const std::size_t narrow = make(16, {gradient});
        drop({gradient});
        const std::size_t even = make(32, {narrow});
        drop({narrow});
        const std::size_t part = make(32, {even, wide});
        const std::size_t rest = make(32, {even, wide});
        drop({even, wide});
        const std::size_t sum = make(32, {part, rest});
        drop({part, rest});
        const std::size_t small = make(16, {sum});
        drop({sum});
        const std::size_t out = make(16, {small, also});
        drop({small, also});
        return out;
    }

    std::size_t add(std::size_t one, std::size_t other)
    {
        const std::size_t sum = make(16, {one, other});
        drop({one, other});
        return sum;
    }

    std::size_t back(const remains &of, std::size_t gradient)
    {
        const std::size_t product = multiply(56, of.weights[6], gradient);
        const std::size_t up = make(56, {product, of.bent});
        const std::size_t bent = make(56, {product, of.up});
        drop({product, of.bent, of.up});
        const std::size_t by_up = multiply(16, of.weights[5], up);
        drop({up});
        const std::size_t gate = make(56, {bent, of.gate});
        drop({bent, of.gate});
        const std::size_t by_gate = multiply(16, of.weights[4], gate);
        drop({gate});
        const std::size_t middle =
            normalize_back(of.second_wide, add(by_up, by_gate), gradient);
        const std::size_t attention = multiply(16, of.weights[3], middle);
        const std::size_t query =
            make(16, {attention, of.query, of.key, of.value, of.attention}, 32);
        const std::size_t key = make(16, {query}, 16);
        const std::size_t value = make(16, {query}, 16);
        drop({attention, of.query, of.key, of.value, of.attention});
        const std::size_t few_keys = make(4, {key});
        const std::size_t few_values = make(4, {value});
        drop({key, value});
        const std::size_t by_value = multiply(16, of.weights[2], few_values);
        const std::size_t turned_keys = rotate(few_keys, 4);
        const std::size_t by_key = multiply(16, of.weights[1], turned_keys);
        const std::size_t turned = rotate(query, 16);
        const std::size_t by_query = multiply(16, of.weights[0], turned);
        drop({few_values, turned_keys, turned});
        const std::size_t all = add(add(by_value, by_key), by_query);
        drop({of.normal});
        return normalize_back(of.first_wide, all, middle);
    }

    program out_{"lora", {}, {}};
    std::vector<remains> saved_;
};

// The same, keeping only a layer's input: its backward pass begins with doing
// the rest again.
program checkpointed()
{
    program out{"checkpointed", {}, {}};
    std::vector<std::size_t> places; // for the result of each product
    for (const std::uint64_t mib : layer_mib) {
        places.push_back(out.blocks.size());
        out.blocks.push_back(mib * 13 / 16 * MiB);
    }
    std::vector<std::size_t> given;
    std::vector<std::size_t> weights;
    for (int layer = 0; layer < layers; layer++) {
        given.push_back(out.blocks.size());
        out.blocks.push_back(20 * MiB);
        for (const std::uint64_t mib : layer_mib) {
            weights.push_back(out.blocks.size());
            out.blocks.push_back(mib * MiB);
        }
    }
    const std::size_t each = std::size(layer_mib);
    // As many as a card was seen to be given between two products.
    const auto small_ones = [&](std::size_t from, std::size_t to) {
        for (int i = 0; i < 10; i++)
            out.round.push_back({{{from, false}, {to, true}}, 1});
    };
    const auto forth = [&](std::size_t layer, bool keeps) {
        for (std::size_t i = 0; i < each; i++) {
            out.round.push_back({{{weights[layer * each + i], false},
                                  {i > 0 ? places[i - 1] : given[layer], false},
                                  {places[i], true}},
                                 layer_mib[i],
                                 8.5});
            small_ones(places[i], places[(i + 1) % each]);
        }
        if (keeps && layer + 1 < layers)
            out.round.push_back(
                {{{places.back(), false}, {given[layer + 1], true}}, 2});
    };
    for (std::size_t layer = 0; layer < layers; layer++)
        forth(layer, true);
    // The loss is written to one of two places.
    out.round.push_back({{{places[0], true}}, 2});
    out.round.back().turns = 2;
    out.round.back().at_random = true;
    for (std::size_t layer = layers; layer-- > 0;) {
        forth(layer, false);
        for (std::size_t i = each; i-- > 0;) {
            out.round.push_back(
                {{{weights[layer * each + i], false}, {places[i], true}},
                 2 * layer_mib[i],
                 8.5});
            small_ones(places[i], places[(i + 1) % each]);
        }
    }
    out.take(222000000);
    out.round.back().settles = true;
    return out;
}

// ResNet-50 with a batch of 256: a layer's activations are used again by its
// backward pass, in reverse.
program training()
{
    program out{"training", {}, {}};
    std::vector<std::size_t> saved;
    const auto forth = [&](std::uint64_t mib) {
        kernel next{{{out.blocks.size(), true}}, 2 * mib, 1.5};
        if (!saved.empty())
            next.uses.push_back({saved.back(), false});
        out.round.push_back(next);
        saved.push_back(out.blocks.size());
        out.blocks.push_back(mib * MiB);
    };
    for (const std::uint64_t mib : {784, 784, 196})
        forth(mib);
    struct stage
    {
        int blocks;
        std::uint64_t narrow, wide;
    };
    for (const stage &each : {stage{3, 196, 784}, stage{4, 98, 392},
                              stage{6, 50, 196}, stage{3, 26, 98}})
        for (int i = 0; i < each.blocks; i++) {
            for (int j = 0; j < 4; j++)
                forth(each.narrow);
            for (int j = 0; j < (i == 0 ? 3 : 2); j++)
                forth(each.wide);
        }
    // Gradients are made in a place of their own.
    const std::size_t gradients = out.blocks.size();
    out.blocks.push_back(1000 * MiB);
    for (std::size_t i = saved.size(); i-- > 0;) {
        const std::uint64_t mib = out.blocks[saved[i]] / MiB;
        kernel next{{{saved[i], false}, {gradients, true}}, 4 * mib, 1.5};
        if (i > 0)
            next.uses.push_back({saved[i - 1], false});
        out.round.push_back(next);
    }
    out.take(115000000);
    const std::size_t weights = out.blocks.size();
    out.blocks.push_back(100 * MiB);
    for (int i = 0; i < 160; i++)
        out.round.push_back({{{weights, true}, {gradients, false}}, 12000});
    out.round.back().settles = true;
    return out;
}

// Products with 9 GiB of weights, one after the other (run-chain). A kernel
// with many rows reads its operands again and again.
program chain(const char *name, std::uint64_t whole_ns, double passes)
{
    program out{name, {128 * MiB, 384 * MiB}, {}};
    for (int layer = 0; layer < 24; layer++) {
        out.round.push_back(
            {{{out.blocks.size(), false}, {0, false}, {1, true}}, 1, passes});
        out.blocks.push_back(384 * MiB);
    }
    out.take(whole_ns);
    out.round.back().settles = true;
    return out;
}

// The same with a text of another length in each round: other kernels run, and
// write to other places, which are divided another way. The weights alone come
// again.
program varied(const char *name, program of)
{
    of.name = name;
    of.varies = true;
    for (kernel &each : of.round) {
        each.turns = ever_other;
        each.at_random = false;
    }
    return of;
}

struct outcome
{
    std::vector<double> ms; // of each round
    std::uint64_t room_bytes = 0;

    // The middle one of the last.
    double moving_ms() const
    {
        std::vector<double> last(ms.end() - 15, ms.end());
        std::sort(last.begin(), last.end());
        return last[last.size() / 2];
    }
    // The number of rounds until the time was nearly that.
    std::size_t settling() const
    {
        const double near = 1.15 * moving_ms();
        std::size_t first = ms.size();
        while (first > 0 && ms[first - 1] < near)
            first--;
        return first;
    }
};

// The location of a block's bytes in the present round.
struct location
{
    std::size_t block;
    std::uint64_t offset;
    std::uint64_t bytes;
};

// Moves each written block to another location than in the last round,
// in some block.
void divide_anew(std::vector<location> &locations,
                 const std::vector<std::uint64_t> &blocks,
                 const std::vector<bool> &written, std::minstd_rand &any)
{
    std::vector<std::size_t> those;
    for (std::size_t i = 0; i < blocks.size(); i++)
        if (written[i])
            those.push_back(i);
    std::vector<std::size_t> shuffled = those;
    std::shuffle(shuffled.begin(), shuffled.end(), any);
    for (std::size_t i = 0; i < those.size(); i++) {
        const std::uint64_t bytes = blocks[shuffled[i]];
        const std::uint64_t offset = any() % (bytes / 2 / 512) * 512;
        locations[those[i]] = {shuffled[i], offset,
                               std::min(blocks[those[i]], bytes - offset)};
    }
}

// A program at work.
struct player
{
    const program &of;
    card &made;
    mover &moves;
    memory &table;
    unsigned untrusted;
    std::vector<CUdeviceptr> at;
    std::vector<location> locations; // of the blocks that kernels use
    CUstream stream = reinterpret_cast<CUstream>(0x20);

    // Allocates all that outlives a round.
    void begin()
    {
        const std::vector<bool> kept = of.kept();
        at.resize(of.blocks.size());
        for (std::size_t i = 0; i < at.size(); i++) {
            if (kept[i] && table.allocate(&at[i], of.blocks[i]) != CUDA_SUCCESS)
                std::abort();
            locations.push_back({i, 0, of.blocks[i]});
        }
    }

    // The time that a kernel needs the link for memory from @p begin to @p end.
    double over_the_link(CUdeviceptr begin, CUdeviceptr end, bool writes) const
    {
        double over = 0;
        for (auto unit = std::prev(made.mapped.upper_bound(begin));
             unit != made.mapped.end() && unit->first < end; ++unit) {
            card::piece &touched = made.pieces[unit->second];
            const auto next = std::next(unit);
            const CUdeviceptr until =
                next != made.mapped.end() ? std::min(next->first, end) : end;
            touched.version += writes ? 1 : 0;
            if (touched.ram)
                over +=
                    static_cast<double>(until - std::max(unit->first, begin)) *
                    1000 / static_cast<double>(costs.in_place);
        }
        return over;
    }

    CUresult enqueue(const kernel &each) const
    {
        const std::lock_guard guard(made.lock);
        double over = 0;
        for (const kernel::use &one : each.uses) {
            const location &there = locations[one.block];
            const CUdeviceptr begin = at[there.block] + there.offset;
            over += over_the_link(begin, begin + there.bytes, one.writes);
        }
        made.enqueue(stream, {.what = card::request::kernel,
                              .ns = each.ns + static_cast<std::uint64_t>(
                                                  over * each.passes)});
        return CUDA_SUCCESS;
    }

    // Waits until the stream has nothing to do.
    void settle() const
    {
        std::uint64_t until = UINT64_MAX;
        while ((until = made.busy_until(stream)) == UINT64_MAX)
            sleep_until(now_ns() + 20000);
        sleep_until(until);
    }

    // @param number  of the kernel in its round
    // @param turn  which of its variants is launched
    void launch(const kernel &each, std::uint64_t number, unsigned turn)
    {
        const auto not_ours = [] { return CUDA_ERROR_NOT_SUPPORTED; };
        sleep_until(now_ns() + costs.launch_ns);
        for (const std::size_t block : each.allocates)
            if (table.allocate_async(&at[block], of.blocks[block], nullptr,
                                     stream, not_ours) != CUDA_SUCCESS)
                std::abort();
        const auto describe = [&](work &next) {
            next.what = each.what != 0 ? each.what : number;
            next.what += std::uint64_t{turn % each.turns} << 40;
            next.trusted =
                untrusted == 0 || number % untrusted != untrusted / 2;
            for (const kernel::use &one : each.uses)
                next.add(at[locations[one.block].block] +
                         locations[one.block].offset);
        };
        moves.run(stream, describe, [&] { return enqueue(each); });
        for (const std::size_t block : each.frees)
            if (table.free_async(at[block], stream, not_ours) != CUDA_SUCCESS)
                std::abort();
        if (each.settles)
            settle();
    }
};

// Rounds of a program in so many bytes of VRAM.
// @param untrusted  one launch in so many of each round is; 0: none
outcome run(const program &of, std::uint64_t physical, int rounds, bool unmaps,
            unsigned untrusted, const char *trace_file)
{
    card made;
    bench::the = &made;
    driver calls = bench::slow_driver();
    numa_store host(calls);
    ledger_file rows;
    rows.open(nullptr);
    file_ledger limits(rows, 0, physical, std::uint64_t{1} << 50);
    budget shares({.calls = calls, .ledgers = {&limits}});
    trace record;
    if (trace_file != nullptr)
        record.open(trace_file);
    mover moves(
        {.calls = calls,
         .shares = shares,
         .record = record,
         .tell = [](const char *why) { std::fprintf(stderr, "%s\n", why); },
         .unmaps = unmaps});
    memory table(
        {.calls = calls, .host = host, .shares = shares, .movers = {&moves}});
    const bench::served hand(made);
    player plays{of, made, moves, table, untrusted, {}, {}};
    plays.begin();
    outcome out;
    std::minstd_rand any;
    const std::vector<bool> written = of.written();
    for (int round = 0; round < rounds; round++) {
        const auto drawn = static_cast<unsigned>(any() >> 8);
        if (of.varies)
            divide_anew(plays.locations, of.blocks, written, any);
        const std::uint64_t start = now_ns();
        std::uint64_t number = std::uint64_t{1} << 32;
        for (const kernel &each : of.round)
            plays.launch(each, ++number,
                         each.at_random ? drawn : static_cast<unsigned>(round));
        out.ms.push_back(static_cast<double>(now_ns() - start) / 1e6);
    }
    moves.stop(nullptr);
    out.room_bytes = made.room_bytes;
    return out;
}

} // namespace

int main(int count, char **arguments)
{
    if (int status = 0; bench::run_tapes(count, arguments, status))
        return status;
    using bench::number;
    using bench::text;
    bench::results into("movement_bench", "The engine before a made-up card",
                        count, arguments);
    into.table(nullptr, "ms a round",
               {{"program", "program"},
                {"share", "share", "MiB"},
                {"needs", "needs", "MiB"},
                {"alone", "alone"},
                {"link", "link"},
                {"away", "away"},
                {"untrusted", "untrusted", "launches"},
                {"moving", "moving"},
                {"of_limit", "of the limit", ""},
                {"settling", "settling", "rounds"},
                {"ram", "room made in system RAM", "MiB"}});
    const char *const only = count > 1 ? arguments[1] : "";
    const char *const trace_file = count > 2 ? arguments[2] : nullptr;
    struct row
    {
        program of;
        std::uint64_t mib;
        unsigned untrusted = 0; // one launch in so many; 0: none
        bool unmaps = false;
    };
    const program prefilled = prefill();
    const program trained = training();
    std::vector<row> rows;
    for (const row &each :
         {row{prefilled, 12288}, row{prefilled, 12288, 100},
          row{prefilled, 12288, 20}, row{prefilled, 12288, 1},
          row{prefilled, 6963}, row{prefilled, 6963, 20},
          row{trained, trained.bytes() / MiB + 900 - 1740},
          row{trained, trained.bytes() / MiB * 3 / 4},
          row{tuning(false), 12288}, row{tuning(true), 12288},
          row{lora().made(), 12288}, row{checkpointed(), 11264},
          row{varied("prompts", prefilled), 12288},
          row{varied("texts", checkpointed()), 11264},
          row{chain("chain-1", 2330000, 1), 9216 / 2 + 576},
          row{chain("chain-2048", 28200000, 10), 9216 * 2 / 3 + 576},
          row{chain("chain-8192", 114000000, 40), 9216 / 2 + 576}})
        for (const bool unmaps : {false, true})
            rows.push_back({each.of, each.mib, each.untrusted, unmaps});
    std::puts("program     share, MiB   needs   alone, ms   link   away      "
              "untrusted   moving   of the limit  settling  RAM, MiB");
    for (const row &each : rows) {
        const char *const away = each.unmaps ? "unmapped" : "mapped";
        const std::string untrusted =
            each.untrusted == 0   ? "none"
            : each.untrusted == 1 ? "all"
                                  : "1 in " + std::to_string(each.untrusted);
        const std::string name = each.of.name + " " + std::to_string(each.mib) +
                                 " " + away + " " + untrusted;
        if (name.find(only) == std::string::npos)
            continue;
        const auto is = bench::apart(name.c_str(), [&] {
            const outcome of = run(each.of, each.mib * MiB, 60, each.unmaps,
                                   each.untrusted, trace_file);
            return std::vector{of.moving_ms(),
                               static_cast<double>(of.settling()),
                               static_cast<double>(of.room_bytes / MiB)};
        });
        if (is.empty())
            continue;
        const double moving = is[0];
        const double alone = static_cast<double>(each.of.ns()) / 1e6;
        const std::uint64_t needs = each.of.bytes();
        const std::uint64_t beyond = needs - std::min(needs, each.mib * MiB);
        const double link = static_cast<double>(beyond) /
                            static_cast<double>(costs.link_in_alone) / 1e3;
        const double share = std::max(alone, link) / moving;
        std::printf("%-10s  %10llu  %6llu  %10.1f  %5.1f  %-8s  %9s  "
                    "%7.1f  %13.2f  %8.0f  %8.0f\n",
                    each.of.name.c_str(),
                    static_cast<unsigned long long>(each.mib),
                    static_cast<unsigned long long>(needs / MiB), alone, link,
                    away, untrusted.c_str(), moving, share, is[1], is[2]);
        into.row({text(each.of.name.c_str()),
                  number(static_cast<double>(each.mib)),
                  number(static_cast<double>(needs / MiB)), number(alone, 1),
                  number(link, 1), text(away), text(untrusted.c_str()),
                  number(moving, 1), number(share, 2), number(is[1]),
                  number(is[2])});
    }
    return into.write();
}
