// SPDX-License-Identifier: GPL-2.0-or-later
// Passes on what a program writes, in whole lines.
#include "batch/relay.hpp"

#include <cerrno>

#include <poll.h>
#include <unistd.h>

namespace emuvctl::batch {

namespace {

// A line without an end is not held for ever.
constexpr std::size_t longest = 65536;

// The words of tools/cuda/hooks/start.cpp.
constexpr std::string_view refusal = "emuV: refused ";

// A terminal or pipe that is shared with others may have been told not to wait.
void await_room(int fd)
{
    pollfd one = {fd, POLLOUT, 0};
    ::poll(&one, 1, -1);
}

} // namespace

void relay::pass(std::string_view line)
{
    if (line.starts_with(refusal))
        refused_ = true;
    std::string text = before_ + std::string(line);
    std::string_view rest = text;
    while (!rest.empty()) {
        const ssize_t done = ::write(to_, rest.data(), rest.size());
        if (done >= 0)
            rest.remove_prefix(static_cast<std::size_t>(done));
        else if (errno == EAGAIN)
            await_room(to_);
        else if (errno != EINTR)
            return; // nobody reads it; the program goes on
    }
}

void relay::add(std::string_view text)
{
    held_ += text;
    std::size_t start = 0;
    for (std::size_t end = 0;
         (end = held_.find('\n', start)) != std::string::npos; start = end + 1)
        pass(std::string_view(held_).substr(start, end + 1 - start));
    held_.erase(0, start);
    if (held_.size() >= longest) {
        pass(held_);
        held_.clear();
    }
}

void relay::end()
{
    if (held_.empty())
        return;
    pass(held_ + "\n");
    held_.clear();
}

} // namespace emuvctl::batch
