// SPDX-License-Identifier: GPL-2.0-or-later
// The costs of a card's copies and mappings, from a file. Read by hand:
// benchmarks are built on machines without a library for JSON.
#include "costs.hpp"

#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

namespace bench {

namespace {

std::map<std::string, std::uint64_t *> members_of(card_costs &of)
{
    std::map<std::string, std::uint64_t *> out = {
        {"link_in_alone_bytes_per_us", &of.link_in_alone},
        {"link_in_beside_bytes_per_us", &of.link_in_beside},
        {"link_out_alone_bytes_per_us", &of.link_out_alone},
        {"link_out_beside_bytes_per_us", &of.link_out_beside},
        {"in_place_bytes_per_us", &of.in_place},
        {"digest_bytes_per_us", &of.digest},
        {"make_room_ns", &of.make_room_ns},
        {"make_frame_ns", &of.make_frame_ns},
        {"drop_frame_ns", &of.drop_frame_ns},
        {"launch_ns", &of.launch_ns},
    };
    const auto mapping = [&](const std::string &name, mapping_cost &is) {
        out[name + "_rest_ns"] = &is.rest;
        out[name + "_coming_ns"] = &is.coming;
        out[name + "_leaving_ns"] = &is.leaving;
        out[name + "_both_ns"] = &is.both;
    };
    mapping("map_vram", of.map_vram);
    mapping("unmap_vram", of.unmap_vram);
    mapping("map_ram", of.map_ram);
    mapping("unmap_ram", of.unmap_ram);
    return out;
}

// The words of a flat object: names, texts and numbers, without signs.
class words
{
public:
    explicit words(std::string text) : text_(std::move(text)) {}

    bool next(std::string &word, bool &is_text)
    {
        while (at_ < text_.size() &&
               (std::isspace(static_cast<unsigned char>(text_[at_])) != 0 ||
                std::strchr("{},:", text_[at_]) != nullptr))
            at_++;
        word.clear();
        if (at_ >= text_.size())
            return false;
        is_text = text_[at_] == '"';
        if (is_text) {
            for (at_++; at_ < text_.size() && text_[at_] != '"'; at_++)
                word += text_[at_];
            at_++;
            return at_ <= text_.size();
        }
        while (at_ < text_.size() &&
               std::isdigit(static_cast<unsigned char>(text_[at_])) != 0)
            word += text_[at_++];
        return !word.empty();
    }

    [[nodiscard]] bool done() const { return at_ >= text_.size(); }

private:
    std::string text_;
    std::size_t at_ = 0;
};

} // namespace

bool read_costs(const std::string &path, card_costs &out, std::string &error)
{
    std::ifstream file(path);
    if (!file) {
        error = std::strerror(errno);
        return false;
    }
    words rest(std::string(std::istreambuf_iterator<char>(file), {}));
    auto members = members_of(out);
    const std::set<std::string> beside = {"schema", "card", "source"};
    std::string name;
    std::string value;
    bool is_text = false;
    while (rest.next(name, is_text)) {
        const bool named = is_text;
        if (!named || !rest.next(value, is_text)) {
            error = "behind '" + name + "': neither a number nor a text";
            return false;
        }
        if (beside.count(name) > 0)
            continue;
        const auto found = members.find(name);
        if (found == members.end() || is_text || value.size() > 15) {
            error = "'" + name + "' is not a cost, or no number";
            return false;
        }
        *found->second = std::stoull(value);
        if (*found->second == 0) {
            error = "'" + name + "' is 0";
            return false;
        }
        members.erase(found);
    }
    if (!rest.done())
        error = "not a flat object";
    else if (!members.empty())
        error = "'" + members.begin()->first + "' is missing";
    else
        return true;
    return false;
}

} // namespace bench
