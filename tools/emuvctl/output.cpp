// SPDX-License-Identifier: GPL-2.0-or-later
// Every list that emuvctl prints: tables through libsmartcols, and CSV.
#include "output.hpp"

#include "comma_list.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "suggest.hpp"

#include <emuv/size.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>
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

bool is_number(kind as)
{
    return as != kind::text;
}

constexpr std::string_view own_prefix = "emuv.";

// True if a list of names, between commas, has this one.
bool has_name(std::string_view names, std::string_view name)
{
    while (!names.empty()) {
        const auto one = names.substr(0, names.find(','));
        if (same_name(one, name))
            return true;
        names.remove_prefix(std::min(names.size(), one.size() + 1));
    }
    return false;
}

// A value as a number; none if it is a text or nothing.
std::optional<double> number_of(const cell &value)
{
    if (const auto *n = std::get_if<std::int64_t>(&value))
        return static_cast<double>(*n);
    if (const auto *n = std::get_if<std::uint64_t>(&value))
        return static_cast<double>(*n);
    if (const auto *n = std::get_if<double>(&value))
        return *n;
    return std::nullopt;
}

// A number as a person writes one of that kind: "2G", "80%", "1.5".
double read_number(std::string_view text, kind as)
{
    if (as == kind::bytes || as == kind::bytes_per_second)
        return static_cast<double>(emuv::parse_size(text));
    std::string_view digits = text;
    if (as == kind::percent && digits.ends_with('%'))
        digits.remove_suffix(1);
    double value = 0;
    const char *const end = digits.data() + digits.size();
    const auto [stop, problem] = std::from_chars(digits.data(), end, value);
    if (problem != std::errc() || stop != end || digits.empty())
        throw std::invalid_argument("'" + printable(text) +
                                    "' is not a number");
    return value;
}

const char *color_of(tone which)
{
    switch (which) {
    case tone::good:
        return "\033[32m";
    case tone::warn:
        return "\033[33m";
    case tone::bad:
        return "\033[31m";
    case tone::plain:
        break;
    }
    return "";
}

tone tone_of(const cell &value, kind as)
{
    const auto number = number_of(value);
    if (as != kind::percent || !number)
        return tone::plain;
    return *number >= 95 ? tone::bad : *number >= 80 ? tone::warn : tone::plain;
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

void add_column(libscols_table *table, const std::string &heading, int flags,
                bool colors)
{
    libscols_column *const made =
        scols_table_new_column(table, heading.c_str(), 0, flags);
    if (made == nullptr)
        throw std::bad_alloc();
    if (colors)
        check(scols_cell_set_color(scols_column_get_header(made), "\033[1m"));
}

tone tone_of(const row &from, std::size_t index, const column &of)
{
    return of.id == "status" ? from.tone : tone_of(from.cells[index], of.kind);
}

void set_color(libscols_line *line, std::size_t column, tone which)
{
    if (which != tone::plain)
        check(scols_cell_set_color(scols_line_get_cell(line, column),
                                   color_of(which)));
}

} // namespace

bool colors_wanted(std::string_view when, const environment &env)
{
    if (when == "always" || when == "never")
        return when == "always";
    if (!when.empty() && when != "auto")
        throw usage_error(fmt::format("--color: '{}' is none of auto, always, "
                                      "never",
                                      printable(when)));
    return env.out.terminal() && !env.no_color;
}

std::string in_color(std::string_view text, tone which)
{
    return fmt::format("{}{}{}", color_of(which), text,
                       which == tone::plain ? "" : "\033[0m");
}

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
    std::string text = "Columns, by either name (with --query: emuv.NAME):\n";
    for (const auto &one : columns)
        text +=
            fmt::format("  {:<10} {:<20} {}\n", one.heading, one.id, one.help);
    std::string line = "nvidia-smi's names, for --query:";
    const std::size_t empty = line.size();
    for (const auto &one : columns)
        for (const auto &name : split_at_commas(one.alias)) {
            if (name.empty()) // it has none
                continue;
            if (line.size() + 1 + name.size() > 78) {
                text += line + '\n';
                line = " ";
            }
            line.append(" ").append(name);
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
    read_sort();
    read_filter();
}

std::size_t printer::find(std::string_view name, std::string_view option) const
{
    const auto by = [&](const auto &fits) {
        return std::find_if(columns_.begin(), columns_.end(), fits);
    };
    const auto by_alias = [&](const column &one) {
        return has_name(one.alias, name);
    };
    // In --query, nvidia-smi's names mean what they mean there.
    auto found = option == "--query" ? by(by_alias) : columns_.end();
    std::string_view own = name;
    if (own.starts_with(own_prefix))
        own.remove_prefix(own_prefix.size());
    if (found == columns_.end())
        found = by([&](const column &one) {
            return same_name(one.id, own) || same_name(one.heading, own);
        });
    if (found == columns_.end())
        found = by(by_alias);
    if (found != columns_.end())
        return static_cast<std::size_t>(found - columns_.begin());
    throw usage_error(fmt::format("{}: unknown column '{}'{}", option,
                                  printable(name), hint(name, option)));
}

std::string printer::hint(std::string_view name, std::string_view option) const
{
    std::vector<std::string> own;
    std::vector<std::string> theirs; // nvidia-smi's
    for (const auto &one : columns_) {
        own.emplace_back(one.id);
        if (!one.alias.empty())
            for (auto &alias : split_at_commas(one.alias))
                theirs.push_back(std::move(alias));
    }
    const bool query = option == "--query";
    if (query && name.starts_with(own_prefix)) {
        name.remove_prefix(own_prefix.size());
        theirs.clear();
    }
    auto names = query ? theirs : own;
    const auto &last = query ? own : theirs;
    names.insert(names.end(), last.begin(), last.end());
    const std::string meant = nearest(name, names);
    if (meant.empty())
        return query ? "; --help lists the names there are"
                     : fmt::format("; valid are {}", fmt::join(own, ", "));
    const bool prefixed =
        query && std::find(theirs.begin(), theirs.end(), meant) == theirs.end();
    return fmt::format("; did you mean '{}{}'?", prefixed ? own_prefix : "",
                       meant);
}

void printer::read_sort()
{
    if (options_.sort.empty())
        return;
    for (const auto &word : split_at_commas(options_.sort)) {
        std::string_view name = word;
        const bool down = name.starts_with('-');
        name.remove_prefix(down ? 1 : 0);
        sort_.push_back({find(name, "--sort"), down});
    }
}

void printer::read_filter()
{
    if (options_.filter.empty())
        return;
    for (const auto &word : split_at_commas(options_.filter)) {
        const auto at = word.find_first_of("=!<>~");
        const std::string_view rest =
            at == std::string::npos ? "" : std::string_view(word).substr(at);
        const std::size_t signs =
            rest.size() > 1 && rest[1] == '=' && rest[0] != '=' ? 2 : 1;
        const std::string_view sign = rest.substr(0, signs);
        if (at == 0 || rest.size() <= signs || sign == "!" || sign == "~=")
            throw usage_error(fmt::format(
                "--filter: '{}' is no condition; write COLUMN=VALUE, or !=, <, "
                "<=, >, >= or ~ (has) in the place of =",
                printable(word)));
        condition one{find(word.substr(0, at), "--filter"), std::string(sign),
                      std::string(rest.substr(signs)), 0};
        const kind as = columns_[one.index].kind;
        const bool compares = sign != "=" && sign != "!=" && sign != "~";
        if (as == kind::text && compares)
            throw usage_error(
                fmt::format("--filter: {} is text; it takes =, != and ~",
                            columns_[one.index].id));
        if (as != kind::text && sign == "~")
            throw usage_error(fmt::format("--filter: {} is a number; it takes "
                                          "no ~",
                                          columns_[one.index].id));
        if (as != kind::text)
            one.number = parse_option(
                "--filter", [&] { return read_number(one.text, as); });
        filter_.push_back(std::move(one));
    }
}

bool printer::fits(const row &one) const
{
    return std::all_of(
        filter_.begin(), filter_.end(), [&](const condition &wanted) {
            const cell &value = one.cells[wanted.index];
            const kind as = columns_[wanted.index].kind;
            const std::string &sign = wanted.sign;
            if (as == kind::text) {
                const std::string text = show(value, as);
                if (sign == "~")
                    return ::strcasestr(text.c_str(), wanted.text.c_str()) !=
                           nullptr;
                return same_name(text, wanted.text) == (sign == "=");
            }
            const auto number = number_of(value);
            if (!number)
                return sign == "!=";
            if (sign == "=")
                return *number == wanted.number;
            if (sign == "!=")
                return *number != wanted.number;
            if (sign == "<")
                return *number < wanted.number;
            if (sign == "<=")
                return *number <= wanted.number;
            return sign == ">" ? *number > wanted.number
                               : *number >= wanted.number;
        });
}

listing printer::arranged(const listing &what) const
{
    listing result = what;
    std::erase_if(result.rows, [&](const row &one) { return !fits(one); });
    std::stable_sort(
        result.rows.begin(), result.rows.end(),
        [&](const row &a, const row &b) {
            for (const auto &by : sort_) {
                const cell &left = a.cells[by.index];
                const cell &right = b.cells[by.index];
                const auto none = [](const cell &value) {
                    return std::holds_alternative<std::monostate>(value);
                };
                // Rows without a value stand last, in either order.
                if (none(left) != none(right))
                    return none(right);
                const auto x = number_of(left);
                const auto y = number_of(right);
                int sign = 0;
                if (x && y)
                    sign = *x < *y ? -1 : *x > *y ? 1 : 0;
                else // emuv10 behind emuv2
                    sign = ::strverscmp(show(left, kind::text).c_str(),
                                        show(right, kind::text).c_str());
                if (sign != 0)
                    return (sign < 0) != by.down;
            }
            return false;
        });
    return result;
}

void printer::choose(std::string_view list, std::string_view option)
{
    for (const auto &name : split_at_commas(list)) {
        if (!same_name(name, "all")) {
            chosen_.push_back({find(name, option), name});
            continue;
        }
        for (std::size_t i = 0; i < columns_.size(); i++)
            chosen_.push_back(
                {i, std::string(own_prefix) + std::string(columns_[i].id)});
    }
}

void printer::read_format()
{
    if (options_.format.empty())
        return;
    bool csv = false;
    for (const auto &word : split_at_commas(options_.format)) {
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
            if (as == kind::percent)
                return fmt::format("{:.1f}%", d);
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
    } else if (as == kind::percent) {
        text = show(value, kind::number);
        unit = " %";
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
            else if (as == kind::percent)
                unit = " [%]";
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
        if (!what.child_table.empty())
            continue;
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
        !options_.raw && what.child_table.empty() &&
        std::any_of(what.rows.begin(), what.rows.end(),
                    [](const row &one) { return !one.children.empty(); });
    check(scols_table_enable_raw(table.get(), options_.raw ? 1 : 0));
    const bool colors = !options_.raw && colors_wanted(options_.color, env);
    check(scols_table_enable_colors(table.get(), colors ? 1 : 0));
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
        add_column(table.get(), heading, flags, colors);
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
            if (colors)
                set_color(to, i, tone_of(from, index, columns_[index]));
        }
        return to;
    };
    for (const auto &one : what.rows) {
        libscols_line *const parent = line(one, nullptr);
        if (!what.child_table.empty())
            continue;
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

void printer::print(const listing &all, environment &env)
{
    const bool arrange = !sort_.empty() || !filter_.empty();
    const listing &what = arrange ? arranged(all) : all;
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
