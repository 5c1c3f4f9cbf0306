// SPDX-License-Identifier: LGPL-2.1-or-later
// Proves of a program's kernels that they keep to their parameters.
#include "movement/proofs.hpp"

#include "base/glibc.hpp"
#include "proof/elf.hpp"
#include "proof/fatbin.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace emuv::cuda {

namespace {

// Images beyond this are not copied, nor unpacked.
constexpr std::size_t most_bytes = std::size_t{512} << 20;
// Images that programs free are copied, up to this in all.
constexpr std::size_t most_copied_bytes = std::size_t{512} << 20;
std::atomic<std::size_t> copied_bytes;
// Unpacked code that is kept for the kernels that come next.
constexpr std::size_t most_opened_bytes = std::size_t{128} << 20;
// A longer kernel is not judged: its states would take too much memory.
constexpr std::size_t most_code_bytes = std::size_t{1} << 20;
// Verdicts are kept once none has come for so long.
constexpr std::uint64_t save_after_ns = 2000000000;
// A program does not wait longer than this at its end.
constexpr std::uint64_t leave_after_ns = 1000000000;

// The begin of the library around an address, or null.
const void *library_around(const void *address)
{
    Dl_info from;
    return dladdr(address, &from) != 0 ? from.dli_fbase : nullptr;
}

// The driver compiles text in place of the code that a fatbin has, too.
bool driver_compiles_all()
{
    for (const char *const name : {"CUDA_FORCE_PTX_JIT", "CUDA_FORCE_JIT"}) {
        const char *const has = std::getenv(name);
        if (has != nullptr && *has != '\0' && std::strcmp(has, "0") != 0)
            return true;
    }
    return false;
}

// True if the code was seen to take addresses from memory. The other obstacles
// say that it could not be followed.
bool is_refusal(proof::obstacle why)
{
    switch (why) {
    case proof::obstacle::from_memory:
    case proof::obstacle::from_constants:
    case proof::obstacle::descriptor:
        return true;
    default:
        return false;
    }
}

// Adds the parameters of another verdict.
void join(std::vector<proof::base> &into, const std::vector<proof::base> &more)
{
    for (const proof::base &each : more) {
        const auto same = std::find_if(into.begin(), into.end(),
                                       [&](const proof::base &other) {
                                           return other.offset == each.offset;
                                       });
        if (same == into.end())
            into.push_back(each);
        else
            same->to_be_checked = same->to_be_checked || each.to_be_checked;
    }
}

} // namespace

proofs::code::code(std::vector<unsigned char> &&copy)
    : copy_(std::move(copy)), there_(copy_), copied_(copy_.size())
{
    copied_bytes.fetch_add(copied_);
}

proofs::code::~code()
{
    copied_bytes.fetch_sub(copied_);
}

void proofs::code::drop()
{
    const std::lock_guard guard(lock_);
    there_ = {};
    std::vector<unsigned char>().swap(copy_);
}

// Calls @p read with the bytes, which stay for so long. They are none if the
// module, or the library around them, has gone.
template <typename Read>
void proofs::code::with(Read read)
{
    const std::lock_guard guard(lock_);
    const bool there =
        library_ == nullptr || library_around(there_.data()) == library_;
    read(there ? there_ : proof::bytes());
}

proofs::code_ref proofs::at(const void *image)
{
    const proof::bytes there = proof::file_at(image);
    if (there.empty() || there.size() > most_bytes)
        return {};
    if (const void *const library = library_around(there.data()))
        return code_ref(new code(there, library));
    if (copied_bytes.load() + there.size() > most_copied_bytes)
        return {};
    return code_ref(
        new code(std::vector<unsigned char>(there.begin(), there.end())));
}

proofs::code_ref proofs::in_file(const char *path)
{
    const int file = path != nullptr ? ::open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return {};
    std::vector<unsigned char> all;
    const off_t size = ::lseek(file, 0, SEEK_END);
    if (size > 0 && static_cast<std::size_t>(size) <= most_bytes &&
        copied_bytes.load() + static_cast<std::size_t>(size) <=
            most_copied_bytes)
        all.resize(static_cast<std::size_t>(size));
    std::size_t filled = 0;
    while (filled < all.size()) {
        const ssize_t got =
            ::pread(file, all.data() + filled, all.size() - filled,
                    static_cast<off_t>(filled));
        if (got <= 0)
            break;
        filled += static_cast<std::size_t>(got);
    }
    ::close(file);
    if (all.empty() || filled < all.size())
        return {};
    return code_ref(new code(std::move(all)));
}

void proofs::gone(const code_ref &which)
{
    if (which)
        which->drop();
}

proofs::answer_ref proofs::ask(const code_ref &of, const char *name)
{
    const counted_ref<finding> held(new finding);
    finding *const made = &*held;
    const auto cannot = [&](const char *why) {
        made->why = why;
        made->is.store(finding::kind::unread, std::memory_order_release);
        return answer_ref(made);
    };
    if (!of)
        return cannot("its code is not there to be read");
    if (sm_ == 0)
        return cannot("the devices are of several kinds");
    std::unique_lock lock(lock_);
    if (stopping_ || (!thread_.running() && !thread_.start(run, this)))
        return cannot("there is no thread to read its code");
    jobs_.push_back({of, {name, name + std::strlen(name)}, held});
    changed_.notify_all();
    if (waits_)
        changed_.wait(lock, [&] {
            return stopping_ || made->is.load() != finding::kind::pending;
        });
    return answer_ref(made);
}

void *proofs::run(void *self)
{
    prctl(PR_SET_NAME, "emuv-prover");
    static_cast<proofs *>(self)->work();
    return nullptr;
}

void proofs::work()
{
    if (known_ == nullptr)
        known_ = std::make_unique<proof::cache>(folder_);
    std::unique_lock lock(lock_);
    bool unsaved = false;
    std::uint64_t last_ns = now_ns();
    while (!stopping_) {
        if (jobs_.empty()) {
            if (!unsaved) {
                changed_.wait(lock,
                              [&] { return stopping_ || !jobs_.empty(); });
                continue;
            }
            const std::uint64_t idle_ns = now_ns() - last_ns;
            if (idle_ns < save_after_ns) {
                changed_.wait_for(lock, save_after_ns - idle_ns);
                continue;
            }
        }
        busy_ = true;
        if (jobs_.empty()) {
            unsaved = false;
            lock.unlock();
            known_->save(); // a cache that cannot be kept is none
            opened_.clear();
        } else {
            const job next = std::move(jobs_.front());
            jobs_.pop_front();
            unsaved = true;
            lock.unlock();
            answer(next);
            last_ns = now_ns();
        }
        lock.lock();
        busy_ = false;
        changed_.notify_all();
    }
}

// The module's machine code, unpacked.
const proofs::opened &proofs::open(const code_ref &which)
{
    const auto there =
        std::find_if(opened_.begin(), opened_.end(),
                     [&](const opened &each) { return each.of == which; });
    if (there != opened_.end()) {
        opened_.splice(opened_.begin(), opened_, there);
        return opened_.front();
    }
    std::size_t bytes = 0;
    for (const opened &each : opened_)
        bytes += each.bytes;
    while (!opened_.empty() && bytes > most_opened_bytes) {
        bytes -= opened_.back().bytes;
        opened_.pop_back();
    }
    opened &made = opened_.emplace_front();
    made.of = which;
    const auto take = [&](const proof::code_image &image) {
        if (image.refused != nullptr) {
            made.why = image.refused;
            return;
        }
        const auto &own = made.content.emplace_back(image.content.begin(),
                                                    image.content.end());
        made.bytes += own.size();
        auto read = proof::read_cubin(own);
        if (!read)
            made.why = "machine code that makes no sense";
        else if (read->sm / 10 != sm_ / 10 || read->sm > sm_)
            made.why = "machine code for another card";
        else
            made.cubins.push_back(std::move(*read));
    };
    which->with([&](proof::bytes file) {
        if (file.empty())
            made.why = "its module has gone";
        else if (!proof::is_elf(file) && driver_compiles_all())
            made.why = "text in PTX, which the driver compiles";
        else
            proof::each_image_for(sm_, file, take);
    });
    return made;
}

const proof::verdict &proofs::verdict_of(const proof::kernel_code &kernel)
{
    const proof::fingerprint of = proof::fingerprint_of(kernel);
    if (known_->find(of) == nullptr) {
        looked_at_.fetch_add(1);
        known_->keep(of, proof::prove(kernel));
    }
    return *known_->find(of);
}

void proofs::answer(const job &one)
{
    using kind = finding::kind;
    const opened &from = open(one.of);
    finding &to = *one.to;
    const std::string_view name(one.name.data(), one.name.size());
    // The driver may take any of them, so the worst one counts.
    kind worst = kind::proven;
    bool any = false;
    const auto is = [&](kind what, const char *why) {
        if (worst == kind::proven || what == kind::refused) {
            worst = what;
            to.why = why;
        }
    };
    for (const proof::cubin &each : from.cubins)
        for (const proof::kernel_code &kernel : each.kernels) {
            if (kernel.name != name)
                continue;
            any = true;
            if (kernel.code.size() > most_code_bytes) {
                is(kind::unread, describe(proof::obstacle::too_long));
                continue;
            }
            const proof::verdict &verdict = verdict_of(kernel);
            if (verdict.proven())
                join(to.bases, verdict.bases);
            else
                is(is_refusal(verdict.why) ? kind::refused : kind::unread,
                   describe(verdict.why));
        }
    if (from.why != nullptr)
        is(kind::unread, from.why);
    else if (!any)
        is(kind::unread, "no code of that name");
    to.is.store(worst, std::memory_order_release);
}

void proofs::settle_locked(std::unique_lock<std::mutex> &lock,
                           std::uint64_t most_ns)
{
    const std::uint64_t start = now_ns();
    while ((busy_ || !jobs_.empty()) && now_ns() - start < most_ns)
        changed_.wait_for(lock, most_ns);
}

void proofs::settle()
{
    std::unique_lock lock(lock_);
    if (thread_.running())
        settle_locked(lock, UINT64_MAX);
}

void proofs::leave()
{
    std::unique_lock lock(lock_);
    if (stopping_ || !thread_.running())
        return;
    stopping_ = true;
    jobs_.clear();
    changed_.notify_all();
    settle_locked(lock, leave_after_ns);
    if (busy_)
        return;
    lock.unlock();
    thread_.join();
    known_->save();
}

proofs::~proofs()
{
    leave();
    thread_.join();
}

} // namespace emuv::cuda
