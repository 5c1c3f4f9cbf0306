// SPDX-License-Identifier: GPL-2.0-or-later
// Every list that emuvctl prints: tables through libsmartcols, and CSV.
#include "output.hpp"

#include "environment.hpp"
#include "failure.hpp"

#include <emuv/size.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <new>

#include <fmt/format.h>
#include <libsmartcols.h>
#include <strings.h>

namespace emuvctl {

namespace {

constexpr std::uint64_t mib = 1 << 20;

bool same_name(std::string_view a, std::string_view b)
{
    return a.size() == b.size() &&
           ::strncasecmp(a.data(), b.data(), a.size()) == 0;
}

std::vector<std::string> split(std::string_view list)
{
    std::vector<std::string> words;
    for (;;) {
        const auto comma = list.find(',');
        std::string_view word = list.substr(0, comma);
        while (word.starts_with(' '))
            word.remove_prefix(1);
        while (word.ends_with(' '))
            word.remove_suffix(1);
        words.emplace_back(word);
        if (comma == std::string_view::npos)
            return words;
        list.remove_prefix(comma + 1);
    }
}

bool is_number(kind as)
{
    return as != kind::text;
}

struct release_table
{
    void operator()(libscols_table *table) const { scols_unref_table(table); }
};

void check(int result)
{
    if (result != 0)
        throw std::bad_alloc(); // all that these calls can lack
}

} // namespace

std::string wrap(std::string_view text, std::size_t indent, std::size_t width)
{
    std::string result;
    std::size_t used = indent;
    for (std::size_t at = 0; at < text.size();) {
        const auto end = std::min(text.find(' ', at), text.size());
        const auto word = text.substr(at, end - at);
        if (used > indent && used + 1 + word.size() > width) {
            result += "\n" + std::string(indent, ' ');
            used = indent;
        } else if (used > indent) {
            result += ' ';
            used++;
        }
        result += word;
        used += word.size();
        at = end + 1;
    }
    return result;
}

std::string printable(std::string_view text)
{
    std::string result(text);
    for (char &c : result)
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
            c = '?';
    return result;
}

std::string say_size(std::uint64_t bytes, bool exact)
{
    if (exact || bytes < 1024)
        return bytes == 0
                   ? "0"
                   : fmt::format("{} byte{}", bytes, bytes == 1 ? "" : "s");
    std::string text = emuv::format_size(bytes);
    text.insert(text.size() - 1, " ");
    return text + "iB";
}

std::string describe_columns(std::span<const column> columns)
{
    std::string text = "Columns (for -o and --query, by either name):\n";
    for (const auto &one : columns)
        text +=
            fmt::format("  {:<10} {:<20} {}\n", one.heading, one.id, one.help);
    std::string line = "nvidia-smi's names that are known too:";
    const std::size_t empty = line.size();
    for (const auto &one : columns) {
        if (one.alias.empty())
            continue;
        if (line.size() + 1 + one.alias.size() > 78) {
            text += line + '\n';
            line = " ";
        }
        line.append(" ").append(one.alias);
    }
    if (line.size() != empty)
        text += line + '\n';
    return text;
}

printer::printer(const output_options &options, std::span<const column> columns,
                 std::span<const std::string_view> defaults, bool json_line)
    : options_(options), columns_(columns), json_line_(json_line)
{
    const bool query = !options_.query.empty();
    if (query && !options_.columns.empty())
        throw usage_error("--query and -o exclude each other");
    if (options_.json && (query || options_.raw))
        throw usage_error(fmt::format("--json and {} exclude each other",
                                      query ? "--query" : "--raw"));
    if (query && options_.raw)
        throw usage_error("--query and --raw exclude each other");
    if (!query && !options_.format.empty())
        throw usage_error("--format goes with --query");

    std::string_view wanted = options_.columns;
    const bool more = wanted.starts_with('+');
    if (wanted.empty() || more)
        for (const auto id : defaults)
            choose(id, "");
    if (more)
        wanted.remove_prefix(1);
    if (!wanted.empty())
        choose(wanted, "-o");
    if (query) {
        chosen_.clear();
        choose(options_.query, "--query");
        read_format();
        csv_ = true;
    }
    chosen_by_user_ = query || !options_.columns.empty();
}

void printer::choose(std::string_view list, std::string_view option)
{
    for (const auto &name : split(list)) {
        const auto found = std::find_if(
            columns_.begin(), columns_.end(), [&](const column &one) {
                return same_name(one.id, name) ||
                       same_name(one.heading, name) ||
                       (!one.alias.empty() && same_name(one.alias, name));
            });
        if (found == columns_.end()) {
            std::string valid;
            for (const auto &one : columns_)
                valid.append(valid.empty() ? "" : ", ").append(one.id);
            throw usage_error(
                fmt::format("{}: unknown column '{}'; valid are {}", option,
                            printable(name), valid));
        }
        chosen_.push_back(
            {static_cast<std::size_t>(found - columns_.begin()), name});
    }
}

void printer::read_format()
{
    if (options_.format.empty())
        return;
    bool csv = false;
    for (const auto &word : split(options_.format)) {
        if (word == "csv")
            csv = true;
        else if (word == "noheader")
            header_ = false;
        else if (word == "nounits")
            units_ = false;
        else
            throw usage_error(
                fmt::format("--format: unknown word '{}'; valid are csv, "
                            "noheader, nounits",
                            printable(word)));
    }
    if (!csv)
        throw usage_error("--format: 'csv' is missing, as in "
                          "--format=csv,noheader,nounits");
}

std::string printer::show(const cell &value, kind as) const
{
    struct visitor
    {
        kind as;
        bool bytes;

        std::string operator()(std::monostate) const { return "-"; }
        std::string operator()(bool b) const { return b ? "yes" : "no"; }
        std::string operator()(std::int64_t n) const
        {
            return std::to_string(n);
        }
        std::string operator()(std::uint64_t n) const
        {
            const bool size = as == kind::bytes || as == kind::bytes_per_second;
            if (as == kind::nanoseconds)
                return fmt::format("{:.3f}s", static_cast<double>(n) / 1e9);
            return size && !bytes ? emuv::format_size(n) : std::to_string(n);
        }
        std::string operator()(double d) const
        {
            if (as == kind::bytes_per_second)
                return (*this)(static_cast<std::uint64_t>(std::llround(d)));
            return fmt::format("{:.1f}", d);
        }
        std::string operator()(const std::string &s) const
        {
            return s.empty() ? "-" : printable(s);
        }
        std::string operator()(const std::vector<std::string> &list) const
        {
            return list.empty()
                       ? "-"
                       : printable(fmt::format("{}", fmt::join(list, " ")));
        }
    };
    return std::visit(visitor{as, options_.bytes}, value);
}

std::string printer::show_csv(const cell &value, kind as) const
{
    const bool size = as == kind::bytes || as == kind::bytes_per_second;
    if (std::holds_alternative<std::monostate>(value))
        return "[N/A]";
    std::string text;
    std::string unit;
    if (size) {
        const auto *whole = std::get_if<std::uint64_t>(&value);
        const std::uint64_t n =
            whole != nullptr ? *whole
                             : static_cast<std::uint64_t>(
                                   std::llround(std::get<double>(value)));
        text = std::to_string(options_.bytes ? n : n / mib);
        unit = options_.bytes ? " B" : " MiB";
        if (as == kind::bytes_per_second)
            unit += "/s";
    } else if (as == kind::nanoseconds) {
        text = show(value, kind::number);
        unit = " ns";
    } else {
        text = show(value, as);
        unit = as == kind::rate ? " /s" : "";
    }
    if (units_)
        text += unit;
    if (text.find_first_of(",\"") == std::string::npos)
        return text;
    std::string quoted = "\"";
    for (const char c : text)
        quoted += c == '"' ? "\"\"" : std::string(1, c);
    return quoted + '"';
}

std::string printer::csv(const listing &what)
{
    std::string text;
    if (header_ && !options_.noheadings) {
        for (const auto &one : chosen_) {
            const kind as = columns_[one.index].kind;
            std::string unit;
            if (as == kind::bytes)
                unit = options_.bytes ? " [B]" : " [MiB]";
            else if (as == kind::bytes_per_second)
                unit = options_.bytes ? " [B/s]" : " [MiB/s]";
            else if (as == kind::rate)
                unit = " [/s]";
            else if (as == kind::nanoseconds)
                unit = " [ns]";
            text += &one == &chosen_.front() ? "" : ", ";
            text += one.title + unit;
        }
        text += '\n';
        header_ = false; // once, however many listings follow
    }
    const auto line = [&](const row &from) {
        for (const auto &one : chosen_) {
            text += &one == &chosen_.front() ? "" : ", ";
            text += show_csv(from.cells[one.index], columns_[one.index].kind);
        }
        text += '\n';
    };
    for (const auto &parent : what.rows) {
        line(parent);
        for (const auto &child : parent.children)
            line(child);
    }
    return text;
}

std::string printer::table(const listing &what, const environment &env) const
{
    const std::unique_ptr<libscols_table, release_table> table(
        scols_new_table());
    if (!table)
        throw std::bad_alloc();
    const bool tree =
        !options_.raw &&
        std::any_of(what.rows.begin(), what.rows.end(),
                    [](const row &one) { return !one.children.empty(); });
    check(scols_table_enable_raw(table.get(), options_.raw ? 1 : 0));
    check(scols_table_enable_noheadings(table.get(),
                                        options_.noheadings ? 1 : 0));
    // A pipe has no width: nothing may be cut there, nor wrapped to it.
    check(scols_table_set_termforce(table.get(), env.out.width() != 0
                                                     ? SCOLS_TERMFORCE_ALWAYS
                                                     : SCOLS_TERMFORCE_NEVER));
    if (env.out.width() != 0)
        check(scols_table_set_termwidth(table.get(), env.out.width()));
    for (const auto &one : chosen_) {
        const bool first = &one == &chosen_.front();
        int flags = 0;
        if (is_number(columns_[one.index].kind))
            flags |= SCOLS_FL_RIGHT;
        if (first && tree)
            flags |= SCOLS_FL_TREE;
        const std::string heading(columns_[one.index].heading);
        if (scols_table_new_column(table.get(), heading.c_str(), 0, flags) ==
            nullptr)
            throw std::bad_alloc();
    }
    const auto line = [&](const row &from, libscols_line *parent) {
        libscols_line *const to = scols_table_new_line(table.get(), parent);
        if (to == nullptr)
            throw std::bad_alloc();
        for (std::size_t i = 0; i < chosen_.size(); i++) {
            const std::size_t index = chosen_[i].index;
            const std::string text =
                i == 0 && tree && !from.label.empty()
                    ? printable(from.label)
                    : show(from.cells[index], columns_[index].kind);
            check(scols_line_set_data(to, i, text.c_str()));
        }
        return to;
    };
    for (const auto &one : what.rows) {
        libscols_line *const parent = line(one, nullptr);
        for (const auto &child : one.children)
            line(child, tree ? parent : nullptr);
    }
    char *text = nullptr;
    const int result = scols_print_table_to_string(table.get(), &text);
    const std::unique_ptr<char, void (*)(void *)> owned(text, std::free);
    check(result);
    // An empty table is an empty string, or null.
    return text != nullptr ? text : "";
}

void printer::print(const listing &what, environment &env)
{
    if (options_.json)
        env.out.write(json_text(what));
    else if (csv_)
        env.out.write(csv(what));
    else if (!what.rows.empty()) {
        // libsmartcols pads the last column of a line too.
        const std::string padded = table(what, env);
        std::string text;
        for (std::size_t at = 0; at < padded.size();) {
            auto end = padded.find('\n', at);
            if (end == std::string::npos)
                end = padded.size();
            std::string_view line(padded.data() + at, end - at);
            while (line.ends_with(' '))
                line.remove_suffix(1);
            text.append(line).append("\n");
            at = end + 1;
        }
        env.out.write(text);
    }
}

} // namespace emuvctl
