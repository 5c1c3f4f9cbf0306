// SPDX-License-Identifier: LGPL-2.1-or-later
// The program's kernels: how their parameters lie, and which are trusted.
#pragma once

#include "base/driver.hpp"
#include "base/kernel_parameters.hpp"
#include "movement/mover.hpp"
#include "movement/proofs.hpp"
#include "movement/remembered.hpp"
#include "policy/recent.hpp"

#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <vector>

namespace emuv::cuda {

/// All that is known of kernels.
///
/// A trusted kernel is taken to reach memory only by addresses among its
/// parameters. Any kernel may hold addresses in memory, or add up new ones. A
/// kernel is trusted if its code proves that, and the values of the parameters
/// that it goes by allow it. Kernels whose code nobody can follow are trusted
/// by the names in kernels.cpp. The user's own names in EMUV_TRUST come before
/// both.
class known_kernels
{
public:
    /// @param trust  the setting: "known", "proven", "none", "all", or names
    ///   between commas, the first two among them. Names are those of
    ///   libraries' files and of kernels, with wildcards. A name behind a minus
    ///   is not trusted, whatever else fits it. Outlives this object.
    /// @param record  told of each kernel that is not trusted. Outlives this
    ///   object
    /// @param kept  kernels that are not trusted whatever the setting says; may
    ///   be null
    /// @param proves  proves kernels; null: nothing is proven. Outlives this
    ///   object
    known_kernels(const char *trust, trace &record,
                  const remembered *kept = nullptr, proofs *proves = nullptr)
        : trust_(trust), trace_(record), kept_(kept), proofs_(proves)
    {}

    /// True if the setting asks for proofs.
    static bool asks_for_proofs(const char *trust);
    known_kernels(const known_kernels &) = delete;
    known_kernels &operator=(const known_kernels &) = delete;
    ~known_kernels();

    /// A module or library was loaded.
    /// @param image  what was given to the driver, or null
    /// @param path  the file that was given instead, or null
    /// @param caller  an address in the code that asked for it
    /// @param context  the context that a module goes with; or null
    /// @param as_it_is  the driver runs the code that it is given, if that is
    ///   for the card
    void loaded(const void *handle, const void *image, const char *path,
                const void *caller, CUcontext context, bool as_it_is = true);

    /// A handle came out of another: a kernel, a module or a function.
    /// @param context  goes with the handle; null: the handle goes with @p from
    void derived(const void *from, const void *made,
                 CUcontext context = nullptr);

    /// A module or library is about to go, with all handles that came out of
    /// it. Those may be others' at once.
    void unloaded(const void *handle);

    /// A context has gone, and its modules with it.
    void gone(CUcontext context);

    /// Adds to @p out what a launch is given, and whether its kernel is
    /// trusted.
    void scan(const driver &calls, CUfunction function, void **parameters,
              void **extra, work &out);

    /// All that was launched under one name.
    struct launches
    {
        std::uint64_t proven = 0;
        std::uint64_t named = 0;
        std::uint64_t untrusted = 0;
        /// Why it is not proven; empty if it is.
        const char *why = "";
    };
    /// Of the kernel of that name; nothing of any other.
    launches launches_of(const char *name) const;

    /// Calls @p take with each kernel's name and its launches.
    template <typename Take>
    void each_launched(Take take) const
    {
        const std::lock_guard guard(lock_);
        for (const auto &[name, about] : names_)
            take(static_cast<const char *>(name), of(about));
    }

private:
    enum class leaving
    {
        nothing,
        numbers, ///< addresses among its numbers, not its pointers
        all,
    };
    struct origin
    {
        bool trusted = false;
        const void *from = nullptr;
        CUcontext context = nullptr; // with which it goes, or null
        proofs::code_ref code;       // or none
    };
    struct by_text
    {
        bool operator()(const char *one, const char *other) const
        {
            return std::strcmp(one, other) < 0;
        }
    };
    // All that is known of a name.
    struct named_kernel
    {
        launch_counts counts;
        proofs::answer_ref found; // the last one of that name
    };
    struct layout
    {
        bool barred = true; // never trusted
        bool asked = false; // trusted by the user's own names
        bool named = false; // trusted by a name unless its code says otherwise
        bool tells_of_tables = false; // by its name
        bool has_peers = false;       // by its name: never proven
        proofs::answer_ref found;     // of all launches; or none
        proofs::code_ref code;        // or none
        std::size_t bytes = 0;        // of its parameters
        // Of certain launches, where the one about all proves nothing.
        mutable std::vector<proofs::answer_ref> of_some;
        mutable unsigned missed = 0;   // launches in a row that none is about
        named_kernel *about = nullptr; // of its name
        mutable bool told = false;     // that it is not trusted
        const char *name = nullptr;    // one of names_
        /// Which of its arguments it may leave in memory, for other kernels.
        leaving leaves = leaving::nothing;
        std::vector<kernel_parameter> parameters;
    };

    bool trusts_file(const void *address) const;
    bool asks_to_trust(const char *name) const;
    bool knows(const char *name) const;
    bool distrusts(const char *name) const;
    template <typename Goes>
    std::vector<proofs::code_ref> forget(Goes goes);
    // The values that a launch is given.
    struct values
    {
        void **parameters = nullptr;           // each alone, or
        const unsigned char *buffer = nullptr; // all of them
        std::size_t bytes = 0;
    };

    static launches of(const named_kernel &about);
    static bool value_at(const layout &known, const values &given,
                         std::size_t offset, CUdeviceptr &value);
    static bool is_address(const layout &known, const proof::base &base,
                           const values &given);
    static bool needs_all(const layout &known, const values &given);
    static bool all_values(const layout &known, const values &given,
                           std::vector<unsigned char> &all);
    static void add_all(const layout &known, const finding *found,
                        const values &given, work &out);
    layout look_at(const driver &calls, CUfunction function);
    const finding *settled_finding_of(const layout &known,
                                      std::span<const unsigned char> all,
                                      bool &pending) const;
    const finding *finding_of(const layout &known,
                              std::span<const unsigned char> all,
                              proofs::answer_ref &asked) const;
    static void rely_on_all(std::span<const unsigned char> all, work &out);
    void rely_on_bases(const layout &known, const finding &found,
                       const values &given, work &out) const;
    void judge(const layout &known, const finding *found, const values &given,
               std::span<const unsigned char> all, work &out) const;
    const layout &layout_of(const driver &calls, CUfunction function,
                            std::unique_lock<std::mutex> &lock);

    const char *const trust_;
    trace &trace_;
    const remembered *const kept_;
    proofs *const proofs_;
    mutable std::mutex lock_; // guards all below
    // Names outlive the modules that they come from: work that is seen to fail
    // is named by them.
    std::map<const char *, named_kernel, by_text> names_;
    std::map<const void *, origin> origins_;
    std::map<CUfunction, layout> layouts_;
    recent<const layout, 256, 16> recent_; // of those
    std::vector<unsigned char> given_;     // the values of a launch
};

} // namespace emuv::cuda
