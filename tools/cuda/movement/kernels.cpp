// SPDX-License-Identifier: LGPL-2.1-or-later
// The program's kernels: how their parameters lie, and which are trusted.
#include "movement/kernels.hpp"

#include "base/glibc.hpp"
#include "base/words.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>

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
// Kernels of both kinds that may read tables of addresses from memory. Those
// whose code proves that they do not are trusted all the same: convolutions are
// grouped, too. But a number that such a kernel loads and adds to a parameter
// may be the way to another allocation.
constexpr const char *table_kernels[] = {
    "*rouped*",  "*roup_gemm*",   "*roupGemm*",  "*tr_array*",
    "*trArray*", "*ointerArray*", "*chunk_cat*", "*split_with_sizes_copy*",
};
// Kernels that work with other devices and nodes, which may reach what this
// process's kernels are not given. No proof covers those.
constexpr const char *peer_kernels[] = {"*nccl*", "*nvshmem*"};
// Kernels that write such tables for products and factorizations of cuBLAS,
// whose own kernels' names tell nothing. Kernels of ggml, CuPy and MAGMA write
// addresses that they are given. PyTorch's torch.arange() writes numbers that
// are addresses (for its get_device_pointers()).
constexpr const char *table_writers[] = {
    "*atched_ptrs*", "*rouped_gemm_data*", "*roup_gemm_starts*",
    "*mat_ptrs*",    "*set_pointer*",      "*displace_pointers*",
};
constexpr const char *number_writers[] = {"*arange_cuda_out*"};

// Findings about certain launches of one kernel.
constexpr std::size_t most_settled = 8;
// After so many launches that none of them is about, those are looked at that
// take trust away. All of them are, once in so many launches.
constexpr unsigned most_missed = 64;

template <std::size_t count>
bool matches(const char *name, const char *const (&patterns)[count])
{
    for (const char *pattern : patterns)
        if (fnmatch(pattern, name, 0) == 0)
            return true;
    return false;
}

// True if a finding may take trust from a launch that it is about.
bool takes_trust(const finding &of, finding::kind is)
{
    return is == finding::kind::refused ||
           (is == finding::kind::proven && of.adds_loaded());
}

} // namespace

known_kernels::~known_kernels()
{
    for (const auto &each : names_)
        std::free(const_cast<char *>(each.first));
}

bool known_kernels::asks_for_proofs(const char *trust)
{
    return any_word(trust, [](const char *word) {
        return std::strcmp(word, "proven") == 0;
    });
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
               (std::strcmp(word, "known") != 0 &&
                std::strcmp(word, "proven") != 0 &&
                fnmatch(word, name, 0) == 0);
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
                           const char *path, const void *caller,
                           CUcontext context, bool as_it_is)
{
    const bool trusted = trusts_file(image) || trusts_file(caller);
    proofs::code_ref code;
    if (proofs_ != nullptr)
        proofs_->prepare();
    if (proofs_ != nullptr && as_it_is)
        code = image != nullptr ? proofs_->at(image) : proofs_->in_file(path);
    const std::lock_guard guard(lock_);
    origins_[handle] = {trusted, nullptr, context, std::move(code)};
}

void known_kernels::derived(const void *from, const void *made,
                            CUcontext context)
{
    const std::lock_guard guard(lock_);
    const auto found = origins_.find(from);
    if (from != made) {
        origin next = {false, from, context, {}};
        if (found != origins_.end()) {
            next.trusted = found->second.trusted;
            next.code = found->second.code;
        }
        origin &known = origins_[made];
        // The driver gives out one handle for a kernel, however often it is
        // asked.
        if (next.code && known.from == from && known.code == next.code &&
            known.context == context)
            return;
        known = std::move(next);
    }
    // Another kernel may have had this handle before.
    layouts_.erase(reinterpret_cast<CUfunction>(const_cast<void *>(made)));
    recent_.forget(reinterpret_cast<std::uintptr_t>(made));
}

// Locked. Forgets the handles that go, all that came out of those, and so on.
// @return the code of those that go
template <typename Goes>
std::vector<proofs::code_ref> known_kernels::forget(Goes goes)
{
    std::set<const void *> gone;
    std::vector<proofs::code_ref> code;
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
            if (at->second.from == nullptr)
                code.push_back(std::move(at->second.code));
            at = origins_.erase(at);
        }
    }
    recent_.forget_all();
    return code;
}

void known_kernels::unloaded(const void *handle)
{
    std::unique_lock lock(lock_);
    const auto code =
        forget([handle](const auto &each) { return each.first == handle; });
    lock.unlock();
    for (const proofs::code_ref &each : code)
        proofs::gone(each);
}

void known_kernels::gone(CUcontext context)
{
    std::unique_lock lock(lock_);
    const auto code = forget(
        [context](const auto &each) { return each.second.context == context; });
    lock.unlock();
    for (const proofs::code_ref &each : code)
        proofs::gone(each);
}

// Asks the driver how a kernel's parameters lie.
known_kernels::layout known_kernels::look_at(const driver &calls,
                                             CUfunction function)
{
    layout made;
    const auto kernel = reinterpret_cast<CUkernel>(function);
    const bool all = ask_parameters(calls, function, made.parameters);
    const char *name = nullptr;
    if (calls.cuFuncGetName(&name, function) != CUDA_SUCCESS &&
        calls.cuKernelGetName(&name, kernel) != CUDA_SUCCESS)
        name = nullptr;
    std::unique_lock lock(lock_);
    const auto from = origins_.find(function);
    const bool from_trusted = from != origins_.end() && from->second.trusted;
    const auto code =
        from != origins_.end() ? from->second.code : proofs::code_ref();
    if (name == nullptr)
        return made;
    auto there = names_.find(name);
    if (there == names_.end())
        there = names_.try_emplace(strdup(name)).first;
    made.name = name = there->first;
    made.about = &there->second;
    if (matches(name, table_writers))
        made.leaves = leaving::all;
    else if (matches(name, number_writers))
        made.leaves = leaving::numbers;
    made.barred =
        !all || distrusts(name) || (kept_ != nullptr && kept_->has(name));
    made.asked = asks_to_trust(name);
    made.has_peers = matches(name, peer_kernels);
    made.tells_of_tables = matches(name, table_kernels);
    made.named = !made.has_peers && !made.tells_of_tables &&
                 (from_trusted || knows(name));
    lock.unlock();
    for (const kernel_parameter &each : made.parameters)
        made.bytes = std::max(made.bytes, each.offset + each.bytes);
    if (proofs_ != nullptr && !made.barred) {
        made.code = code;
        made.found = proofs_->ask(code, name);
        // Names that decide need no finding, unless it is told.
        if (proofs_->waits() || (!made.asked && !made.has_peers))
            proofs_->await(made.found);
        lock.lock();
        made.about->found = made.found;
    }
    return made;
}

known_kernels::launches known_kernels::of(const named_kernel &about)
{
    launches made;
    made.proven = about.counts.proven.load();
    made.named = about.counts.named.load();
    made.untrusted = about.counts.untrusted.load();
    if (about.found)
        switch (about.found->is.load(std::memory_order_acquire)) {
        case finding::kind::pending:
            made.why = "its code was not read in time";
            break;
        case finding::kind::unread:
        case finding::kind::refused:
            made.why = about.found->why;
            break;
        case finding::kind::proven:
            break;
        }
    return made;
}

known_kernels::launches known_kernels::launches_of(const char *name) const
{
    const std::lock_guard guard(lock_);
    const auto found = names_.find(name);
    return found != names_.end() ? of(found->second) : launches();
}

// @return false if no parameter has all of its bytes
bool known_kernels::value_at(const layout &known, const values &given,
                             std::size_t offset, CUdeviceptr &value)
{
    for (std::size_t i = 0; i < known.parameters.size(); i++) {
        const kernel_parameter &each = known.parameters[i];
        if (offset < each.offset ||
            offset + sizeof value > each.offset + each.bytes)
            continue;
        // Addresses are looked for at every fourth byte: see add_all().
        if ((offset - each.offset) % 4 != 0 || offset % 4 != 0)
            return false;
        if (given.parameters != nullptr)
            std::memcpy(
                &value,
                static_cast<const unsigned char *>(given.parameters[i]) +
                    (offset - each.offset),
                sizeof value);
        else if (given.buffer != nullptr &&
                 offset + sizeof value <= given.bytes)
            std::memcpy(&value, given.buffer + offset, sizeof value);
        else
            return false;
        return true;
    }
    return false;
}

// @return false if a parameter is to be checked, and no address in this launch
bool known_kernels::is_address(const layout &known, const proof::base &base,
                               const values &given)
{
    CUdeviceptr value = 0;
    return !base.to_be_checked || (value_at(known, given, base.offset, value) &&
                                   may_be_address(value));
}

// Puts the values together as the kernel has them.
// @return false if not all are there
bool known_kernels::all_values(const layout &known, const values &given,
                               std::vector<unsigned char> &all)
{
    all.assign(known.bytes, 0);
    if (given.parameters != nullptr) {
        for (std::size_t i = 0; i < known.parameters.size(); i++)
            std::memcpy(all.data() + known.parameters[i].offset,
                        given.parameters[i], known.parameters[i].bytes);
        return true;
    }
    if (given.buffer == nullptr || given.bytes < known.bytes)
        return false;
    std::memcpy(all.data(), given.buffer, known.bytes);
    return true;
}

// True if all parameters may decide whether a launch is trusted. No finding is
// needed if names decide.
bool known_kernels::needs_all(const layout &known, const values &given)
{
    if (!known.found || known.barred || known.asked || known.has_peers)
        return false;
    switch (known.found->is.load(std::memory_order_acquire)) {
    case finding::kind::pending:
        return false;
    case finding::kind::proven:
        return known.found->any_parameter ||
               !std::all_of(known.found->bases.begin(),
                            known.found->bases.end(),
                            [&](const proof::base &each) {
                                return is_address(known, each, given);
                            });
    default:
        return known.found->may_be_settled || known.found->any_parameter;
    }
}

// Of the findings about certain launches the one that is about this launch. One
// that asks for an address where the launch has none takes its trust, unless
// another one does without.
// @param pending  set if there may be another one soon
const finding *
known_kernels::settled_finding_of(const layout &known,
                                  std::span<const unsigned char> all,
                                  bool &pending) const
{
    using kind = finding::kind;
    auto &those = known.of_some;
    const bool seldom = those.size() >= most_settled &&
                        known.missed >= most_missed &&
                        known.missed % most_missed != 0;
    const finding *doubts = nullptr;
    for (auto at = those.begin(); at != those.end(); ++at) {
        const kind is = (*at)->is.load(std::memory_order_acquire);
        pending = is == kind::pending;
        if (pending)
            return doubts;
        // One that decides nothing takes back nothing, such as a refusal.
        if (is == kind::unread || (seldom && !takes_trust(**at, is)) ||
            !(*at)->is_about(all))
            continue;
        known.missed = 0;
        if (!proof::hold((*at)->bases, all)) {
            doubts = &**at;
            continue;
        }
        known.about->found = *at;
        std::rotate(those.begin(), at, at + 1); // it is looked at first
        return &*those.front();
    }
    if (doubts == nullptr)
        known.missed++;
    return doubts;
}

// The finding that is about this launch, or one that is not there yet.
// @param all  the values of its parameters; empty if they are not known
// @param asked  set to a finding that was asked for just now
const finding *known_kernels::finding_of(const layout &known,
                                         std::span<const unsigned char> all,
                                         proofs::answer_ref &asked) const
{
    using kind = finding::kind;
    const finding *const of_all = known.found ? &*known.found : nullptr;
    if (of_all == nullptr || all.empty())
        return of_all;
    const kind is = of_all->is.load(std::memory_order_acquire);
    if (is == kind::pending ||
        (is == kind::proven ? proof::hold(of_all->bases, all)
                            : !of_all->may_be_settled))
        return of_all;
    bool pending = false;
    const finding *const of_some = settled_finding_of(known, all, pending);
    if (of_some != nullptr && proof::hold(of_some->bases, all))
        return of_some;
    if (!pending && known.of_some.size() < most_settled) {
        asked = proofs_->ask(known.code, known.name, all);
        known.of_some.push_back(asked);
    }
    return of_some != nullptr ? of_some : of_all;
}

// Any of the parameters may be one that the kernel goes by.
void known_kernels::rely_on_all(std::span<const unsigned char> all, work &out)
{
    if (all.empty())
        out.trusted = false;
    for (std::size_t at = 0; at + sizeof(CUdeviceptr) <= all.size();
         at += sizeof(CUdeviceptr)) {
        CUdeviceptr value = 0;
        std::memcpy(&value, all.data() + at, sizeof value);
        if (may_be_address(value))
            out.rely_on(value);
    }
}

void known_kernels::rely_on_bases(const layout &known, const finding &found,
                                  const values &given, work &out) const
{
    for (const proof::base &each : found.bases) {
        CUdeviceptr value = 0;
        const bool there = value_at(known, given, each.offset, value);
        if (!there || (each.to_be_checked && !may_be_address(value)))
            out.trusted = false;
        // The kernel may come to its memory from outside.
        else if (may_be_address(value))
            out.rely_on(value, each.to_be_checked);
    }
}

// Decides whether a launch is trusted. A proof may rely on addresses.
void known_kernels::judge(const layout &known, const finding *found,
                          const values &given,
                          std::span<const unsigned char> all, work &out) const
{
    using kind = finding::kind;
    const kind is = found != nullptr ? found->is.load(std::memory_order_acquire)
                                     : kind::unread;
    const bool proven = is == kind::proven && !known.has_peers &&
                        !(known.tells_of_tables && found->adds_loaded());
    const char *why = "by its name";
    if (known.barred) {
        out.trusted = false;
    } else if (known.asked) {
        out.trusted = true;
    } else if (proven) {
        out.trusted = out.proven = true;
        out.by_name = known.named;
        why = work::base_is_unknown;
        rely_on_bases(known, *found, given, out);
        if (found->any_parameter)
            rely_on_all(all, out);
    } else {
        out.trusted = is == kind::unread && known.named;
        if (found != nullptr && is != kind::proven && is != kind::pending)
            why = found->why;
    }
    if (out.trusted)
        return;
    out.why = is == kind::pending ? "its code is being read" : why;
    if (is == kind::pending || known.told)
        return;
    known.told = true;
    trace_.kernel(out.kernel, why);
}

namespace {

// Tries every offset at which a pointer may lie in a packed structure.
// @param is_pointer  tells by an offset among these bytes
template <typename IsPointer>
void scan_bytes(const unsigned char *at, std::size_t bytes, work &out,
                IsPointer is_pointer)
{
    for (std::size_t i = 0; i + sizeof(CUdeviceptr) <= bytes; i += 4) {
        CUdeviceptr address = 0;
        std::memcpy(&address, at + i, sizeof address);
        if (may_be_address(address))
            out.add(address, is_pointer(i));
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

// Adds all that may be an address among a launch's values. A proof tells which
// are pointers, and whether these are all.
void known_kernels::add_all(const layout &known, const finding *found,
                            const values &given, work &out)
{
    const finding *const proof = out.proven ? found : nullptr;
    out.pointers_are_all = proof != nullptr && !proof->any_parameter &&
                           !proof->by_descriptor &&
                           known.leaves == leaving::nothing;
    const auto is_base = [&](std::size_t offset) {
        if (proof == nullptr)
            return false;
        const auto at =
            std::lower_bound(proof->bases.begin(), proof->bases.end(), offset,
                             [](const auto &each, std::size_t than) {
                                 return each.offset < than;
                             });
        return at != proof->bases.end() && at->offset == offset;
    };
    if (given.parameters == nullptr) {
        if (given.buffer != nullptr)
            scan_bytes(given.buffer, given.bytes, out, is_base);
        // Nobody asks which part of the buffer is a pointer.
        out.left = known.leaves != leaving::nothing ? out.count : 0;
        return;
    }
    // A parameter of that size is a pointer.
    constexpr auto is_pointer = [](std::size_t bytes) {
        return bytes == sizeof(CUdeviceptr);
    };
    const auto scan_those = [&](auto wanted) {
        for (std::size_t i = 0; i < known.parameters.size(); i++) {
            const kernel_parameter &each = known.parameters[i];
            if (wanted(each.bytes))
                scan_bytes(
                    static_cast<const unsigned char *>(given.parameters[i]),
                    each.bytes, out, [&](std::size_t at) {
                        return is_base(each.offset + at) ||
                               (proof == nullptr && is_pointer(each.bytes));
                    });
        }
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

void known_kernels::scan(const driver &calls, CUfunction function,
                         void **parameters, void **extra, work &out)
{
    values given;
    given.parameters = parameters;
    if (parameters == nullptr)
        for (void **at = extra; at != nullptr && *at != CU_LAUNCH_PARAM_END;
             at += 2) {
            if (*at == CU_LAUNCH_PARAM_BUFFER_POINTER)
                given.buffer = static_cast<const unsigned char *>(at[1]);
            else if (*at == CU_LAUNCH_PARAM_BUFFER_SIZE)
                given.bytes = *static_cast<const std::size_t *>(at[1]);
        }
    std::unique_lock lock(lock_);
    const layout *known = &layout_of(calls, function, lock);
    std::vector<unsigned char> &all = given_;
    const finding *found = nullptr;
    for (bool waited = false;; waited = true) {
        if (!needs_all(*known, given) || !all_values(*known, given, all))
            all.clear();
        proofs::answer_ref asked;
        found = finding_of(*known, all, asked);
        if (!asked || (waited && !proofs_->waits()))
            break;
        lock.unlock();
        proofs_->await(asked);
        lock.lock();
        known = &layout_of(calls, function, lock);
    }
    out.what = reinterpret_cast<std::uint64_t>(function);
    out.kernel = known->name != nullptr ? known->name : "?";
    out.open_ended = true;
    out.counts = known->about != nullptr ? &known->about->counts : nullptr;
    judge(*known, found, given, all, out);
    add_all(*known, found, given, out);
}

} // namespace emuv::cuda
