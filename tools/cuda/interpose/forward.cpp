// SPDX-License-Identifier: LGPL-2.1-or-later
// The real library behind this one, and its symbols.
#include "interpose/forward.hpp"

#include "base/glibc.hpp"
#include "interpose/message.hpp"
#include "interpose/real_library.hpp"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>
#include <string_view>

#include <dlfcn.h>

namespace emuv::cuda {

namespace {

constexpr const char *names[] = {
#define EMUV_SYMBOL(name) #name,
#include "symbols.inc"
};

std::atomic<void *> found_library;
std::atomic<bool> looked;
std::mutex look_lock;
// This thread is in the driver's own constructors.
constinit thread_local bool looking [[gnu::tls_model("initial-exec")]] = false;

} // namespace

void *real_library()
{
    if (!looked.load(std::memory_order_acquire)) {
        const std::lock_guard guard(look_lock);
        if (!looked.load(std::memory_order_relaxed)) {
            const int kept = errno;
            looking = true;
            found_library.store(find_library(EMUV_SONAME, EMUV_REAL_SETTING),
                                std::memory_order_relaxed);
            looking = false;
            looked.store(true, std::memory_order_release);
            errno = kept;
        }
    }
    return found_library.load(std::memory_order_relaxed);
}

void *real_address(const char *name)
{
    void *library = real_library();
    return library != nullptr ? dlsym(library, name) : nullptr;
}

void forward_after_fork()
{
    new (&look_lock) std::mutex;
}

} // namespace emuv::cuda

// Called by the forwarders, under names that assembly can write.
extern "C" {
static int answer_absent()
{
    return EMUV_ANSWER_ABSENT;
}
static int answer_no_library()
{
    return EMUV_ANSWER_NO_LIBRARY;
}

void *emuv_resolve(unsigned index);
void *emuv_resolve(unsigned index)
{
    using namespace emuv::cuda;
    void *address = real_address(names[index]);
    if (address == nullptr)
        address = reinterpret_cast<void *>(
            real_library() != nullptr ? answer_absent : answer_no_library);
    __atomic_store_n(&emuv_table[index], address, __ATOMIC_RELAXED);
    return address;
}

int emuv_refuse(unsigned index);
int emuv_refuse(unsigned index)
{
    static std::atomic<bool> said;
    if (!said.exchange(true))
        emuv::cuda::say("%s refused: the interface of CUDA 3.1 and before "
                        "would hand out memory behind the limits",
                        emuv::cuda::names[index]);
    return EMUV_ANSWER_ABSENT;
}

#ifdef EMUV_INTERPOSES_DLOPEN
// The name that a dlopen() goes on with. A program may open the driver by
// its full path or without the ".1", past this library's SONAME; either
// must find this library. The driver itself gets the file it names.
const char *emuv_dlopen_name(const char *file, const void *caller);
const char *emuv_dlopen_name(const char *file, const void *caller)
{
    using namespace emuv::cuda;
    if (file == nullptr || looking)
        return file;
    const char *slash = std::strrchr(file, '/');
    const std::string_view name = slash != nullptr ? slash + 1 : file;
    if (name != EMUV_SONAME && name != EMUV_LINK_NAME)
        return file;
    if (real_library() == nullptr) // the error it would have got
        return slash != nullptr ? file : EMUV_SONAME " (no NVIDIA driver)";
    Dl_info from;
    Dl_info real;
    if (dladdr(caller, &from) != 0 &&
        dladdr(real_address("cuInit"), &real) != 0 &&
        from.dli_fbase == real.dli_fbase)
        return file;
    return EMUV_SONAME;
}

void *emuv_dlopen_next();
void *emuv_dlopen_next()
{
    return reinterpret_cast<void *>(emuv::cuda::next_dlopen());
}
#endif
}
