// SPDX-License-Identifier: GPL-2.0-or-later
// The pages that processes under the CUDA library publish about themselves.
#include "statistics_file.hpp"

#include "environment.hpp"
#include "failure.hpp"
#include "lib/entries.hpp"
#include "output.hpp"

#include <emuv/error.hpp>
#include <emuv/sysfs.hpp>
#include <emuv/unique_fd.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace emuvctl {

namespace {

using emuv::cuda::device_statistics;
using emuv::cuda::statistics_head;
using emuv::cuda::treatment;

constexpr std::uint32_t max_devices = 64; // that the library follows
// A device's figures are written within microseconds.
constexpr int max_tries = 100;
constexpr double between_tries = 0.001; // seconds

template <typename Value>
Value read_at(int fd, std::size_t offset)
{
    Value value;
    std::size_t done = 0;
    while (done < sizeof value) {
        const ssize_t got =
            ::pread(fd, reinterpret_cast<char *>(&value) + done,
                    sizeof value - done, static_cast<off_t>(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            throw failure(
                fmt::format("its figures: {}", emuv::errno_text(errno)));
        if (got == 0)
            throw failure("its figures end too early");
        done += static_cast<std::size_t>(got);
    }
    return value;
}

template <std::size_t size>
void end_text(char (&text)[size])
{
    text[size - 1] = '\0';
}

// Nothing of it is beyond what it can be.
void tame(device_statistics &of)
{
    constexpr std::uint32_t most = device_statistics::max_listed;
    of.allocations = std::min(of.allocations, most);
    of.kernels = std::min(of.kernels, most);
    if (of.is > treatment::ended)
        of.is = treatment::ended;
    end_text(of.stopped);
    for (auto &each : of.most_costly) {
        end_text(each.name);
        end_text(each.why);
    }
}

// They were being written when the process ended: half old and half new.
void forget_steps(device_statistics &of)
{
    of.turn = 0;
    of.samples = 0;
    of.listed_steps = 0;
    of.allocations = 0;
    of.kernels = 0;
    of.stopped[0] = '\0';
}

device_statistics read_device(int fd, std::size_t offset,
                              const environment &env, writer by)
{
    const std::size_t turn_at = offset + offsetof(device_statistics, turn);
    for (int i = 0; i < max_tries; i++) {
        auto one = read_at<device_statistics>(fd, offset);
        if (one.turn % 2 == 0 &&
            read_at<std::uint32_t>(fd, turn_at) == one.turn) {
            tame(one);
            return one;
        }
        if (by == writer::ended) {
            forget_steps(one);
            tame(one);
            return one;
        }
        if (!env.wait(between_tries))
            break;
    }
    throw failure("its figures are never at rest");
}

std::optional<int> number(std::string_view text)
{
    int value = 0;
    const auto [stop, problem] =
        std::from_chars(text.data(), text.data() + text.size(), value);
    return problem == std::errc() && stop == text.data() + text.size() &&
                   value > 0
               ? std::optional(value)
               : std::nullopt;
}

// The line "Key: value" of /proc/PID/status, without its key.
std::string status_of(int pid, std::string_view key, const environment &env)
{
    std::ifstream stream(env.proc / std::to_string(pid) / "status");
    for (std::string line; std::getline(stream, line);)
        if (line.starts_with(key))
            return line.substr(key.size());
    return {};
}

// The number that a process has for itself: its own namespace's is the last.
int own_number(int pid, const environment &env)
{
    std::istringstream all(status_of(pid, "NSpid:", env));
    int last = pid;
    for (int each = 0; all >> each;)
        last = each;
    return last;
}

std::vector<int> all_processes(const environment &env)
{
    std::vector<int> all;
    for (const auto &entry : emuv::entries(env.proc))
        if (const auto pid = number(entry.path().filename().string()))
            all.push_back(*pid);
    std::sort(all.begin(), all.end());
    return all;
}

// A process, those that it started, those that these started, and so on.
std::set<int> family_of(int pid, const environment &env)
{
    std::multimap<int, int> by_parent;
    for (const int each : all_processes(env))
        by_parent.emplace(number(status_of(each, "PPid:\t", env)).value_or(0),
                          each);
    std::set<int> family;
    std::vector<int> left = {pid};
    while (!left.empty()) {
        const int next = left.back();
        left.pop_back();
        if (!family.insert(next).second)
            continue;
        const auto [first, end] = by_parent.equal_range(next);
        for (auto each = first; each != end; ++each)
            left.push_back(each->second);
    }
    return family;
}

// The page of a process. Forked from another one, it may hold that one's, too.
// @param problem  out: why its files could not be looked at
std::optional<process_statistics> page_of(int pid, const environment &env,
                                          std::error_code &problem)
{
    const int own = own_number(pid, env);
    for (const auto &entry :
         emuv::entries(env.proc / std::to_string(pid) / "fd", problem)) {
        std::error_code ignored;
        const auto target =
            std::filesystem::read_symlink(entry.path(), ignored);
        if (target.filename().string().find(emuv::cuda::statistics_name) ==
            std::string::npos)
            continue;
        // Not of a pipe: whoever opens one may wait.
        const emuv::unique_fd fd(
            ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
        struct stat about = {};
        if (!fd || ::fstat(fd.get(), &about) != 0 || !S_ISREG(about.st_mode) ||
            about.st_size < static_cast<off_t>(sizeof(statistics_head)))
            continue;
        if (read_at<statistics_head>(fd.get(), 0).pid != own)
            continue;
        process_statistics made = read_statistics(fd.get(), env);
        made.pid = pid;
        made.command =
            emuv::read_line_file(env.proc / std::to_string(pid) / "comm")
                .value_or("?");
        return made;
    }
    return {};
}

} // namespace

process_statistics read_statistics(int fd, const environment &env, writer by)
{
    auto head = read_at<statistics_head>(fd, 0);
    if (head.magic != statistics_head::right_magic)
        throw failure("its figures are none of emuV's");
    if (head.version != statistics_head::right_version ||
        head.head_bytes != sizeof(statistics_head) ||
        head.device_bytes != sizeof(device_statistics))
        throw failure(fmt::format(
            "its CUDA library is of another version of emuV (its figures have "
            "version {}, this program reads {})",
            head.version, statistics_head::right_version));
    if (head.devices > max_devices)
        throw failure("its figures make no sense");
    process_statistics made;
    made.pid = head.pid;
    if (head.memory <= emuv::cuda::mobility::checked)
        made.memory = head.memory;
    for (auto &each : head.vain) {
        end_text(each);
        if (each[0] != '\0')
            made.vain.emplace_back(each);
    }
    for (std::size_t i = 0; i < head.devices; i++)
        made.devices.push_back(read_device(
            fd, sizeof head + i * sizeof(device_statistics), env, by));
    return made;
}

std::vector<process_statistics> statistics_of(int pid, const environment &env)
{
    std::error_code problem;
    if (auto own = page_of(pid, env, problem))
        return {std::move(*own)};
    if (!std::filesystem::exists(env.proc / std::to_string(pid)))
        throw failure(fmt::format("there is no process {}", pid));
    if (problem)
        throw failure(fmt::format(
            "{}: another user's process: only that user and root may look",
            pid));
    // A shell, or a launcher: those that it started.
    std::vector<process_statistics> found;
    std::optional<failure> wrong;
    for (const int each : family_of(pid, env)) {
        std::error_code ignored;
        try {
            if (auto one = page_of(each, env, ignored))
                found.push_back(std::move(*one));
        } catch (const failure &why) {
            wrong = why; // those of the others count all the same
        }
    }
    if (found.empty() && wrong)
        throw *wrong;
    if (found.empty())
        throw failure(fmt::format(
            "{} publishes nothing: it runs without emuV's CUDA library or "
            "without a limit, or has not called cuInit() yet",
            pid));
    return found;
}

std::vector<process_statistics> all_statistics(const environment &env)
{
    std::vector<process_statistics> found;
    for (const int each : all_processes(env)) {
        std::error_code ignored;
        try {
            if (auto one = page_of(each, env, ignored))
                found.push_back(std::move(*one));
        } catch (const failure &) {
            // Asked for by its number, it is told of.
        }
    }
    return found;
}

} // namespace emuvctl
