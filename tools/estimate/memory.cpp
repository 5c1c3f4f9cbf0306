// SPDX-License-Identifier: GPL-2.0-or-later
// The bytes that a job takes on the card.
//
// Activations follow Korthikanti et al. 2022 (arXiv 2205.05198), table 2 and
// equation 1, tensor by tensor, so that other shapes can be counted, too. For
// GPT's shape the low answer is theirs: 34 bytes a token, layer and width.
#include "memory.hpp"

#include <algorithm>
#include <cmath>

namespace emuv::estimate {

namespace {

constexpr double mib = 1 << 20;

double d(std::uint64_t value)
{
    return static_cast<double>(value);
}

double bytes_of(dtype as)
{
    switch (as) {
    case dtype::fp32:
        return 4;
    case dtype::int8:
        return 1;
    case dtype::int4:
        return 0.5;
    default:
        return 2;
    }
}

// Weights of 4 bits. NF4 has a scale for each 64. It has 32 bits, or 8 bits and
// a scale of these for each 256 (QLoRA, arXiv 2305.14314, section 3: 0.127
// bits). GPTQ and AWQ have 16 + 4 bits for each 128.
constexpr range four_bits = {0.5 + 0.127 / 8, 0.5 + 0.127 / 8, 0.5 + 4.0 / 64};
// 8 bits with a scale for each row, or for each 128.
constexpr range eight_bits = {1, 1.01, 1.04};

range quantised(const model &of, const range &by, double rest_high)
{
    const double linear = of.counted.linear;
    const double rest = of.counted.all - linear;
    return by * linear + range{2 * rest, 2 * rest, rest_high * rest};
}

// Weights that nobody trains, or that inference uses.
range fixed_weights(const model &of, const job &as)
{
    range out;
    if (as.mode == mode::qlora) // peft casts what it does not quantise
        out = quantised(of, four_bits, 4);
    else if (as.dtype == dtype::int4)
        out = quantised(of, four_bits, 2);
    else if (as.dtype == dtype::int8)
        out = quantised(of, eight_bits, 2);
    else if (!as.dtype && of.stored != 0)
        out = range::exactly(of.stored);
    else
        out = range::exactly(of.counted.all * element_bytes(of, as));
    return out + range::exactly(of.frozen * element_bytes(of, as));
}

double frozen_parts(const model &of, const job &as)
{
    if (!of.eyes)
        return 0;
    double out = 0;
    if (as.freeze_eyes)
        out += of.eyes->parameters;
    if (as.freeze_text)
        out += of.counted.all - of.eyes->parameters;
    return out;
}

// Parameters of the adapters: rank x (in + out) of each matrix (LoRA, arXiv
// 2106.09685).
double adapters(const model &of, const job &as)
{
    const transformer &is = of.text;
    const double r = d(as.rank);
    if (!is.is_there()) // attention's matrices are about a third of a U-Net's
        return of.counted.all / 1280 * 2 * r / 3;
    const double h = d(is.hidden);
    const double q = is.query_width();
    const double v = is.latent ? d(is.heads) * d(is.latent->value)
                               : d(is.kv_heads) * d(is.head_width);
    double one = r * (h + q) + r * (h + v);
    if (as.adapt_all_linear) {
        const double k = is.latent ? d(is.latent->rank + is.latent->rope) : v;
        one += r * (h + k) + r * (q + h);
        double width = d(is.intermediate);
        double copies = 1;
        if (is.experts) {
            width = d(is.experts->intermediate);
            copies = d(is.experts->experts + is.experts->shared);
        }
        one += copies * (is.gated ? 3 : 2) * r * (h + width);
    }
    return d(is.layers) * one;
}

// States of the optimizer, in bytes per trained parameter.
range states_of(const model &of, const job &as, double element)
{
    switch (as.optimizer) {
    case optimizer::sgd:
        return {};
    case optimizer::momentum:
        return range::exactly(element);
    case optimizer::adam:
        return range::exactly(2 * element);
    case optimizer::adam8bit: // a scale of 32 bits for each 256
        return {2 + 2 * 4.0 / 256, 2 + 2 * 4.0 / 256, 2.2};
    case optimizer::adafactor: { // a row and a column of each matrix
        const double width = of.text.is_there() ? d(of.text.hidden) : 1024;
        return range{1, 2, 4} * (4 / width);
    }
    }
    return {};
}

// MLPs' width that one token goes through.
double mlp_width(const transformer &is)
{
    return is.experts ? d(is.experts->used + is.experts->shared) *
                            d(is.experts->intermediate)
                      : d(is.intermediate);
}

// Bytes a token that a layer keeps for the way back, without scores.
range kept_by_layer(const transformer &is, double e, const job &as)
{
    const double h = d(is.hidden);
    const double i = mlp_width(is);
    // A norm keeps its input, and a matrix its own: the norm's output. A
    // composed RMSNorm keeps 32 bits of its input, and the quotient.
    range norm = range::exactly(2 * e * h);
    if (!is.layer_norm)
        norm = {2 * e * h, (4 + 2 * e) * h, (4 + 3 * e) * h};
    range out = norm * d(is.norms);
    // autocast leaves 32 bits between layers, which norms keep, too.
    if (as.mixed == mixture_of_precisions::autocast)
        out += range::exactly((4 - e) * h * d(is.norms));
    // Queries, keys, values, what attention gives, and 32 bits a head.
    const double q = is.query_width();
    const double looks = e * (2 * q + is.kv_width()) + 4 * d(is.heads);
    const bool grouped = is.kv_heads < is.heads && !is.latent;
    out += {looks, looks, looks + (grouped ? 2 * e * q : 0)};
    // A gated MLP keeps the gate, its activation, the other half, the product.
    // A composed GELU keeps five tensors where one kernel keeps two.
    if (is.gated)
        out += {3 * e * i, 4 * e * i, 5 * e * i};
    else
        out += {2 * e * i, (is.composed_activation ? 5 : 2) * e * i, 5 * e * i};
    if (is.experts) // the tokens, sorted by expert, and back
        out += range{1, 2, 3} * (e * h * d(is.experts->used));
    if (is.dropout)
        out += range::exactly(2 * h);
    if (as.mode == mode::train)
        return out;
    // A matrix that is not trained keeps no input; one with an adapter does.
    if (!as.adapt_all_linear)
        out = {out.low - e * (i + h), out.likely - e * (i + h), out.high};
    // peft hands each adapter a copy of its input in 32 bits.
    if (e < 4) {
        const double looks_at = as.adapt_all_linear ? 3 * h + q : 2 * h;
        const double goes_through =
            as.adapt_all_linear ? (is.gated ? 2 : 1) * h + i : 0;
        const double copies = 4 * (looks_at + goes_through);
        out += {0, copies, copies};
    }
    return out;
}

// Scores that attention keeps, in bytes a token and layer. Softmax keeps its
// output; composed, in 32 bits and in the dtype. Dropout keeps a mask and what
// it gives.
range kept_scores(const transformer &is, double e, double length)
{
    const double all = d(is.heads) * length;
    const double dropped = is.dropout ? 1 + e : 0;
    const double likely = is.dropout ? e + dropped : 4 + e;
    return {all * (e + dropped), all * likely, all * (4 + e + 1 + e)};
}

// The widest place of a layer's pass, in bytes a token: the residual, the
// norm's output, and two or three tensors of the MLP.
range passing(const transformer &is, double e, const job &as, double length)
{
    const double h = d(is.hidden);
    const double i = mlp_width(is);
    const double q = is.query_width();
    range out = {e * (2 * h + (is.gated ? 2 : 1) * i),
                 e * (2 * h + (is.gated ? 3 : 2) * i),
                 e * (3 * h + 3 * i) + 8 * h};
    range looks = range::exactly(e * (2 * h + 2 * q + is.kv_width()));
    if (!as.flash)
        looks += range{2 * e, 4 + 2 * e, 8 + 2 * e} * (d(is.heads) * length);
    return larger(out, looks);
}

// Logits, in bytes a token. Loss: the logits, 32 bits of them, log_softmax,
// and the way back of each.
range kept_logits(const transformer &is, double e)
{
    const double v = d(is.vocabulary);
    const double again = e < 4 ? e : 0;
    return {e * v, (e + again + 8) * v, (e + again + 12) * v};
}

bool trains(const job &as)
{
    return as.mode != mode::inference;
}

// A stack of layers that some tokens go through.
range stack(const transformer &is, const job &as, double all_tokens,
            double length, double e, bool kept)
{
    const range wide = passing(is, e, as, length) * all_tokens;
    if (!kept)
        return wide;
    range one = kept_by_layer(is, e, as);
    if (!as.flash)
        one += kept_scores(is, e, length);
    if (as.checkpointing) {
        const double between =
            as.mixed == mixture_of_precisions::autocast ? 4 : e;
        return range::exactly(d(is.layers) * between * d(is.hidden) *
                              all_tokens) +
               one * all_tokens + wide;
    }
    return one * (d(is.layers) * all_tokens) + wide;
}

range of_net(const model &of, const job &as, double e)
{
    const convolution &net = *of.net;
    const double edge = d(net.image);
    const double area =
        as.image_width != 0 && as.image_height != 0
            ? d(as.image_width) * d(as.image_height) / (edge * edge)
            : 1;
    if (!trains(as))
        return net.passing * (e * as.batch * area * d(net.batch_factor));
    range out = net.saved * (e * as.batch * area);
    if (as.checkpointing)
        out = {0.15 * out.low, 0.3 * out.likely, 0.5 * out.high};
    return out;
}

// Bytes for each token of an image that text is crossed with. All layers share
// its states, as wide as text. For the way back each layer keeps its keys and
// values; a norm keeps keys in 32 bits.
range images_for_crossing(const transformer &is, const job &as, double e,
                          bool kept)
{
    const range states = range::exactly(e * d(is.hidden));
    const double layers = as.checkpointing ? 1 : d(is.crossing_layers);
    const double wide = is.kv_width();
    if (!kept)
        return states;
    return states + range{e, e + 2, e + 4} * (layers * wide);
}

range activations_of(const model &of, const job &as, double e,
                     const range &weights)
{
    if (as.activation_factor != 0)
        return weights * as.activation_factor;
    if (of.net)
        return of_net(of, as, e);
    const double length = tokens(of, as);
    const double all = as.batch * length;
    const bool kept = trains(as);
    const bool is_crossed = of.text.crossing_layers != 0;
    range out = stack(of.text, as, all, length, e, kept);
    if (of.eyes && as.images > 0) {
        const double merged = d(of.eyes->merge * of.eyes->merge);
        const double patches =
            of.image_tokens(as.image_width, as.image_height) * merged;
        const bool seen = as.mode == mode::train && !as.freeze_eyes && kept;
        const double all_patches = as.batch * as.images * patches;
        range sees = stack(of.eyes->layers, as, all_patches, patches, e, seen);
        // Several layers' outputs side by side.
        sees += range{1, 1, 2} * (e * d(of.eyes->given) * all_patches);
        out = seen ? out + sees : larger(out, sees);
        if (is_crossed)
            out += images_for_crossing(of.text, as, e, kept) * all_patches;
    }
    if (of.text.vocabulary == 0)
        return out;
    if (kept)
        return out + kept_logits(of.text, e) * all;
    // The last token's alone, or all of them.
    const double v = d(of.text.vocabulary) * (e + 4);
    return larger(out, {v * as.batch, v * as.batch, v * all});
}

range cache_of(const model &of, const job &as, double e)
{
    const transformer &is = of.text;
    if (trains(as) || !is.is_there() || is.vocabulary == 0)
        return {};
    const double element = as.cache_bytes != 0 ? as.cache_bytes : e;
    const double length = tokens(of, as);
    const double each = as.batch * element;
    if (is.latent) {
        // One vector for all heads; or all heads' keys and values, expanded, as
        // Hugging Face's models keep them.
        const double layers = d(is.layers) * length * each;
        const double narrow = layers * d(is.latent->rank + is.latent->rope);
        const double wide = layers * is.kv_width();
        return {narrow, is.latent->stays_narrow ? narrow : wide, wide};
    }
    const double slid =
        is.window != 0 ? std::min(length, d(is.window)) : length;
    const double windowed = d(is.windowed_layers);
    const double crossing = d(is.crossing_layers);
    const double whole = d(is.layers) - windowed - crossing;
    const double width = is.kv_width() * each;
    const double seen =
        crossing * as.images * of.image_tokens(as.image_width, as.image_height);
    const double likely = width * (whole * length + windowed * slid + seen);
    // Caches that ignore the window keep all.
    return {likely, likely,
            width * ((d(is.layers) - crossing) * length + seen)};
}

struct kept
{
    double weight; // bytes of a trained parameter
    double gradient;
    double state; // of one state's element
    double copy;  // beside the states
};

kept kept_of(const job &as, double e)
{
    if (as.mode == mode::lora || as.mode == mode::qlora)
        return {4, 4, 4, 0}; // peft keeps adapters in 32 bits
    switch (as.mixed) {
    case mixture_of_precisions::autocast:
        return {4, 4, 4, 0};
    case mixture_of_precisions::master:
        return {e, e, 4, 4};
    default:
        return {e, e, e, 0};
    }
}

void add_training(const model &of, const job &as, double e, needs &to)
{
    const bool adapts = as.mode != mode::train;
    const double fixed = adapts ? of.counted.all : frozen_parts(of, as);
    to.trained = adapts ? adapters(of, as) : of.counted.all - fixed;
    const kept in = kept_of(as, e);
    if (adapts)
        to.weights = fixed_weights(of, as);
    else
        to.weights = range::exactly((fixed + of.frozen) * e);
    to.weights += range::exactly(to.trained * in.weight);
    to.gradients = range::exactly(to.trained * in.gradient);
    if (!adapts && as.mixed == mixture_of_precisions::master)
        to.gradients.high += 4 * to.trained; // summed up in 32 bits
    to.states = states_of(of, as, in.state) * to.trained +
                range::exactly(in.copy * to.trained);
    // PyTorch's step over all tensors at once makes as much again. Adafactor's
    // and that of 8 bits go tensor by tensor.
    const double once = to.trained * in.weight;
    const bool at_once =
        as.optimizer == optimizer::momentum || as.optimizer == optimizer::adam;
    to.step = at_once ? range{0, once, 2 * once} : range{0, 0, once};
}

} // namespace

double element_bytes(const model &of, const job &as)
{
    if (as.dtype)
        return std::max(2.0, bytes_of(*as.dtype));
    return of.stored_as == "F32" ? 4 : 2;
}

double tokens(const model &of, const job &as)
{
    if (!of.text.is_there())
        return 0;
    if (of.text.vocabulary == 0)
        return d(of.text.longest);
    double out = as.sequence;
    const double images =
        as.images * of.tokens_in_text(as.image_width, as.image_height);
    if (out == 0) {
        out = images != 0 ? 512 : 2048;
        if (of.text.longest != 0)
            out = std::min(out, d(of.text.longest));
    }
    return out + images;
}

needs compute(const model &of, const job &as)
{
    needs out;
    const double e = element_bytes(of, as);
    out.tokens = tokens(of, as);
    if (trains(as))
        add_training(of, as, e, out);
    else
        out.weights = fixed_weights(of, as);
    out.activations = activations_of(of, as, e, out.weights);
    if (as.mode == mode::train && as.mixed == mixture_of_precisions::autocast &&
        as.activation_factor == 0)
        out.activations += range::exactly(2 * of.counted.linear);
    out.cache = cache_of(of, as, e);

    // cuBLAS's workspaces are 8 to 32 MiB a stream; cuDNN's go by its choice.
    out.workspace = {8 * mib, 32 * mib, 96 * mib};
    if (of.net)
        out.workspace += {0, 256 * mib, 1536 * mib};
    if (as.mode == mode::qlora || as.dtype == dtype::int4 ||
        as.dtype == dtype::int8)
        out.workspace += range{0, 1, 1} * (e * of.counted.largest);
    // A context with PyTorch's kernels: 685 to 779 MiB on an H100, with PyTorch
    // 2.11 (tests/estimate/peaks_torch.py). Smaller cards take less.
    out.context = {250 * mib, 650 * mib, 900 * mib};

    const range coming = out.gradients + out.step;
    range passing = larger(out.activations, coming);
    passing.high =
        std::max(out.activations.high + out.gradients.high, coming.high);
    if (as.accumulates)
        passing = larger(out.activations + out.gradients, coming);
    const range held = out.weights + out.states + out.cache + passing;
    // The caching allocator rounds up, and leaves room between blocks.
    out.workspace += {0, 0.02 * held.likely, 0.08 * held.high};
    out.peak = held + out.workspace + out.context;
    return out;
}

} // namespace emuv::estimate
