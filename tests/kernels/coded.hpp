// SPDX-License-Identifier: GPL-2.0-or-later
// Matrices for tests, plain and coded, in memory of the host.
#pragma once

#include "codes.hpp"

#include <emuv/kernels.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace emuv::kernels {

/// Memory for vectors of 16 bytes.
struct alignas(16) vector_bytes
{
    std::uint8_t bytes[16];
};

inline std::vector<vector_bytes> bytes_for(std::uint64_t bytes)
{
    return std::vector<vector_bytes>(bytes / 16 + 1);
}

/// All formats there are.
inline std::vector<emuv_kernels_format> formats()
{
    constexpr std::uint32_t size = sizeof(emuv_kernels_format);
    return {{size, EMUV_KERNELS_E2M1, EMUV_KERNELS_E4M3, 16},
            {size, EMUV_KERNELS_E2M1, EMUV_KERNELS_E4M3, 32},
            {size, EMUV_KERNELS_E2M1, EMUV_KERNELS_FP16_SCALE, 16},
            {size, EMUV_KERNELS_E2M1, EMUV_KERNELS_FP16_SCALE, 32},
            {size, EMUV_KERNELS_SYMMETRIC, EMUV_KERNELS_NO_SCALE, 0}};
}

inline std::string name_of(const emuv_kernels_format &is)
{
    return "code " + std::to_string(is.code) + ", scale " +
           std::to_string(is.scale) + ", block " + std::to_string(is.block);
}

/// A coded matrix with its memory.
struct coded_matrix
{
    coded_matrix(const emuv_kernels_format &format, std::uint64_t rows,
                 std::uint64_t columns)
    {
        std::uint64_t code_bytes = 0;
        std::uint64_t scale_bytes = 0;
        EXPECT_EQ(emuv_kernels_code_bytes(&format, rows, columns, &code_bytes),
                  EMUV_KERNELS_OK);
        EXPECT_EQ(
            emuv_kernels_scale_bytes(&format, rows, columns, &scale_bytes),
            EMUV_KERNELS_OK);
        codes = bytes_for(code_bytes);
        scales = bytes_for(scale_bytes);
        is = {sizeof(is),
              0,
              format,
              rows,
              columns,
              codes.data(),
              scale_bytes == 0 ? nullptr : scales.data(),
              &tensor_scale};
    }
    coded_matrix(const coded_matrix &) = delete;
    coded_matrix &operator=(const coded_matrix &) = delete;
    ~coded_matrix() = default;

    [[nodiscard]] const std::uint8_t *code_data() const
    {
        return codes.front().bytes;
    }

    std::vector<vector_bytes> codes;
    std::vector<vector_bytes> scales;
    float tensor_scale = -1;
    emuv_kernels_matrix is{};
};

/// Plain numbers with their memory, and a gap behind each row.
struct plain_matrix
{
    plain_matrix(std::uint32_t type, std::uint64_t rows, std::uint64_t columns,
                 std::uint64_t gap = 8)
        : wide(columns)
    {
        const std::uint64_t stride = (columns + 7) / 8 * 8 + gap;
        memory = bytes_for(rows * stride * 4);
        is = {sizeof(is), type, memory.data(), stride};
    }
    plain_matrix(const plain_matrix &) = delete;
    plain_matrix &operator=(const plain_matrix &) = delete;
    ~plain_matrix() = default;

    [[nodiscard]] float get(std::uint64_t row, std::uint64_t column) const
    {
        const std::uint64_t at = row * is.stride + column;
        if (is.type == EMUV_KERNELS_FP32)
            return static_cast<const float *>(is.data)[at];
        const auto bits = static_cast<const std::uint16_t *>(is.data)[at];
        return is.type == EMUV_KERNELS_FP16 ? from_fp16(bits) : from_bf16(bits);
    }

    void set(std::uint64_t row, std::uint64_t column, float value) const
    {
        const std::uint64_t at = row * is.stride + column;
        if (is.type == EMUV_KERNELS_FP32)
            static_cast<float *>(is.data)[at] = value;
        else
            static_cast<std::uint16_t *>(is.data)[at] =
                is.type == EMUV_KERNELS_FP16 ? to_fp16(value) : to_bf16(value);
    }

    /// Numbers that look like weights, the same each time.
    void fill(std::uint64_t rows, unsigned seed, float size = 0.05F) const
    {
        std::mt19937 random(seed);
        std::normal_distribution<float> normal(0, size);
        for (std::uint64_t row = 0; row < rows; row++)
            for (std::uint64_t column = 0; column < wide; column++)
                set(row, column, normal(random));
    }

    std::uint64_t wide;
    std::vector<vector_bytes> memory;
    emuv_kernels_plain is{};
};

} // namespace emuv::kernels
