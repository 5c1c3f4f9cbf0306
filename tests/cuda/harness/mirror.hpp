// SPDX-License-Identifier: GPL-2.0-or-later
// An allocation on the device, and the bytes that must be in it.
#pragma once

#include "fixture.hpp"

namespace harness {

class mirror
{
public:
    // Filled with bytes that differ from place to place. With a stream, the
    // memory comes from and goes back to the stream's pool.
    void allocate(std::size_t bytes, std::uint32_t seed,
                  CUstream pool_stream = nullptr);
    void check() const;                     // every byte
    void check(std::mt19937 &random) const; // a stretch of them
    void add(std::uint32_t value);          // to every whole word
    void free();

    CUdeviceptr at() const { return at_; }
    std::size_t bytes() const { return model.size(); }

    std::vector<unsigned char> model;

private:
    CUdeviceptr at_ = 0;
    CUstream pool_ = nullptr;
};

// Makes one copy or fill of a random kind and shape into `to`, from `from` or
// from the host. It goes by the stream or, if synchronous, by the calls that
// wait. The models follow.
void random_copy(mirror &to, mirror &from, std::mt19937 &random,
                 CUstream stream, bool synchronous);

} // namespace harness
