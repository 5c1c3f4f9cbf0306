// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl stats: prints how much each client holds and moves, once or again and
// again.
#include "environment.hpp"
#include "failure.hpp"
#include "instances.hpp"
#include "sampling.hpp"
#include "verbs.hpp"
#include "watch/bars.hpp"
#include "watch/metrics.hpp"
#include "watch/text_file.hpp"

#include <emuv/error.hpp>
#include <emuv/profile.hpp>

#include <algorithm>
#include <array>
#include <ctime>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <system_error>
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

// Those that could be read.
std::span<const emuv::client_info> clients_of(const watch::instance_sample &one)
{
    if (!one.clients)
        return {};
    return *one.clients;
}

baseline base_of(const watch::sample &from)
{
    baseline base;
    for (const auto &one : from.instances) {
        base[{one.info.id, 0}] = one.info.moved;
        for (const auto &client : clients_of(one))
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

// The moment of a sample, and the one that its rates are from.
struct moment
{
    std::string time; // UTC
    bool clients;     // they were asked for
    baseline before = {};
    double seconds = 0; // since then
};

// True if it has clients, and this user may not see them.
bool hides_clients(const watch::instance_sample &one)
{
    return one.info.clients != 0 && !one.clients;
}

row instance_line(const watch::instance_sample &one, const moment &now)
{
    const auto &info = one.info;
    const auto base_of_key = [&](std::uint64_t client) {
        const auto found = now.before.find({info.id, client});
        return found == now.before.end() ? emuv::counters{} : found->second;
    };
    row line;
    line.children_hidden = now.clients && hides_clients(one);
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
    add_counters(line.cells, info.moved, base_of_key(0), now.seconds);
    for (const auto &client : clients_of(one)) {
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
                     now.seconds);
        line.children.push_back(std::move(below));
    }
    return line;
}

// How often to report.
struct pace
{
    bool repeat;
    double interval; // seconds
    long long count;
};

pace read_pace(const stats_options &options)
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
    return {repeat, interval, count};
}

// Writes metrics to a file, or prints them.
class exposition
{
public:
    /// @throws usage_error options that it cannot go with
    explicit exposition(const stats_options &options, bool repeat)
        : file_(options.output.columns)
    {
        const auto &output = options.output;
        for (const auto &[given, name] : {std::pair{output.json, "--json"},
                                          {output.bytes, "--bytes"},
                                          {output.raw, "--raw"},
                                          {output.noheadings, "--noheadings"},
                                          {!output.query.empty(), "--query"},
                                          {!output.sort.empty(), "--sort"},
                                          {!output.filter.empty(), "--filter"}})
            if (given)
                throw usage_error(fmt::format(
                    "--format=prometheus and {} exclude each other", name));
        if (repeat && file_.empty())
            throw usage_error("--format=prometheus is printed once; with -i or "
                              "-c it needs --output FILE");
    }

    void write(const watch::sample &what, environment &env) const
    {
        const std::string text = watch::metrics_text(what);
        if (file_.empty()) {
            env.out.write(text);
            return;
        }
        try {
            watch::replace_file(file_, text);
        } catch (const std::system_error &problem) {
            const bool special = problem.code() == std::errc::invalid_argument;
            throw failure(fmt::format(
                "cannot write {}: {}", printable(file_),
                special ? "it is not a regular file"
                        : emuv::errno_text(problem.code().value())));
        }
    }

private:
    std::string file_;
};

void write_metrics(const stats_options &options, const pace &how,
                   environment &env)
{
    const exposition to(options, how.repeat);
    const auto ids = parse_instances(options.instances, env);
    for (long long i = 0; i < how.count; i++) {
        to.write(take_sample({ids, !options.no_clients, true}, env), env);
        if (i + 1 < how.count && !env.wait(how.interval))
            return;
    }
}

// Says once whose clients are left out.
class clients_left_out
{
public:
    void tell(const watch::sample &now, environment &env)
    {
        std::string names;
        for (const auto &one : now.instances)
            if (hides_clients(one))
                names += (names.empty() ? "" : ", ") + one.info.name();
        if (names.empty() || std::exchange(told_, true))
            return;
        env.say(fmt::format("the clients of {} are left out: only root and the "
                            "node's group may see them; --no-clients asks for "
                            "none",
                            names));
    }

private:
    bool told_ = false;
};

// True if reports take each other's place on the terminal, below bars.
bool redraws(const listing &list, const stats_options &options,
             const environment &env)
{
    if (options.output.any() || !env.out.terminal() || env.out.width() < 40)
        return false;
    // The bars, an empty line, the headings, and the cursor's own line.
    std::size_t lines = list.rows.size() + 3;
    for (const auto &one : list.rows)
        lines += 1 + one.children.size();
    return static_cast<int>(lines) <= watch::lines_to_redraw();
}

void cmd_stats(const stats_options &options, environment &env)
{
    const pace how = read_pace(options);
    if (options.output.format == "prometheus") {
        write_metrics(options, how, env);
        return;
    }
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
    if (how.repeat)
        defaults.assign(std::begin(rates), std::end(rates));
    if (options.output.raw) // no tree there: say whose a line is
        defaults.insert(defaults.begin() + 1, {"pid", "comm"});
    printer print(options.output, columns, defaults, how.repeat);

    const auto ids = parse_instances(options.instances, env);
    const sampling what{ids, !options.no_clients};
    std::optional<watch::sample> before;
    if (how.repeat) {
        before = take_sample(what, env);
        if (!env.wait(how.interval))
            return;
    }
    clients_left_out left_out;
    for (long long i = 0; i < how.count; i++) {
        moment at{utc_now(), what.clients};
        watch::sample now = take_sample(what, env);
        if (before)
            at = {at.time, what.clients, base_of(*before), now.at - before->at};
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
            list.rows.push_back(instance_line(one, at));
        if (what.clients)
            left_out.tell(now, env);
        if (list.rows.empty() && !options.output.any())
            env.say("there are no instances; 'emuvctl create' makes one");
        const bool table = !options.output.json && options.output.query.empty();
        if (how.repeat && redraws(list, options, env))
            env.out.write(
                "\x1b[H\x1b[J" + // home, and clear from there
                watch::share_lines(now, static_cast<int>(env.out.width())) +
                "\n");
        else if (table && i > 0)
            env.out.write("\n");
        print.print(list, env);
        before = std::move(now);
        if (i + 1 < how.count && !env.wait(how.interval))
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
               "where the control node or the\ninstance's may be opened.\n"
               "  emuvctl stats --format=prometheus --output emuv.prom\n"
               "writes metrics for the node exporter's textfile collector; "
               "--output then names\na file, which is replaced as a whole."};
    stats.arguments = instance_arguments(options->instances);
    stats.options = {
        {"-i,--interval", "SECONDS", "again every so many seconds. Default: 1",
         &options->interval},
        {"-c,--count", "N", "so many times. Default: until interrupted",
         &options->count},
        flag("--no-clients", options->no_clients, "show instances only")};
    add_output(stats, options->output, columns);
    option &format = *std::find_if(
        stats.options.begin(), stats.options.end(),
        [](const option &one) { return one.names == "--format"; });
    format.help = "with --query: csv, noheader, nounits;\n"
                  "prometheus: as metrics";
    format.words.push_back({"prometheus"});
    stats.action = [options](environment &env) { cmd_stats(*options, env); };
    return stats;
}

} // namespace emuvctl
