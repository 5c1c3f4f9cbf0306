// SPDX-License-Identifier: LGPL-2.1-or-later
// Reads off a kernel's machine code which of its parameters its accesses to
// memory go by.
#pragma once

#include "proof/terms.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <vector>

namespace emuv::cuda::proof {

/// A kernel, as it lies in a file of machine code.
struct kernel_code
{
    std::string_view name;
    unsigned sm = 0;
    std::span<const unsigned char> code;
    std::uint32_t entry_point = 0; ///< where it begins in the code
    /// The run of its parameters in the constant bank 0.
    std::uint32_t parameters = 0;
    std::uint32_t parameter_bytes = 0;
    /// The linker puts addresses into the constant bank 4, at these offsets. A
    /// name is that of a function of the driver's. The address of a variable of
    /// the module has none.
    std::map<std::uint32_t, std::string_view> addresses;
    /// The targets of indexed branches, by the branch's offset.
    std::map<std::uint32_t, std::vector<std::uint32_t>> targets;
    /// Set if the linker changes the code itself.
    bool relocated = false;
};

/// Why there is no proof.
enum class obstacle : std::uint8_t
{
    none,
    architecture, ///< the decoder does not know it
    too_long,     ///< more work than a proof is worth
    broken,       ///< no kernel that makes sense
    unknown_code, ///< an operation that the decoder does not know
    indirect_branch,
    indirect_call,
    foreign_call,   ///< a function that is not in this code
    lost_return,    ///< a return to where it is not known
    no_parameter,   ///< an address that derives from no single parameter
    from_memory,    ///< an address that was loaded
    from_constants, ///< ... from the program's constants
    from_shared,    ///< ... from shared memory
    from_local,     ///< ... from local memory
    from_call,      ///< ... that a function gave
    indexed,        ///< an indexed parameter and a loaded value
    descriptor,     ///< a descriptor in memory
    short_address,  ///< 32 bits
    perhaps_loaded, ///< that was loaded, or derives from a parameter, by a
                    ///< condition that is not followed
};
constexpr obstacle last_obstacle = obstacle::perhaps_loaded;
const char *describe(obstacle what);

/// A parameter that accesses go by.
struct base
{
    std::uint32_t offset = 0; ///< of the parameter, from the first one's
    /// A loaded value is added to it, which could be the address: then the
    /// parameter has to be one in a known allocation.
    bool to_be_checked = false;

    /// False if it is to be checked and no address in a launch with these
    /// parameters.
    [[nodiscard]] bool holds(std::span<const unsigned char> parameters) const;

    friend bool operator==(const base &, const base &) = default;
};

/// True if all of them hold.
bool hold(std::span<const base> bases,
          std::span<const unsigned char> parameters);

struct verdict
{
    obstacle why = obstacle::broken;
    /// The offset of that, in bytes from the begin of the code.
    std::uint32_t where = 0;
    std::vector<base> bases;    ///< ascending
    bool any_parameter = false; ///< one that an index names, too
    bool by_descriptor = false; ///< the address in one, among the parameters
    /// The verdict is about launches whose parameters meet all of these; about
    /// all launches if there are none.
    std::vector<premise> premises;
    std::vector<term> terms; ///< of the premises
    std::uint32_t accesses = 0;
    std::uint32_t instructions = 0;

    [[nodiscard]] bool proven() const { return why == obstacle::none; }
    /// True if it is about a launch with these parameters.
    [[nodiscard]] bool is_about(std::span<const unsigned char> parameters) const
    {
        return hold(terms, premises, parameters);
    }
};

/// Looks at all of the code that can be reached.
verdict prove(const kernel_code &kernel);

/// The same of launches like one. A condition that its parameters decide is
/// taken as decided.
/// @param parameters  as they lie in the constant bank, from the first one on
verdict prove(const kernel_code &kernel,
              std::span<const unsigned char> parameters);

} // namespace emuv::cuda::proof
