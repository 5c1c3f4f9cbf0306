// SPDX-License-Identifier: LGPL-2.1-or-later
// Proves of a program's kernels that they keep to their parameters.
#include "movement/proofs.hpp"

#include "base/glibc.hpp"
#include "proof/elf.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
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
        const auto same =
            std::lower_bound(into.begin(), into.end(), each.offset,
                             [](const proof::base &other, std::size_t than) {
                                 return other.offset < than;
                             });
        if (same == into.end() || same->offset != each.offset)
            into.insert(same, each);
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

proofs::proofs(unsigned sm, const char *cache_folder, bool waits,
               const patience &most)
    : sm_(sm), folder_(cache_folder), waits_(waits),
      compiles_(driver_compiles_all()),
      injected_(is_set("CUDA_INJECTION64_PATH")), patience_ns_(most.all_ns),
      most_wait_ns_(most.one_ns)
{}

proofs::code::code(images_ref kept, std::size_t copied)
    : kept_(std::move(kept)), copied_(copied)
{}

proofs::code::~code()
{
    drop();
}

void proofs::code::drop()
{
    images_ref last;
    const std::lock_guard guard(lock_);
    std::swap(last, kept_);
    copied_bytes.fetch_sub(std::exchange(copied_, 0));
}

// The code, which stays for as long as someone holds it. None if the module has
// gone.
proofs::images_ref proofs::code::kept() const
{
    const std::lock_guard guard(lock_);
    return kept_;
}

void proofs::in_child()
{
    copied_bytes.store(0);
}

// Copies what the card may run of a file.
proofs::code_ref proofs::read(proof::bytes file) const
{
    auto *const made = new images;
    const images_ref kept(made);
    std::size_t copied = 0;
    const auto take = [&](const proof::packed_image &image) {
        const std::size_t size = image.content.size();
        if (image.refused != nullptr || made->why != nullptr) {
            made->why = made->why != nullptr ? made->why : image.refused;
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
        std::copy(image.content.begin(), image.content.end(),
                  copy.all().begin());
        images::image &one =
            made->all.emplace_back(images::image{image, std::move(copy)});
        one.about.content = one.copy.all();
    };
    if (injected_)
        made->why = "a tool may change it (CUDA_INJECTION64_PATH)";
    else if (!proof::is_elf(file) && (compiles_ || driver_compiles_all()))
        made->why = "text in PTX, which the driver compiles";
    else
        proof::each_image_for(sm_, file, take);
    return code_ref(new code(kept, copied));
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

// @return false if nothing can be asked
bool proofs::is_running_locked()
{
    return !stopping_ &&
           (prover_.running() || prover_.start(run_prover, this)) &&
           (reader_.running() || reader_.start(run_reader, this));
}

void proofs::prepare()
{
    if (sm_ == 0)
        return;
    const std::lock_guard guard(lock_);
    is_running_locked();
}

proofs::answer_ref proofs::ask(const code_ref &of, const char *name,
                               std::span<const unsigned char> parameters)
{
    const counted_ref<finding> answer(new finding);
    finding *const made = &*answer;
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
    if (!is_running_locked())
        return cannot("there is no thread to read its code");
    jobs_.push_back({of,
                     {name, name + std::strlen(name)},
                     {parameters.begin(), parameters.end()},
                     answer});
    changed_.notify_all();
    return answer_ref(made);
}

void proofs::await(const answer_ref &one)
{
    const auto is_there = [&] {
        return one->is.load() != finding::kind::pending ||
               (!waits_ && one->is_new.load());
    };
    if (is_there())
        return;
    std::unique_lock lock(lock_);
    if (waits_) {
        changed_.wait(lock, [&] { return stopping_ || is_there(); });
        return;
    }
    const std::uint64_t start_ns = now_ns();
    const std::uint64_t most_ns = std::min(most_wait_ns_, patience_ns_);
    std::uint64_t waited_ns = 0;
    while (!stopping_ && !is_there() && waited_ns < most_ns) {
        changed_.wait_for(lock, most_ns - waited_ns);
        waited_ns = now_ns() - start_ns;
    }
    // Others wait at the same time.
    patience_ns_ -= std::min(patience_ns_, waited_ns);
}

void *proofs::run_reader(void *self)
{
    prctl(PR_SET_NAME, "emuv-reader");
    static_cast<proofs *>(self)->look_up_all();
    return nullptr;
}

void *proofs::run_prover(void *self)
{
    prctl(PR_SET_NAME, "emuv-prover");
    static_cast<proofs *>(self)->prove_all();
    return nullptr;
}

void proofs::save()
{
    const std::lock_guard guard(known_lock_);
    if (known_ != nullptr)
        known_->save(); // a cache that cannot be kept is none
}

// The reader's thread.
void proofs::look_up_all()
{
    std::unique_lock lock(lock_);
    if (stopping_)
        return;
    // The program's end does not wait for the file, however long it is.
    busy_++;
    lock.unlock();
    bool any_kept = false;
    {
        const std::lock_guard guard(known_lock_);
        known_ = std::make_unique<proof::cache>(folder_);
        any_kept = !known_->empty();
    }
    lock.lock();
    busy_--;
    changed_.notify_all();
    while (!stopping_) {
        if (jobs_.empty()) {
            changed_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
            continue;
        }
        busy_++;
        job next = std::move(jobs_.front());
        jobs_.pop_front();
        lock.unlock();
        // In a user's first program nobody waits for code to be unpacked.
        const bool done = any_kept && answer(next, false);
        lock.lock();
        if (!done) {
            next.to->is_new.store(true);
            to_prove_.push_back(std::move(next));
        }
        busy_--;
        unsaved_ += done ? 1 : 0;
        last_ns_ = now_ns();
        changed_.notify_all();
    }
}

// The prover's thread.
void proofs::prove_all()
{
    std::unique_lock lock(lock_);
    while (!stopping_) {
        const bool idle = to_prove_.empty();
        if (idle && unsaved_ == 0) {
            changed_.wait(lock, [&] {
                return stopping_ || !to_prove_.empty() || unsaved_ > 0;
            });
            continue;
        }
        const std::uint64_t idle_ns = now_ns() - last_ns_;
        if (idle && idle_ns < save_after_ns) {
            changed_.wait_for(lock, save_after_ns - idle_ns);
            continue;
        }
        const bool saves = idle || unsaved_ >= save_after;
        if (saves)
            unsaved_ = 0;
        busy_++;
        job next;
        if (!idle) {
            next = std::move(to_prove_.front());
            to_prove_.pop_front();
        }
        lock.unlock();
        if (idle)
            close_all();
        else
            answer(next, true);
        if (saves)
            save();
        lock.lock();
        busy_--;
        unsaved_ += idle ? 0 : 1;
        last_ns_ = idle ? last_ns_ : now_ns();
        changed_.notify_all();
    }
}

// The module's machine code, unpacked.
proofs::opened_ref proofs::open(const code_ref &which)
{
    std::list<opened_ref> closed; // under no lock
    const auto is_it = [&](const opened_ref &each) {
        return each->of == which;
    };
    {
        const std::lock_guard guard(opened_lock_);
        const auto there = std::find_if(opened_.begin(), opened_.end(), is_it);
        if (there != opened_.end()) {
            opened_.splice(opened_.begin(), opened_, there);
            return opened_.front();
        }
        std::size_t bytes = 0;
        for (const opened_ref &each : opened_)
            bytes += each->bytes;
        while (!opened_.empty() && bytes > most_opened_bytes) {
            bytes -= opened_.back()->bytes;
            closed.splice(closed.begin(), opened_, std::prev(opened_.end()));
        }
    }
    auto *const made = new opened;
    opened_ref answer(made);
    made->of = which;
    made->packed = which->kept();
    if (!made->packed)
        made->why = "its module has gone";
    else
        unpack_all(*made);
    // The other thread may have opened it, too.
    const std::lock_guard guard(opened_lock_);
    opened_.push_front(answer);
    return answer;
}

// Gives back the memory of all code.
void proofs::close_all()
{
    std::list<opened_ref> closed; // under no lock
    const std::lock_guard guard(opened_lock_);
    closed.swap(opened_);
}

void proofs::unpack_all(opened &made) const
{
    made.why = made.packed->why;
    for (const images::image &each : made.packed->all) {
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

// @return false if the verdict is not kept, and it may not be proven
bool proofs::judge(const proof::kernel_code &kernel, const job &one,
                   bool proves, judgement &into)
{
    if (kernel.code.size() > most_code_bytes) {
        into.unread = describe(proof::obstacle::too_long);
        return true;
    }
    const proof::fingerprint of = proof::fingerprint_of(kernel);
    const std::span<const unsigned char> parameters = one.parameters;
    {
        const std::lock_guard guard(known_lock_);
        const proof::verdict *const known = parameters.empty()
                                                ? known_->find(of)
                                                : known_->find(of, parameters);
        if (known != nullptr) {
            into.verdict = *known;
            return true;
        }
    }
    if (!proves)
        return false;
    if (!proof::buffer(proving_bytes)) {
        into.unread = "there is no memory to prove it in";
        return true;
    }
    looked_at_.fetch_add(1);
    into.verdict = parameters.empty() ? proof::prove(kernel)
                                      : proof::prove(kernel, parameters);
    const std::lock_guard guard(known_lock_);
    known_->keep(of, into.verdict);
    return true;
}

// @return false if a verdict is not kept, and it may not be proven
bool proofs::answer(const job &one, bool proves)
{
    using kind = finding::kind;
    const opened_ref from = open(one.of);
    const std::string_view name(one.name.data(), one.name.size());
    std::list<judgement> all;
    for (const proof::cubin &each : from->cubins)
        for (const proof::kernel_code &kernel : each.kernels)
            if (kernel.name == name &&
                !judge(kernel, one, proves, all.emplace_back()))
                return false;
    finding &to = *one.to;
    // The driver may take any of them, so the worst one counts.
    kind worst = kind::proven;
    const auto is = [&](kind what, const char *why) {
        if (worst == kind::proven || what == kind::refused) {
            worst = what;
            to.why = why;
        }
    };
    for (judgement &each : all) {
        if (each.unread != nullptr) {
            is(kind::unread, each.unread);
            continue;
        }
        proof::verdict &verdict = each.verdict;
        to.any_parameter = to.any_parameter || verdict.any_parameter;
        to.by_descriptor = to.by_descriptor || verdict.by_descriptor;
        to.may_be_settled = to.may_be_settled || (one.parameters.empty() &&
                                                  may_be_settled(verdict.why));
        if (verdict.proven())
            join(to.bases, verdict.bases);
        else
            is(is_refusal(verdict.why) ? kind::refused : kind::unread,
               describe(verdict.why));
        if (!verdict.premises.empty())
            to.meet.push_back(
                {std::move(verdict.terms), std::move(verdict.premises)});
    }
    if (from->why != nullptr)
        is(kind::unread, from->why);
    else if (all.empty())
        is(kind::unread, "no code of that name");
    to.is.store(worst, std::memory_order_release);
    return true;
}

void proofs::settle_locked(std::unique_lock<std::mutex> &lock,
                           std::uint64_t most_ns)
{
    const std::uint64_t start = now_ns();
    while ((busy_ > 0 || !jobs_.empty() || !to_prove_.empty()) &&
           now_ns() - start < most_ns)
        changed_.wait_for(lock, most_ns);
}

void proofs::settle()
{
    std::unique_lock lock(lock_);
    if (reader_.running())
        settle_locked(lock, UINT64_MAX);
}

void proofs::leave()
{
    std::unique_lock lock(lock_);
    if (stopping_ || !prover_.running())
        return;
    stopping_ = true;
    jobs_.clear();
    to_prove_.clear();
    changed_.notify_all();
    settle_locked(lock, leave_after_ns);
    const bool ended = busy_ == 0;
    lock.unlock();
    if (ended) {
        reader_.join();
        prover_.join();
    }
    // One that is left behind may be reading the file.
    const std::unique_lock guard(known_lock_, std::try_to_lock);
    if (guard && known_ != nullptr)
        known_->save();
}

proofs::~proofs()
{
    leave();
    reader_.join();
    prover_.join();
}

} // namespace emuv::cuda
