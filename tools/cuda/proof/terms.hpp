// SPDX-License-Identifier: LGPL-2.1-or-later
// Numbers and truths that follow from the parameters of a launch alone.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace emuv::cuda::proof {

/// Names a term in a list of them.
using term_number = std::uint16_t;
constexpr term_number no_term = 0xffff;

/// One number of 32 bits, or one truth, by the terms that come before it.
struct term
{
    enum class kind : std::uint8_t
    {
        number,
        word,        ///< of the parameters, at an offset
        narrow,      ///< of such a word: one byte or two, with a sign or not
        sum,         ///< of A and B
        opposite,    ///< of A
        logic,       ///< a function of the bits of A, B and C
        permutation, ///< of the bytes of A and B, chosen by a number
        comparison,  ///< of A with B; then with the truths C and D
        truths,      ///< a function of the truths A, B and C
    };
    kind is = kind::number;
    /// A function of three as a table; of a comparison, see `compared`; of a
    /// narrow word, its type as in the code.
    std::uint8_t how = 0;
    /// Of a comparison, bits that say more.
    std::uint8_t more = 0;
    term_number a = no_term;
    term_number b = no_term;
    term_number c = no_term;
    term_number d = no_term;
    std::uint32_t number = 0; ///< or the offset

    friend auto operator<=>(const term &, const term &) = default;
};
constexpr term::kind last_kind = term::kind::truths;

/// The fields of a comparison, as the code has them. Its result is
/// `(A how B) joined with C`. The upper halves of two numbers are compared with
/// D, which is the result of their lower halves.
namespace compared {
constexpr std::uint8_t equal = 2; // how
constexpr std::uint8_t with_sign = 1;
constexpr std::uint8_t upper_halves = 2;
constexpr std::uint8_t join_shift = 2; // 0: and, 1: or, 2: exclusive or
constexpr std::uint8_t not_c = 16;
constexpr std::uint8_t not_d = 32;
} // namespace compared

/// For truths: those of A, B and C that are turned round.
constexpr std::uint8_t not_a_of_three = 1;
constexpr std::uint8_t not_b_of_three = 2;
constexpr std::uint8_t not_c_of_three = 4;

/// A term that has to be true, or false, for a verdict to hold.
struct premise
{
    term_number which = no_term;
    bool is = false;

    friend bool operator==(const premise &, const premise &) = default;
};

/// The value of a term in a launch with these parameters.
/// @param before  the values of the terms that it may name
/// @return nothing if it makes no sense, or reads what is not there
std::optional<std::uint32_t>
evaluate(const term &of, std::span<const std::uint32_t> before,
         std::span<const unsigned char> parameters);

/// True if all premises hold in a launch with these parameters.
bool hold(std::span<const term> terms, std::span<const premise> premises,
          std::span<const unsigned char> parameters);

/// Terms, of which none is there twice. A truth that is missing is true.
class term_list
{
public:
    static constexpr std::size_t most = 2048;

    /// @return no_term if there are too many
    term_number add(const term &what);

    [[nodiscard]] const std::vector<term> &all() const { return all_; }

private:
    std::vector<term> all_;
    std::map<term, term_number> numbers_;
};

/// Those of the terms on which the premises rest, in their order. The premises
/// name them afterwards.
std::vector<term> needed(std::span<const term> all,
                         std::vector<premise> &premises);

} // namespace emuv::cuda::proof
