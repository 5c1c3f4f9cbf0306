// SPDX-License-Identifier: LGPL-2.1-or-later
// Proves of a program's kernels that they keep to their parameters.
#include "movement/proofs.hpp"

#include "base/glibc.hpp"
#include "proof/elf.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace emuv::cuda {

namespace {

// Files beyond this are not looked at.
constexpr std::size_t most_bytes = std::size_t{512} << 20;
// Code that the card may run is copied, up to this in all.
constexpr std::size_t most_copied_bytes = std::size_t{512} << 20;
std::atomic<std::size_t> copied_bytes;
// No more is unpacked of one module.
constexpr std::size_t most_unpacked_bytes = std::size_t{256} << 20;
// Unpacked code that is kept for the kernels that come next.
constexpr std::size_t most_opened_bytes = std::size_t{128} << 20;
// A longer kernel is not judged: its states would take too much memory.
constexpr std::size_t most_code_bytes = std::size_t{1} << 20;
// A kernel is not judged where so much memory cannot be had.
constexpr std::size_t proving_bytes = std::size_t{256} << 20;
// Verdicts are kept once none has come for so long, and after so many.
constexpr std::uint64_t save_after_ns = 2000000000;
constexpr unsigned save_after = 256;
// A program does not wait longer than this at its end.
constexpr std::uint64_t leave_after_ns = 1000000000;

bool is_set(const char *variable)
{
    const char *const has = std::getenv(variable);
    return has != nullptr && *has != '\0';
}

// The driver compiles text in place of the code that a fatbin has, too.
bool driver_compiles_all()
{
    for (const char *const name : {"CUDA_FORCE_PTX_JIT", "CUDA_FORCE_JIT"})
        if (is_set(name) && std::strcmp(std::getenv(name), "0") != 0)
            return true;
    return false;
}

// True if the code was seen to take addresses from memory. The other obstacles
// say that it could not be followed.
bool is_refusal(proof::obstacle why)
{
    switch (why) {
    case proof::obstacle::from_memory:
    case proof::obstacle::from_constants:
    case proof::obstacle::from_shared:
    case proof::obstacle::indexed:
    case proof::obstacle::descriptor:
        return true;
    default:
        return false;
    }
}

// True if a proof may come of what a launch's parameters decide.
bool may_be_settled(proof::obstacle why)
{
    switch (why) {
    case proof::obstacle::none:
    case proof::obstacle::architecture:
    case proof::obstacle::too_long:
    case proof::obstacle::broken:
    case proof::obstacle::foreign_call:
        return false;
    default:
        return true;
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

bool finding::is_about(std::span<const unsigned char> parameters) const
{
    return std::all_of(meet.begin(), meet.end(), [&](const conditions &each) {
        return proof::hold(each.terms, each.premises, parameters);
    });
}

proofs::proofs(unsigned sm, const char *cache_folder, bool waits)
    : sm_(sm), folder_(cache_folder), waits_(waits),
      compiles_(driver_compiles_all()),
      injected_(is_set("CUDA_INJECTION64_PATH"))
{}

proofs::code::code(parts_ref held, std::size_t copied)
    : held_(std::move(held)), copied_(copied)
{}

proofs::code::~code()
{
    drop();
}

void proofs::code::drop()
{
    parts_ref last;
    const std::lock_guard guard(lock_);
    std::swap(last, held_);
    copied_bytes.fetch_sub(std::exchange(copied_, 0));
}

// The code, which stays for as long as someone holds it. None if the module has
// gone.
proofs::parts_ref proofs::code::held() const
{
    const std::lock_guard guard(lock_);
    return held_;
}

void proofs::in_child()
{
    copied_bytes.store(0);
}

// Copies what the card may run of a file.
proofs::code_ref proofs::read(proof::bytes file) const
{
    auto *const made = new parts;
    const parts_ref held(made);
    std::size_t copied = 0;
    const auto take = [&](const proof::packed_image &part) {
        const std::size_t size = part.content.size();
        if (part.refused != nullptr || made->why != nullptr) {
            made->why = made->why != nullptr ? made->why : part.refused;
            return;
        }
        if (copied_bytes.fetch_add(size) + size > most_copied_bytes) {
            copied_bytes.fetch_sub(size);
            made->why = "more code than is kept";
            return;
        }
        copied += size;
        proof::buffer copy(size);
        if (!copy) {
            made->why = "there is no memory for its code";
            return;
        }
        std::copy(part.content.begin(), part.content.end(), copy.all().begin());
        parts::part &one =
            made->all.emplace_back(parts::part{part, std::move(copy)});
        one.about.content = one.copy.all();
    };
    if (injected_)
        made->why = "a tool may change it (CUDA_INJECTION64_PATH)";
    else if (!proof::is_elf(file) && (compiles_ || driver_compiles_all()))
        made->why = "text in PTX, which the driver compiles";
    else
        proof::each_part_for(sm_, file, take);
    return code_ref(new code(held, copied));
}

proofs::code_ref proofs::at(const void *image) const
{
    const proof::bytes there =
        sm_ != 0 ? proof::file_at(image) : proof::bytes();
    return !there.empty() && there.size() <= most_bytes ? read(there)
                                                        : code_ref();
}

proofs::code_ref proofs::in_file(const char *path) const
{
    const int file =
        path != nullptr && sm_ != 0 ? ::open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return {};
    const off_t size = ::lseek(file, 0, SEEK_END);
    const proof::buffer content(size > 0 && static_cast<std::size_t>(size) <=
                                                most_bytes
                                    ? static_cast<std::size_t>(size)
                                    : 0);
    const std::span<unsigned char> all = content.all();
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
    return !all.empty() && filled == all.size() ? read(all) : code_ref();
}

void proofs::gone(const code_ref &which)
{
    if (which)
        which->drop();
}

proofs::answer_ref proofs::ask(const code_ref &of, const char *name,
                               std::span<const unsigned char> parameters)
{
    const counted_ref<finding> held(new finding);
    finding *const made = &*held;
    const auto cannot = [&](const char *why) {
        made->why = why;
        made->is.store(finding::kind::unread, std::memory_order_release);
        return answer_ref(made);
    };
    if (sm_ == 0)
        return cannot("the devices are of several kinds");
    if (!of)
        return cannot("its code is not there to be read");
    const std::lock_guard guard(lock_);
    if (stopping_ || (!thread_.running() && !thread_.start(run, this)))
        return cannot("there is no thread to read its code");
    jobs_.push_back({of,
                     {name, name + std::strlen(name)},
                     {parameters.begin(), parameters.end()},
                     held});
    changed_.notify_all();
    return answer_ref(made);
}

void proofs::await(const answer_ref &one)
{
    std::unique_lock lock(lock_);
    if (waits_)
        changed_.wait(lock, [&] {
            return stopping_ || one->is.load() != finding::kind::pending;
        });
}

void *proofs::run(void *self)
{
    prctl(PR_SET_NAME, "emuv-prover");
    static_cast<proofs *>(self)->work();
    return nullptr;
}

void proofs::save()
{
    const std::lock_guard guard(known_lock_);
    if (known_ != nullptr)
        known_->save(); // a cache that cannot be kept is none
}

void proofs::work()
{
    std::unique_lock lock(lock_);
    if (stopping_)
        return;
    // The program's end does not wait for the file, however long it is.
    busy_ = true;
    lock.unlock();
    {
        const std::lock_guard guard(known_lock_);
        known_ = std::make_unique<proof::cache>(folder_);
    }
    lock.lock();
    busy_ = false;
    changed_.notify_all();
    unsigned unsaved = 0;
    std::uint64_t last_ns = now_ns();
    while (!stopping_) {
        const bool idle = jobs_.empty();
        if (idle && unsaved == 0) {
            changed_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
            continue;
        }
        const std::uint64_t idle_ns = now_ns() - last_ns;
        if (idle && idle_ns < save_after_ns) {
            changed_.wait_for(lock, save_after_ns - idle_ns);
            continue;
        }
        busy_ = true;
        job next;
        if (!idle) {
            next = std::move(jobs_.front());
            jobs_.pop_front();
        }
        lock.unlock();
        if (!idle) {
            answer(next);
            last_ns = now_ns();
            unsaved++;
        } else {
            opened_.clear();
        }
        if (idle || unsaved >= save_after) {
            unsaved = 0;
            save();
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
    made.packed = which->held();
    if (!made.packed)
        made.why = "its module has gone";
    else
        unpack_all(made);
    return made;
}

void proofs::unpack_all(opened &made) const
{
    made.why = made.packed->why;
    for (const parts::part &each : made.packed->all) {
        proof::bytes content = each.about.content;
        made.bytes += content.size();
        if (each.about.packed != proof::packed_image::packing::none) {
            const std::size_t size = each.about.bytes_of;
            proof::buffer own(
                size <= most_unpacked_bytes -
                            std::min(made.bytes, most_unpacked_bytes)
                    ? size
                    : 0);
            if (own.all().size() < size) {
                made.why = "there is no memory for its code";
                return;
            }
            if (!proof::unpack(each.about, content, own.all())) {
                made.why = proof::refusal_of(each.about);
                return;
            }
            made.bytes += size;
            content = made.content.emplace_back(std::move(own)).all();
        }
        auto read = proof::read_cubin(content);
        if (!read)
            made.why = "machine code that makes no sense";
        else if (read->sm / 10 != sm_ / 10 || read->sm > sm_)
            made.why = "machine code for another card";
        else
            made.cubins.push_back(std::move(*read));
    }
}

proof::verdict proofs::verdict_of(const proof::kernel_code &kernel,
                                  std::span<const unsigned char> parameters)
{
    const proof::fingerprint of = proof::fingerprint_of(kernel);
    {
        const std::lock_guard guard(known_lock_);
        const proof::verdict *const known = parameters.empty()
                                                ? known_->find(of)
                                                : known_->find(of, parameters);
        if (known != nullptr)
            return *known;
    }
    looked_at_.fetch_add(1);
    proof::verdict made = parameters.empty() ? proof::prove(kernel)
                                             : proof::prove(kernel, parameters);
    const std::lock_guard guard(known_lock_);
    known_->keep(of, made);
    return made;
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
            if (!proof::buffer(proving_bytes)) {
                is(kind::unread, "there is no memory to prove it in");
                continue;
            }
            proof::verdict verdict = verdict_of(kernel, one.parameters);
            to.any_parameter = to.any_parameter || verdict.any_parameter;
            to.may_be_settled =
                to.may_be_settled ||
                (one.parameters.empty() && may_be_settled(verdict.why));
            if (verdict.proven())
                join(to.bases, verdict.bases);
            else
                is(is_refusal(verdict.why) ? kind::refused : kind::unread,
                   describe(verdict.why));
            if (!verdict.premises.empty())
                to.meet.push_back(
                    {std::move(verdict.terms), std::move(verdict.premises)});
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
    const bool ended = !busy_;
    lock.unlock();
    if (ended)
        thread_.join();
    // One that is left behind may be reading the file.
    const std::unique_lock guard(known_lock_, std::try_to_lock);
    if (guard && known_ != nullptr)
        known_->save();
}

proofs::~proofs()
{
    leave();
    thread_.join();
}

} // namespace emuv::cuda
