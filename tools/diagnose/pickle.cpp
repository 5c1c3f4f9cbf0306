// SPDX-License-Identifier: GPL-2.0-or-later
// Pickles as plain data, opcode by opcode. Each opcode pushes one value at
// most, so no pickle takes more memory than a multiple of its own size.
#include "pickle.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>

namespace emuv::diagnose {

namespace {

const std::vector<pickle::value> nothing;

constexpr std::size_t most_values = std::size_t{32} << 20;

// A text names something of Python's, for a message.
std::string shown(std::string_view text)
{
    std::string made(text.substr(0, 60));
    for (char &c : made)
        if (c < ' ' || c > '~')
            c = '?';
    return made;
}

} // namespace

bool pickle::fail(std::string why)
{
    if (problem_.empty())
        problem_ = fmt::format("byte {}: {}", at_, why);
    return false;
}

bool pickle::take(std::size_t bytes, std::string_view &taken)
{
    if (bytes > data_.size() - at_)
        return fail("it ends within a value");
    taken = data_.substr(at_, bytes);
    at_ += bytes;
    return true;
}

// Little-endian.
bool pickle::take_number(unsigned bytes, std::uint64_t &number)
{
    std::string_view taken;
    if (!take(bytes, taken))
        return false;
    number = 0;
    for (unsigned i = bytes; i-- > 0;)
        number = number << 8 | static_cast<unsigned char>(taken[i]);
    return true;
}

bool pickle::take_line(std::string_view &line)
{
    const std::size_t end = data_.find('\n', at_);
    if (end == std::string_view::npos)
        return fail("it ends within a line");
    line = data_.substr(at_, end - at_);
    at_ = end + 1;
    return true;
}

bool pickle::push(value what)
{
    if (++pushed_ > most_values)
        return fail("more values than are read: record a shorter history");
    stack_.push_back(what);
    return true;
}

bool pickle::push_text(std::uint64_t length)
{
    std::string_view taken;
    if (length > data_.size() - at_ || length > UINT32_MAX)
        return fail("a text is longer than the file");
    const std::size_t from = at_;
    return take(static_cast<std::size_t>(length), taken) &&
           push({kind::text, static_cast<std::uint32_t>(length), from});
}

// Makes a container of the topmost values.
bool pickle::push_container(kind is, std::size_t count)
{
    if (count > stack_.size())
        return fail("a container has more values than there are");
    const auto first = stack_.end() - static_cast<std::ptrdiff_t>(count);
    if (std::any_of(first, stack_.end(),
                    [](const value &each) { return each.is == kind::mark; }))
        return fail("a container holds a mark");
    containers_.emplace_back(first, stack_.end());
    stack_.erase(first, stack_.end());
    return push({is, 0, containers_.size() - 1});
}

bool pickle::pop(value &what)
{
    if (stack_.empty() || stack_.back().is == kind::mark)
        return fail("there is no value to take");
    what = stack_.back();
    stack_.pop_back();
    return true;
}

// The place behind the topmost mark.
bool pickle::above_mark(std::size_t &first)
{
    for (first = stack_.size(); first > 0; first--)
        if (stack_[first - 1].is == kind::mark)
            return true;
    return fail("there is no mark");
}

bool pickle::keep(std::uint64_t key)
{
    if (stack_.empty() || stack_.back().is == kind::mark)
        return fail("there is no value to keep");
    if (++kept_ > most_values)
        return fail("more values than are read: record a shorter history");
    // Python counts them from 0. A number that is claimed takes no memory.
    if (key < memo_.size())
        memo_[static_cast<std::size_t>(key)] = stack_.back();
    else if (key == memo_.size())
        memo_.push_back(stack_.back());
    else
        sparse_[key] = stack_.back();
    return true;
}

bool pickle::fetch(std::uint64_t key)
{
    if (key < memo_.size())
        return push(memo_[static_cast<std::size_t>(key)]);
    const auto found = sparse_.find(key);
    return found != sparse_.end() ? push(found->second)
                                  : fail("a value that was not kept");
}

// Adds what stands from @p first on to the container below it.
bool pickle::add(std::size_t first, kind to)
{
    const std::size_t below =
        first > 0 && stack_[first - 1].is == kind::mark ? first - 1 : first;
    if (below == 0 || stack_[below - 1].is != to)
        return fail("there is no container to add to");
    if (to == kind::table && (stack_.size() - first) % 2 != 0)
        return fail("a key has no value");
    std::vector<value> &into =
        containers_[static_cast<std::size_t>(stack_[below - 1].word)];
    into.insert(into.end(), stack_.begin() + static_cast<std::ptrdiff_t>(first),
                stack_.end());
    stack_.resize(below);
    return true;
}

// Numbers, texts and the constants.
bool pickle::scalars(unsigned char code)
{
    std::uint64_t number = 0;
    std::string_view taken;
    switch (code) {
    case 'N':
        return push({});
    case 0x88: // NEWTRUE
    case 0x89: // NEWFALSE
        return push({kind::boolean, 0, code == 0x88 ? 1U : 0U});
    case 'K': // BININT1, BININT2, BININT
        return take_number(1, number) && push({kind::integer, 0, number});
    case 'M':
        return take_number(2, number) && push({kind::integer, 0, number});
    case 'J':
        return take_number(4, number) &&
               push({kind::integer, 0,
                     number >> 31 != 0 ? number | ~std::uint64_t{UINT32_MAX}
                                       : number});
    case 0x8a: // LONG1
    case 0x8b: // LONG4
        if (!take_number(code == 0x8a ? 1 : 4, number))
            return false;
        // Numbers of more than 64 bits are not kept.
        if (number <= 8)
            return take_number(static_cast<unsigned>(number), number) &&
                   push({kind::integer, 0, number});
        if (number == 9 && data_.size() - at_ >= 9 && data_[at_ + 8] == 0)
            return take_number(8, number) && take(1, taken) &&
                   push({kind::integer, 0, number});
        return take(static_cast<std::size_t>(number), taken) && push({});
    case 'I': // INT, LONG: digits
    case 'L': {
        if (!take_line(taken))
            return false;
        std::int64_t read = 0;
        const auto end =
            std::from_chars(taken.data(), taken.data() + taken.size(), read);
        return end.ec == std::errc()
                   ? push({kind::integer, 0, static_cast<std::uint64_t>(read)})
                   : push({});
    }
    case 'F': // FLOAT
        return take_line(taken) && push({});
    case 'G': // BINFLOAT
        return take(8, taken) && push({});
    case 'U': // SHORT_BINSTRING, SHORT_BINBYTES, SHORT_BINUNICODE
    case 'C':
    case 0x8c:
        return take_number(1, number) && push_text(number);
    case 'T': // BINSTRING, BINBYTES, BINUNICODE
    case 'B':
    case 'X':
        return take_number(4, number) && push_text(number);
    case 0x8d: // BINUNICODE8, BINBYTES8
    case 0x8e:
        return take_number(8, number) && push_text(number);
    case 'V': // UNICODE, STRING
    case 'S': {
        const std::size_t from = at_;
        return take_line(taken) && taken.size() <= UINT32_MAX &&
               push({kind::text, static_cast<std::uint32_t>(taken.size()),
                     from});
    }
    default:
        return fail(fmt::format("opcode {:#04x} is no plain data", code));
    }
}

// Lists, tuples, sets and dicts.
bool pickle::containers(unsigned char code)
{
    std::size_t first = 0;
    switch (code) {
    case ']': // EMPTY_LIST, EMPTY_TUPLE, EMPTY_SET
    case ')':
    case 0x8f:
        return push_container(kind::list, 0);
    case '}':
        return push_container(kind::table, 0);
    case 0x85: // TUPLE1 to TUPLE3
    case 0x86:
    case 0x87:
        return push_container(kind::list, code - 0x84U);
    case 'l': // LIST, TUPLE, FROZENSET
    case 't':
    case 0x91:
    case 'd': { // DICT
        if (!above_mark(first))
            return false;
        const bool table = code == 'd';
        if (table && (stack_.size() - first) % 2 != 0)
            return fail("a key has no value");
        if (!push_container(table ? kind::table : kind::list,
                            stack_.size() - first))
            return false;
        const value made = stack_.back();
        stack_.resize(first - 1);
        return push(made);
    }
    case 'a': // APPEND
        return stack_.size() < 2 || stack_.back().is == kind::mark
                   ? fail("there is nothing to append")
                   : add(stack_.size() - 1, kind::list);
    case 'e': // APPENDS, ADDITEMS
    case 0x90:
        return above_mark(first) && add(first, kind::list);
    case 's': // SETITEM
        return stack_.size() < 3 || stack_.back().is == kind::mark ||
                       stack_[stack_.size() - 2].is == kind::mark
                   ? fail("there is no item to set")
                   : add(stack_.size() - 2, kind::table);
    case 'u': // SETITEMS
        return above_mark(first) && add(first, kind::table);
    default:
        return scalars(code);
    }
}

// The stack and the memo.
bool pickle::memory(unsigned char code)
{
    std::uint64_t key = 0;
    std::string_view line;
    value dropped;
    std::size_t first = 0;
    switch (code) {
    case '(':
        return push({kind::mark, 0, 0});
    case '0': // POP
        return pop(dropped);
    case '1': // POP_MARK
        if (!above_mark(first))
            return false;
        stack_.resize(first - 1);
        return true;
    case '2': // DUP
        return pop(dropped) && push(dropped) && push(dropped);
    case 'q': // BINPUT, LONG_BINPUT, MEMOIZE
        return take_number(1, key) && keep(key);
    case 'r':
        return take_number(4, key) && keep(key);
    case 0x94:
        return keep(memo_.size() + sparse_.size());
    case 'h': // BINGET, LONG_BINGET
        return take_number(1, key) && fetch(key);
    case 'j':
        return take_number(4, key) && fetch(key);
    case 'p': // PUT, GET
    case 'g': {
        if (!take_line(line))
            return false;
        const auto end =
            std::from_chars(line.data(), line.data() + line.size(), key);
        if (end.ec != std::errc())
            return fail("a kept value has no number");
        return code == 'p' ? keep(key) : fetch(key);
    }
    default:
        return containers(code);
    }
}

bool pickle::step(unsigned char code)
{
    std::uint64_t number = 0;
    std::string_view module;
    std::string_view name;
    switch (code) {
    case 0x80: // PROTO
        return take_number(1, number) &&
               (number <= 5 || fail("its protocol is unknown"));
    case 0x95: // FRAME
        return take_number(8, number);
    case '.':
        done_ = true;
        return stack_.size() == 1 && pop(root_) ? true
                                                : fail("it ends too early");
    case 'c': // GLOBAL: the name of a class or a function
        return take_line(module) && take_line(name) &&
               fail(fmt::format("it would load {}.{}, and nothing in a file "
                                "is run here",
                                shown(module), shown(name)));
    case 0x93: // STACK_GLOBAL, REDUCE, BUILD, INST, OBJ, NEWOBJ, NEWOBJ_EX
    case 'R':
    case 'b':
    case 'i':
    case 'o':
    case 0x81:
    case 0x92:
        return fail("it would make an object, and nothing in a file is run "
                    "here");
    default:
        return memory(code);
    }
}

bool pickle::read()
{
    while (!done_) {
        if (at_ >= data_.size())
            return fail("it has no end");
        if (!step(static_cast<unsigned char>(data_[at_++])))
            return fail("it is no pickle");
    }
    stack_ = {};
    memo_ = {};
    sparse_ = {};
    return true;
}

const std::vector<pickle::value> &pickle::items(value of) const
{
    return of.is == kind::list || of.is == kind::table
               ? containers_[static_cast<std::size_t>(of.word)]
               : nothing;
}

pickle::value pickle::at(value table, std::string_view key) const
{
    if (table.is != kind::table)
        return {};
    const auto &all = items(table);
    // Real ones have a dozen keys. Others are not searched to their end.
    const std::size_t most = std::min<std::size_t>(all.size(), 128);
    for (std::size_t i = 0; i + 1 < most; i += 2)
        if (text(all[i]) == key)
            return all[i + 1];
    return {};
}

std::string_view pickle::text(value of) const
{
    return of.is == kind::text
               ? data_.substr(static_cast<std::size_t>(of.word), of.length)
               : std::string_view();
}

std::uint64_t pickle::number(value of) const
{
    return of.is == kind::integer && of.word >> 63 == 0 ? of.word : 0;
}

} // namespace emuv::diagnose
