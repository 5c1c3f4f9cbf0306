// SPDX-License-Identifier: LGPL-2.1-or-later
// A record of movement in time, for chrome://tracing and Perfetto.
#include "base/trace.hpp"

#include "base/thread.hpp"

#include <cerrno>
#include <cinttypes>
#include <cstdio>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace emuv::cuda {

namespace {

constexpr std::string_view array_end = "\n]\n";

// Microseconds, as JSON has them: "%.3f" follows the program's locale, and puts
// a comma there.
struct time_text
{
    char text[32];
};
time_text microseconds(std::uint64_t ns)
{
    time_text made;
    std::snprintf(made.text, sizeof made.text, "%" PRIu64 ".%03u", ns / 1000,
                  static_cast<unsigned>(ns % 1000));
    return made;
}

// Text between quotes of JSON. The names of kernels come from the program.
std::string quoted(const char *text)
{
    std::string made;
    for (; *text != '\0'; text++) {
        const char each = *text;
        if (each == '"' || each == '\\')
            made += '\\';
        // Bytes beyond ASCII might be no UTF-8.
        made += each >= ' ' && each <= '~' ? each : '?';
    }
    return made;
}

// A file that no other process writes: two would write over one another.
// @return -1 with errno
int open_alone(const char *path)
{
    const int fd = ::open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    // Some files cannot be locked at all. They are taken as they are.
    if (fd < 0 || ::flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return fd;
    ::close(fd);
    errno = EWOULDBLOCK;
    return -1;
}

} // namespace

trace::~trace()
{
    if (fd_ >= 0)
        ::close(fd_);
}

int trace::open(const char *path)
{
    fd_ = open_alone(path);
    if (fd_ < 0 && errno == EWOULDBLOCK)
        fd_ = open_alone((path + ("." + std::to_string(getpid()))).c_str());
    if (fd_ < 0)
        return errno;
    // Only a plain file has a length.
    if (::ftruncate(fd_, 0) != 0 && errno != EINVAL) {
        const int error = errno;
        close_after_fork();
        return error;
    }
    std::string head = "[\n";
    static constexpr const char *names[] = {"to VRAM", "to RAM", "waits",
                                            "calls"};
    for (int i = 0; i < 4; i++) {
        char event[128];
        std::snprintf(event, sizeof event,
                      "%s{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":"
                      "\"thread_name\",\"args\":{\"name\":\"%s\"}}",
                      i == 0 ? "" : ",\n", static_cast<int>(getpid()), i + 1,
                      names[i]);
        head += event;
    }
    end_ = head.size();
    head += array_end;
    const ssize_t done = ::pwrite(fd_, head.data(), head.size(), 0);
    if (done != static_cast<ssize_t>(head.size())) {
        const int error = done < 0 ? errno : ENOSPC;
        close_after_fork();
        return error;
    }
    on_ = true;
    return 0;
}

void trace::close_after_fork()
{
    on_ = false;
    if (fd_ >= 0)
        ::close(fd_);
    fd_ = -1;
}

// Writes over the array's end. Under the lock.
bool trace::write(std::string_view text)
{
    ssize_t done = 0;
    do
        done =
            ::pwrite(fd_, text.data(), text.size(), static_cast<off_t>(end_));
    while (done < 0 && errno == EINTR);
    return done == static_cast<ssize_t>(text.size());
}

// Under the lock.
void trace::put(std::string_view events)
{
    if (!is_on())
        return;
    text_.assign(",\n").append(events).append(array_end);
    if (write(text_)) {
        end_ += text_.size() - array_end.size();
        return;
    }
    // The disk is full, for one. The old end is put back, in blocks that the
    // file has.
    on_ = false;
    if (::ftruncate(fd_, static_cast<off_t>(end_ + array_end.size())) == 0)
        write(array_end);
}

void trace::span(row where, const char *name, std::uint64_t start_ns,
                 std::uint64_t end_ns, std::uint64_t address,
                 std::uint64_t bytes, std::uint64_t next_use, int card)
{
    if (!is_on())
        return;
    char lent[32] = "";
    if (card >= 0)
        std::snprintf(lent, sizeof lent, ",\"card\":%d", card);
    char event[512];
    std::snprintf(event, sizeof event,
                  "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\","
                  "\"ts\":%s,\"dur\":%s,\"args\":{\"address\":\"%#" PRIx64
                  "\",\"bytes\":%" PRIu64 ",\"next_use\":%" PRId64 "%s}}",
                  static_cast<int>(getpid()), static_cast<int>(where), name,
                  microseconds(start_ns).text,
                  microseconds(end_ns - start_ns).text, address, bytes,
                  static_cast<std::int64_t>(next_use), lent);
    const std::lock_guard guard(lock_);
    put(event);
}

void trace::kernel(const char *name, const char *why)
{
    if (!is_on())
        return;
    char head[128];
    std::snprintf(head, sizeof head,
                  "{\"ph\":\"i\",\"s\":\"p\",\"pid\":%d,\"tid\":3,"
                  "\"name\":\"not trusted\",\"ts\":%s,\"args\":{\"kernel\":\"",
                  static_cast<int>(getpid()), microseconds(now_ns()).text);
    const std::string event =
        head + quoted(name) + "\",\"why\":\"" + quoted(why) + "\"}}";
    const std::lock_guard guard(lock_);
    put(event);
}

// Under the lock.
trace::counted &trace::of_device(int device)
{
    const auto index = static_cast<std::size_t>(device);
    if (index >= counted_.size())
        counted_.resize(index + 1);
    return counted_[index];
}

void trace::crossed(int device, const moved_bytes &bytes, int card)
{
    if (!is_on())
        return;
    const std::lock_guard guard(lock_);
    counted &of = of_device(device);
    (card < 0 ? of.with_ram : of.with_cards) += bytes;
}

void trace::count(const levels &now, std::uint64_t now_ns)
{
    if (!is_on())
        return;
    const std::lock_guard guard(lock_);
    counted &was = of_device(now.device);
    const bool first = was.at_ns == 0;
    const bool busy =
        was.with_ram != moved_bytes{} || was.with_cards != moved_bytes{};
    // Of a card that lends nothing, nothing is told.
    const bool cards =
        was.has_cards || now.cards_bytes > 0 || was.with_cards != moved_bytes{};
    if (!first && now_ns - was.at_ns < counter_ns)
        return;
    if (!first && !busy && !was.link_was_busy &&
        was.vram_bytes == now.vram_bytes && was.ram_bytes == now.ram_bytes &&
        was.cards_bytes == now.cards_bytes) {
        was.at_ns = now_ns;
        return;
    }
    const double seconds =
        first ? 0 : static_cast<double>(now_ns - was.at_ns) / 1e9;
    const auto rate = [&](std::uint64_t bytes) {
        return seconds > 0 ? static_cast<double>(bytes) / seconds : 0;
    };
    // A rate holds from the last time on, so it stands there.
    const std::uint64_t since = first ? now_ns : was.at_ns;
    const struct
    {
        const char *name;
        const char *unit;
        std::uint64_t at_ns;
        double value;
        bool is_told = true;
    } tracks[] = {
        {"VRAM", "bytes", now_ns, static_cast<double>(now.vram_bytes)},
        {"system RAM", "bytes", now_ns, static_cast<double>(now.ram_bytes)},
        {"other cards", "bytes", now_ns, static_cast<double>(now.cards_bytes),
         cards},
        {"link to VRAM", "bytes/s", since, rate(was.with_ram.fetched_bytes)},
        {"link to RAM", "bytes/s", since, rate(was.with_ram.evicted_bytes)},
        {"cards to VRAM", "bytes/s", since, rate(was.with_cards.fetched_bytes),
         cards},
        {"VRAM to cards", "bytes/s", since, rate(was.with_cards.evicted_bytes),
         cards},
    };
    std::string events;
    for (const auto &each : tracks) {
        if (!each.is_told)
            continue;
        char device[32] = "";
        if (now.device > 0)
            std::snprintf(device, sizeof device, ", device %d", now.device);
        char event[256];
        std::snprintf(event, sizeof event,
                      "%s{\"ph\":\"C\",\"pid\":%d,\"name\":\"%s%s\","
                      "\"ts\":%s,\"args\":{\"%s\":%.0f}}",
                      events.empty() ? "" : ",\n", static_cast<int>(getpid()),
                      each.name, device, microseconds(each.at_ns).text,
                      each.unit, each.value);
        events += event;
    }
    put(events);
    was = {.at_ns = now_ns,
           .vram_bytes = now.vram_bytes,
           .ram_bytes = now.ram_bytes,
           .cards_bytes = now.cards_bytes,
           .has_cards = cards,
           .link_was_busy = busy};
}

} // namespace emuv::cuda
