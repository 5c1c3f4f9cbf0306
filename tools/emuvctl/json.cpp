// SPDX-License-Identifier: GPL-2.0-or-later
// Listings as JSON; apart from output.cpp because the library takes its time.
#include "output.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace emuvctl {

namespace {

using value_type = nlohmann::ordered_json;

/// Raised when a key changes its meaning or goes; new keys come without.
constexpr int schema = 1;

value_type to_json(const cell &value)
{
    struct visitor
    {
        value_type operator()(std::monostate) const { return nullptr; }
        value_type operator()(bool b) const { return b; }
        value_type operator()(std::int64_t n) const { return n; }
        value_type operator()(std::uint64_t n) const { return n; }
        value_type operator()(double d) const { return d; }
        value_type operator()(const std::string &s) const { return s; }
        value_type operator()(const std::vector<std::string> &list) const
        {
            return list;
        }
    };
    return std::visit(visitor{}, value);
}

} // namespace

std::string printer::json_text(const listing &what) const
{
    const auto has = [](const auto &list, std::string_view id) {
        return std::find(list.begin(), list.end(), id) != list.end();
    };
    const auto object = [&](const row &from, bool child) {
        value_type result = value_type::object();
        for (std::size_t i = 0; i < columns_.size(); i++) {
            const auto id = columns_[i].id;
            const bool asked =
                !chosen_by_user_ ||
                std::any_of(chosen_.begin(), chosen_.end(),
                            [i](const chosen &one) { return one.index == i; });
            // A value that only some rows can have is a key of those alone.
            const bool client = has(what.child_columns, id);
            const bool none =
                std::holds_alternative<std::monostate>(from.cells[i]);
            const bool own = client ? !none : !child;
            if (asked && own)
                result[std::string(id)] = to_json(from.cells[i]);
        }
        return result;
    };

    // A child with columns of its own.
    const auto own = [&](const row &from) {
        value_type result = value_type::object();
        for (std::size_t i = 0; i < what.child_table.size(); i++)
            result[std::string(what.child_table[i].id)] =
                to_json(from.cells[i]);
        return result;
    };

    value_type document = value_type::object();
    document["schema"] = schema;
    for (const auto &[key, value] : what.beside)
        document[std::string(key)] = to_json(value);
    value_type rows = value_type::array();
    for (const auto &one : what.rows) {
        value_type parent = object(one, false);
        // Keys that were asked for are all there is.
        if (!what.child_name.empty() &&
            (what.child_table.empty() || !chosen_by_user_)) {
            value_type children = value_type::array();
            for (const auto &child : one.children)
                children.push_back(what.child_table.empty()
                                       ? object(child, true)
                                       : own(child));
            if (one.children_hidden)
                children = nullptr;
            parent[std::string(what.child_name)] = std::move(children);
        }
        rows.push_back(std::move(parent));
    }
    document[std::string(what.name)] = std::move(rows);
    // A process's name may hold any bytes.
    return document.dump(json_line_ ? -1 : 2, ' ', false,
                         value_type::error_handler_t::replace) +
           "\n";
}

} // namespace emuvctl
