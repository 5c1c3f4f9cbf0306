// SPDX-License-Identifier: LGPL-2.1-or-later
// Verdicts that were reached before, in a file of the user's.
#pragma once

#include "proof/prover.hpp"

#include <array>
#include <climits>
#include <compare>
#include <cstddef>
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <vector>

namespace emuv::cuda::proof {

/// Stands for all that a verdict depends on: the code, its parameters, its
/// addresses, and the prover itself.
struct fingerprint
{
    std::array<std::uint64_t, 2> halves{};

    auto operator<=>(const fingerprint &) const = default;
};
fingerprint fingerprint_of(const kernel_code &kernel);

/// The verdicts of a user's earlier programs.
///
/// The folder and the file have to be owned by the user, and no links. Nobody
/// else may write to the folder, or read the file. Any other file is ignored
/// and left as it is. So is a file that is damaged or too large, until a new
/// one takes its place.
class cache
{
public:
    /// The file is smaller. Reading one takes a fraction of a second.
    static constexpr std::size_t most_bytes = std::size_t{8} << 20;
    /// Verdicts about certain launches that are kept of one kernel.
    static constexpr std::size_t most_of_one = 16;

    /// A path, or none.
    struct path_buffer
    {
        char path[PATH_MAX] = "";
    };

    /// @param folder  it is made where it is missing, and so is the one that it
    ///   lies in; empty for no cache
    explicit cache(std::string_view folder);

    /// The folder `emuv` among the user's caches, or nothing if the environment
    /// names none, or the program has rights that its user has not.
    static path_buffer usual_folder();

    [[nodiscard]] bool empty() const { return known_.empty(); }
    /// A verdict about all launches.
    /// @return null if it is not there
    [[nodiscard]] const verdict *find(const fingerprint &of) const;
    /// A verdict about launches like the one with these parameters, whose bases
    /// hold there. It is the last one to make room for others from here on.
    [[nodiscard]] const verdict *
    find(const fingerprint &of, std::span<const unsigned char> parameters);
    /// A new verdict about certain launches takes the place of the one that was
    /// not found or kept for longest, if there are most_of_one.
    void keep(const fingerprint &of, verdict what);
    /// Writes those about kernels that this program asked for beside all that
    /// is in the file by now. If they do not fit, others go.
    /// @return whether there was nothing to do, or it is done
    bool save();

    /// The verdicts about one kernel.
    class of_one
    {
    public:
        /// Takes the place of a verdict about the same launches.
        void put(verdict what);
        /// @return the verdict about all launches, or null
        [[nodiscard]] const verdict *of_all() const;
        /// @return a verdict about certain launches; or null
        const verdict *find(std::span<const unsigned char> parameters);
        [[nodiscard]] const std::vector<verdict> &all() const { return all_; }

    private:
        std::vector<verdict> all_; // those used last come last
    };
    using table = std::map<fingerprint, of_one>;

private:
    [[nodiscard]] int open_folder(bool make) const;
    static bool load(int folder, table &into);

    path_buffer folder_;
    table known_;
    mutable std::set<fingerprint> asked_for_; // by this program
    bool changed_ = false;
};

/// The verdict, from the cache where that has it.
const verdict &prove(const kernel_code &kernel, cache &known);

} // namespace emuv::cuda::proof
