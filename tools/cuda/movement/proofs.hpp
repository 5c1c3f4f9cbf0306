// SPDX-License-Identifier: LGPL-2.1-or-later
// Proves of a program's kernels that they keep to their parameters.
#pragma once

#include "base/counted.hpp"
#include "base/thread.hpp"
#include "proof/cache.hpp"
#include "proof/cubin.hpp"
#include "proof/fatbin.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace emuv::cuda {

/// The answer about one kernel's code.
struct finding : counted
{
    enum class kind
    {
        pending, ///< its code is being read
        unread,  ///< there is no code to read, or it cannot be followed
        refused, ///< it was seen to take an address from memory
        proven,
    };
    std::atomic<kind> is{kind::pending};
    /// True once it was not found among the verdicts that are kept.
    std::atomic<bool> is_new{false};
    /// Of a kernel that is not proven, the reason. It outlives the process.
    const char *why = "";
    /// Of a proven kernel, the parameters that its accesses go by, ascending.
    std::vector<proof::base> bases;
    /// True if any other parameter may be one of them, too: an index tells.
    bool any_parameter = false;
    /// True if it goes by the address in a descriptor, too.
    bool by_descriptor = false;
    /// True if the launch's parameters may decide: see proofs::ask().
    bool may_be_settled = false;
    /// Of a finding about certain launches, the conditions that they meet, for
    /// each image that the driver may take.
    struct conditions
    {
        std::vector<proof::term> terms;
        std::vector<proof::premise> premises;
    };
    std::vector<conditions> meet;

    /// True if a loaded number is added to a parameter that it goes by.
    [[nodiscard]] bool adds_loaded() const
    {
        return std::any_of(bases.begin(), bases.end(),
                           [](const auto &each) { return each.to_be_checked; });
    }
    /// True if it is about a launch with these parameters. Not while pending.
    [[nodiscard]] bool
    is_about(std::span<const unsigned char> parameters) const;
};

/// Reads the code of modules, and proves kernels, in two threads of its own. A
/// kernel is looked up when it is first asked for, among the verdicts in the
/// user's cache. Only those that are not there are proven, by the second
/// thread. So no look-up waits for a proof. For any thread.
class proofs
{
public:
    /// The time that look-ups may take from the program.
    struct patience
    {
        std::uint64_t one_ns = 100000000;  ///< for one answer
        std::uint64_t all_ns = 2000000000; ///< for all together
    };

    /// @param sm  the devices' architecture, as in 90; 0 if they differ: then
    ///   nothing is proven
    /// @param cache_folder  of verdicts; empty for none. Outlives this object.
    /// @param waits  an answer is complete when it is given
    /// @param most  otherwise, for how long await() waits
    proofs(unsigned sm, const char *cache_folder, bool waits,
           const patience &most);
    proofs(unsigned sm, const char *cache_folder, bool waits)
        : proofs(sm, cache_folder, waits, patience())
    {}
    proofs(const proofs &) = delete;
    proofs &operator=(const proofs &) = delete;
    ~proofs();

    /// The code of a module, as long as it is loaded.
    class code;
    using code_ref = counted_ref<code>;
    using answer_ref = counted_ref<const finding>;

    /// Code that the driver has read from there. It copies all that the card
    /// may run of it: the program may write anything else there, or free it.
    code_ref at(const void *image) const;
    /// The same of a file.
    code_ref in_file(const char *path) const;
    /// The module is about to go. Nobody reads its code from here on.
    static void gone(const code_ref &which);
    /// In the child of a fork(): the parent's code counts no more.
    static void in_child();

    /// Has the kept verdicts read, since a kernel may be asked for soon.
    void prepare();

    /// Does not wait.
    /// @param of  the kernel's module; or none
    /// @param name  the kernel's, as in the code
    /// @param parameters  of a launch: then the answer is about launches that
    ///   meet the conditions that this one meets. Empty: about all launches.
    answer_ref ask(const code_ref &of, const char *name,
                   std::span<const unsigned char> parameters = {});
    /// Waits until the answer is complete, or is known not to be kept. The
    /// latter counts for nothing if all answers shall be complete. Otherwise
    /// the wait has a limit.
    void await(const answer_ref &one);

    /// True if each answer is waited for.
    [[nodiscard]] bool waits() const { return waits_; }

    /// Kernels that were proven or refused by looking at their code, rather
    /// than by the cache.
    std::uint64_t looked_at() const { return looked_at_.load(); }

    /// Waits until nothing is pending.
    void settle();

    /// Keeps the verdicts, and ends the thread. No kernel is proven after that.
    /// A proof that takes long is left behind.
    void leave();

private:
    struct job
    {
        code_ref of;
        std::vector<char> name;
        std::vector<unsigned char> parameters; // or none
        counted_ref<finding> to;
    };
    struct images;
    using images_ref = counted_ref<const images>;
    // Machine code out of a module, for the kernels that come next.
    struct opened : counted
    {
        code_ref of;
        images_ref packed;
        std::list<proof::buffer> content; // of those that were packed
        std::vector<proof::cubin> cubins;
        std::size_t bytes = 0;
        const char *why = nullptr; // it cannot be judged
    };

    using opened_ref = counted_ref<const opened>;
    // A verdict on one image; or none, and why.
    struct judgement
    {
        proof::verdict verdict;
        const char *unread = nullptr;
    };

    static void *run_reader(void *self);
    static void *run_prover(void *self);
    bool is_running_locked();
    void look_up_all();
    void prove_all();
    bool answer(const job &one, bool proves);
    bool judge(const proof::kernel_code &kernel, const job &one, bool proves,
               judgement &into);
    code_ref read(proof::bytes file) const;
    opened_ref open(const code_ref &which);
    void unpack_all(opened &made) const;
    void close_all();
    void save();
    void settle_locked(std::unique_lock<std::mutex> &lock,
                       std::uint64_t most_ns);

    const unsigned sm_;
    const char *const folder_;
    const bool waits_;
    const bool compiles_; // the driver may compile what it has code for
    const bool injected_; // a tool may change code that the driver has read
    std::atomic<std::uint64_t> looked_at_{0};
    std::mutex lock_;           // guards the next ones
    std::deque<job> jobs_;      // to be looked up
    std::deque<job> to_prove_;  // looked up in vain
    unsigned busy_ = 0;         // threads that are at a job
    unsigned unsaved_ = 0;      // answers since verdicts were kept
    std::uint64_t last_ns_ = 0; // when the last one of them was given
    std::uint64_t patience_ns_; // that is left
    bool stopping_ = false;
    thread reader_;
    thread prover_;
    condition changed_;
    const std::uint64_t most_wait_ns_; // for one answer
    // Guards the verdicts. They are written under it, and no other lock.
    std::mutex known_lock_;
    std::unique_ptr<proof::cache> known_;
    std::mutex opened_lock_; // guards the next. Nothing is called under it.
    std::list<opened_ref> opened_; // the last one used comes first
};

// Code as it was loaded, packed or not.
struct proofs::images : counted
{
    struct image
    {
        proof::packed_image about; // its content lies in `copy`
        proof::buffer copy;
    };
    std::list<image> all;
    const char *why = nullptr; // it cannot be judged
};

class proofs::code : public counted
{
public:
    code(images_ref kept, std::size_t copied);
    code(const code &) = delete;
    code &operator=(const code &) = delete;
    ~code();

private:
    friend class proofs;
    void drop();
    images_ref kept() const;

    // Nothing is called under it: a library that is closed waits for it under
    // the dynamic linker's lock.
    mutable std::mutex lock_;
    images_ref kept_;
    std::size_t copied_;
};

} // namespace emuv::cuda
