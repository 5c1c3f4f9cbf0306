// SPDX-License-Identifier: LGPL-2.1-or-later
// Memory that others made, and this program opened.
#pragma once

#include "account/budget.hpp"

#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

namespace emuv::cuda {

/// Charges VRAM of other processes while the program
/// holds it open. Its maker may end before that: then nobody else is charged.
/// Every call may come from any thread.
class foreign
{
public:
    /// Names a piece of such memory.
    struct key
    {
        enum class kind : std::uint8_t
        {
            handle,  ///< cuMemImportFromShareableHandle
            address, ///< cuIpcOpenMemHandle
        };
        kind is = kind::handle;
        std::uint64_t number = 0;

        auto operator<=>(const key &) const = default;
    };

    /// @param shares  outlives this object
    /// @param counts  false: nothing is charged
    foreign(budget &shares, bool counts) : budget_(shares), counts_(counts) {}
    foreign(const foreign &) = delete;
    foreign &operator=(const foreign &) = delete;

    /// True if such memory is charged.
    [[nodiscard]] bool counts() const { return counts_; }

    /// Charges memory that the program opens. It may be opened several times.
    /// @param bytes  as far as that is known; 0 for nothing yet
    /// @return false if there is no room. Then it is not open.
    bool open(const key &which, int device, std::uint64_t bytes);
    /// The same of memory that is open. Nothing happens if it is not.
    void open_again(const key &which);
    /// Charges memory that turns out to be so large, if it is open.
    /// @return false if there is no room for it
    bool grow(const key &which, std::uint64_t bytes);
    /// Lets go of it once. Nothing happens if it is not open.
    void close(const key &which);

    /// A handle of such memory was mapped. It stays open until it is unmapped.
    void mapped(CUdeviceptr at, std::uint64_t bytes, const key &which);
    /// cuMemUnmap, which @p from_driver makes.
    template <typename Call>
    CUresult unmap(CUdeviceptr at, std::uint64_t bytes, Call from_driver)
    {
        mappings taken = take(at, bytes);
        const CUresult result = from_driver();
        settle(std::move(taken), result == CUDA_SUCCESS);
        return result;
    }

private:
    struct held
    {
        int device = 0;
        std::uint64_t bytes = 0;
        unsigned times = 0; // it was opened, or is mapped
    };
    using mappings = std::map<CUdeviceptr, key>;

    mappings take(CUdeviceptr at, std::uint64_t bytes);
    void settle(mappings taken, bool unmapped);
    bool charge(int device, std::uint64_t bytes);
    void uncharge(int device, std::uint64_t bytes);

    budget &budget_;
    const bool counts_;
    std::mutex lock_; // guards all below
    std::map<key, held> held_;
    mappings mappings_;
};

} // namespace emuv::cuda
