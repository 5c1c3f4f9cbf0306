// SPDX-License-Identifier: GPL-2.0-or-later
// Device memory and its model, changed alike.
#include "mirror.hpp"

#include <algorithm>
#include <cstring>

namespace harness {

void mirror::allocate(std::size_t bytes, std::uint32_t seed,
                      CUstream pool_stream)
{
    pool_ = pool_stream;
    if (pool_)
        OK(cuda().cuMemAllocAsync(&at_, bytes, pool_));
    else
        OK(cuda().cuMemAlloc(&at_, bytes));
    model.resize(bytes);
    std::vector<std::uint32_t> words((bytes + 3) / 4);
    fill_words(words.data(), words.size(), seed);
    std::memcpy(model.data(), words.data(), bytes);
    // On the stream that may use the memory, if it is a pool's.
    OK(cuda().cuMemcpyHtoDAsync(at_, model.data(), bytes, pool_));
    OK(cuda().cuStreamSynchronize(pool_));
}

void mirror::check() const
{
    std::vector<unsigned char> got(bytes());
    OK(cuda().cuMemcpyDtoH(got.data(), at_, bytes()));
    if (got == model)
        return;
    const auto where = std::mismatch(got.begin(), got.end(), model.begin());
    FAIL() << "byte " << where.first - got.begin() << " of " << bytes()
           << " is " << int{*where.first} << ", not " << int{*where.second};
}

void mirror::check(std::mt19937 &random) const
{
    const std::size_t offset = random() % bytes();
    const std::size_t count = 1 + random() % std::min(bytes() - offset, MiB);
    std::vector<unsigned char> got(count);
    OK(cuda().cuMemcpyDtoH(got.data(), at_ + offset, count));
    const auto here = model.begin() + static_cast<std::ptrdiff_t>(offset);
    const auto where = std::mismatch(got.begin(), got.end(), here);
    if (where.first != got.end())
        FAIL() << "byte " << offset + (where.first - got.begin()) << " is "
               << int{*where.first} << ", not " << int{*where.second};
}

void mirror::add(std::uint32_t value)
{
    add_to_words(reinterpret_cast<std::uint32_t *>(model.data()), bytes() / 4,
                 value);
}

void mirror::free()
{
    if (pool_)
        OK(cuda().cuMemFreeAsync(at_, pool_));
    else
        OK(cuda().cuMemFree(at_));
    if (pool_)
        OK(cuda().cuStreamSynchronize(pool_));
    model.clear();
    at_ = 0;
}

namespace {

// A box of rows and planes that fits into both.
struct box
{
    std::size_t width, height, depth;
    std::size_t pitch[2], rows[2], start[2];
};

std::size_t extent(const box &b, int side)
{
    return b.start[side] +
           ((b.depth - 1) * b.rows[side] + b.height - 1) * b.pitch[side] +
           b.width;
}

box random_box(std::size_t first, std::size_t second, std::mt19937 &random,
               bool flat)
{
    const std::size_t left[2] = {first, second};
    for (;;) {
        box b{};
        const std::size_t least = std::min(first, second);
        b.width = 1 + random() % std::min<std::size_t>(least, 70000);
        b.height = 1 + random() % 40;
        b.depth = flat ? 1 : 1 + random() % 4;
        bool fits = true;
        for (int side = 0; side < 2; ++side) {
            b.pitch[side] = b.width + random() % 300;
            b.rows[side] = b.height + random() % 3;
            const std::size_t needed = extent(b, side);
            fits = fits && needed <= left[side];
            if (fits)
                b.start[side] = random() % (left[side] - needed + 1);
        }
        if (fits)
            return b;
    }
}

void copy_model(std::vector<unsigned char> &to,
                const std::vector<unsigned char> &from, const box &b)
{
    for (std::size_t z = 0; z < b.depth; ++z)
        for (std::size_t y = 0; y < b.height; ++y)
            std::memcpy(&to[b.start[0] + (z * b.rows[0] + y) * b.pitch[0]],
                        &from[b.start[1] + (z * b.rows[1] + y) * b.pitch[1]],
                        b.width);
}

void copy_2d(mirror &to, CUmemorytype type, const void *host,
             CUdeviceptr device, const std::vector<unsigned char> &model,
             const box &b, CUstream stream, bool synchronous)
{
    CUDA_MEMCPY2D c{};
    c.srcMemoryType = type;
    c.srcHost = host;
    c.srcDevice = device;
    c.srcPitch = b.pitch[1];
    c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    c.dstDevice = to.at() + b.start[0];
    c.dstPitch = b.pitch[0];
    c.WidthInBytes = b.width;
    c.Height = b.height;
    if (synchronous)
        OK(cuda().cuMemcpy2D(&c));
    else
        OK(cuda().cuMemcpy2DAsync(&c, stream));
    copy_model(to.model, model, b);
}

void copy_3d(mirror &to, CUmemorytype type, const void *host,
             CUdeviceptr device, const std::vector<unsigned char> &model,
             const box &b, CUstream stream, bool synchronous)
{
    CUDA_MEMCPY3D c{};
    c.srcMemoryType = type;
    c.srcHost = host;
    c.srcDevice = device;
    c.srcPitch = b.pitch[1];
    c.srcHeight = b.rows[1];
    c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    c.dstDevice = to.at() + b.start[0];
    c.dstPitch = b.pitch[0];
    c.dstHeight = b.rows[0];
    c.WidthInBytes = b.width;
    c.Height = b.height;
    c.Depth = b.depth;
    if (synchronous)
        OK(cuda().cuMemcpy3D(&c));
    else
        OK(cuda().cuMemcpy3DAsync(&c, stream));
    copy_model(to.model, model, b);
}

// Repeats the first @p period bytes up to @p bytes.
void repeat(unsigned char *at, std::size_t period, std::size_t bytes)
{
    for (std::size_t done = std::min(period, bytes); done < bytes;) {
        const std::size_t next = std::min(done, bytes - done);
        std::memcpy(at + done, at, next);
        done += next;
    }
}

template <typename T>
void fill_model(mirror &to, std::size_t start, std::size_t count, T value)
{
    if (count == 0)
        return;
    unsigned char *const at = &to.model[start];
    std::memcpy(at, &value, sizeof value);
    repeat(at, sizeof value, count * sizeof value);
}

// Bytes that count up by @p step, whose period is at most 256.
std::vector<unsigned char> ramp(std::size_t bytes, std::uint32_t first,
                                std::uint32_t step)
{
    std::vector<unsigned char> out(bytes);
    for (std::size_t i = 0; i < std::min<std::size_t>(bytes, 256); ++i)
        out[i] = static_cast<unsigned char>(first + i * step);
    repeat(out.data(), 256, bytes);
    return out;
}

} // namespace

void random_copy(mirror &to, mirror &from, std::mt19937 &random,
                 CUstream stream, bool synchronous)
{
    const driver &d = cuda();
    const std::size_t least = std::min(to.bytes(), from.bytes());
    const std::size_t count = 1 + random() % least;
    const std::size_t dst = random() % (to.bytes() - count + 1);
    const std::size_t src = random() % (from.bytes() - count + 1);
    const auto value = static_cast<std::uint32_t>(random());
    // Unfinished work may still read the host's memory. A pageable source is
    // read during the call, so a local one will do.
    switch (random() % 12) {
    case 0:
        if (synchronous)
            OK(d.cuMemcpyDtoD(to.at() + dst, from.at() + src, count));
        else
            OK(d.cuMemcpyDtoDAsync(to.at() + dst, from.at() + src, count,
                                   stream));
        std::memcpy(&to.model[dst], &from.model[src], count);
        break;
    case 1:
        if (synchronous)
            OK(d.cuMemcpy(to.at() + dst, from.at() + src, count));
        else
            OK(d.cuMemcpyAsync(to.at() + dst, from.at() + src, count, stream));
        std::memcpy(&to.model[dst], &from.model[src], count);
        break;
    case 2:
    case 3: {
        const auto data = ramp(std::min(count, MiB), value, 7);
        if (synchronous)
            OK(d.cuMemcpyHtoD(to.at() + dst, data.data(), data.size()));
        else
            OK(d.cuMemcpyHtoDAsync(to.at() + dst, data.data(), data.size(),
                                   stream));
        std::memcpy(&to.model[dst], data.data(), data.size());
        if (!synchronous)
            // Large pageable sources may be read after the call.
            OK(d.cuStreamSynchronize(stream));
        break;
    }
    case 4: {
        std::vector<unsigned char> data(std::min(count, MiB));
        if (synchronous)
            OK(d.cuMemcpyDtoH(data.data(), from.at() + src, data.size()));
        else
            OK(d.cuMemcpyDtoHAsync(data.data(), from.at() + src, data.size(),
                                   stream));
        OK(d.cuStreamSynchronize(stream));
        ASSERT_EQ(std::memcmp(data.data(), &from.model[src], data.size()), 0);
        break;
    }
    case 5:
        if (synchronous)
            OK(d.cuMemsetD8(to.at() + dst, static_cast<unsigned char>(value),
                            count));
        else
            OK(d.cuMemsetD8Async(to.at() + dst,
                                 static_cast<unsigned char>(value), count,
                                 stream));
        fill_model(to, dst, count, static_cast<unsigned char>(value));
        break;
    case 6: {
        const std::size_t start = dst / 2 * 2;
        const auto narrow = static_cast<unsigned short>(value);
        if (synchronous)
            OK(d.cuMemsetD16(to.at() + start, narrow, count / 2));
        else
            OK(d.cuMemsetD16Async(to.at() + start, narrow, count / 2, stream));
        fill_model(to, start, count / 2, narrow);
        break;
    }
    case 7: {
        const std::size_t start = dst / 4 * 4;
        if (synchronous)
            OK(d.cuMemsetD32(to.at() + start, value, count / 4));
        else
            OK(d.cuMemsetD32Async(to.at() + start, value, count / 4, stream));
        fill_model(to, start, count / 4, value);
        break;
    }
    case 8: {
        const box b = random_box(to.bytes(), from.bytes(), random, true);
        if (synchronous)
            OK(d.cuMemsetD2D8(to.at() + b.start[0], b.pitch[0],
                              static_cast<unsigned char>(value), b.width,
                              b.height));
        else
            OK(d.cuMemsetD2D8Async(to.at() + b.start[0], b.pitch[0],
                                   static_cast<unsigned char>(value), b.width,
                                   b.height, stream));
        for (std::size_t y = 0; y < b.height; ++y)
            fill_model(to, b.start[0] + y * b.pitch[0], b.width,
                       static_cast<unsigned char>(value));
        break;
    }
    case 9: {
        const box b = random_box(to.bytes(), from.bytes(), random, true);
        ASSERT_NO_FATAL_FAILURE(copy_2d(to, CU_MEMORYTYPE_DEVICE, nullptr,
                                        from.at() + b.start[1], from.model, b,
                                        stream, synchronous));
        break;
    }
    case 10: {
        const box b = random_box(to.bytes(), from.bytes(), random, false);
        ASSERT_NO_FATAL_FAILURE(copy_3d(to, CU_MEMORYTYPE_DEVICE, nullptr,
                                        from.at() + b.start[1], from.model, b,
                                        stream, synchronous));
        break;
    }
    default: { // from the host, in three dimensions
        const auto data =
            ramp(std::min(from.bytes(), std::size_t{200000}), value, 13);
        const box b = random_box(to.bytes(), data.size(), random, false);
        ASSERT_NO_FATAL_FAILURE(copy_3d(to, CU_MEMORYTYPE_HOST,
                                        data.data() + b.start[1], 0, data, b,
                                        stream, synchronous));
        OK(d.cuStreamSynchronize(stream));
        break;
    }
    }
    // Fills return before they are done, and the next may be on a stream
    // that does not wait for this one.
    if (synchronous)
        OK(d.cuCtxSynchronize());
    else if (!stream)
        OK(d.cuStreamSynchronize(stream));
}

} // namespace harness
