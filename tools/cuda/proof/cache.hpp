// SPDX-License-Identifier: LGPL-2.1-or-later
// Verdicts that were reached before, in a file of the user's.
#pragma once

#include "proof/prover.hpp"

#include <array>
#include <climits>
#include <compare>
#include <map>
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
/// and left as it is. So is a file that is damaged, until a new one takes its
/// place.
class cache
{
public:
    /// A path, or none.
    struct place
    {
        char path[PATH_MAX] = "";
    };

    /// @param folder  it is made where it is missing, and so is the one that it
    ///   lies in; empty for no cache
    explicit cache(std::string_view folder);

    /// The folder `emuv` among the user's caches, or nothing if the environment
    /// names none, or the program has rights that its user has not.
    static place usual_folder();

    /// A verdict about all launches.
    /// @return null if it is not there
    [[nodiscard]] const verdict *find(const fingerprint &of) const;
    /// A verdict about launches like the one with these parameters.
    [[nodiscard]] const verdict *
    find(const fingerprint &of,
         std::span<const unsigned char> parameters) const;
    /// Of the verdicts about certain launches a few are kept.
    void keep(const fingerprint &of, verdict what);
    /// Writes the new ones beside those that are in the file by now.
    /// @return whether there was nothing to do, or it is done
    bool save();

private:
    using table = std::map<fingerprint, std::vector<verdict>>;

    [[nodiscard]] int open_folder(bool make) const;
    static bool load(int folder, table &into);

    place folder_;
    table known_;
    bool changed_ = false;
};

/// The verdict, from the cache where that has it.
const verdict &prove(const kernel_code &kernel, cache &known);

} // namespace emuv::cuda::proof
