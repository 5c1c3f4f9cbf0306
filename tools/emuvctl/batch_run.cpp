// SPDX-License-Identifier: GPL-2.0-or-later
// Runs a batch: feeds workers, tells how far it is, counts.
#include "batch_run.hpp"

#include "batch/items.hpp"
#include "batch/queue.hpp"
#include "batch/worker.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "output.hpp"
#include "settings.hpp"

#include <emuv/error.hpp>
#include <emuv/size.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <optional>
#include <system_error>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

namespace emuvctl {

namespace {

constexpr int look_ms = 200; // how often to look for an interruption
constexpr std::string_view clear_line = "\r\x1b[K";

volatile std::sig_atomic_t interruptions = 0;

void interrupted(int /*number*/)
{
    interruptions = interruptions + 1;
}

// Counts SIGINT and SIGTERM, as long as it lives.
class interruption_counter
{
public:
    interruption_counter()
    {
        interruptions = 0;
        struct sigaction action
        {};
        action.sa_handler = interrupted;
        ::sigaction(SIGINT, &action, &before_[0]);
        ::sigaction(SIGTERM, &action, &before_[1]);
    }
    interruption_counter(const interruption_counter &) = delete;
    interruption_counter &operator=(const interruption_counter &) = delete;
    ~interruption_counter()
    {
        ::sigaction(SIGINT, &before_[0], nullptr);
        ::sigaction(SIGTERM, &before_[1], nullptr);
    }
    static int count() { return interruptions; }

private:
    struct sigaction before_[2] = {};
};

std::string say_time(double seconds)
{
    const auto whole = static_cast<std::uint64_t>(seconds);
    if (whole >= 3600)
        return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
    if (whole >= 60)
        return fmt::format("{} min {:02} s", whole / 60, whole % 60);
    return fmt::format("{:.1f} s", seconds);
}

// A file name for an item's words: its number, and what a file can be called.
std::string log_name(std::size_t number, const std::string &item)
{
    constexpr std::size_t most = 80;
    std::string name = item.substr(item.find_last_of('/') + 1);
    for (char &c : name)
        if (static_cast<unsigned char>(c) < 0x21 || c == 0x7f)
            c = '_';
    return fmt::format("{:06}-{}.log", number + 1, name.substr(0, most));
}

class runner
{
public:
    runner(const batch_plan &plan, const batch::journal &book, environment &env)
        : plan_(plan), book_(book), env_(env), begin_(env.clock()),
          shows_(env.err.terminal()),
          queue_(done_before(), shares(), plan.tries)
    {
        summary_.workers.resize(plan.workers.size());
        at_work_.resize(plan.workers.size());
    }

    runner(const runner &) = delete;
    runner &operator=(const runner &) = delete;
    // A failure takes along all that is at work: no item runs on unseen.
    ~runner() { end_all(); }

    batch_summary run()
    {
        const interruption_counter counter;
        for (;;) {
            if (interruption_counter::count() == 0)
                feed();
            if (queue_.out() == 0)
                break;
            show();
            wait();
            obey();
        }
        clear();
        summary_.left = queue_.waiting() + ended_by_us_;
        summary_.seconds = env_.clock() - begin_;
        return summary_;
    }

private:
    // One worker's place: it runs an item, or nothing.
    struct place
    {
        std::optional<batch::worker> worker;
        batch::turn turn;
    };

    std::vector<bool> done_before()
    {
        std::vector<bool> done(plan_.items.size());
        if (!book_.kept())
            return done;
        const auto known = book_.resume(plan_.command);
        for (std::size_t i = 0; i < done.size(); i++)
            if (known.contains(plan_.items[i])) {
                done[i] = true;
                summary_.before++;
            }
        return done;
    }

    std::vector<std::vector<std::uint64_t>> shares() const
    {
        std::vector<std::vector<std::uint64_t>> all;
        for (const auto &worker : plan_.workers)
            all.push_back(worker.shares);
        return all;
    }

    batch::job job_for(std::size_t number, const batch::turn &turn) const
    {
        const auto &worker = plan_.workers[number];
        const auto &item = plan_.items[turn.item];
        batch::job job;
        job.command = batch::command_for(plan_.command, item);
        job.set = worker.set;
        job.unset = variables_beside_limits();
        if (worker.instance.empty() && turn.share_bytes != 0)
            job.set.emplace_back("EMUV_VIRTUAL",
                                 std::to_string(turn.share_bytes));
        if (!plan_.logs.empty())
            job.log = plan_.logs + "/" + log_name(turn.item, item);
        job.out = plan_.json ? STDERR_FILENO : STDOUT_FILENO;
        job.err = STDERR_FILENO;
        if (shows_) {
            job.before_err = clear_line;
            if (::isatty(job.out) == 1)
                job.before_out = clear_line;
        }
        job.memory_statuses = plan_.memory_statuses;
        job.about.item = item;
        job.about.worker = worker.instance;
        job.about.share_bytes = turn.share_bytes;
        return job;
    }

    void feed()
    {
        for (std::size_t i = 0; i < at_work_.size(); i++) {
            if (at_work_[i].worker)
                continue;
            const auto turn = queue_.next(i);
            if (!turn)
                continue;
            at_work_[i].turn = *turn;
            at_work_[i].worker.emplace(job_for(i, *turn), book_);
        }
    }

    void wait()
    {
        std::vector<pollfd> all;
        std::vector<std::size_t> places;
        for (std::size_t i = 0; i < at_work_.size(); i++)
            if (at_work_[i].worker) {
                all.push_back({at_work_[i].worker->fd(), POLLIN, 0});
                places.push_back(i);
            }
        if (::poll(all.data(), all.size(), look_ms) < 0) {
            if (errno == EINTR)
                return;
            throw std::system_error(errno, std::generic_category(), "poll");
        }
        for (std::size_t i = 0; i < all.size(); i++)
            if (all[i].revents != 0)
                ended(places[i]);
    }

    void ended(std::size_t number)
    {
        place &here = at_work_[number];
        auto result = here.worker->finish();
        here.worker.reset();
        const auto &item = plan_.items[here.turn.item];
        // It may have been killed between its note and its report.
        if (result.how == batch::ending::lost && book_.has_done(item)) {
            result.how = batch::ending::done;
            result.status = 0;
        }
        if (result.problem != 0) {
            const std::string program =
                batch::command_for(plan_.command, item).front();
            throw not_started(program + ": " + emuv::errno_text(result.problem),
                              result.problem);
        }
        if (result.failure != 0)
            throw failure(fmt::format("{}: the worker failed: {}",
                                      printable(item),
                                      emuv::errno_text(result.failure)));
        batch_share &share = summary_.workers[number];
        share.seconds += result.seconds;
        // It was asked to end, so this says nothing about the item.
        if (result.how != batch::ending::done && obeyed_ > 1) {
            queue_.drop();
            ended_by_us_++;
            return;
        }
        const bool again = queue_.ended(here.turn, result.how);
        if (result.how == batch::ending::done) {
            summary_.done++;
            share.done++;
            return;
        }
        if (again)
            summary_.again++;
        else
            summary_.failed.push_back({item, result.how, result.status});
        tell(here.turn, number, result, again);
    }

    void tell(const batch::turn &turn, std::size_t number,
              const batch::outcome &result, bool again)
    {
        std::string why;
        switch (result.how) {
        case batch::ending::no_memory:
            why = fmt::format("out of memory{}", share_text(turn, number));
            why += again ? "; again with more" : "; nobody has more";
            break;
        case batch::ending::lost:
            why = result.status > 128
                      ? fmt::format("killed by signal {}", result.status - 128)
                      : "its worker ended";
            why += again ? "; again" : "; given up";
            break;
        case batch::ending::failed:
        case batch::ending::done:
            why = fmt::format("exit status {}", result.status);
            break;
        }
        say(fmt::format("{}: {}", printable(plan_.items[turn.item]), why));
    }

    void write(std::string_view text) { env_.err.write(text); }

    void say(std::string_view message)
    {
        clear();
        env_.say(message);
    }

    std::string share_text(const batch::turn &turn, std::size_t number) const
    {
        if (turn.share_bytes == 0)
            return "";
        const std::string size = emuv::format_size_exact(turn.share_bytes);
        const auto &instance = plan_.workers[number].instance;
        return instance.empty()
                   ? fmt::format(" with {} of system RAM", size)
                   : fmt::format(" on {}, with {}", instance, size);
    }

    // Ends what is at work, and waits for it.
    void end_all() noexcept
    {
        for (auto &each : at_work_)
            if (each.worker) {
                each.worker->end();
                each.worker->finish();
                each.worker.reset();
            }
    }

    // The first interruption keeps new items from being begun, the second asks
    // programs to end, the third ends them.
    void obey()
    {
        for (; obeyed_ < interruption_counter::count(); obeyed_++) {
            if (obeyed_ == 0)
                stop_feeding();
            for (const auto &each : at_work_) {
                if (!each.worker || obeyed_ == 0)
                    continue;
                if (obeyed_ == 1)
                    each.worker->ask_to_end();
                else
                    each.worker->end();
            }
        }
    }

    void stop_feeding()
    {
        summary_.interrupted = true;
        if (queue_.out() == 0)
            return;
        say(fmt::format("{} item{} at work; once more ends {}", queue_.out(),
                        queue_.out() == 1 ? " is" : "s are",
                        queue_.out() == 1 ? "it" : "them"));
    }

    void show()
    {
        if (!shows_)
            return;
        const std::size_t ended = summary_.done + summary_.failed.size();
        std::string line = fmt::format("{} of {} done, {} at work",
                                       summary_.before + summary_.done,
                                       plan_.items.size(), queue_.out());
        if (!summary_.failed.empty())
            line += fmt::format(", {} failed", summary_.failed.size());
        if (ended != 0) {
            const double each =
                (env_.clock() - begin_) / static_cast<double>(ended);
            line += fmt::format(
                ", {} left",
                say_time(each *
                         static_cast<double>(queue_.waiting() + queue_.out())));
        }
        if (line == shown_)
            return;
        shown_ = line;
        const unsigned width = env_.err.width();
        if (width > 1 && line.size() >= width)
            line.resize(width - 1);
        write(std::string(clear_line) + line);
    }

    void clear()
    {
        if (!shows_ || shown_.empty())
            return;
        shown_.clear();
        write(clear_line);
    }

    const batch_plan &plan_;
    const batch::journal &book_;
    environment &env_;
    batch_summary summary_;
    double begin_;
    bool shows_;
    std::string shown_;
    batch::queue queue_;
    std::vector<place> at_work_;
    std::size_t ended_by_us_ = 0;
    int obeyed_ = 0; // interruptions
};

} // namespace

batch_summary run_batch(const batch_plan &plan, const batch::journal &book,
                        environment &env)
{
    return runner(plan, book, env).run();
}

} // namespace emuvctl
