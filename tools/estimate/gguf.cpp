// SPDX-License-Identifier: GPL-2.0-or-later
// Reads the header of GGUF files, versions 2 and 3, and trusts nothing in it.
#include "input.hpp"
#include "model.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <map>

#include <fmt/format.h>

namespace emuv::estimate {

namespace {

constexpr std::uint64_t most_header = 512U << 20U;
constexpr std::uint64_t most_key = 1U << 16U;
constexpr std::uint64_t most_nesting = 4;
constexpr std::uint64_t most_elements = std::uint64_t{1} << 50U;

// The kinds of values.
enum kind : std::uint32_t
{
    u8,
    i8,
    u16,
    i16,
    u32,
    i32,
    f32,
    boolean,
    text,
    array,
    u64,
    i64,
    f64,
};

constexpr std::array<std::uint64_t, 13> kind_bytes = {1, 1, 2, 2, 4, 4, 4,
                                                      1, 0, 0, 8, 8, 8};

// Weights by the block: so many in so many bytes.
struct block
{
    std::uint32_t id;
    std::string_view name;
    std::uint64_t weights;
    std::uint64_t bytes;
};

constexpr std::array<block, 33> blocks = {{
    {0, "F32", 1, 4},         {1, "F16", 1, 2},
    {2, "Q4_0", 32, 18},      {3, "Q4_1", 32, 20},
    {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},
    {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 36},
    {10, "Q2_K", 256, 84},    {11, "Q3_K", 256, 110},
    {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},
    {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},   {23, "IQ4_XS", 256, 136},
    {24, "I8", 1, 1},         {25, "I16", 1, 2},
    {26, "I32", 1, 4},        {27, "I64", 1, 8},
    {28, "F64", 1, 8},        {29, "IQ1_M", 256, 56},
    {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},
    {40, "NVFP4", 64, 36},
}};

// A value that the model's shape may need: a number, a short text, or how many
// an array has, with its largest number.
struct value
{
    bool is_text = false;
    bool is_array = false;
    std::string words;
    std::uint64_t number = 0;
    std::uint64_t count = 0;
};

class reader
{
public:
    explicit reader(input &from) : from_(from) {}

    model read();

private:
    [[noreturn]] void refuse(const std::string &why) const
    {
        from_.refuse(at_, why);
    }
    [[nodiscard]] std::uint64_t left() const { return from_.size() - at_; }

    void bytes(std::span<unsigned char> to);
    void skip(std::uint64_t count);
    std::uint64_t whole(std::size_t width);
    std::string string(std::uint64_t most, const char *of);
    std::uint64_t scalar(std::uint32_t of);
    value read_value(std::uint32_t of, std::uint64_t depth);
    void read_pairs(std::uint64_t count);
    void read_tensors(std::uint64_t count);

    [[nodiscard]] const value *find(const std::string &key) const
    {
        const auto found = values_.find(key);
        return found == values_.end() ? nullptr : &found->second;
    }
    [[nodiscard]] std::uint64_t number(const std::string &key,
                                       std::uint64_t least,
                                       std::uint64_t most) const;
    [[nodiscard]] std::uint64_t number_or(const std::string &key,
                                          std::uint64_t otherwise,
                                          std::uint64_t most) const
    {
        return find(key) != nullptr ? number(key, 0, most) : otherwise;
    }
    [[nodiscard]] transformer shape(const std::string &of) const;

    input &from_;
    std::uint64_t at_ = 0;
    std::array<unsigned char, 1 << 16> buffer_{};
    std::uint64_t buffer_at_ = 0;
    std::uint64_t buffered_ = 0;
    std::map<std::string, value> values_;
    double elements_ = 0;
    double bytes_ = 0;
    double largest_ = 0;
    bool has_head_ = false;
    std::uint64_t alignment_ = 32;
    std::map<std::string_view, double> by_type_;
};

void reader::bytes(std::span<unsigned char> to)
{
    if (to.size() > left())
        refuse(fmt::format("the file ends, {} bytes are missing",
                           to.size() - left()));
    if (at_ + to.size() > most_header)
        refuse(fmt::format("the header passes {} bytes", most_header));
    while (!to.empty()) {
        if (at_ < buffer_at_ || at_ >= buffer_at_ + buffered_) {
            buffer_at_ = at_;
            buffered_ = std::min<std::uint64_t>(buffer_.size(), left());
            from_.read(at_, std::span(buffer_).first(buffered_));
        }
        const std::uint64_t offset = at_ - buffer_at_;
        const std::size_t part =
            std::min<std::size_t>(to.size(), buffered_ - offset);
        std::memcpy(to.data(), buffer_.data() + offset, part);
        at_ += part;
        to = to.subspan(part);
    }
}

void reader::skip(std::uint64_t count)
{
    if (count > left())
        refuse(fmt::format("{} bytes are claimed, the file has {} more", count,
                           left()));
    at_ += count;
}

std::uint64_t reader::whole(std::size_t width)
{
    std::array<unsigned char, 8> raw{};
    bytes(std::span(raw).first(width));
    std::uint64_t out = 0;
    for (std::size_t i = width; i-- > 0;)
        out = out << 8U | raw[i];
    return out;
}

std::string reader::string(std::uint64_t most, const char *of)
{
    const std::uint64_t length = whole(8);
    if (length > most || length > left())
        refuse(fmt::format("{} of {} bytes; {} are left, at most {} are read",
                           of, length, left(), most));
    std::string out(length, '\0');
    bytes({reinterpret_cast<unsigned char *>(out.data()), out.size()});
    return out;
}

// A number, of whatever kind; fractions and negative numbers count as 0.
std::uint64_t reader::scalar(std::uint32_t of)
{
    const std::uint64_t raw = whole(kind_bytes[of]);
    switch (of) {
    case u8:
    case u16:
    case u32:
    case u64:
    case boolean:
        return raw;
    case i8:
    case i16:
    case i32:
    case i64:
        return (raw >> (8 * kind_bytes[of] - 1)) != 0 ? 0 : raw;
    default:
        return 0;
    }
}

value reader::read_value(std::uint32_t of, std::uint64_t depth)
{
    value out;
    if (of == text) {
        out.is_text = true;
        const std::uint64_t length = whole(8);
        if (length > left())
            refuse(fmt::format("a text of {} bytes, the file has {} more",
                               length, left()));
        out.words.resize(std::min<std::uint64_t>(length, 256));
        bytes({reinterpret_cast<unsigned char *>(out.words.data()),
               out.words.size()});
        skip(length - out.words.size());
        return out;
    }
    if (of != array) {
        if (of >= kind_bytes.size())
            refuse(fmt::format("a value of the unknown kind {}", of));
        out.number = scalar(of);
        return out;
    }
    if (depth == most_nesting)
        refuse(fmt::format("arrays nest more than {} deep", most_nesting));
    out.is_array = true;
    const auto each = static_cast<std::uint32_t>(whole(4));
    out.count = whole(8);
    if (each >= kind_bytes.size())
        refuse(fmt::format("an array of the unknown kind {}", each));
    const std::uint64_t least = each == text    ? 8
                                : each == array ? 12
                                                : kind_bytes[each];
    if (out.count > left() / least)
        refuse(fmt::format("an array of {} values, the file has {} more bytes",
                           out.count, left()));
    if (each != text && each != array && out.count > most_layers) {
        skip(out.count * least);
        return out;
    }
    for (std::uint64_t i = 0; i < out.count; i++) {
        if (each == text) {
            const std::uint64_t length = whole(8);
            skip(length);
        } else {
            out.number =
                std::max(out.number, read_value(each, depth + 1).number);
        }
    }
    return out;
}

void reader::read_pairs(std::uint64_t count)
{
    for (std::uint64_t i = 0; i < count; i++) {
        const std::string key = string(most_key, "a key");
        const auto of = static_cast<std::uint32_t>(whole(4));
        value read = read_value(of, 0);
        // The rest is of tokens and templates.
        if (values_.size() < 1024 && key.size() < 128)
            values_.insert_or_assign(key, std::move(read));
    }
}

void reader::read_tensors(std::uint64_t count)
{
    std::uint64_t end = 0;
    for (std::uint64_t i = 0; i < count; i++) {
        const std::string name = string(most_key, "a tensor's name");
        const std::string shown = name.substr(0, 100);
        const std::uint64_t dimensions = whole(4);
        if (dimensions > 4)
            refuse(fmt::format("tensor '{}' has {} dimensions", shown,
                               dimensions));
        std::uint64_t elements = 1;
        std::uint64_t row = 1;
        for (std::uint64_t k = 0; k < dimensions; k++) {
            const std::uint64_t length = whole(8);
            if (length == 0 || length > most_elements / elements)
                refuse(fmt::format("tensor '{}' has a length of {}", shown,
                                   length));
            if (k == 0)
                row = length;
            elements *= length;
        }
        const auto of = static_cast<std::uint32_t>(whole(4));
        const auto *const is =
            std::find_if(blocks.begin(), blocks.end(),
                         [&](const block &each) { return each.id == of; });
        if (is == blocks.end())
            refuse(fmt::format("tensor '{}' is of the unknown type {}", shown,
                               of));
        if (row % is->weights != 0)
            refuse(fmt::format("tensor '{}': rows of {} are no blocks of {}",
                               shown, row, is->weights));
        const std::uint64_t takes = elements / is->weights * is->bytes;
        const std::uint64_t offset = whole(8);
        if (offset > from_.size() || takes > from_.size() - offset)
            refuse(fmt::format("tensor '{}' of {} bytes at {} does not lie in "
                               "a file of {}",
                               shown, takes, offset, from_.size()));
        end = std::max(end, offset + takes);
        elements_ += static_cast<double>(elements);
        bytes_ += static_cast<double>(takes);
        largest_ = std::max(largest_, static_cast<double>(elements));
        by_type_[is->name] += static_cast<double>(takes);
        has_head_ = has_head_ || name == "output.weight";
    }
    const std::uint64_t align = number_or("general.alignment", 32, 1U << 20U);
    if (align == 0)
        refuse("general.alignment is 0");
    const std::uint64_t data = (at_ + align - 1) / align * align;
    if (data > from_.size() || end > from_.size() - data)
        refuse(fmt::format("the tensors end at byte {}, the file at {}: is it "
                           "whole?",
                           data + end, from_.size()));
    if (bytes_ > static_cast<double>(from_.size()))
        refuse("its tensors overlap");
}

std::uint64_t reader::number(const std::string &key, std::uint64_t least,
                             std::uint64_t most) const
{
    const value *const found = find(key);
    if (found == nullptr)
        from_.refuse(fmt::format("{} is missing", key));
    if (found->is_text)
        from_.refuse(fmt::format("{} is no number", key));
    if (found->number < least || found->number > most)
        from_.refuse(fmt::format("{}: {} is not within {} and {}", key,
                                 found->number, least, most));
    return found->number;
}

transformer reader::shape(const std::string &of) const
{
    const auto key = [&](const char *end) { return of + "." + end; };
    transformer is;
    is.layers = number(key("block_count"), 1, most_layers);
    is.hidden = number(key("embedding_length"), 1, most_width);
    is.heads = number(key("attention.head_count"), 1, is.hidden);
    is.kv_heads = number_or(key("attention.head_count_kv"), is.heads, is.heads);
    is.head_width = number_or(key("attention.key_length"), is.hidden / is.heads,
                              most_width);
    is.intermediate = number(key("feed_forward_length"), 1, most_width);
    is.longest = number_or(key("context_length"), 0, most_tokens);
    is.vocabulary = number_or(key("vocab_size"), 0, most_vocabulary);
    const value *const tokens = find("tokenizer.ggml.tokens");
    if (tokens != nullptr && tokens->is_array &&
        tokens->count <= most_vocabulary)
        is.vocabulary = tokens->count;
    if (is.vocabulary == 0)
        from_.refuse(fmt::format("has neither tokenizer.ggml.tokens nor {}",
                                 key("vocab_size")));
    is.kv_heads = std::max(is.kv_heads, std::uint64_t{1});
    is.head_width = std::max(is.head_width, std::uint64_t{1});
    is.tied = !has_head_;
    is.gated = of != "gpt2" && of != "gptneox";
    is.layer_norm = is.biases = !is.gated;
    is.dropout = is.composed_activation = of == "gpt2";
    if (of == "gpt2")
        is.positions = is.longest;
    is.window = number_or(key("attention.sliding_window"), 0, most_tokens);
    if (is.window != 0)
        is.windowed_layers =
            of == "gemma2" ? is.layers - is.layers / 2 : is.layers;
    if (find(key("attention.kv_lora_rank")) != nullptr) {
        latent_attention by;
        by.query_rank = number_or(key("attention.q_lora_rank"), 0, most_width);
        by.rank = number(key("attention.kv_lora_rank"), 1, most_width);
        by.rope = number_or(key("rope.dimension_count"), 64, most_width);
        // Files for absorbed attention name its widths apart, and llama.cpp
        // keeps the narrow vector of these alone.
        by.stays_narrow = find(key("attention.key_length_mla")) != nullptr;
        const char *const wide = by.stays_narrow ? "attention.key_length_mla"
                                                 : "attention.key_length";
        const std::uint64_t whole = number_or(key(wide), 192, most_width);
        by.nope = whole - std::min(whole, by.rope);
        by.value =
            number_or(key(find(key("attention.value_length_mla")) != nullptr
                              ? "attention.value_length_mla"
                              : "attention.value_length"),
                      128, most_width);
        is.latent = by;
    }
    if (number_or(key("expert_count"), 0, most_width) != 0) {
        mixture by;
        by.experts = number(key("expert_count"), 1, most_width);
        by.used = number(key("expert_used_count"), 1, by.experts);
        by.shared = number_or(key("expert_shared_count"), 0, most_width);
        by.intermediate = number_or(key("expert_feed_forward_length"),
                                    is.intermediate, most_width);
        by.dense_layers =
            number_or(key("leading_dense_block_count"), 0, most_layers);
        is.experts = by;
    }
    return is;
}

model reader::read()
{
    std::array<unsigned char, 4> magic{};
    bytes(magic);
    if (std::memcmp(magic.data(), "GGUF", magic.size()) != 0)
        from_.refuse(0, "no GGUF file");
    const std::uint64_t version = whole(4);
    if (version != 2 && version != 3)
        refuse(fmt::format("version {} of GGUF; 2 and 3 are read", version));
    const std::uint64_t tensors = whole(8);
    const std::uint64_t pairs = whole(8);
    // A key, a kind and a value; a name, a length, a type and an offset.
    if (pairs > left() / 13)
        refuse(
            fmt::format("{} pairs, the file has {} more bytes", pairs, left()));
    read_pairs(pairs);
    if (tensors > left() / 24)
        refuse(fmt::format("{} tensors, the file has {} more bytes", tensors,
                           left()));
    read_tensors(tensors);
    if (tensors == 0)
        from_.refuse("holds no tensors");

    const std::uint64_t parts = number_or("split.count", 1, UINT16_MAX);
    if (parts > 1)
        from_.refuse(fmt::format("is one of {} parts of a model; join them "
                                 "with llama-gguf-split --merge",
                                 parts));

    constexpr std::array<std::string_view, 11> known = {
        "deepseek2", "gemma", "gemma2", "gpt2",     "llama",  "mistral",
        "phi3",      "qwen2", "qwen3",  "qwen3moe", "gptneox"};
    const value *const of = find("general.architecture");
    if (of == nullptr || !of->is_text)
        from_.refuse("general.architecture is missing");
    if (std::find(known.begin(), known.end(), of->words) == known.end())
        from_.refuse(fmt::format("general.architecture: '{}' is not known; "
                                 "known are {}",
                                 of->words, fmt::join(known, ", ")));
    model out;
    const value *const name = find("general.name");
    out.name = name != nullptr && name->is_text && !name->words.empty()
                   ? name->words.substr(0, 100)
                   : of->words;
    out.kind = of->words;
    out.text = shape(of->words);
    out.counted = count(out.text);
    const double share = out.counted.active / out.counted.all;
    out.counted = {elements_, elements_ * share,
                   std::min(out.counted.linear, elements_), largest_};
    out.stored = bytes_;
    out.stored_as = std::max_element(by_type_.begin(), by_type_.end(),
                                     [](const auto &a, const auto &b) {
                                         return a.second < b.second;
                                     })
                        ->first;
    return out;
}

} // namespace

model read_gguf(input &from)
{
    return reader(from).read();
}

} // namespace emuv::estimate
