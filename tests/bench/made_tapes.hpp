// SPDX-License-Identifier: GPL-2.0-or-later
// Tapes of programs that there are not, for tests and for trying out policies.
#pragma once

#include "record/format.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace bench {

/// Writes a tape's bytes, a record at a time.
class tape_maker
{
public:
    using bytes = std::vector<unsigned char>;
    struct name
    {
        std::uint64_t allocation;
        std::uint64_t offset = 0;
    };

    tape_maker();

    /// Adds a number to the record that was begun.
    tape_maker &number(std::uint64_t value);
    /// Begins a record of any kind.
    tape_maker &begin(emuv::tape::code what);
    /// Begins a record with times on the host.
    tape_maker &timed(emuv::tape::code what, std::uint64_t gap = 0,
                      std::uint64_t took = 0);
    tape_maker &text(const std::string &what);

    /// @return its number
    std::uint64_t
    allocate(std::uint64_t size,
             emuv::tape::memory_kind kind = emuv::tape::memory_kind::device);
    /// A part of an allocation, which is handed out from an offset on.
    /// @return its number
    std::uint64_t hand_out(std::uint64_t size, std::uint64_t of,
                           std::uint64_t offset);
    void free(std::uint64_t which);
    /// A launch on the legacy stream, whose time on the device is known.
    void launch(const std::string &kernel, const std::vector<name> &names,
                std::uint64_t ns, std::uint64_t gap = 0);
    void copy(emuv::tape::copy_kind way, std::uint64_t size, bool waits,
              std::uint64_t allocation);
    void wait();
    void mark();

    /// All of it, with an end in order.
    bytes end();
    /// All of it so far.
    [[nodiscard]] const bytes &so_far() const { return made_; }

private:
    std::uint64_t shape_of(const std::string &kernel, std::size_t names);

    bytes made_;
    std::uint64_t allocations_ = 0;
    std::map<std::string, std::uint64_t> kernels_;
    std::map<std::pair<std::uint64_t, std::size_t>, std::uint64_t> shapes_;
};

/// So many allocations, each used by a kernel of so long, in turn; a round is a
/// step.
struct circle
{
    std::uint64_t count = 6;
    std::uint64_t bytes = std::uint64_t{64} << 20;
    std::uint64_t ns = 1000000;
    unsigned rounds = 4;
};
tape_maker::bytes make_tape(const circle &of);

/// A training step: layers forth, then back. Each keeps an activation from the
/// one to the other, allocated and freed in each step.
struct forth_and_back
{
    unsigned layers = 8;
    std::uint64_t weight = std::uint64_t{32} << 20;
    std::uint64_t activation = std::uint64_t{64} << 20;
    std::uint64_t ns = 2000000; ///< of a layer forth; back takes twice as long
    unsigned rounds = 4;
};
tape_maker::bytes make_tape(const forth_and_back &of);

/// A model decodes: all weights are read once for a token, and a cache that all
/// layers share is written a little.
struct decode
{
    unsigned layers = 16;
    std::uint64_t weight = std::uint64_t{48} << 20;
    std::uint64_t cache = std::uint64_t{16} << 20;
    std::uint64_t ns = 20000;
    unsigned rounds = 8;
};
tape_maker::bytes make_tape(const decode &of);

} // namespace bench
