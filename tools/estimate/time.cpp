// SPDX-License-Identifier: GPL-2.0-or-later
// The time that a pass takes on a card, and what holds it up.
//
// A roofline (Williams et al. 2009): the longest of computing, reading VRAM and
// crossing the link, since movement overlaps them. The shares of a card's rates
// that programs reach are ranges.
#include "time.hpp"

#include <algorithm>
#include <cmath>

namespace emuv::estimate {

namespace {

double d(std::uint64_t value)
{
    return static_cast<double>(value);
}

// Seconds per second of the rate that is published: best, likely, worst.
constexpr range of_products = {1 / 0.8, 1 / 0.45, 1 / 0.25};
constexpr range of_convolutions = {1 / 0.6, 1 / 0.2, 1 / 0.06};
constexpr range of_bandwidth = {1 / 0.95, 1 / 0.8, 1 / 0.55};
constexpr range of_link = {1, 1.1, 1.6};
// Seconds in which Python launches a layer's kernels: by a CUDA graph or not.
constexpr range of_layer = {0.02e-3, 0.4e-3, 1.2e-3};

// An image's area as a multiple of the one that the figures are for.
double area_of(const convolution &net, const job &as)
{
    return as.image_width != 0 && as.image_height != 0
               ? d(as.image_width) * d(as.image_height) /
                     (d(net.image) * d(net.image))
               : 1;
}

// Operations of a pass forward. Each weight costs two a token. Each pair of
// tokens costs four for each width of the queries, and tokens that only look
// back have half of the pairs.
double forward(const model &of, const job &as, const needs &has)
{
    if (of.net) {
        const double passes =
            as.mode == mode::inference ? d(of.net->batch_factor) : 1;
        return of.net->operations * as.batch * area_of(*of.net, as) * passes;
    }
    const transformer &is = of.text;
    const double all = as.batch * has.tokens;
    const double pairs = has.tokens * (is.vocabulary != 0 ? 0.5 : 1);
    const double looks = d(is.layers - is.crossing_layers) * pairs;
    double out =
        2 * of.counted.active * all + 4 * looks * is.query_width() * all;
    if (is.crossing_layers != 0) {
        // Eyes, for which an image's patches look at each other, and the keys
        // and values of what they give.
        const double one = of.image_tokens(as.image_width, as.image_height);
        const double seen = as.images * one;
        const double crossing = d(is.crossing_layers);
        const transformer &eyes = of.eyes->layers;
        out += as.batch * seen *
               (2 * count(eyes).linear +
                4 * d(eyes.layers) * eyes.query_width() * one +
                2 * crossing * d(is.hidden) * is.kv_width());
        out += 4 * crossing * is.query_width() * seen * all;
    }
    return out;
}

// Passes' worth of operations: back costs two, one of them for the weights.
double passes(const job &as)
{
    if (as.mode == mode::inference)
        return 1;
    const double back = as.mode == mode::train ? 2 : 1;
    return 1 + back + (as.checkpointing ? 1 : 0);
}

double layers(const model &of)
{
    return of.text.is_there() ? d(of.text.layers) : 50;
}

void finish(pass &is, const machine &on, range compute, range launches,
            const range &crosses)
{
    const range memory = of_bandwidth * is.memory;
    range link;
    if (on.link != 0)
        link = {crosses.low * of_link.low / on.link,
                crosses.likely * of_link.likely / on.link,
                crosses.high * of_link.high / on.link};
    is.seconds = larger(larger(compute, memory), larger(link, launches));
    is.compute = compute.likely;
    is.memory = memory.likely;
    is.link = link.likely;
    is.launches = launches.likely;
    is.crosses = crosses.likely;
}

// The card's own rate counts 16 bits. 32 bits go at half of it as TF32, at a
// quarter or less without.
range computing(const model &of, const job &as, const machine &on,
                double operations)
{
    if (on.tensor == 0)
        return {};
    const range share = of.net ? of_convolutions : of_products;
    range out = share * (operations / on.tensor);
    if (element_bytes(of, as) == 4 && as.mixed == mixture_of_precisions::none)
        out = {2 * out.low, 4 * out.likely, 12 * out.high};
    return out;
}

} // namespace

bool writes(const model &of)
{
    return of.text.is_there() && of.text.vocabulary != 0;
}

double read_by_token(const model &of, const job &as, const needs &has)
{
    // Each sample's token picks experts of its own: what none of them picks is
    // left out.
    double out = 1 - std::min(1.0, of.counted.active / of.counted.all);
    if (of.text.experts && as.batch > 1)
        out *=
            std::pow(1 - d(of.text.experts->used) / d(of.text.experts->experts),
                     as.batch - 1);
    return has.weights.likely * (1 - out) + has.cache.likely;
}

pass whole_pass(const model &of, const job &as, const needs &has,
                const machine &on, const range &spilled)
{
    pass out;
    const bool learns = as.mode != mode::inference;
    out.name = learns ? "step" : writes(of) ? "prompt" : "pass";
    out.operations = forward(of, as, has) * passes(as);
    // Weights are read on each way, gradients written and read, states read and
    // written; activations written and read, on the way back again.
    double bytes = has.weights.likely * passes(as);
    if (learns)
        bytes += 2 * has.gradients.likely + 2 * has.states.likely +
                 2 * has.weights.likely;
    if (of.net && !learns) // each tensor is written and read
        bytes += 2 * of.net->saved.likely * element_bytes(of, as) * as.batch *
                 area_of(*of.net, as) * d(of.net->batch_factor);
    else
        bytes += (learns ? 3 : layers(of) * 2) * has.activations.likely;
    if (on.bandwidth != 0)
        out.memory = bytes / on.bandwidth;
    // Weights that spilled come once on the way forward and once on the way
    // back; states once, and they leave again.
    range crosses = spilled;
    if (learns) {
        const double twice = has.weights.likely;
        const double once =
            has.states.likely + has.gradients.likely + has.activations.likely;
        const double visits = (2 * twice + once) / (twice + once);
        crosses = {spilled.low, spilled.likely * visits, 2 * spilled.high};
    }
    range launches = of_layer * (layers(of) * (learns ? 3 : 1));
    if (as.checkpointing)
        launches = launches * (4.0 / 3);
    finish(out, on, computing(of, as, on, out.operations), launches, crosses);
    return out;
}

pass one_token(const model &of, const job &as, const needs &has,
               const machine &on, const range &spilled)
{
    pass out;
    out.name = "token";
    const transformer &is = of.text;
    out.operations =
        as.batch * (2 * of.counted.active +
                    4 * d(is.layers) * is.query_width() * has.tokens);
    const double read = read_by_token(of, as, has);
    if (on.bandwidth != 0)
        out.memory = read / on.bandwidth;
    // Experts that no token uses need not come.
    const double used = read / (has.weights.likely + has.cache.likely);
    const range crosses = {spilled.low * used, spilled.likely * used,
                           spilled.high};
    finish(out, on, computing(of, as, on, out.operations),
           of_layer * layers(of), crosses);
    return out;
}

double token_with_cpu(const pass &token, const machine &on, double read,
                      double spilled)
{
    const double away = std::min(read, spilled);
    const double in_vram = on.bandwidth == 0 ? 0 : (read - away) / on.bandwidth;
    return std::max(token.launches, in_vram + away / on.cpu_bandwidth);
}

} // namespace emuv::estimate
