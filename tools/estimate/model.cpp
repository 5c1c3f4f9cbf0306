// SPDX-License-Identifier: GPL-2.0-or-later
// Counts a model's parameters from its shape.
#include "model.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace emuv::estimate {

namespace {

double d(std::uint64_t value)
{
    return static_cast<double>(value);
}

struct piece
{
    double linear = 0; // in matrices
    double rest = 0;   // biases, norms
    double largest = 0;

    void matrix(double rows, double columns)
    {
        linear += rows * columns;
        largest = std::max(largest, rows * columns);
    }
};

piece attention(const transformer &of)
{
    piece out;
    const double h = d(of.hidden);
    if (of.latent) {
        const latent_attention &by = *of.latent;
        const double query = d(of.heads) * d(by.nope + by.rope);
        if (by.query_rank != 0) {
            out.matrix(h, d(by.query_rank));
            out.matrix(d(by.query_rank), query);
            out.rest += d(by.query_rank);
        } else {
            out.matrix(h, query);
        }
        out.matrix(h, d(by.rank + by.rope));
        out.matrix(d(by.rank), d(of.heads) * d(by.nope + by.value));
        out.rest += d(by.rank);
        out.matrix(d(of.heads) * d(by.value), h);
        return out;
    }
    const double q = d(of.heads) * d(of.head_width);
    const double kv = d(of.kv_heads) * d(of.head_width);
    out.matrix(h, q);
    out.matrix(h, kv);
    out.matrix(h, kv);
    out.matrix(q, h);
    if (of.biases || of.qkv_bias)
        out.rest += q + 2 * kv;
    if (of.biases)
        out.rest += h;
    if (of.qk_norm)
        out.rest += 2 * d(of.head_width);
    return out;
}

piece mlp(const transformer &of, double intermediate)
{
    piece out;
    const double h = d(of.hidden);
    for (int i = 0; i < (of.gated ? 3 : 2); i++)
        out.matrix(h, intermediate);
    if (of.biases)
        out.rest += (of.gated ? 2 : 1) * intermediate + h;
    return out;
}

} // namespace

double transformer::query_width() const
{
    return d(heads) * (latent ? d(latent->nope + latent->rope) : d(head_width));
}

double transformer::kv_width() const
{
    if (latent)
        return d(heads) * d(latent->nope + latent->rope + latent->value);
    return 2 * d(kv_heads) * d(head_width);
}

parameters count(const transformer &of)
{
    parameters out;
    const double h = d(of.hidden);
    const double norm = of.layer_norm ? 2 * h : h;
    const piece looks = attention(of);
    const piece dense = mlp(of, d(of.intermediate));
    double layers = d(of.layers);
    const double same = looks.linear + looks.rest + d(of.norms) * norm;
    out.linear = layers * looks.linear;
    out.largest = std::max(looks.largest, d(of.vocabulary) * h);
    out.all = layers * same;
    out.active = out.all;
    if (of.experts) {
        const mixture &by = *of.experts;
        const piece one = mlp(of, d(by.intermediate));
        const double router =
            h * d(by.experts) + (by.router_bias ? d(by.experts) : 0);
        const double mixed = layers - std::min(layers, d(by.dense_layers));
        layers -= mixed;
        out.linear += mixed * d(by.experts + by.shared) * one.linear;
        out.all += mixed * (router + d(by.experts + by.shared) *
                                         (one.linear + one.rest));
        out.active +=
            mixed * (router + d(by.used + by.shared) * (one.linear + one.rest));
        out.largest = std::max(out.largest, one.largest);
    }
    if (layers > 0) {
        out.linear += layers * dense.linear;
        out.all += layers * (dense.linear + dense.rest);
        out.active += layers * (dense.linear + dense.rest);
        out.largest = std::max(out.largest, dense.largest);
    }
    // Norms of the queries and of the keys, and two gates.
    out.all += d(of.crossing_layers) * (2 * d(of.head_width) + 2);
    out.active += d(of.crossing_layers) * (2 * d(of.head_width) + 2);
    const double embedding = d(of.vocabulary) * h;
    const double ends = d(of.positions) * h + norm;
    out.all += embedding * (of.tied ? 1 : 2) + ends;
    // A token reads one row of the embedding, and all of the head.
    out.active += embedding + ends;
    return out;
}

double model::image_tokens(std::uint64_t width, std::uint64_t height) const
{
    if (!eyes)
        return 0;
    std::uint64_t w = eyes->image;
    std::uint64_t h = eyes->image;
    if (eyes->any_size && width != 0 && height != 0) {
        w = width;
        h = height;
    }
    const std::uint64_t unit = eyes->patch * eyes->merge;
    if (eyes->tiles != 0)
        return d(eyes->tiles) * (d(w / unit) * d(h / unit) + 1);
    const auto along = [unit](std::uint64_t edge) {
        return std::max(1.0, std::round(d(edge) / d(unit)));
    };
    return eyes->any_size ? along(w) * along(h) : d(w / unit) * d(h / unit);
}

model from_size(double parameters, std::uint64_t layers, std::uint64_t hidden)
{
    model out;
    out.kind = "transformer";
    transformer &is = out.text;
    // 12 h^2 in a layer, and about 128 times as wide as it is deep.
    const double depth = std::cbrt(parameters / (12.0 * 128 * 128));
    is.layers = layers != 0 ? layers
                            : static_cast<std::uint64_t>(
                                  std::clamp(std::round(depth), 1.0, 512.0));
    const double width = std::sqrt(parameters / (12 * d(is.layers)));
    is.hidden = hidden != 0
                    ? hidden
                    : static_cast<std::uint64_t>(std::clamp(
                          std::round(width / 128) * 128, 128.0, d(most_width)));
    is.head_width =
        is.hidden % 128 == 0 ? 128 : std::min(is.hidden, std::uint64_t{64});
    is.heads = std::max(std::uint64_t{1}, is.hidden / is.head_width);
    is.kv_heads = is.heads;
    is.intermediate = is.hidden * 8 / 3;
    is.vocabulary = 32000;
    out.counted = count(is);
    const double scale = parameters / out.counted.all;
    out.counted = {parameters, parameters, out.counted.linear * scale,
                   out.counted.largest};
    if (layers != 0 && hidden != 0 && (scale < 0.5 || scale > 2))
        out.assumed.push_back(
            fmt::format("activations as of {} layers of width {}, which would "
                        "have about {:.2g} billion parameters",
                        layers, hidden, parameters / scale / 1e9));
    out.name = "A transformer";
    if (layers == 0 || hidden == 0)
        out.assumed.push_back(
            fmt::format("{} layers of width {}, as models of that size have",
                        is.layers, is.hidden));
    out.assumed.emplace_back(
        "each head has keys of its own, a gated MLP, 32000 tokens known");
    return out;
}

} // namespace emuv::estimate
