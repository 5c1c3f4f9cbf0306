// SPDX-License-Identifier: GPL-2.0-or-later
// Headers of safetensors files: right ones, and those that lie.
#include "reading.hpp"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <stdlib.h>

namespace emuv::estimate {
namespace {

using testing::HasSubstr;

std::string file_of(const std::string &header, std::size_t data)
{
    return little(header.size(), 8) + header + std::string(data, '\0');
}

// Llama's shape in small: width 64, heads of 64, an MLP of 32, 10 tokens.
std::string small_header(std::size_t &data)
{
    std::string out = R"({"__metadata__":{"format":"pt"})";
    data = 0;
    const auto add = [&](const std::string &name, int rows, int columns) {
        const std::size_t bytes = 2UL * static_cast<unsigned>(rows * columns);
        out += ",\"" + name + "\":{\"dtype\":\"BF16\",\"shape\":[" +
               std::to_string(rows) + "," + std::to_string(columns) +
               "],\"data_offsets\":[" + std::to_string(data) + "," +
               std::to_string(data + bytes) + "]}";
        data += bytes;
    };
    add("model.embed_tokens.weight", 10, 64);
    for (const char *const layer : {"0", "1"}) {
        const std::string at = std::string("model.layers.") + layer;
        add(at + ".self_attn.q_proj.weight", 128, 64);
        add(at + ".self_attn.k_proj.weight", 64, 64);
        add(at + ".self_attn.v_proj.weight", 64, 64);
        add(at + ".self_attn.o_proj.weight", 64, 128);
        add(at + ".mlp.up_proj.weight", 32, 64);
    }
    return out + "}";
}

std::string why_not(const std::string &content)
{
    return refusal(
        [&] { return read_safetensors(*as_file(content), nullptr); });
}

TEST(safetensors, tells_parameters_bytes_and_shape)
{
    std::size_t data = 0;
    const std::string content = file_of(small_header(data), 0);
    const std::string whole = content + std::string(data, '\0');
    const model is = read_safetensors(*as_file(whole), nullptr);
    EXPECT_EQ(is.stored, data);
    EXPECT_EQ(is.counted.all, static_cast<double>(data) / 2);
    EXPECT_EQ(is.stored_as, "BF16");
    EXPECT_EQ(is.text.layers, 2U);
    EXPECT_EQ(is.text.hidden, 64U);
    EXPECT_EQ(is.text.heads, 2U);
    EXPECT_EQ(is.text.kv_heads, 1U);
    EXPECT_EQ(is.text.vocabulary, 10U);
    EXPECT_FALSE(is.assumed.empty());
}

TEST(safetensors, that_lies_about_its_header_is_refused)
{
    EXPECT_THAT(why_not("abc"), HasSubstr("byte 0: too short"));
    EXPECT_THAT(why_not(little(UINT64_MAX, 8) + "{}"),
                HasSubstr("a header of 18446744073709551615 bytes in a file "
                          "that has 2 more"));
    EXPECT_THAT(why_not(little(3, 8) + "{}"), HasSubstr("a header of 3 bytes"));
    EXPECT_THAT(why_not(file_of("{}", 0)), HasSubstr("holds no tensors"));
    EXPECT_THAT(why_not(file_of("{\"a\":", 0)), HasSubstr("no JSON"));
}

TEST(safetensors, that_lies_about_a_tensor_is_refused_by_the_tensors_name)
{
    const auto with = [](const std::string &entry) {
        return why_not(file_of("{\"t\":" + entry + "}", 8));
    };
    EXPECT_THAT(with("7"), HasSubstr("tensor 't': has no dtype"));
    EXPECT_THAT(with(R"({"dtype":"F9","shape":[1],"data_offsets":[0,4]})"),
                HasSubstr("dtype 'F9' is not known"));
    EXPECT_THAT(with(R"({"dtype":"F32","shape":[3],"data_offsets":[0,12]})"),
                HasSubstr("bytes 0 to 12 of 8 bytes"));
    EXPECT_THAT(with(R"({"dtype":"F32","shape":[1],"data_offsets":[8,4]})"),
                HasSubstr("bytes 8 to 4"));
    EXPECT_THAT(with(R"({"dtype":"F32","shape":[18446744073709551615,
        18446744073709551615],"data_offsets":[0,4]})"),
                HasSubstr("its shape takes"));
    EXPECT_THAT(with(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})"),
                HasSubstr("cannot be read"));
    EXPECT_THAT(with(R"({"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,
        1,1],"data_offsets":[0,4]})"),
                HasSubstr("cannot be read"));
}

TEST(safetensors, whose_tensors_share_bytes_is_refused)
{
    const std::string one =
        R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
    EXPECT_THAT(why_not(file_of("{\"a\":" + one + ",\"b\":" + one + "}", 8)),
                HasSubstr("its tensors overlap"));
}

TEST(safetensors, cut_anywhere_or_with_any_byte_changed_is_read_or_refused)
{
    std::size_t data = 0;
    std::string whole = file_of(small_header(data), 0);
    whole.append(data, '\0');
    const std::size_t header = whole.size() - data;
    for (std::size_t length = 0; length < header; length += 7)
        EXPECT_NE(why_not(whole.substr(0, length)), "") << length;
    for (std::size_t at = 0; at < header; at += 3)
        for (const char value : {'\0', '"', '[', '9', '\xff'}) {
            std::string changed = whole;
            changed[at] = value;
            (void)why_not(changed);
        }
}

class model_folder : public testing::Test
{
protected:
    void SetUp() override
    {
        std::string name =
            (std::filesystem::temp_directory_path() / "estimate-XXXXXX")
                .string();
        ASSERT_NE(::mkdtemp(name.data()), nullptr);
        folder_ = name;
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    void write(const char *name, const std::string &content) const
    {
        std::ofstream(folder_ / name, std::ios::binary) << content;
    }

    std::filesystem::path folder_;
};

TEST_F(model_folder, is_read_by_its_index_and_the_files_that_it_names)
{
    std::size_t data = 0;
    const std::string header = small_header(data);
    write("a.safetensors", file_of(header, data));
    write("model.safetensors.index.json",
          R"({"metadata":{},"weight_map":{"t":"a.safetensors"}})");
    EXPECT_EQ(read_model(folder_).stored, data);
}

TEST_F(model_folder, is_not_judged_by_a_part_of_its_weights)
{
    std::size_t data = 0;
    const std::string header = small_header(data);
    const auto named = [&](const char *name) {
        write(name, file_of(header, data));
        return refusal([&] { return read_model(folder_ / name); });
    };
    EXPECT_THAT(named("model-00001-of-00004.safetensors"),
                HasSubstr("is one of several parts"));
    EXPECT_EQ(named("model-00001-of-00001.safetensors"), "");
    EXPECT_EQ(named("model.safetensors"), "");
    write("config.json", R"({"model_type":"llama","num_hidden_layers":20,
        "hidden_size":64,"num_attention_heads":2,"intermediate_size":32,
        "vocab_size":10})");
    EXPECT_THAT(named("model.safetensors"), HasSubstr("a part of a model?"));
}

TEST_F(model_folder, whose_index_names_files_elsewhere_is_refused)
{
    for (const char *const bad : {"\"../a\"", "\"/etc/passwd\"", "\"\"", "7"}) {
        write("model.safetensors.index.json",
              std::string(R"({"weight_map":{"t":)") + bad + "}}");
        EXPECT_THAT(refusal([&] { return read_model(folder_); }),
                    HasSubstr("weight_map: names"))
            << bad;
    }
    write("model.safetensors.index.json",
          R"({"weight_map":{"t":"gone.safetensors"}})");
    EXPECT_THAT(refusal([&] { return read_model(folder_); }),
                HasSubstr("gone.safetensors: No such file"));
}

TEST_F(model_folder, without_a_model_and_what_is_no_file_are_refused)
{
    EXPECT_THAT(refusal([&] { return read_model(folder_); }),
                HasSubstr("holds no model.safetensors.index.json"));
    EXPECT_THAT(refusal([&] { return read_model("/dev/zero"); }),
                HasSubstr("not a regular file"));
    write("config.json", "neither this nor that");
    EXPECT_THAT(refusal([&] { return read_model(folder_ / "config.json"); }),
                HasSubstr("neither a config.json, nor safetensors, nor GGUF"));
}

} // namespace
} // namespace emuv::estimate
