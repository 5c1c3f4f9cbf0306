// SPDX-License-Identifier: GPL-2.0-or-later
// The lines of instances and clients that top lists, in their order.
#include "table.hpp"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

namespace emuvctl::watch {

namespace {

line instance_line(const history &of, const instance_sample &one)
{
    const auto &info = one.info;
    const holder who{info.id, 0};
    return {who,
            fmt::format("{} {}", info.name(), info.gpu_model),
            0,
            info.physical_used_bytes,
            info.physical_bytes,
            info.virtual_used_bytes,
            info.resident_bytes,
            of.rates_of(who),
            of.hits_of(who)};
}

line client_line(const history &of, int instance,
                 const emuv::client_info &client)
{
    const holder who{instance, client.client};
    return {who,
            client.comm.empty() ? fmt::format("client {}", client.client)
                                : client.comm,
            client.pid,
            client.physical_bytes,
            0,
            client.virtual_bytes,
            {},
            of.rates_of(who),
            of.hits_of(who)};
}

// A number to sort by; what is not known comes last in either direction.
std::optional<double> value_of(const line &of, order by)
{
    switch (by) {
    case order::name:
        return of.who.instance;
    case order::pid:
        return of.pid;
    case order::vram:
        return static_cast<double>(of.vram);
    case order::ram:
        return static_cast<double>(of.ram);
    case order::resident:
        if (!of.resident)
            return std::nullopt;
        return static_cast<double>(*of.resident);
    case order::fetched:
        return of.moved ? std::optional(of.moved->fetched) : std::nullopt;
    case order::evicted:
        return of.moved ? std::optional(of.moved->evicted) : std::nullopt;
    case order::hits:
        return of.hits;
    case order::stalled:
        return of.moved ? std::optional(of.moved->stalled) : std::nullopt;
    }
    return std::nullopt;
}

void sort(std::vector<line> &lines, const arrangement &how)
{
    std::stable_sort(
        lines.begin(), lines.end(), [&how](const line &a, const line &b) {
            if (how.by == order::name && !a.is_instance() && !b.is_instance() &&
                a.name != b.name)
                return how.rising ? a.name < b.name : a.name > b.name;
            const auto first = value_of(a, how.by);
            const auto second = value_of(b, how.by);
            if (!first || !second)
                return first.has_value() && !second.has_value();
            return how.rising ? *first < *second : *first > *second;
        });
}

bool matches(const line &one, const arrangement &how)
{
    return how.filter.empty() || contains_text(one.name, how.filter) ||
           contains_text(std::to_string(one.pid), how.filter);
}

std::vector<line> clients_of(const history &of, const instance_sample &one,
                             const arrangement &how, bool all)
{
    std::vector<line> lines;
    if (one.clients)
        for (const auto &client : *one.clients) {
            line added = client_line(of, one.info.id, client);
            if (all || matches(added, how))
                lines.push_back(std::move(added));
        }
    return lines;
}

} // namespace

bool contains_text(std::string_view text, std::string_view part)
{
    const auto same = [](char a, char b) {
        return std::tolower(static_cast<unsigned char>(a)) ==
               std::tolower(static_cast<unsigned char>(b));
    };
    return std::search(text.begin(), text.end(), part.begin(), part.end(),
                       same) != text.end();
}

std::vector<line> arrange(const history &of, const arrangement &how)
{
    std::vector<line> lines;
    if (of.last() == nullptr)
        return lines;
    std::vector<line> instances;
    std::map<int, std::vector<line>> below;
    for (const auto &one : of.last()->instances) {
        line instance = instance_line(of, one);
        // An instance that is asked for comes with all its clients.
        const bool wanted = matches(instance, how);
        auto clients = clients_of(of, one, how, wanted);
        if (!how.tree) {
            lines.insert(lines.end(), clients.begin(), clients.end());
        } else if (wanted || !clients.empty()) {
            sort(clients, how);
            below[one.info.id] = std::move(clients);
            instances.push_back(std::move(instance));
        }
    }
    if (!how.tree) {
        sort(lines, how);
        return lines;
    }
    sort(instances, how);
    for (auto &instance : instances) {
        const auto &clients = below[instance.who.instance];
        lines.push_back(std::move(instance));
        lines.insert(lines.end(), clients.begin(), clients.end());
    }
    return lines;
}

} // namespace emuvctl::watch
