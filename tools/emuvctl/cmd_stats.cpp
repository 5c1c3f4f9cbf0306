// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl stats: prints how much each client holds and moves, once or again and
// again.
#include "environment.hpp"
#include "failure.hpp"
#include "instances.hpp"
#include "verbs.hpp"

#include <emuv/profile.hpp>

#include <array>
#include <charconv>
#include <ctime>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace emuvctl {

namespace {

struct stats_options
{
    std::vector<std::string> instances;
    std::string interval;
    std::string count;
    bool no_clients = false;
    output_options output;
};

constexpr std::array<column, 25> columns = {{
    {"name", "NAME", kind::text, "emuvN; its clients below it"},
    {"nvml_name", "NVML-NAME", kind::text, "as NVML names the card",
     "name,gpu_name"},
    {"time", "TIME", kind::text, "when it was read, UTC", "timestamp"},
    {"pid", "PID", kind::number, "a client's process"},
    {"comm", "COMMAND", kind::text, "that process's name"},
    {"client", "CLIENT", kind::number, "a client's number"},
    {"physical_used_bytes", "VRAM", kind::bytes, "VRAM charged"},
    {"physical_bytes", "VRAM-MAX", kind::bytes, "the share of VRAM"},
    {"virtual_used_bytes", "RAM", kind::bytes, "RAM allocated"},
    {"virtual_bytes", "RAM-MAX", kind::bytes, "the share of RAM"},
    {"imported_bytes", "IMPORTED", kind::bytes, "of others' regions"},
    {"resident_bytes", "RESIDENT", kind::bytes, "RAM that backs it now"},
    {"unowned_bytes", "UNOWNED", kind::bytes, "kept alive after its owner"},
    {"clients", "CLIENTS", kind::number, "open files of the node"},
    {"fetched_bytes", "FETCHED", kind::bytes, "moved from RAM to VRAM"},
    {"evicted_bytes", "EVICTED", kind::bytes, "moved from VRAM to RAM"},
    {"spills", "SPILLS", kind::number, "allocations placed in RAM"},
    {"faults", "FAULTS", kind::number, "work that memory was late for"},
    {"hit_bytes", "HIT", kind::bytes, "given to work, in VRAM"},
    {"miss_bytes", "MISS", kind::bytes, "given to work, in RAM"},
    {"stalled_ns", "STALLED", kind::nanoseconds, "work waited for memory"},
    {"fetched_per_s", "FETCH/S", kind::bytes_per_second, "with -i: the rate"},
    {"evicted_per_s", "EVICT/S", kind::bytes_per_second, "with -i: the rate"},
    {"spills_per_s", "SPILLS/S", kind::rate, "with -i: the rate"},
    {"faults_per_s", "FAULTS/S", kind::rate, "with -i: the rate"},
}};

struct measured
{
    emuv::instance_info info;
    std::vector<emuv::client_info> clients;
    bool hidden = false; // there are clients, and this user may not see them
};

struct sample
{
    double at = 0; // seconds
    std::string time;
    std::vector<measured> instances;
    /// Names of those that have clients which this user may not see.
    std::string hidden;
};

// The counts that an interval began with; client 0 is the whole instance.
using baseline = std::map<std::pair<int, std::uint64_t>, emuv::counters>;

std::string utc_now()
{
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    std::tm split{};
    ::gmtime_r(&now.tv_sec, &split);
    std::array<char, 32> text{};
    const std::size_t length =
        std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &split);
    return fmt::format("{}.{:03}Z", std::string_view(text.data(), length),
                       now.tv_nsec / 1000000);
}

sample take(const std::vector<int> &ids, bool clients, const environment &env)
{
    sample now;
    now.at = env.clock();
    now.time = utc_now();
    for (auto &info : read_instances(ids, env)) {
        measured one;
        if (clients && info.clients != 0) {
            auto seen = read_clients(info.id, env);
            if (!seen)
                now.hidden += (now.hidden.empty() ? "" : ", ") + info.name();
            one.hidden = !seen;
            one.clients =
                std::move(seen).value_or(std::vector<emuv::client_info>());
        }
        one.info = std::move(info);
        now.instances.push_back(std::move(one));
    }
    return now;
}

baseline base_of(const sample &from)
{
    baseline base;
    for (const auto &one : from.instances) {
        base[{one.info.id, 0}] = one.info.moved;
        for (const auto &client : one.clients)
            base[{one.info.id, client.client}] = client.moved;
    }
    return base;
}

// Totals, then rates; without a time to divide by there are none.
void add_counters(std::vector<cell> &cells, const emuv::counters &now,
                  const emuv::counters &before, double seconds)
{
    cells.insert(cells.end(),
                 {now.fetched_bytes, now.evicted_bytes, now.spills, now.faults,
                  now.hit_bytes, now.miss_bytes, now.stalled_ns});
    const auto rate = [seconds](std::uint64_t a, std::uint64_t b) -> cell {
        if (seconds <= 0)
            return {};
        // An instance made anew under its old number starts again at 0.
        return a < b ? 0.0 : static_cast<double>(a - b) / seconds;
    };
    cells.insert(cells.end(), {rate(now.fetched_bytes, before.fetched_bytes),
                               rate(now.evicted_bytes, before.evicted_bytes),
                               rate(now.spills, before.spills),
                               rate(now.faults, before.faults)});
}

row instance_line(const measured &one, const sample &now,
                  const baseline &before, double seconds)
{
    const auto &info = one.info;
    const auto base_of_key = [&](std::uint64_t client) {
        const auto found = before.find({info.id, client});
        return found == before.end() ? emuv::counters{} : found->second;
    };
    row line;
    line.children_hidden = one.hidden;
    const std::string card = nvml_name(info.gpu_model);
    line.cells = {info.name(),
                  card,
                  now.time,
                  {},
                  {},
                  {},
                  info.physical_used_bytes,
                  info.physical_bytes,
                  info.virtual_used_bytes,
                  info.virtual_bytes,
                  {},
                  info.resident_bytes,
                  info.unowned_bytes,
                  std::uint64_t{info.clients}};
    add_counters(line.cells, info.moved, base_of_key(0), seconds);
    for (const auto &client : one.clients) {
        row below;
        below.label = fmt::format("{} {}", client.pid, client.comm);
        below.cells = {info.name(),
                       card,
                       now.time,
                       std::int64_t{client.pid},
                       client.comm,
                       client.client,
                       client.physical_bytes,
                       {},
                       client.virtual_bytes,
                       {},
                       client.imported_bytes,
                       {},
                       {},
                       {}};
        add_counters(below.cells, client.moved, base_of_key(client.client),
                     seconds);
        line.children.push_back(std::move(below));
    }
    return line;
}

double parse_seconds(const std::string &text)
{
    double seconds = 0;
    const char *const end = text.data() + text.size();
    const auto [stop, problem] = std::from_chars(text.data(), end, seconds);
    // Written so that NaN fails too.
    if (problem != std::errc() || stop != end ||
        !(seconds >= 0.01 && seconds <= 86400))
        throw std::invalid_argument("'" + printable(text) +
                                    "' is not a number of seconds from 0.01 "
                                    "to 86400");
    return seconds;
}

void cmd_stats(const stats_options &options, environment &env)
{
    const bool repeat = !options.interval.empty() || !options.count.empty();
    const double interval =
        options.interval.empty() ? 1 : parse_option("-i", [&] {
            return parse_seconds(options.interval);
        });
    const auto forever = std::numeric_limits<long long>::max();
    const long long count =
        !repeat ? 1
        : options.count.empty()
            ? forever
            : parse_option("-c", [&] {
                  return emuv::parse_integer(options.count, 1, 1000000000);
              });

    static constexpr std::string_view once[] = {"name",
                                                "physical_used_bytes",
                                                "virtual_used_bytes",
                                                "resident_bytes",
                                                "fetched_bytes",
                                                "evicted_bytes",
                                                "spills",
                                                "faults"};
    static constexpr std::string_view rates[] = {
        "name",           "physical_used_bytes", "virtual_used_bytes",
        "resident_bytes", "fetched_per_s",       "evicted_per_s",
        "spills_per_s",   "faults_per_s"};
    std::vector<std::string_view> defaults(std::begin(once), std::end(once));
    if (repeat)
        defaults.assign(std::begin(rates), std::end(rates));
    if (options.output.raw) // no tree there: say whose a line is
        defaults.insert(defaults.begin() + 1, {"pid", "comm"});
    printer print(options.output, columns, defaults, repeat);

    const auto ids = parse_instances(options.instances, env);
    std::optional<sample> before;
    bool told = false; // that clients are left out
    if (repeat) {
        before = take(ids, !options.no_clients, env);
        if (!env.wait(interval))
            return;
    }
    for (long long i = 0; i < count; i++) {
        sample now = take(ids, !options.no_clients, env);
        const double seconds = before ? now.at - before->at : 0;
        const baseline base = before ? base_of(*before) : baseline();
        listing list;
        list.name = "instances";
        list.columns = columns;
        list.child_name = "client_list";
        list.child_columns = {"pid",
                              "comm",
                              "client",
                              "physical_used_bytes",
                              "virtual_used_bytes",
                              "imported_bytes",
                              "fetched_bytes",
                              "evicted_bytes",
                              "spills",
                              "faults",
                              "hit_bytes",
                              "miss_bytes",
                              "stalled_ns",
                              "fetched_per_s",
                              "evicted_per_s",
                              "spills_per_s",
                              "faults_per_s"};
        for (const auto &one : now.instances)
            list.rows.push_back(instance_line(one, now, base, seconds));
        if (!now.hidden.empty() && !told) {
            env.say(fmt::format("the clients of {} are left out: only root and "
                                "the node's group may see them; --no-clients "
                                "asks for none",
                                now.hidden));
            told = true;
        }
        if (list.rows.empty() && !options.output.any())
            env.say("there are no instances; 'emuvctl create' makes one");
        const bool table = !options.output.json && options.output.query.empty();
        if (table && i > 0)
            env.out.write("\n");
        print.print(list, env);
        before = std::move(now);
        if (i + 1 < count && !env.wait(interval))
            return;
    }
}

} // namespace

verb stats_verb()
{
    const auto options = std::make_shared<stats_options>();
    verb stats{"stats", "Instances", "show who holds and moves how much",
               "Shows what instances and their clients hold and have moved, or "
               "with -i and -c\nhow much they move a second. Clients are shown "
               "where the control node or the\ninstance's may be opened."};
    stats.arguments = instance_arguments(options->instances);
    stats.options = {
        {"-i,--interval", "SECONDS", "again every so many seconds. Default: 1",
         &options->interval},
        {"-c,--count", "N", "so many times. Default: until interrupted",
         &options->count},
        flag("--no-clients", options->no_clients, "show instances only")};
    add_output(stats, options->output, columns);
    stats.action = [options](environment &env) { cmd_stats(*options, env); };
    return stats;
}

} // namespace emuvctl
