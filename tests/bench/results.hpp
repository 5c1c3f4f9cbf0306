// SPDX-License-Identifier: GPL-2.0-or-later
// A benchmark's results as a JSON file; docs/results/README.md has the format.
// Written by hand: benchmarks are built on machines without a library for JSON.
#pragma once

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

namespace bench {

/// A cell of text; nullptr: null.
inline std::string text(const char *of)
{
    if (of == nullptr)
        return "null";
    std::string quoted = "\"";
    for (; *of != '\0'; ++of) {
        const auto byte = static_cast<unsigned char>(*of);
        if (byte == '"' || byte == '\\')
            quoted += '\\';
        if (byte < 0x20) {
            char escaped[8];
            std::snprintf(escaped, sizeof escaped, "\\u%04x", byte);
            quoted += escaped;
        } else {
            quoted += *of;
        }
    }
    return quoted + '"';
}

/// A cell with so many digits behind the point; null if nothing was measured.
inline std::string number(double value, int digits = 0)
{
    if (!std::isfinite(value))
        return "null";
    char written[64];
    std::snprintf(written, sizeof written, "%.*f", digits, value);
    return written;
}

class results
{
public:
    struct column
    {
        const char *name;
        const char *title;
        /// nullptr: the table's. "": ratios and counts.
        const char *unit = nullptr;
    };

    /// Takes "--json FILE" out of a program's arguments.
    results(const char *benchmark, const char *title, int &count,
            char **arguments)
        : benchmark_(benchmark), title_(title),
          command_(std::string("tests/bench/") + benchmark)
    {
        int kept = 1;
        for (int i = 1; i < count; i++) {
            if (std::strcmp(arguments[i], "--json") == 0) {
                if (++i == count) {
                    std::fprintf(stderr, "%s: --json needs a file\n",
                                 benchmark);
                    std::exit(2);
                }
                file_ = arguments[i];
            } else {
                command_ = command_ + ' ' + arguments[i];
                arguments[kept++] = arguments[i];
            }
        }
        count = kept;
        arguments[kept] = nullptr;
    }

    /// True if a file is wanted.
    bool wanted() const { return file_ != nullptr; }

    void note(std::string of) { note_ = std::move(of); }

    /// @p unit: nullptr if each row names its own, in a column "unit".
    void table(const char *title, const char *unit, std::vector<column> columns)
    {
        tables_.push_back({title, unit, std::move(columns), {}});
    }

    /// A row of the last table: a cell for each column.
    void row(std::vector<std::string> cells)
    {
        if (cells.size() != tables_.back().columns.size())
            std::abort();
        tables_.back().rows.push_back(std::move(cells));
    }

    /// Writes the file if it is wanted; the exit status of the program.
    int write() const
    {
        if (!wanted())
            return 0;
        const std::string all = whole();
        std::FILE *out = std::fopen(file_, "w");
        const bool good =
            out != nullptr &&
            std::fwrite(all.data(), 1, all.size(), out) == all.size();
        if ((out != nullptr && std::fclose(out) != 0) || !good) {
            std::perror(file_);
            return 1;
        }
        return 0;
    }

private:
    struct one_table
    {
        const char *title;
        const char *unit;
        std::vector<column> columns;
        std::vector<std::vector<std::string>> rows;
    };

    /// The tree's commit. A guest, which has no git, is told it.
    static std::string commit()
    {
        if (const char *told = std::getenv("EMUV_BENCH_COMMIT"))
            return *told != '\0' ? text(told) : "null";
        std::FILE *said =
            popen("git -C '" EMUV_BENCH_TREE "' describe --always "
                  "--dirty --abbrev=7 '--exclude=*' 2>/dev/null",
                  "r");
        if (said == nullptr)
            return "null";
        char line[64] = "";
        const bool any = std::fgets(line, sizeof line, said) != nullptr;
        line[std::strcspn(line, "\n")] = '\0';
        return pclose(said) == 0 && any ? text(line) : "null";
    }

    static std::string today()
    {
        const std::time_t now = std::time(nullptr);
        char day[16] = "";
        std::strftime(day, sizeof day, "%Y-%m-%d", std::gmtime(&now));
        return text(day);
    }

    static void add(std::string &to, const char *name, const std::string &value)
    {
        to += text(name) + ": " + value;
    }

    std::string whole() const
    {
        std::string out = "{\n  \"schema\": 1";
        const std::pair<const char *, std::string> fields[] = {
            {"benchmark", text(benchmark_)},
            {"title", text(title_)},
            {"command", text(command_.c_str())},
            {"commit", commit()},
            {"card", text("none")},
            {"driver", "null"},
            {"link_gb_s", "null"},
            {"date", today()}};
        for (const auto &[name, value] : fields) {
            out += ",\n  ";
            add(out, name, value);
        }
        if (!note_.empty()) {
            out += ",\n  ";
            add(out, "note", text(note_.c_str()));
        }
        out += ",\n  \"tables\": [";
        for (std::size_t i = 0; i < tables_.size(); i++)
            out += (i != 0 ? ",\n" : "\n") + of_table(tables_[i]);
        return out + "\n  ]\n}\n";
    }

    static std::string of_table(const one_table &is)
    {
        std::string out = "    {\n      ";
        if (is.title != nullptr) {
            add(out, "title", text(is.title));
            out += ",\n      ";
        }
        add(out, "unit", text(is.unit));
        out += ",\n      \"columns\": [";
        for (std::size_t i = 0; i < is.columns.size(); i++) {
            out += i != 0 ? ",\n        {" : "\n        {";
            add(out, "name", text(is.columns[i].name));
            out += ", ";
            add(out, "title", text(is.columns[i].title));
            if (is.columns[i].unit != nullptr) {
                out += ", ";
                add(out, "unit", text(is.columns[i].unit));
            }
            out += "}";
        }
        out += "\n      ],\n      \"rows\": [";
        for (std::size_t i = 0; i < is.rows.size(); i++) {
            out += i != 0 ? ",\n        {" : "\n        {";
            for (std::size_t j = 0; j < is.columns.size(); j++) {
                out += j != 0 ? ", " : "";
                add(out, is.columns[j].name, is.rows[i][j]);
            }
            out += "}";
        }
        return out + "\n      ]\n    }";
    }

    const char *benchmark_;
    const char *title_;
    const char *file_ = nullptr;
    std::string command_;
    std::string note_;
    std::vector<one_table> tables_;
};

} // namespace bench
