// SPDX-License-Identifier: GPL-2.0-or-later
// A file's bytes one after the other.
#include "report/bytes.hpp"

#include <algorithm>
#include <array>

namespace emuv::report {

namespace {

constexpr std::size_t block_bytes = std::size_t{64} << 10;

bool is_between_tokens(char each)
{
    constexpr std::string_view between = " \t\r\n,:[]{}";
    return between.find(each) != std::string_view::npos;
}

} // namespace

void bytes::fill()
{
    before_ += at_;
    at_ = 0;
    block_.resize(block_bytes);
    block_.resize(from_(block_.data(), block_.size()));
}

void bytes::next()
{
    const char was = block_[at_++];
    if (in_text_) {
        const bool ends = was == '"' && !escaped_;
        escaped_ = was == '\\' && !escaped_;
        in_text_ = !ends;
        token_ = ends ? 0 : token_ + 1;
    } else if (was == '"') {
        in_text_ = true;
        escaped_ = false;
        token_ = 0;
    } else {
        token_ = is_between_tokens(was) ? 0 : token_ + 1;
    }
    if (token_ > token_bytes) {
        too_long_ = true;
        before_ += at_;
        at_ = 0;
        block_.clear();
        return;
    }
    if (at_ == block_.size())
        fill();
}

std::string kind_of(std::string_view head)
{
    struct known
    {
        std::string_view begins;
        const char *is;
    };
    using namespace std::string_view_literals;
    static constexpr std::array<known, 13> all = {{
        {"\x1f\x8b"sv, "compressed by gzip; unpack it first"},
        {"\x28\xb5\x2f\xfd"sv, "compressed by zstd; unpack it first"},
        {"\xfd"
         "7zXZ"sv,
         "compressed by xz; unpack it first"},
        {"\x7f"
         "ELF"sv,
         "a program or a library (ELF)"},
        {"PK\x03\x04"sv, "a zip archive, as torch.save() writes"},
        {"\x80\x04"sv, "a pickle; 'emuvctl diagnose' reads PyTorch's memory "
                       "snapshots"},
        {"GGUF"sv, "a model (GGUF); 'emuvctl estimate' reads it"},
        {"SQLite format 3"sv, "a database (SQLite), as nsys exports"},
        {"proven\tnamed\tuntrusted"sv, "a table of kernels, as 'emuvctl run "
                                       "--stats' writes"},
        {"\x89PNG"sv, "a picture (PNG)"},
        {"%PDF"sv, "a document (PDF)"},
        {"<"sv, "HTML or XML"},
        {"#!"sv, "a script"},
    }};
    if (head.empty())
        return "empty";
    for (const known &each : all)
        if (head.starts_with(each.begins))
            return each.is;
    const auto first = head.find_first_not_of(" \t\r\n");
    if (first != std::string_view::npos &&
        (head[first] == '[' || head[first] == '{'))
        return "";
    const bool text = std::none_of(head.begin(), head.end(), [](char each) {
        const auto code = static_cast<unsigned char>(each);
        return code < 0x20 && each != '\n' && each != '\r' && each != '\t';
    });
    return text ? "text" : "of a kind that is not known here";
}

} // namespace emuv::report
