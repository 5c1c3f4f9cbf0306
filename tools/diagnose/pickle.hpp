// SPDX-License-Identifier: GPL-2.0-or-later
// Pickles as plain data. Nothing in one is run: whatever would make an object
// of a class, or call something, is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace emuv::diagnose {

class pickle
{
public:
    enum class kind : std::uint8_t
    {
        none, ///< also what the reader does not keep: floats, long numbers
        boolean,
        integer,
        text,  ///< or bytes
        list,  ///< or a tuple or a set
        table, ///< a dict
        mark,  ///< of the stack; in no answer
    };

    struct value
    {
        kind is = kind::none;
        std::uint32_t length = 0; ///< of a text
        std::uint64_t word = 0;   ///< number, place of a text, container
    };

    /// @param data  outlives this object
    explicit pickle(std::string_view data) : data_(data) {}

    /// Reads all of it. Takes memory in proportion to the data.
    /// @return false with problem() for what is no pickle of plain data
    bool read();
    [[nodiscard]] const std::string &problem() const { return problem_; }

    /// The value that was pickled. Containers may hold one another in circles.
    [[nodiscard]] value root() const { return root_; }

    /// The elements of a list; a table's keys and values in turns. Empty for
    /// whatever has none.
    [[nodiscard]] const std::vector<value> &items(value of) const;
    /// The value of a key in a table; none where it is not there.
    [[nodiscard]] value at(value table, std::string_view key) const;
    [[nodiscard]] std::string_view text(value of) const;
    /// A number that is not below zero; 0 for whatever is none.
    [[nodiscard]] std::uint64_t number(value of) const;

private:
    bool step(unsigned char code);
    bool containers(unsigned char code);
    bool scalars(unsigned char code);
    bool memory(unsigned char code);
    bool fail(std::string why);
    bool take(std::size_t bytes, std::string_view &taken);
    bool take_number(unsigned bytes, std::uint64_t &number);
    bool take_line(std::string_view &line);
    bool push(value what);
    bool push_text(std::uint64_t length);
    bool push_container(kind is, std::size_t count);
    bool pop(value &what);
    bool above_mark(std::size_t &first);
    bool keep(std::uint64_t key);
    bool fetch(std::uint64_t key);
    bool add(std::size_t first, kind to);

    std::string_view data_;
    std::size_t at_ = 0;
    bool done_ = false;
    value root_;
    std::vector<value> stack_;
    std::vector<std::vector<value>> containers_;
    std::vector<value> memo_;                         // by number, from 0
    std::unordered_map<std::uint64_t, value> sparse_; // beyond a gap
    std::size_t pushed_ = 0;
    std::size_t kept_ = 0;
    std::string problem_;
};

} // namespace emuv::diagnose
