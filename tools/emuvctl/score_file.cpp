// SPDX-License-Identifier: GPL-2.0-or-later
// An estimate that is kept, for `emuvctl run --score` and `emuvctl report`.
#include "score_file.hpp"

#include "failure.hpp"
#include "output.hpp"
#include "watch/text_file.hpp"

#include <emuv/error.hpp>
#include <emuv/unique_fd.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <system_error>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace emuvctl {

namespace {

constexpr std::size_t most_text = std::size_t{1} << 20;
constexpr int most_tries = 6000; // a minute
constexpr auto between_tries = std::chrono::milliseconds(10);

} // namespace

std::string usual_score_file()
{
    for (const auto &[variable, rest] :
         std::initializer_list<std::pair<const char *, const char *>>{
             {"XDG_STATE_HOME", ""}, {"HOME", "/.local/state"}})
        if (const char *const folder = std::getenv(variable);
            folder != nullptr && folder[0] == '/')
            return fmt::format("{}{}/emuv/estimate.json", folder, rest);
    return "emuv-estimate.json";
}

std::string read_estimate(const std::string &path)
{
    const emuv::unique_fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file && errno == ENOENT)
        throw failure(fmt::format("--score: {}: there is no such estimate; "
                                  "'emuvctl estimate MODEL --save' makes one",
                                  printable(path)));
    std::string text(most_text + 1, '\0');
    std::size_t count = 0;
    ssize_t got = file ? 1 : -1;
    while (got > 0 && count < text.size()) {
        do {
            got = ::read(file.get(), text.data() + count, text.size() - count);
        } while (got < 0 && errno == EINTR);
        count += static_cast<std::size_t>(std::max<ssize_t>(got, 0));
    }
    if (got < 0)
        throw failure(fmt::format("--score: {}: {}", printable(path),
                                  emuv::errno_text(errno)));
    text.resize(count);
    return text;
}

estimate_lock::estimate_lock(const std::string &path)
{
    for (int tries = 0; tries < most_tries; tries++) {
        struct stat there = {};
        if (::stat(path.c_str(), &there) != 0 || !S_ISREG(there.st_mode))
            return;
        emuv::unique_fd file(
            ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
        struct stat opened = {};
        if (!file || ::fstat(file.get(), &opened) != 0)
            return;
        // A writer puts another file in its place.
        const bool locked = ::flock(file.get(), LOCK_EX | LOCK_NB) == 0;
        // A file system may have no locks, or none for a file that is read.
        if (!locked && errno != EWOULDBLOCK && errno != EINTR)
            return;
        if (locked && ::stat(path.c_str(), &there) == 0 &&
            there.st_ino == opened.st_ino && there.st_dev == opened.st_dev) {
            file_ = std::move(file);
            return;
        }
        std::this_thread::sleep_for(between_tries);
    }
    throw failure(
        fmt::format("{}: another program has it locked", printable(path)));
}

void save_estimate(const estimate_lock & /*held*/, const std::string &path,
                   std::string_view json)
{
    if (path == usual_score_file()) {
        const auto folder = std::filesystem::path(path).parent_path();
        std::error_code problem;
        if (!folder.empty())
            std::filesystem::create_directories(folder, problem);
        if (problem)
            throw failure(fmt::format("cannot make {}: {}",
                                      printable(folder.string()),
                                      emuv::errno_text(problem.value())));
    }
    try {
        watch::replace_file(path, json);
    } catch (const std::system_error &problem) {
        const bool special = problem.code() == std::errc::invalid_argument;
        throw failure(
            fmt::format("cannot write {}: {}", printable(path),
                        special ? "it is not a regular file"
                                : emuv::errno_text(problem.code().value())));
    }
}

} // namespace emuvctl
