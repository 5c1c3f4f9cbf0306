// SPDX-License-Identifier: GPL-2.0-or-later
// The journal of a batch.
#include "batch/journal.hpp"

#include <cerrno>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace emuvctl::batch {

namespace {

using line = nlohmann::ordered_json;

constexpr const char *heading = "emuvctl_batch";
constexpr int version = 1;

[[noreturn]] void fail(const std::string &path)
{
    throw std::system_error(errno, std::generic_category(), path);
}

std::string dump(const line &text)
{
    return text.dump(-1, ' ', false, line::error_handler_t::replace);
}

// True if the last line was cut, so that another would become part of it.
bool ends_in_mid_line(int fd, const std::string &path)
{
    struct stat file
    {};
    if (::fstat(fd, &file) != 0)
        fail(path);
    char last = '\n';
    return file.st_size > 0 && ::pread(fd, &last, 1, file.st_size - 1) == 1 &&
           last != '\n';
}

void append_line(int fd, const line &text, const std::string &path)
{
    const std::string bytes =
        (ends_in_mid_line(fd, path) ? "\n" : "") + dump(text) + "\n";
    std::string_view rest = bytes;
    while (!rest.empty()) {
        const ssize_t done = ::write(fd, rest.data(), rest.size());
        if (done >= 0)
            rest.remove_prefix(static_cast<std::size_t>(done));
        else if (errno != EINTR)
            fail(path);
    }
    if (::fdatasync(fd) != 0 && errno != EINVAL && errno != EROFS)
        fail(path);
}

std::string read_whole(int fd, const std::string &path)
{
    std::string text;
    char block[65536];
    for (;;) {
        const ssize_t got =
            ::pread(fd, block, sizeof(block), static_cast<off_t>(text.size()));
        if (got == 0)
            return text;
        if (got > 0)
            text.append(block, static_cast<std::size_t>(got));
        else if (errno != EINTR)
            fail(path);
    }
}

// True if a text is no more than a part of the first line. A crash of the
// machine may leave it so, with zeros for bytes that had not reached the disk.
bool is_cut(std::string_view text, std::string_view first)
{
    const auto last = text.find_last_not_of('\0');
    return text.size() <= first.size() + 1 &&
           first.starts_with(
               text.substr(0, last == std::string_view::npos ? 0 : last + 1));
}

// Takes the first line off a text; what makes no sense is discarded.
line take_line(std::string_view &rest)
{
    const auto end = rest.find('\n');
    line one = line::parse(rest.substr(0, end), nullptr, false);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    return one;
}

// The item that a line says is done.
std::optional<std::string> item_done(const line &one)
{
    if (!one.is_object() ||
        one.value("ending", line()) != name_of(ending::done) ||
        !one.value("item", line()).is_string())
        return std::nullopt;
    return one.at("item").get<std::string>();
}

} // namespace

const char *name_of(ending how)
{
    switch (how) {
    case ending::done:
        return "done";
    case ending::failed:
        return "failed";
    case ending::no_memory:
        return "out of memory";
    case ending::lost:
        return "lost";
    }
    return "";
}

journal::journal(const std::string &path)
    : path_(path),
      file_(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666))
{
    if (!file_)
        fail(path_);
}

bool journal::lock() const
{
    while (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK)
            return false;
        if (errno != EINTR)
            fail(path_);
    }
    return true;
}

std::unordered_set<std::string>
journal::resume(const std::vector<std::string> &command) const
{
    const std::string text = read_whole(file_.get(), path_);
    std::unordered_set<std::string> done;
    const line begin = {{heading, version}, {"command", command}};
    if (is_cut(text, dump(begin))) {
        if (!text.empty() && ::ftruncate(file_.get(), 0) != 0)
            fail(path_);
        append_line(file_.get(), begin, path_);
        return done;
    }
    std::string_view rest = text;
    bool first = true;
    while (!rest.empty()) {
        const line one = take_line(rest);
        if (first) {
            if (!one.is_object() || one.value(heading, line()) != version)
                throw std::runtime_error(path_ + ": this is no journal");
            if (dump(one.value("command", line())) != dump(line(command)))
                throw std::runtime_error(
                    path_ + ": this is the journal of another command");
            first = false;
        } else if (const auto item = item_done(one)) {
            done.insert(*item);
        }
    }
    return done;
}

bool journal::has_done(const std::string &item) const
{
    if (!file_)
        return false;
    const std::string text = read_whole(file_.get(), path_);
    std::string_view rest = text;
    while (!rest.empty())
        if (item_done(take_line(rest)) == item)
            return true;
    return false;
}

void journal::append(const entry &one) const
{
    if (!file_)
        return;
    line made = {{"item", one.item},
                 {"ending", name_of(one.how)},
                 {"status", one.status}};
    if (!one.worker.empty())
        made["instance"] = one.worker;
    made["share_bytes"] = one.share_bytes;
    made["seconds"] = one.seconds;
    append_line(file_.get(), made, path_);
}

} // namespace emuvctl::batch
