// SPDX-License-Identifier: GPL-2.0-or-later
// emuvctl batch: runs a command for many items, side by side on instances.
#include "batch/items.hpp"
#include "batch_run.hpp"
#include "comma_list.hpp"
#include "cuda_library.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "frameworks.hpp"
#include "instances.hpp"
#include "lenders.hpp"
#include "remover.hpp"
#include "settings.hpp"
#include "verbs.hpp"

#include <emuv/size.hpp>
#include <emuv/unique_fd.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <unordered_set>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace emuvctl {

namespace {

constexpr int exit_some_failed = 123; // as of xargs(1)
constexpr int exit_interrupted = 130; // as of a shell, for SIGINT
constexpr int most_workers = 1024;
constexpr double lock_period = 0.1; // seconds

struct batch_options
{
    asked_settings settings;
    std::string jobs;
    std::string instances;
    std::string from = "-";
    bool null = false;
    std::string journal;
    std::string logs;
    std::string tries = "3";
    std::string memory_statuses;
    std::string up_to;
    std::string cuda_library_dir;
    bool leaves_frameworks = false; // as their own variables have them
    bool dry_run = false;
    output_options output; // json
    std::vector<std::string> command;
};

int parse_number(std::string_view text, int least, int most)
{
    int number = 0;
    const auto [end, problem] =
        std::from_chars(text.data(), text.data() + text.size(), number);
    if (problem != std::errc() || end != text.data() + text.size() ||
        number < least || number > most)
        throw std::invalid_argument(fmt::format(
            "'{}' is no number from {} to {}", printable(text), least, most));
    return number;
}

// Settings that a batch cannot hand on: it chooses instances itself, and all
// programs at once would write one file.
bool is_offered(const setting &what)
{
    return what.kind != setting_kind::instances &&
           what.kind != setting_kind::ledger &&
           what.kind != setting_kind::output;
}

bool own_limits(const batch_options &options)
{
    return options.settings.of("EMUV_PHYSICAL").given() ||
           options.settings.of("EMUV_VIRTUAL").given();
}

// The share of system RAM, then twice that and so on up to the largest.
std::vector<std::uint64_t> rising_shares(const batch_options &options)
{
    const auto &asked = options.settings.of("EMUV_VIRTUAL");
    if (!asked.given())
        return {0};
    std::uint64_t share = emuv::parse_size(asked.text);
    std::vector<std::uint64_t> shares = {share};
    if (options.up_to.empty())
        return shares;
    const std::uint64_t most = parse_option(
        "--up-to", [&] { return emuv::parse_size(options.up_to); });
    if (most < share)
        throw usage_error("--up-to: this is less than --virtual");
    while (share < most && share != 0) {
        share = share > most / 2 ? most : 2 * share;
        shares.push_back(share);
    }
    return shares;
}

// The ledgers that the workers' programs share. They go with the batch; if that
// is killed, once its workers have ended, whose programs may yet open them.
class ledgers
{
public:
    ledgers() = default;
    ledgers(const ledgers &) = delete;
    ledgers &operator=(const ledgers &) = delete;
    ~ledgers()
    {
        for (const auto &path : paths_)
            ::unlink(path.c_str());
    }
    std::string add()
    {
        paths_.emplace_back(make_ledger());
        return paths_.back().string();
    }
    // Before the first worker is started: each holds the pipe open.
    void remove_at_end()
    {
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC) != 0)
            throw std::system_error(errno, std::generic_category(), "pipe");
        const emuv::unique_fd all_ended(ends[0]);
        at_work_.reset(ends[1]);
        emuvctl::remove_at_end(paths_, all_ended);
    }

private:
    std::vector<std::filesystem::path> paths_;
    emuv::unique_fd at_work_;
};

// The instances that the workers take turns in.
std::vector<emuv::instance_info> choose_instances(const batch_options &options,
                                                  int jobs, environment &env)
{
    std::vector<int> ids;
    if (!options.instances.empty()) {
        const auto words = split_at_commas(options.instances);
        ids = parse_instances(words, env);
    }
    auto found = read_instances(ids, env);
    if (found.empty())
        throw failure("there are no instances; 'emuvctl create' makes some, or "
                      "give --physical, --virtual or both");
    const auto wanted = static_cast<std::size_t>(jobs);
    if (options.instances.empty() && jobs > 0) {
        if (found.size() < wanted)
            throw failure(fmt::format(
                "there {} {} instance{} for {} workers; --instances lets "
                "several work on one",
                found.size() == 1 ? "is" : "are", found.size(),
                found.size() == 1 ? "" : "s", jobs));
        found.resize(wanted);
    }
    return found;
}

// A worker for each of them. Its programs may take what the tiers of its
// instance lend, too.
std::vector<batch_worker>
workers_of(const std::vector<emuv::instance_info> &instances,
           const variables &common, const batch_options &options,
           const environment &env)
{
    std::vector<batch_worker> workers;
    for (const auto &info : instances) {
        const auto all = with_lenders({info.id}, options.settings, env);
        if (!options.dry_run && !options.settings.holds("EMUV_DISABLE"))
            for (const int id : all.ids)
                try_instance(id, env);
        batch_worker worker{
            info.name(), common, {info.total_bytes() + all.lent}};
        for (auto &each : all.variables())
            worker.set.push_back(std::move(each));
        workers.push_back(std::move(worker));
    }
    return workers;
}

std::vector<batch_worker> make_workers(const batch_options &options,
                                       ledgers &made, environment &env)
{
    const int jobs = options.jobs.empty() ? 0 : parse_option("--jobs", [&] {
        return parse_number(options.jobs, 1, most_workers);
    });
    variables common = options.settings.variables();
    common.emplace_back("LD_PRELOAD", own_preload(cuda_library_folder(
                                          options.cuda_library_dir)));
    if (!options.leaves_frameworks)
        add_for_frameworks(options.settings, common);
    if (own_limits(options)) {
        if (!options.instances.empty())
            throw usage_error("--instances does not go with --physical and "
                              "--virtual");
        batch_worker worker{"", common, rising_shares(options)};
        std::vector<batch_worker> workers(
            static_cast<std::size_t>(std::max(jobs, 1)), worker);
        if (!options.dry_run) {
            for (auto &each : workers)
                each.set.emplace_back("EMUV_LEDGER", made.add());
            made.remove_at_end();
        }
        return workers;
    }
    auto workers =
        workers_of(choose_instances(options, jobs, env), common, options, env);
    const std::size_t instances = workers.size();
    if (jobs > 0)
        workers.resize(static_cast<std::size_t>(jobs));
    for (std::size_t i = instances; i < workers.size(); i++)
        workers[i] = workers[i % instances];
    return workers;
}

void check(const batch_options &options)
{
    options.settings.check();
    if (const auto &tier = options.settings.of("EMUV_TIER");
        tier.given() && tier.text != "none" && !own_limits(options))
        throw usage_error(
            "--tier goes with --physical and --virtual: a worker's "
            "instance has tiers of its own, or with --tier none "
            "no tiers");
    if (!options.up_to.empty() && !options.settings.of("EMUV_VIRTUAL").given())
        throw usage_error("--up-to needs --virtual");
}

std::vector<int> memory_statuses(const batch_options &options)
{
    std::vector<int> statuses;
    if (!options.memory_statuses.empty())
        for (const auto &word : split_at_commas(options.memory_statuses))
            statuses.push_back(parse_option(
                "--oom-status", [&] { return parse_number(word, 1, 255); }));
    return statuses;
}

batch::items items_of(const batch_options &options, environment &env)
{
    try {
        auto found =
            batch::read_items(options.from, options.null ? '\0' : '\n');
        if (found.not_utf8 != 0 && !options.journal.empty())
            throw failure(fmt::format("item {} is no UTF-8, so no journal can "
                                      "hold it",
                                      found.not_utf8));
        if (env.wait(0))
            return found;
    } catch (const std::invalid_argument &problem) {
        throw failure(problem.what());
    } catch (const std::system_error &problem) {
        if (problem.code().value() != EINTR)
            throw;
    }
    throw ended_with("interrupted", exit_interrupted);
}

// Another batch, or what a killed one has left at work, ends first.
void await_journal(const batch::journal &book, const std::string &path,
                   environment &env)
{
    if (book.lock())
        return;
    env.say(fmt::format("{}: another batch, or the workers of one that was "
                        "killed, are at work on it; waiting for their end",
                        path));
    while (!book.lock())
        if (!env.wait(lock_period))
            throw ended_with("interrupted", exit_interrupted);
}

void describe(const batch_plan &plan, const batch::items &items,
              environment &env)
{
    std::string text = fmt::format(
        "would run for {} item{}, by {} worker{}:", items.list.size(),
        items.list.size() == 1 ? "" : "s", plan.workers.size(),
        plan.workers.size() == 1 ? "" : "s");
    for (const auto &worker : plan.workers)
        if (!worker.instance.empty())
            text += " " + worker.instance;
    text += '\n';
    if (!items.list.empty()) {
        std::string words;
        for (const auto &word :
             batch::command_for(plan.command, items.list.front()))
            words += " " + printable(word);
        text += "first:" + words + "\n";
    }
    env.out.write(text);
}

std::string json_text(const batch_plan &plan, const batch_summary &summary)
{
    nlohmann::ordered_json made = {{"schema", 1},
                                   {"items", plan.items.size()},
                                   {"done_before", summary.before},
                                   {"done", summary.done},
                                   {"run_again", summary.again},
                                   {"left", summary.left},
                                   {"interrupted", summary.interrupted},
                                   {"seconds", summary.seconds}};
    made["failed"] = nlohmann::ordered_json::array();
    for (const auto &one : summary.failed)
        made["failed"].push_back({{"item", one.item},
                                  {"ending", batch::name_of(one.how)},
                                  {"status", one.status}});
    made["workers"] = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < plan.workers.size(); i++) {
        nlohmann::ordered_json worker;
        worker["instance"] = nullptr;
        if (!plan.workers[i].instance.empty())
            worker["instance"] = plan.workers[i].instance;
        worker["done"] = summary.workers[i].done;
        worker["seconds"] = summary.workers[i].seconds;
        made["workers"].push_back(std::move(worker));
    }
    return made.dump(2, ' ', false,
                     nlohmann::ordered_json::error_handler_t::replace) +
           "\n";
}

// Items are done, whoever reads of it.
void print(const std::string &text, environment &env)
{
    try {
        env.out.write(text);
    } catch (const closed_pipe &) {
        return;
    }
}

std::string summary_text(const batch_plan &plan, const batch_summary &summary)
{
    std::string text =
        fmt::format("{} item{}: {} done", plan.items.size(),
                    plan.items.size() == 1 ? "" : "s", summary.done);
    if (summary.before != 0)
        text += fmt::format(", {} done before", summary.before);
    if (!summary.failed.empty())
        text += fmt::format(", {} failed", summary.failed.size());
    if (summary.left != 0)
        text += fmt::format(", {} left", summary.left);
    if (summary.again != 0)
        text += fmt::format("; {} run{} again", summary.again,
                            summary.again == 1 ? "" : "s");
    return text + fmt::format("; {:.1f} s", summary.seconds);
}

void cmd_batch(const batch_options &options, environment &env)
{
    check(options);
    ledgers made;
    batch_plan plan;
    plan.command = options.command;
    plan.memory_statuses = memory_statuses(options);
    plan.tries = static_cast<unsigned>(parse_option(
        "--tries", [&] { return parse_number(options.tries, 1, 1000); }));
    plan.json = options.output.json;
    // A list that is not there is told before instances are looked at. But
    // nobody types a list for instances that are not there.
    const bool typed = options.from == "-";
    batch::items items;
    if (!typed)
        items = items_of(options, env);
    plan.workers = make_workers(options, made, env);
    if (typed)
        items = items_of(options, env);
    if (items.repeated != 0)
        env.say(fmt::format("{} item{} named again, and run once",
                            items.repeated,
                            items.repeated == 1 ? " is" : "s are"));
    if (options.dry_run) {
        describe(plan, items, env);
        return;
    }
    plan.items = items.list;
    if (!options.logs.empty()) {
        plan.logs = std::filesystem::absolute(options.logs).string();
        std::filesystem::create_directories(plan.logs);
    }
    batch::journal book;
    if (!options.journal.empty()) {
        book = batch::journal(options.journal);
        await_journal(book, options.journal, env);
    }
    const auto summary = run_batch(plan, book, env);
    const std::string text = summary_text(plan, summary);
    if (options.output.json)
        print(json_text(plan, summary), env);
    if (summary.interrupted && summary.left != 0)
        throw ended_with(text, exit_interrupted);
    if (!summary.failed.empty())
        throw ended_with(text, exit_some_failed);
    env.say(text);
}

} // namespace

verb batch_verb()
{
    const auto options = std::make_shared<batch_options>();
    verb batch{
        "batch", "Instances", "run a command for many items on instances",
        "Runs a command for each item of a list, side by side on instances. "
        "{} stands\nfor the item; without {} it is the last word.\n"
        "  ls photos/*.jpg | emuvctl batch --jobs 5 -- python tag.py {}\n"
        "An item that lacked memory is run again where there is more. With "
        "--journal, a\nbatch that was ended goes on where it was."};
    batch.options = {
        {"-j,--jobs", "N",
         "workers; by default as many as instances, or 1\nwith --physical or "
         "--virtual",
         &options->jobs},
        {"--instances", "INSTANCE,...",
         "those to use, in turns; by default all, lowest\nnumbers first",
         &options->instances, offered::instances},
        {"--from", "FILE|DIR",
         "a list, an item a line, or a folder whose files\nare the items; '-': "
         "the standard input, the default",
         &options->from, offered::files},
        flag("-0,--null", options->null,
             "items of the list end in a zero byte"),
        {"--journal", "FILE",
         "note each end there, and run only what is not\ndone by it",
         &options->journal, offered::files},
        {"--logs", "DIR", "keep what each item writes in a file there",
         &options->logs, offered::folders},
        {"--tries", "N",
         "begin an item so often at most when it is killed;\n3 by default",
         &options->tries},
        {"--oom-status", "N,...",
         "exit statuses that mean out of memory. A refusal\nby the CUDA "
         "library "
         "and any failure mean it, too",
         &options->memory_statuses},
        {"--up-to", "SIZE",
         "try an item that lacks memory again with twice\nas much as "
         "--virtual, up to this",
         &options->up_to}};
    for (auto &each : options->settings.options()) {
        const auto all = settings();
        if (std::any_of(all.begin(), all.end(), [&](const setting &one) {
                return one.option == each.names && is_offered(one);
            }))
            batch.options.push_back(std::move(each));
    }
    batch.options.push_back({"--library", "DIR", "folder of the CUDA library",
                             &options->cuda_library_dir, offered::folders});
    batch.options.push_back(leave_frameworks_flag(options->leaves_frameworks));
    batch.options.push_back(
        flag("--dry-run", options->dry_run, "only say what would be run"));
    batch.options.push_back(json_flag(options->output));
    batch.arguments = {"-- COMMAND", &options->command, offered::command, true};
    batch.action = [options](environment &env) { cmd_batch(*options, env); };
    return batch;
}

} // namespace emuvctl
