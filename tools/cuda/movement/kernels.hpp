// SPDX-License-Identifier: LGPL-2.1-or-later
// The program's kernels: how their parameters lie, and which are trusted.
#pragma once

#include "base/driver.hpp"
#include "movement/mover.hpp"
#include "movement/remembered.hpp"
#include "policy/recent.hpp"

#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <vector>

namespace emuv::cuda {

/// All that is known of kernels.
///
/// A trusted kernel is taken to reach memory only by addresses among its
/// parameters. Nobody can tell that from outside: any kernel may hold addresses
/// in memory, or add up new ones. Kernels are trusted by the names in
/// kernels.cpp, and by those that the user gives with EMUV_TRUST.
class known_kernels
{
public:
    /// @param trust  the setting: "known", "none", "all", or names between
    ///   commas, "known" among them. Names are those of libraries' files and of
    ///   kernels, with wildcards. A name behind a minus is not trusted,
    ///   whatever else fits it. Outlives this object.
    /// @param record  told of each kernel that is not trusted. Outlives this
    ///   object
    /// @param kept  kernels that are not trusted whatever the setting says; may
    ///   be null
    known_kernels(const char *trust, trace &record,
                  const remembered *kept = nullptr)
        : trust_(trust), trace_(record), kept_(kept)
    {}
    known_kernels(const known_kernels &) = delete;
    known_kernels &operator=(const known_kernels &) = delete;
    ~known_kernels();

    /// A module or library was loaded.
    /// @param image  what was given to the driver, or null
    /// @param caller  an address in the code that asked for it
    /// @param context  the context that a module goes with; or null
    void loaded(const void *handle, const void *image, const void *caller,
                CUcontext context);

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
    };
    struct parameter
    {
        std::size_t offset;
        std::size_t bytes;
    };
    struct by_text
    {
        bool operator()(const char *one, const char *other) const
        {
            return std::strcmp(one, other) < 0;
        }
    };
    struct layout
    {
        bool trusted = false;
        const char *name = nullptr; // one of names_
        /// Which of its arguments it may leave in memory, for other kernels.
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
    trace &trace_;
    const remembered *const kept_;
    std::mutex lock_;
    // Names outlive the modules that they come from: work that is seen to fail
    // is named by them.
    std::set<const char *, by_text> names_;
    std::map<const void *, origin> origins_;
    std::map<CUfunction, layout> layouts_;
    recent<const layout, 256, 16> recent_; // of those
};

} // namespace emuv::cuda
