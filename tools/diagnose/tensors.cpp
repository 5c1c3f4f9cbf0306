// SPDX-License-Identifier: GPL-2.0-or-later
// Tensors that are large in usual models: attention matrices and logits.
#include "recognise.hpp"
#include "text.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include <fmt/format.h>

namespace emuv::diagnose {

namespace {

// Words of usual vocabularies: Llama, Phi, GPT-2, OPT, padded GPT-2, BERT,
// Llama 3, Qwen, Gemma, BLOOM, T5, Mistral.
constexpr std::array<std::uint64_t, 17> vocabularies = {
    32000,  32064,  50257,  50272,  50304,  30522, 128256, 151936, 152064,
    151646, 256000, 256128, 262144, 250880, 32128, 32768,  131072};

// Words whose numbers are no powers of two tell more.
bool is_telling(std::uint64_t words)
{
    return (words & (words - 1)) != 0;
}

// The bytes by which a size may differ: what rounding in print hid, and half of
// what allocators round up by.
std::uint64_t window_of(const figure &asked)
{
    return asked.slack + (std::uint64_t{1} << 20);
}

bool is_within(std::uint64_t bytes, const figure &asked)
{
    return (bytes > asked.bytes ? bytes - asked.bytes : asked.bytes - bytes) <=
           window_of(asked);
}

// True if a number of such steps tells nothing: any size would be near one.
bool is_by_chance(std::uint64_t step, const figure &asked)
{
    return step < times(16, window_of(asked));
}

} // namespace

std::vector<std::string> tensors_of(const figure &asked)
{
    std::vector<std::string> made;
    if (asked.bytes < std::uint64_t{256} << 20)
        return made;
    for (const std::uint64_t element : {2, 4}) {
        std::string fitting;
        // The longest length first: its product of batch and heads is the
        // smallest.
        for (std::uint64_t length = 131072; length >= 1024; length /= 2) {
            const std::uint64_t one = times(times(length, length), element);
            const std::uint64_t matrices =
                (asked.bytes / 8 + one / 2) / one * 8;
            // Heads of usual models, and small batches of them.
            if (matrices >= 8 && matrices <= 512 &&
                !is_by_chance(times(one, 8), asked) &&
                is_within(times(one, matrices), asked))
                fitting += fmt::format("{}L = {} with B×heads = {}",
                                       fitting.empty() ? "" : ", or ", length,
                                       matrices);
        }
        if (!fitting.empty())
            made.push_back(fmt::format("an attention matrix B×heads×L² of {} "
                                       "bytes each: {}",
                                       element, fitting));
        if (!made.empty())
            break;
    }
    std::string fitting;
    std::size_t count = 0;
    for (const std::uint64_t words : vocabularies)
        for (const std::uint64_t element : {2, 4}) {
            const std::uint64_t one = words * element;
            const std::uint64_t tokens =
                (asked.bytes / 512 + one / 2) / one * 512;
            // Batches and lengths are powers of two mostly, and so B×L.
            if (!is_telling(words) || !std::has_single_bit(tokens) ||
                !is_within(times(one, tokens), asked) || ++count > 6)
                continue;
            fitting += fmt::format("{}B×L = {} and {} words ({} bytes)",
                                   fitting.empty() ? "" : ", or ", tokens,
                                   words, element);
        }
    if (!fitting.empty())
        made.push_back("logits B×L×vocabulary: " + fitting);
    return made;
}

std::string kind_of_tensor(const std::vector<std::uint64_t> &shape)
{
    if (shape.size() >= 3 && shape.back() == shape[shape.size() - 2] &&
        shape.back() >= 256)
        return fmt::format("an attention matrix over {} tokens: its last two "
                           "sides are alike",
                           shape.back());
    if (shape.size() >= 2 && std::find(vocabularies.begin(), vocabularies.end(),
                                       shape.back()) != vocabularies.end())
        return fmt::format("logits: its last side is a vocabulary of {} words",
                           shape.back());
    return {};
}

std::vector<std::uint64_t> read_shape(std::string_view text)
{
    std::vector<std::uint64_t> made;
    if (text.empty() || text.front() != '[')
        return made;
    constexpr std::size_t most = 16; // sides
    std::uint64_t side = 0;
    bool has_digit = false;
    for (const char c : text.substr(1, 400)) {
        if (c >= '0' && c <= '9') {
            side = plus(times(side, 10), static_cast<std::uint64_t>(c - '0'));
            has_digit = true;
        } else if (c == ',' || c == ']') {
            if (!has_digit || made.size() == most)
                return {};
            made.push_back(side);
            side = 0;
            has_digit = false;
            if (c == ']')
                return made;
        } else if (c != ' ') {
            return {};
        }
    }
    return {};
}

} // namespace emuv::diagnose
