// SPDX-License-Identifier: GPL-2.0-or-later
// Every list that emuvctl prints: one table of columns behind one printer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace emuvctl {

struct environment;

/// The kind of a column's values, which decides how they are shown.
enum class kind
{
    text,
    number,
    bytes,            ///< 12G in tables, MiB in CSV, a number in JSON
    bytes_per_second, ///< likewise, per second
    rate,             ///< events per second
    percent,          ///< "12.5%" in tables, a number in JSON
    nanoseconds       ///< 1.250s in tables, a number in CSV and JSON
};

struct column
{
    std::string_view id;      ///< in JSON, --query and -o
    std::string_view heading; ///< in tables and -o
    emuvctl::kind kind;
    std::string_view help;
    /// Its names in nvidia-smi, comma-separated; empty if that has no such
    /// thing. --query takes them first.
    std::string_view alias = {};
};

/// A value; monostate is "none": "-" in tables, "[N/A]" in CSV, null in JSON.
/// A list of texts is an array in JSON, and blanks between them elsewhere.
using cell = std::variant<std::monostate, bool, std::int64_t, std::uint64_t,
                          double, std::string, std::vector<std::string>>;

/// The colours that a cell can have on a terminal.
enum class tone
{
    plain,
    good,
    warn,
    bad
};

struct row
{
    std::vector<cell> cells;   ///< one for each of the columns
    std::vector<row> children; ///< shown as a tree below it
    /// Shown in the table's first column instead; not in --raw.
    std::string label = {};
    /// True if nobody may know its children: null in JSON.
    bool children_hidden = false;
    /// Of its texts of state, where a table is coloured.
    emuvctl::tone tone = tone::plain;
};

struct listing
{
    std::string_view name;           ///< the JSON key of its rows
    std::span<const column> columns; ///< all there are
    std::vector<row> rows;
    std::string_view child_name = {}; ///< the JSON key of their children
    /// Which of the columns are the children's, in JSON.
    std::vector<std::string_view> child_columns = {};
    /// The columns of children that are in JSON alone, and have cells of their
    /// own; empty: they have the columns of all rows.
    std::span<const column> child_table = {};
    /// Keys that stand beside the rows in JSON.
    std::vector<std::pair<std::string_view, cell>> beside = {};
};

/// The options of a listing verb.
struct output_options
{
    bool json = false;
    bool bytes = false;
    bool raw = false;
    bool noheadings = false;
    std::string columns; ///< -o
    std::string query;   ///< --query
    std::string format;  ///< --format
    std::string sort;    ///< --sort
    std::string filter;  ///< --filter
    std::string color;   ///< --color

    /// True if anything but the default form is wanted.
    [[nodiscard]] bool any() const
    {
        return json || bytes || raw || noheadings || !columns.empty() ||
               !query.empty() || !sort.empty() || !filter.empty();
    }
};

/// Prints listings in the form that the options ask for.
class printer
{
public:
    /// Checks the options before anything is done.
    /// @param defaults  ids of the columns to show if none are asked for
    /// @param json_line put each JSON document on one line
    /// @throws usage_error an unknown column, options that exclude each other
    printer(const output_options &options, std::span<const column> columns,
            std::span<const std::string_view> defaults, bool json_line = false);

    /// @throws closed_pipe, std::system_error
    void print(const listing &what, environment &env);

    [[nodiscard]] bool json() const { return options_.json; }

    /// The listing as JSON, whatever form the options ask for.
    [[nodiscard]] std::string json_text(const listing &what) const;

private:
    struct chosen
    {
        std::size_t index; // into the columns
        std::string title; // as it was asked for, in CSV
    };

    struct order
    {
        std::size_t index; // into the columns
        bool down;
    };
    struct condition
    {
        std::size_t index; // into the columns
        std::string sign;  // "=", "!=", "<", "<=", ">", ">=", "~"
        std::string text;
        double number; // where the column has numbers
    };

    [[nodiscard]] std::size_t find(std::string_view name,
                                   std::string_view option) const;
    [[nodiscard]] std::string hint(std::string_view name,
                                   std::string_view option) const;
    void choose(std::string_view list, std::string_view option);
    void read_sort();
    void read_filter();
    [[nodiscard]] bool fits(const row &one) const;
    [[nodiscard]] listing arranged(const listing &what) const;
    void read_format();
    [[nodiscard]] std::string table(const listing &what,
                                    const environment &env) const;
    [[nodiscard]] std::string csv(const listing &what);
    [[nodiscard]] std::string show(const cell &value, kind as) const;
    [[nodiscard]] std::string show_csv(const cell &value, kind as) const;

    output_options options_;
    std::span<const column> columns_;
    std::vector<chosen> chosen_;
    bool chosen_by_user_ = false;
    bool json_line_;
    std::vector<order> sort_;
    std::vector<condition> filter_;
    bool csv_ = false;
    bool header_ = true;
    bool units_ = true;
};

/// True if text for a person may have colours.
/// @param when  of --color: empty, "auto", "always" or "never"
/// @throws usage_error it is another word
bool colors_wanted(std::string_view when, const environment &env);

/// Text in a colour.
std::string in_color(std::string_view text, tone which);

/// The columns of a table as lines for a help text.
std::string describe_columns(std::span<const column> columns);

/// "12.1 GiB", rounded to a tenth, or with @p exact "12992276070 bytes".
std::string say_size(std::uint64_t bytes, bool exact);

/// Text with its blanks as line breaks where a line would pass the width. Lines
/// behind the first are indented.
std::string wrap(std::string_view text, std::size_t indent, std::size_t width);

/// Text in which nothing can steer a terminal.
std::string printable(std::string_view text);

} // namespace emuvctl
