// SPDX-License-Identifier: GPL-2.0-or-later
// Headers of GGUF files: right ones, and those that lie.
#include "reading.hpp"

#include <gmock/gmock.h>

namespace emuv::estimate {
namespace {

using testing::HasSubstr;

std::string text(const std::string &of)
{
    return little(of.size(), 8) + of;
}

std::string pair_of(const std::string &key, unsigned kind,
                    const std::string &value)
{
    return text(key) + little(kind, 4) + value;
}

std::string number(const std::string &key, std::uint64_t value)
{
    return pair_of(key, 4, little(value, 4));
}

std::string tensor(const std::string &name, std::uint64_t columns,
                   std::uint64_t rows, unsigned type, std::uint64_t offset)
{
    return text(name) + little(2, 4) + little(columns, 8) + little(rows, 8) +
           little(type, 4) + little(offset, 8);
}

std::string file_of(std::uint64_t tensors, std::uint64_t pairs,
                    const std::string &rest, std::size_t data = 4096)
{
    return "GGUF" + little(3, 4) + little(tensors, 8) + little(pairs, 8) +
           rest + std::string(data, '\0');
}

const std::string llama_pairs =
    pair_of("general.architecture", 8, text("llama")) +
    number("llama.block_count", 2) + number("llama.embedding_length", 256) +
    number("llama.attention.head_count", 4) +
    // For each layer, as some files have it.
    pair_of("llama.attention.head_count_kv", 9,
            little(4, 4) + little(2, 8) + little(2, 4) + little(2, 4)) +
    number("llama.feed_forward_length", 512) +
    number("llama.context_length", 4096) +
    pair_of("tokenizer.ggml.tokens", 9,
            little(8, 4) + little(3, 8) + text("a") + text("b") + text("c"));
constexpr std::uint64_t pairs = 8;

std::string why_not(const std::string &content)
{
    return refusal([&] { return read_gguf(*as_file(content)); });
}

TEST(gguf, tells_parameters_bytes_and_shape)
{
    const std::string content =
        file_of(2, pairs,
                llama_pairs + tensor("token_embd.weight", 256, 3, 12, 0) +
                    tensor("blk.0.attn_q.weight", 256, 2, 0, 448));
    const model is = read_gguf(*as_file(content));
    EXPECT_EQ(is.counted.all, 256 * 3 + 256 * 2);
    EXPECT_EQ(is.stored, 3 * 144 + 256 * 2 * 4);
    EXPECT_EQ(is.stored_as, "F32");
    EXPECT_EQ(is.kind, "llama");
    EXPECT_EQ(is.text.layers, 2U);
    EXPECT_EQ(is.text.kv_heads, 2U);
    EXPECT_EQ(is.text.head_width, 64U);
    EXPECT_EQ(is.text.vocabulary, 3U);
    EXPECT_EQ(is.text.longest, 4096U);
}

TEST(gguf, of_an_unknown_kind_is_refused_by_its_name)
{
    const std::string one = tensor("t", 32, 1, 0, 0);
    EXPECT_THAT(why_not("GGUX" + std::string(60, '\0')),
                HasSubstr("no GGUF file"));
    EXPECT_THAT(why_not("GGUF" + little(1, 4) + std::string(60, '\0')),
                HasSubstr("version 1 of GGUF"));
    EXPECT_THAT(
        why_not(file_of(
            1, 1, pair_of("general.architecture", 8, text("rwkv7")) + one)),
        HasSubstr("general.architecture: 'rwkv7' is not known"));
    EXPECT_THAT(why_not(file_of(1, 0, one)),
                HasSubstr("general.architecture is missing"));
    EXPECT_THAT(
        why_not(file_of(
            1, 1, pair_of("general.architecture", 8, text("llama")) + one)),
        HasSubstr("llama.block_count is missing"));
}

TEST(gguf, that_is_a_part_or_knows_no_tokens_is_refused)
{
    const std::string one = tensor("t", 32, 1, 0, 0);
    EXPECT_THAT(why_not(file_of(1, pairs + 1,
                                llama_pairs + number("split.count", 3) + one)),
                HasSubstr("is one of 3 parts"));
    EXPECT_EQ(why_not(file_of(1, pairs + 1,
                              llama_pairs + number("split.count", 1) + one)),
              "");
    const auto last = llama_pairs.find(text("tokenizer.ggml.tokens"));
    EXPECT_THAT(
        why_not(file_of(1, pairs - 1, llama_pairs.substr(0, last) + one)),
        HasSubstr("has neither tokenizer.ggml.tokens nor llama.vocab_size"));
}

TEST(gguf, that_claims_more_than_it_has_is_refused_with_the_place)
{
    EXPECT_THAT(why_not(file_of(UINT64_MAX, 0, "")), HasSubstr("tensors, the"));
    EXPECT_THAT(why_not(file_of(0, UINT64_MAX, "")), HasSubstr("pairs, the"));
    EXPECT_THAT(why_not(file_of(0, 1, little(UINT64_MAX, 8))),
                HasSubstr("a key of 18446744073709551615 bytes"));
    EXPECT_THAT(why_not(file_of(
                    0, 1, text("k") + little(8, 4) + little(UINT64_MAX, 8))),
                HasSubstr("byte 45: a text of 18446744073709551615 bytes"));
    EXPECT_THAT(why_not(file_of(0, 1,
                                text("k") + little(9, 4) + little(4, 4) +
                                    little(UINT64_MAX, 8))),
                HasSubstr("an array of 18446744073709551615 values"));
    EXPECT_THAT(why_not(file_of(0, 1, text("k") + little(77, 4))),
                HasSubstr("unknown kind 77"));
    EXPECT_THAT(
        why_not(file_of(
            0, 1, text("k") + little(9, 4) + little(99, 4) + little(0, 8))),
        HasSubstr("unknown kind 99"));
}

TEST(gguf, whose_arrays_nest_deep_is_refused)
{
    std::string nested;
    for (int i = 0; i < 1000; i++)
        nested += little(9, 4) + little(1, 8);
    EXPECT_THAT(why_not(file_of(0, 1, text("k") + little(9, 4) + nested)),
                HasSubstr("arrays nest more than 4 deep"));
}

TEST(gguf, that_lies_about_a_tensor_is_refused_by_the_tensors_name)
{
    const auto with = [](const std::string &entry) {
        return why_not(file_of(1, pairs, llama_pairs + entry));
    };
    EXPECT_EQ(with(tensor("t", 32, 1, 0, 0)), "");
    EXPECT_THAT(with(tensor("t", 1ULL << 40U, 1ULL << 40U, 0, 0)),
                HasSubstr("tensor 't' has a length of"));
    EXPECT_THAT(with(tensor("t", 0, 1, 0, 0)), HasSubstr("a length of 0"));
    EXPECT_THAT(with(tensor("t", 32, 1, 250, 0)),
                HasSubstr("unknown type 250"));
    EXPECT_THAT(with(tensor("t", 33, 1, 2, 0)),
                HasSubstr("rows of 33 are no blocks of 32"));
    EXPECT_THAT(with(tensor("t", 32, 1, 0, UINT64_MAX)),
                HasSubstr("does not lie in a file"));
    EXPECT_THAT(with(text("t") + little(9, 4)), HasSubstr("9 dimensions"));
    EXPECT_THAT(with(tensor("t", 32, 33, 0, 0)), HasSubstr("is it whole?"));
}

TEST(gguf, cut_anywhere_or_with_any_byte_changed_is_read_or_refused)
{
    const std::string whole = file_of(
        1, pairs, llama_pairs + tensor("token_embd.weight", 256, 3, 12, 0));
    const std::size_t header = whole.size() - 4096;
    for (std::size_t length = 0; length <= header; length++)
        EXPECT_NE(why_not(whole.substr(0, length)), "") << length;
    for (std::size_t at = 0; at < header; at++)
        for (const char value : {'\0', '\1', '\x7f', '\x80', '\xff'}) {
            std::string changed = whole;
            changed[at] = value;
            (void)why_not(changed);
        }
}

} // namespace
} // namespace emuv::estimate
