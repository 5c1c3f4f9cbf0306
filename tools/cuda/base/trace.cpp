// SPDX-License-Identifier: LGPL-2.1-or-later
// A record of movement in time, for chrome://tracing and Perfetto.
#include "base/trace.hpp"

#include "base/thread.hpp"

#include <cerrno>
#include <cinttypes>

#include <unistd.h>

namespace emuv::cuda {

trace::~trace()
{
    if (file_ != nullptr)
        std::fclose(file_);
}

int trace::open(const char *path)
{
    file_ = std::fopen(path, "we");
    if (file_ == nullptr)
        return errno;
    std::fputs("[\n", file_);
    static constexpr const char *names[] = {"to VRAM", "to RAM", "waits",
                                            "calls"};
    for (int i = 0; i < 4; i++)
        std::fprintf(file_,
                     "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":"
                     "\"thread_name\",\"args\":{\"name\":\"%s\"}},\n",
                     static_cast<int>(getpid()), i + 1, names[i]);
    return 0;
}

void trace::span(row where, const char *name, std::uint64_t start_ns,
                 std::uint64_t end_ns, std::uint64_t address,
                 std::uint64_t bytes, std::uint64_t next_use)
{
    if (!is_on())
        return;
    const std::lock_guard guard(lock_);
    std::fprintf(file_,
                 "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\","
                 "\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"address\":\"%#" PRIx64
                 "\",\"bytes\":%" PRIu64 ",\"next_use\":%" PRId64 "}},\n",
                 static_cast<int>(getpid()), static_cast<int>(where), name,
                 static_cast<double>(start_ns) / 1e3,
                 static_cast<double>(end_ns - start_ns) / 1e3, address, bytes,
                 static_cast<std::int64_t>(next_use));
    std::fflush(file_);
}

void trace::kernel(const char *name, const char *why)
{
    if (!is_on())
        return;
    const std::lock_guard guard(lock_);
    std::fprintf(file_,
                 "{\"ph\":\"i\",\"s\":\"p\",\"pid\":%d,\"tid\":3,"
                 "\"name\":\"not trusted\",\"ts\":%.3f,"
                 "\"args\":{\"kernel\":\"%s\",\"why\":\"%s\"}},\n",
                 static_cast<int>(getpid()),
                 static_cast<double>(now_ns()) / 1e3, name, why);
    std::fflush(file_);
}

} // namespace emuv::cuda
