// SPDX-License-Identifier: LGPL-2.1-or-later
// The program's kernels: how their parameters lie, and which are trusted.
#include "movement/kernels.hpp"

#include "base/glibc.hpp"

#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>
#include <string_view>

#include <dlfcn.h>
#include <fnmatch.h>

namespace emuv::cuda {

namespace {

// Libraries whose kernels get the addresses of all memory they touch as
// parameters. NCCL and NVSHMEM keep addresses in memory, and are not among
// them.
constexpr const char *trusted_files[] = {
    "libcublas.so*",   "libcublasLt.so*",   "libcudnn*.so*",
    "libcufft.so*",    "libcurand.so*",     "libcusparse.so*",
    "libc10_cuda.so*", "libtorch_cuda.so*", "libggml-cuda.so*",
};
// Kernels that PyTorch's compiler makes. The kernels that it tries templates
// with are not among them: anybody's kernel may have such a name (triton_mm).
constexpr const char *trusted_kernels[] = {
    "triton_poi_*",
    "triton_red_*",
    "triton_per_*",
    "triton_tem_fused_*",
};
// Kernels of both kinds that read tables of addresses from memory.
constexpr const char *table_kernels[] = {
    "*rouped*",  "*roup_gemm*",   "*roupGemm*",  "*tr_array*",
    "*trArray*", "*ointerArray*", "*chunk_cat*", "*split_with_sizes_copy*",
    "*nccl*",    "*nvshmem*",
};
// Kernels that write such tables for products and factorizations of cuBLAS,
// whose own kernels' names tell nothing. Kernels of ggml, CuPy and MAGMA write
// addresses that they are given. PyTorch's torch.arange() writes numbers that
// are addresses (for its get_device_pointers()).
constexpr const char *table_writers[] = {
    "*atched_ptrs*",
    "*mat_ptrs*",
    "*set_pointer*",
    "*displace_pointers*",
};
constexpr const char *number_writers[] = {"*arange_cuda_out*"};

template <std::size_t count>
bool matches(const char *name, const char *const (&patterns)[count])
{
    for (const char *pattern : patterns)
        if (fnmatch(pattern, name, 0) == 0)
            return true;
    return false;
}

// True if a word of the setting fits.
template <typename Predicate>
bool any_word(const char *list, Predicate fits)
{
    std::string_view rest = list;
    while (!rest.empty()) {
        const auto end = rest.find(',');
        const std::string_view word = rest.substr(0, end);
        char pattern[128];
        if (!word.empty() && word.size() < sizeof pattern) {
            std::memcpy(pattern, word.data(), word.size());
            pattern[word.size()] = '\0';
            if (fits(pattern))
                return true;
        }
        if (end == std::string_view::npos)
            break;
        rest.remove_prefix(end + 1);
    }
    return false;
}

} // namespace

known_kernels::~known_kernels()
{
    for (const char *each : names_)
        std::free(const_cast<char *>(each));
}

bool known_kernels::trusts_file(const void *address) const
{
    Dl_info from;
    if (address == nullptr || dladdr(address, &from) == 0 ||
        from.dli_fname == nullptr)
        return false;
    const char *slash = std::strrchr(from.dli_fname, '/');
    const char *name = slash != nullptr ? slash + 1 : from.dli_fname;
    return !distrusts(name) && any_word(trust_, [name](const char *word) {
        if (std::strcmp(word, "known") == 0)
            return matches(name, trusted_files);
        return fnmatch(word, name, 0) == 0;
    });
}

bool known_kernels::distrusts(const char *name) const
{
    return any_word(trust_, [name](const char *word) {
        return word[0] == '-' && fnmatch(word + 1, name, 0) == 0;
    });
}

// True if the user trusts the kernel by name. The user has to know.
bool known_kernels::asks_to_trust(const char *name) const
{
    return any_word(trust_, [name](const char *word) {
        return std::strcmp(word, "all") == 0 ||
               (std::strcmp(word, "known") != 0 && fnmatch(word, name, 0) == 0);
    });
}

bool known_kernels::knows(const char *name) const
{
    return any_word(trust_, [name](const char *word) {
        return std::strcmp(word, "known") == 0 &&
               matches(name, trusted_kernels);
    });
}

void known_kernels::loaded(const void *handle, const void *image,
                           const void *caller, CUcontext context)
{
    const bool trusted = trusts_file(image) || trusts_file(caller);
    const std::lock_guard guard(lock_);
    origins_[handle] = {trusted, nullptr, context};
}

void known_kernels::derived(const void *from, const void *made,
                            CUcontext context)
{
    const std::lock_guard guard(lock_);
    const auto found = origins_.find(from);
    if (from != made)
        origins_[made] = {found != origins_.end() && found->second.trusted,
                          from, context};
    // Another kernel may have had this handle before.
    layouts_.erase(reinterpret_cast<CUfunction>(const_cast<void *>(made)));
    recent_.forget(reinterpret_cast<std::uintptr_t>(made));
}

// Locked. Forgets the handles that go, all that came out of those, and so on.
template <typename Goes>
void known_kernels::forget(Goes goes)
{
    std::set<const void *> gone;
    for (bool more = true; more;) {
        more = false;
        for (auto at = origins_.begin(); at != origins_.end();) {
            if (!goes(*at) && gone.count(at->second.from) == 0) {
                ++at;
                continue;
            }
            layouts_.erase(
                reinterpret_cast<CUfunction>(const_cast<void *>(at->first)));
            more = gone.insert(at->first).second || more;
            at = origins_.erase(at);
        }
    }
    recent_.forget_all();
}

void known_kernels::unloaded(const void *handle)
{
    const std::lock_guard guard(lock_);
    forget([handle](const auto &each) { return each.first == handle; });
}

void known_kernels::gone(CUcontext context)
{
    const std::lock_guard guard(lock_);
    forget(
        [context](const auto &each) { return each.second.context == context; });
}

// Asks the driver how a kernel's parameters lie.
known_kernels::layout known_kernels::look_at(const driver &calls,
                                             CUfunction function)
{
    layout made;
    // A launch takes a CUkernel as well.
    const auto kernel = reinterpret_cast<CUkernel>(function);
    // The first question tells which of the two it is.
    CUresult answer = CUDA_SUCCESS;
    const auto ask = [&](bool as_kernel) {
        parameter next{};
        const std::size_t i = made.parameters.size();
        answer = as_kernel ? calls.cuKernelGetParamInfo(kernel, i, &next.offset,
                                                        &next.bytes)
                           : calls.cuFuncGetParamInfo(function, i, &next.offset,
                                                      &next.bytes);
        if (answer == CUDA_SUCCESS)
            made.parameters.push_back(next);
        return answer == CUDA_SUCCESS;
    };
    bool as_kernel = false;
    if (!ask(false)) {
        const CUresult first = answer;
        as_kernel = ask(true);
        if (!as_kernel && first == CUDA_ERROR_INVALID_VALUE)
            answer = first;
    }
    if (answer == CUDA_SUCCESS)
        while (ask(as_kernel)) {
        }
    // Only the answer that there are no more parameters completes the layout.
    const bool all = answer == CUDA_ERROR_INVALID_VALUE;
    const char *name = nullptr;
    if (calls.cuFuncGetName(&name, function) != CUDA_SUCCESS &&
        calls.cuKernelGetName(&name, kernel) != CUDA_SUCCESS)
        name = nullptr;
    const std::lock_guard guard(lock_);
    const auto from = origins_.find(function);
    if (name != nullptr) {
        auto kept = names_.find(name);
        if (kept == names_.end())
            kept = names_.insert(strdup(name)).first;
        made.name = name = *kept;
    }
    const bool failed = kept_ != nullptr && name != nullptr && kept_->has(name);
    if (name != nullptr && all && !failed && !distrusts(name))
        made.trusted =
            asks_to_trust(name) ||
            (!matches(name, table_kernels) &&
             (knows(name) || (from != origins_.end() && from->second.trusted)));
    if (name != nullptr && matches(name, table_writers))
        made.leaves = leaving::all;
    else if (name != nullptr && matches(name, number_writers))
        made.leaves = leaving::numbers;
    if (!made.trusted)
        trace_.kernel(name != nullptr ? name : "?");
    return made;
}

namespace {

// Tries every place at which a pointer may lie in a packed structure.
void scan_bytes(const unsigned char *at, std::size_t bytes, work &out)
{
    for (std::size_t i = 0; i + sizeof(CUdeviceptr) <= bytes; i += 4) {
        CUdeviceptr address = 0;
        std::memcpy(&address, at + i, sizeof address);
        if (may_be_address(address))
            out.name(address);
    }
}

} // namespace

const known_kernels::layout &
known_kernels::layout_of(const driver &calls, CUfunction function,
                         std::unique_lock<std::mutex> &lock)
{
    const auto key = reinterpret_cast<std::uintptr_t>(function);
    if (const layout *const known = recent_.find(key))
        return *known;
    auto found = layouts_.find(function);
    if (found == layouts_.end()) {
        lock.unlock();
        layout made = look_at(calls, function);
        lock.lock();
        found = layouts_.insert_or_assign(function, std::move(made)).first;
    }
    recent_.keep(key, found->second);
    return found->second;
}

void known_kernels::scan(const driver &calls, CUfunction function,
                         void **parameters, void **extra, work &out)
{
    std::unique_lock lock(lock_);
    const layout &known = layout_of(calls, function, lock);
    out.what = reinterpret_cast<std::uint64_t>(function);
    out.trusted = known.trusted;
    out.kernel = known.name != nullptr ? known.name : "?";
    out.open_ended = true;
    if (parameters != nullptr) {
        const auto scan_those = [&](auto wanted) {
            for (std::size_t i = 0; i < known.parameters.size(); i++)
                if (const auto bytes = known.parameters[i].bytes; wanted(bytes))
                    scan_bytes(
                        static_cast<const unsigned char *>(parameters[i]),
                        bytes, out);
        };
        // A parameter of that size is a pointer.
        constexpr auto is_pointer = [](std::size_t bytes) {
            return bytes == sizeof(CUdeviceptr);
        };
        switch (known.leaves) {
        case leaving::numbers:
            scan_those(std::not_fn(is_pointer));
            out.left = out.count;
            scan_those(is_pointer);
            return;
        case leaving::nothing:
        case leaving::all:
            scan_those([](std::size_t) { return true; });
            out.left = known.leaves == leaving::all ? out.count : 0;
            return;
        }
    }
    const void *buffer = nullptr;
    std::size_t bytes = 0;
    for (void **at = extra; at != nullptr && *at != CU_LAUNCH_PARAM_END;
         at += 2) {
        if (*at == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = at[1];
        else if (*at == CU_LAUNCH_PARAM_BUFFER_SIZE)
            bytes = *static_cast<const std::size_t *>(at[1]);
    }
    if (buffer != nullptr)
        scan_bytes(static_cast<const unsigned char *>(buffer), bytes, out);
    // Nobody asks which part of the buffer is a pointer.
    out.left = known.leaves != leaving::nothing ? out.count : 0;
}

} // namespace emuv::cuda
