// SPDX-License-Identifier: GPL-2.0-or-later
// Stands for the files of the library that start it, and that find the real
// one.
#include "hooks/fixture.hpp"
#include "interpose/real_library.hpp"

#include <dlfcn.h>

namespace emuv::cuda {

constinit thread_local int entry::depth_ = 0;

CUresult start()
{
    return CUDA_SUCCESS;
}

state *current_state()
{
    return stand_in::session;
}

void state::note_table(const void *words, std::size_t bytes) const
{
    stand_in::noted.push_back({words, bytes});
}

void state::note_table(const void *words, std::size_t bytes, std::size_t pitch,
                       std::size_t rows) const
{
    for (std::size_t row = 0; row < rows; row++)
        note_table(static_cast<const char *>(words) + row * pitch, bytes);
}

void work_unseen(const char *name)
{
    stand_in::unseen.emplace_back(name);
}

void work_private(const char *library)
{
    stand_in::unseen.emplace_back(library);
}

open_library next_dlopen()
{
    return reinterpret_cast<open_library>(dlsym(RTLD_NEXT, "dlopen"));
}

void *find_library(const char *, const char *)
{
    return stand_in::library;
}

void *real_address(const char *)
{
    return nullptr;
}

} // namespace emuv::cuda

// Called by the forwarders.
extern "C" {
static CUresult not_supported()
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

void *emuv_resolve(unsigned index);
void *emuv_resolve(unsigned)
{
    return reinterpret_cast<void *>(not_supported);
}

int emuv_refuse(unsigned index);
int emuv_refuse(unsigned)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

const char *emuv_dlopen_name(const char *file, const void *caller);
const char *emuv_dlopen_name(const char *file, const void *)
{
    return file;
}

void *emuv_dlopen_next();
void *emuv_dlopen_next()
{
    return reinterpret_cast<void *>(emuv::cuda::next_dlopen());
}
}
