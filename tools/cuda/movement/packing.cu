// SPDX-License-Identifier: LGPL-2.1-or-later
// Codes memory, and decodes it (packing.hpp). packing.ptx.inc is made of this
// file by packing_ptx.py, so that the build needs no nvcc.
#include "packing.hpp"

using emuv::cuda::packing;

namespace {

constexpr unsigned warps = packing::threads / packing::lanes;
constexpr unsigned everyone = 0xffffffff;

// Eight numbers of 4 bits from their bits 0 and 1, and their bit 2.
__device__ unsigned join(unsigned low, unsigned high)
{
    low = (low | low << 8) & 0x00ff00ff;
    low = (low | low << 4) & 0x0f0f0f0f;
    low = (low | low << 2) & 0x33333333;
    high = (high | high << 12) & 0x000f000f;
    high = (high | high << 6) & 0x03030303;
    high = (high | high << 3) & 0x11111111;
    return low | high << 2;
}

// Two numbers from bytes of remainders and exponents.
// @param which  of the bytes: 0x4140 for the lower two, 0x4342 for the others
__device__ unsigned number_pair(unsigned remainders, unsigned exponents,
                                unsigned which)
{
    const unsigned rest = __byte_perm(remainders, 0, which);
    const unsigned exponent = __byte_perm(exponents, 0, which);
    return (rest & 0x00800080) << 8 | exponent << 7 | (rest & 0x007f007f);
}

__device__ unsigned first_group()
{
    return blockIdx.x * warps + threadIdx.x / packing::lanes;
}

__device__ unsigned sum_before(unsigned lane, unsigned mine, unsigned &total)
{
    unsigned sum = mine;
    for (unsigned by = 1; by < packing::lanes; by *= 2) {
        const unsigned other = __shfl_up_sync(everyone, sum, by);
        sum += lane >= by ? other : 0;
    }
    total = __shfl_sync(everyone, sum, packing::lanes - 1);
    return sum - mine;
}

// One bit of four for each number whose code is the escape.
__device__ unsigned escapes_among(unsigned codes)
{
    return codes & codes >> 1 & codes >> 2 & 0x11111111;
}

// The exponents of eight numbers, a byte each.
// @param table_lower, table_upper  the group's. They have 0 for the escape
// @param next  the lane's next escape
__device__ uint2 exponents_of(unsigned codes, unsigned table_lower,
                              unsigned table_upper, const unsigned char *&next)
{
    unsigned lower = __byte_perm(table_lower, table_upper, codes);
    unsigned upper = __byte_perm(table_lower, table_upper, codes >> 16);
#pragma unroll 1
    for (unsigned left = escapes_among(codes); left != 0; left &= left - 1) {
        const unsigned bit = __ffs(left) - 1;
        const unsigned exponent = *next++;
        if (bit < 16)
            lower |= exponent << bit * 2;
        else
            upper |= exponent << (bit - 16) * 2;
    }
    return make_uint2(lower, upper);
}

__device__ uint4 numbers(uint2 remainders, uint2 exponents)
{
    return make_uint4(number_pair(remainders.x, exponents.x, 0x4140),
                      number_pair(remainders.x, exponents.x, 0x4342),
                      number_pair(remainders.y, exponents.y, 0x4140),
                      number_pair(remainders.y, exponents.y, 0x4342));
}

template <typename Use>
__device__ void each_exponent(const uint4 &raw, Use use)
{
    const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (const unsigned each : words) {
        use(each >> 7 & 0xff);
        use(each >> 23 & 0xff);
    }
}

// Codes a lane's eight numbers of a turn.
// @param code_of  each exponent's
// @param coded  the group
// @return how many of them are escapes
__device__ unsigned encode_turn(const uint4 &raw, const unsigned *code_of,
                                unsigned char *coded, unsigned turn)
{
    const unsigned lane = threadIdx.x % packing::lanes;
    const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
    unsigned rest[2] = {};
    unsigned low = 0;
    unsigned high = 0;
    unsigned escaped = 0;
#pragma unroll
    for (unsigned j = 0; j < packing::at_once; j++) {
        const unsigned number = words[j / 2] >> j % 2 * 16;
        const unsigned code = code_of[number >> 7 & 0xff];
        rest[j / 4] |= ((number & 0x7f) | (number >> 8 & 0x80)) << j % 4 * 8;
        low |= (code & 3) << 2 * j;
        high |= code >> 2 << j;
        escaped += code == packing::escape ? 1 : 0;
    }
    *reinterpret_cast<uint2 *>(coded + packing::header_bytes +
                               (turn / 2 * packing::lanes + lane) * 16 +
                               turn % 2 * 8) = make_uint2(rest[0], rest[1]);
    *reinterpret_cast<unsigned short *>(coded + packing::low_at + lane * 16 +
                                        turn * 2) =
        static_cast<unsigned short>(low);
    coded[packing::high_at + lane * 8 + turn] =
        static_cast<unsigned char>(high);
    return escaped;
}

// The most frequent exponents of a group: seven bytes.
// @param counts  of each exponent. Afterwards: the code of each
__device__ uint2 choose(unsigned *counts, unsigned lane)
{
    unsigned ranks[8]; // the count, then the lower exponent
    for (unsigned i = 0; i < 8; i++) {
        const unsigned exponent = i * packing::lanes + lane;
        ranks[i] = counts[exponent] << 8 | (255 - exponent);
        counts[exponent] = packing::escape;
    }
    __syncwarp();
    uint2 table = make_uint2(0, 0);
#pragma unroll 1
    for (unsigned code = 0; code < packing::codes; code++) {
        unsigned best = 0;
        for (unsigned i = 0; i < 8; i++)
            best = max(best, ranks[i]);
        for (unsigned by = packing::lanes / 2; by > 0; by /= 2)
            best = max(best, __shfl_xor_sync(everyone, best, by));
        for (unsigned i = 0; i < 8; i++)
            ranks[i] = ranks[i] == best ? 0 : ranks[i];
        if (best >> 8 == 0)
            continue; // nothing has this code
        const unsigned exponent = 255 - (best & 255);
        if (lane == 0)
            counts[exponent] = code;
        if (code < 4)
            table.x |= exponent << code * 8;
        else
            table.y |= exponent << (code - 4) * 8;
    }
    __syncwarp();
    return table;
}

} // namespace

// Codes @p groups at @p at. Escapes without room are counted, not written.
extern "C" __global__ void __launch_bounds__(packing::threads)
    emuv_pack(const unsigned char *at, unsigned long long groups,
              unsigned char *to, unsigned long long most_escapes,
              packing::outcome *out)
{
    __shared__ unsigned shared[warps][256];
    const unsigned lane = threadIdx.x % packing::lanes;
    unsigned *const counts = shared[threadIdx.x / packing::lanes];
    unsigned char *const escapes = to + groups * packing::group_bytes;
    for (unsigned long long group = first_group(); group < groups;
         group += gridDim.x * warps) {
        // Read three times: it stays in the cache.
        const uint4 *const raw = reinterpret_cast<const uint4 *>(at) +
                                 group * packing::turns * packing::lanes + lane;
        for (unsigned i = 0; i < 8; i++)
            counts[i * packing::lanes + lane] = 0;
        __syncwarp();
#pragma unroll 1
        for (unsigned i = 0; i < packing::turns; i++)
            each_exponent(raw[i * packing::lanes], [&](unsigned exponent) {
                atomicAdd(&counts[exponent], 1);
            });
        __syncwarp();
        const uint2 table = choose(counts, lane);
        unsigned char *const coded = to + group * packing::group_bytes;
        unsigned escaped = 0;
#pragma unroll 1
        for (unsigned i = 0; i < packing::turns; i++)
            escaped += encode_turn(raw[i * packing::lanes], counts, coded, i);
        unsigned total;
        const unsigned before = sum_before(lane, escaped, total);
        unsigned long long begin = 0;
        if (lane == 0 && total > 0)
            begin =
                atomicAdd(reinterpret_cast<unsigned long long *>(&out->escapes),
                          static_cast<unsigned long long>(total));
        begin = __shfl_sync(everyone, begin, 0);
        if (lane == 0)
            *reinterpret_cast<uint4 *>(coded) =
                make_uint4(static_cast<unsigned>(begin), 0, table.x, table.y);
        unsigned char *next = escapes + begin + before;
        if (begin + total <= most_escapes && escaped > 0)
#pragma unroll 1
            for (unsigned i = 0; i < packing::turns; i++)
                each_exponent(raw[i * packing::lanes], [&](unsigned exponent) {
                    if (counts[exponent] == packing::escape)
                        *next++ = static_cast<unsigned char>(exponent);
                });
        __syncwarp(); // counts are the next group's
    }
}

// Decodes @p groups to @p at. Or, if there is @p out: counts words of 16 bytes
// that do not decode to those at @p at, and writes nothing there. No escape is
// read behind the first @p most_escapes, whatever the groups say.
extern "C" __global__ void __launch_bounds__(packing::threads)
    emuv_unpack(const unsigned char *from, unsigned long long groups,
                unsigned char *at, unsigned long long most_escapes,
                packing::outcome *out)
{
    const unsigned lane = threadIdx.x % packing::lanes;
    const unsigned char *const escapes = from + groups * packing::group_bytes;
    for (unsigned long long group = first_group(); group < groups;
         group += gridDim.x * warps) {
        const unsigned char *const coded = from + group * packing::group_bytes;
        uint4 rest[packing::turns / 2];
        for (unsigned i = 0; i < packing::turns / 2; i++)
            rest[i] = reinterpret_cast<const uint4 *>(
                coded + packing::header_bytes)[i * packing::lanes + lane];
        const uint4 header = *reinterpret_cast<const uint4 *>(coded);
        const uint4 low4 =
            reinterpret_cast<const uint4 *>(coded + packing::low_at)[lane];
        const uint2 high2 =
            reinterpret_cast<const uint2 *>(coded + packing::high_at)[lane];
        const unsigned low[4] = {low4.x, low4.y, low4.z, low4.w};
        const unsigned high[2] = {high2.x, high2.y};
        unsigned codes[packing::turns];
        unsigned escaped = 0;
#pragma unroll
        for (unsigned i = 0; i < packing::turns; i++) {
            codes[i] = join(low[i / 2] >> i % 2 * 16 & 0xffff,
                            high[i / 4] >> i % 4 * 8 & 0xff);
            escaped += __popc(escapes_among(codes[i]));
        }
        unsigned total;
        const unsigned long long begin =
            sum_before(lane, escaped, total) +
            static_cast<unsigned long long>(header.x);
        const unsigned char *next =
            escapes + (begin + escaped <= most_escapes ? begin : 0);
        uint4 *const to = reinterpret_cast<uint4 *>(at) +
                          group * packing::turns * packing::lanes + lane;
        unsigned differing = 0;
#pragma unroll
        for (unsigned i = 0; i < packing::turns; i++) {
            const uint4 value =
                numbers(i % 2 == 0 ? make_uint2(rest[i / 2].x, rest[i / 2].y)
                                   : make_uint2(rest[i / 2].z, rest[i / 2].w),
                        exponents_of(codes[i], header.z, header.w, next));
            if (out == nullptr) {
                to[i * packing::lanes] = value;
                continue;
            }
            const uint4 is = to[i * packing::lanes];
            differing += ((is.x ^ value.x) | (is.y ^ value.y) |
                          (is.z ^ value.z) | (is.w ^ value.w)) != 0;
        }
        if (differing > 0)
            atomicAdd(reinterpret_cast<unsigned long long *>(&out->differing),
                      static_cast<unsigned long long>(differing));
    }
}
