// SPDX-License-Identifier: LGPL-2.1-or-later
// What the user asked for, read once from the environment.
#include "base/settings.hpp"

#include "base/size.hpp"

#include <algorithm>
#include <initializer_list>
#include <string_view>

namespace emuv::cuda {

namespace {

// As for an instance (EMUV_MAX_BYTES): sums of two cannot wrap.
constexpr std::uint64_t max_bytes = std::uint64_t{1} << 50;

// An empty variable is one that is not set: that is how a shell's wrapper
// turns a setting off.
std::string_view value(const char *text)
{
    return text != nullptr ? std::string_view(text) : std::string_view();
}

// One of those that a setting may be.
template <typename Kind>
struct named_kind
{
    std::string_view name;
    Kind kind;
};

// "0", "0,1,2": instance ids below EMUV_MAX_INSTANCES.
bool read_instances(std::string_view text, std::vector<int> &instances)
{
    int id = -1;
    for (const char c : text) {
        if (c == ',') {
            if (id < 0)
                return false;
            instances.push_back(id);
            id = -1;
            continue;
        }
        if (c < '0' || c > '9')
            return false;
        id = (id < 0 ? 0 : id) * 10 + (c - '0');
        if (id >= 1024)
            return false;
    }
    if (id < 0)
        return false;
    instances.push_back(id);
    return true;
}

// Of "a,b": a comma with nothing before it or behind it.
bool has_empty_name(std::string_view list)
{
    return !list.empty() && (list.front() == ',' || list.back() == ',' ||
                             list.find(",,") != std::string_view::npos);
}

} // namespace

settings read_settings(char *(*get)(const char *name))
{
    settings read;
    const auto wrong = [&read](const char *name, const char *text,
                               const char *why = "is not understood") {
        if (read.wrong_name == nullptr) {
            read.wrong_name = name;
            read.wrong_value = text;
            read.wrong_why = why;
        }
    };

    const auto flag = [&](const char *name, bool &set) {
        const char *given = get(name);
        if (value(given) == "1")
            set = true;
        else if (!value(given).empty() && value(given) != "0")
            wrong(name, given);
    };
    flag("EMUV_DISABLE", read.disabled);
    flag("EMUV_IPC", read.ipc);
    flag("EMUV_RECLAIM", read.reclaim);

    const auto size = [&](const char *name,
                          std::optional<std::uint64_t> &bytes) {
        const char *given = get(name);
        if (value(given).empty())
            return;
        bytes = parse_size(value(given));
        if (!bytes || *bytes > max_bytes)
            wrong(name, given);
    };
    size("EMUV_PHYSICAL", read.physical_bytes);
    size("EMUV_VIRTUAL", read.virtual_bytes);

    const auto choice =
        [&]<typename Kind>(const char *name, Kind &chosen,
                           std::initializer_list<named_kind<Kind>> all) {
            const char *given = get(name);
            const auto found =
                std::find_if(all.begin(), all.end(), [&](const auto &each) {
                    return value(given) == each.name;
                });
            if (found != all.end())
                chosen = found->kind;
            else if (!value(given).empty())
                wrong(name, given);
        };

    const char *text = get("EMUV_INSTANCE");
    if (!value(text).empty() && !read_instances(value(text), read.instances))
        wrong("EMUV_INSTANCE", text);

    text = get("EMUV_LEDGER");
    if (!value(text).empty())
        read.ledger_path = text;

    choice("EMUV_REPORT", read.report,
           {{"total", report_kind::total},
            {"physical", report_kind::physical},
            {"free", report_kind::free}});
    choice("EMUV_STORE", read.store,
           {{"auto", store_kind::automatic},
            {"numa", store_kind::numa},
            {"pages", store_kind::pages}});
    choice("EMUV_CHARGE", read.charge,
           {{"all", charged_kind::all},
            {"allocations", charged_kind::allocations}});

    text = get("EMUV_MOVE");
    read.move_always = value(text) == "always";
    read.move_check = value(text) == "check";
    if (value(text) == "1" || read.move_always || read.move_check)
        read.move = true;
    else if (!value(text).empty() && value(text) != "0")
        wrong("EMUV_MOVE", text);

    choice("EMUV_AWAY", read.away,
           {{"mapped", away_kind::mapped}, {"unmapped", away_kind::unmapped}});

    if (read.move && read.store == store_kind::pages)
        wrong("EMUV_STORE", get("EMUV_STORE"),
              "does not go with EMUV_MOVE: pages do not move");

    text = get("EMUV_TRUST");
    if (!value(text).empty())
        read.trust = text;
    if (has_empty_name(value(text)))
        wrong("EMUV_TRUST", text, "has an empty name in it");

    text = get("EMUV_TRACE");
    if (!value(text).empty())
        read.trace_path = text;
    return read;
}

} // namespace emuv::cuda
