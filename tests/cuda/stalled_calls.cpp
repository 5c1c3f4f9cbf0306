// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded, it has a program stand before one call until a terminal's SIGINT
// has come: STALL_CALL names the call. The file STALL_FILE appears as it waits.
#include <csignal>
#include <cstdlib>
#include <string_view>

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

namespace {

void stall_before(std::string_view call)
{
    const char *const wanted = std::getenv("STALL_CALL");
    const char *const file = std::getenv("STALL_FILE");
    if (wanted == nullptr || file == nullptr || wanted != call)
        return;
    // Its children are not to stand.
    ::unsetenv("STALL_CALL");
    sigset_t interrupt;
    sigset_t before;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    ::sigprocmask(SIG_BLOCK, &interrupt, &before);
    ::close(::open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    sigset_t waiting;
    sigemptyset(&waiting);
    while (sigismember(&waiting, SIGINT) != 1) {
        ::usleep(1000);
        ::sigpending(&waiting);
    }
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
}

template <typename Function>
Function *next(const char *name)
{
    return reinterpret_cast<Function *>(::dlsym(RTLD_NEXT, name));
}

} // namespace

extern "C" __attribute__((visibility("default"))) pid_t fork()
{
    stall_before("fork");
    return next<pid_t()>("fork")();
}

extern "C" __attribute__((visibility("default"))) char *mkdtemp(char *name)
{
    stall_before("mkdtemp");
    return next<char *(char *)>("mkdtemp")(name);
}
