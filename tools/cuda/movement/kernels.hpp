// SPDX-License-Identifier: LGPL-2.1-or-later
// The program's kernels: how their parameters lie, and who vouches for them.
#pragma once

#include "base/driver.hpp"
#include "movement/mover.hpp"
#include "policy/recent.hpp"

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace emuv::cuda {

/// What is known of kernels.
///
/// A kernel is vouched for when it is known to reach memory only by addresses
/// among its parameters. Nobody can tell that from outside: any kernel may
/// hold addresses in memory, or add up new ones. It is taken to be so of the
/// libraries named below, and of what the user names with EMUV_TRUST.
class functions
{
public:
    /// @param trust  the setting: "known", "none", "all", or names with
    ///   wildcards of libraries' files and of kernels, between commas, "known"
    ///   among them; a name with a minus before it is of what is not vouched
    ///   for, whatever else fits it; outlives this object
    /// @param record  told of each kernel that nobody vouches for; may be null
    functions(const char *trust, trace *record) : trust_(trust), trace_(record)
    {}
    functions(const functions &) = delete;
    functions &operator=(const functions &) = delete;

    /// A module or library was loaded.
    /// @param image  what was given to the driver, or null
    /// @param caller  an address in the code that asked for it
    /// @param context  a module's, with which it goes; or null
    void loaded(const void *handle, const void *image, const void *caller,
                CUcontext context);

    /// A handle came out of another: a kernel, a module or a function.
    /// @param context  with which it goes, if not with the other alone
    void derived(const void *from, const void *made,
                 CUcontext context = nullptr);

    /// A module or library is about to go, with all that came out of it: their
    /// handles may be others' at once.
    void unloaded(const void *handle);

    /// A context has gone, and its modules with it.
    void gone(CUcontext context);

    /// Adds what a launch is given to @p out, whether it is vouched for, too.
    void scan(const driver &calls, CUfunction function, void **parameters,
              void **extra, work &out);

private:
    enum class leaving
    {
        nothing,
        numbers, ///< addresses among its numbers, not its pointers
        all,
    };
    struct origin
    {
        bool vouched = false;
        const void *from = nullptr;
        CUcontext context = nullptr; // with which it goes, or null
    };
    struct parameter
    {
        std::size_t offset;
        std::size_t bytes;
    };
    struct layout
    {
        bool vouched = false;
        const char *name = nullptr; // the driver's
        /// Which of what it is given it may leave in memory, for others.
        leaving leaves = leaving::nothing;
        std::vector<parameter> parameters;
    };

    bool trusts_file(const void *address) const;
    bool asks_to_trust(const char *name) const;
    bool knows(const char *name) const;
    bool distrusts(const char *name) const;
    template <typename Goes>
    void forget(Goes goes);
    layout look_at(const driver &calls, CUfunction function);
    const layout &layout_of(const driver &calls, CUfunction function,
                            std::unique_lock<std::mutex> &lock);

    const char *const trust_;
    trace *const trace_;
    std::mutex lock_;
    std::map<const void *, origin> origins_;
    std::map<CUfunction, layout> layouts_;
    recent<const layout, 256, 16> recent_; // of those
};

} // namespace emuv::cuda
