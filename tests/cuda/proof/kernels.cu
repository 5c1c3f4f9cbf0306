// SPDX-License-Identifier: GPL-2.0-or-later
// Kernels whose verdict is known. One that is called proven_* reaches memory by
// its parameters alone, and refused_* by an address that it finds elsewhere. A
// checked_* relies on a parameter that has to be looked at in each launch. In a
// settled_* the parameters of a launch decide which of both it is.
#include <cstdint>

#define KERNEL extern "C" __global__ void

struct tensors
{
    float *of[8];
    int count;
};

struct node
{
    node *next;
    float value;
};

__constant__ float *table_in_constants[4];
__device__ float a_variable[256];
__device__ float *a_pointer;

// --- proven ---

KERNEL proven_copy(float *to, const float *from, int count)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        to[i] = from[i];
}

// Their names tell of tables, and the last one's of other devices.
KERNEL proven_grouped_copy(float *to, const float *from)
{
    to[threadIdx.x] = from[threadIdx.x];
}

KERNEL checked_grouped_offset(float *to, const long long *from)
{
    to[*from] = 1;
}

KERNEL proven_nccl_copy(float *to, const float *from)
{
    to[threadIdx.x] = from[threadIdx.x];
}

KERNEL proven_strides(float *to, const float *from, long long a, long long b)
{
    for (long long i = threadIdx.x; i < a; i += blockDim.x)
        to[i * a + b] = from[i * b + a];
}

KERNEL proven_gather(float *to, const float *from, const long long *at, int count)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        to[i] = from[at[i]];
}

KERNEL proven_choice(float *a, float *b, int which, int count)
{
    float *const to = which != 0 ? a : b;
    for (int i = 0; i < count; i++)
        to[i] = 1;
}

KERNEL proven_optional(float *to, const float *bias, int count)
{
    for (int i = threadIdx.x; i < count; i += 32)
        to[i] = bias != nullptr ? bias[i] : 0;
}

KERNEL proven_list(const __grid_constant__ tensors list)
{
    float *const to = list.of[blockIdx.x];
    for (int i = threadIdx.x; i < list.count; i += 32)
        to[i] = 2;
}

struct descriptor
{
    alignas(64) unsigned char bytes[128];
};

// Stores a tile where a descriptor among its parameters says.
KERNEL proven_descriptor(const __grid_constant__ descriptor where, float *to)
{
    __shared__ alignas(128) float tile[32];
    tile[threadIdx.x] = to[threadIdx.x];
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200 // the prover knows no later ones
    asm volatile("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%0, {%1}], [%2];"
                 :
                 : "l"(&where), "r"(0), "r"(static_cast<unsigned>(__cvta_generic_to_shared(tile)))
                 : "memory");
#else
    to[threadIdx.x] = tile[threadIdx.x ^ 1];
#endif
}

KERNEL proven_variable(float *to)
{
    to[threadIdx.x] = a_variable[threadIdx.x];
    a_variable[threadIdx.x] = 0;
}

KERNEL proven_shared(float *to, const float *from, int count)
{
    __shared__ float block[256];
    block[threadIdx.x] = from[threadIdx.x];
    __syncthreads();
    for (int i = 0; i < count; i++)
        to[i] = block[(threadIdx.x + i) % 256];
}

KERNEL proven_atomics(int *to, unsigned long long *sum, const int *by)
{
    atomicAdd(to + by[threadIdx.x], 1);
    if (atomicCAS(to, 1, 2) == 1)
        atomicMax(sum, 5ull);
}

KERNEL proven_division(long long *to, const long long *by, long long n)
{
    const long long i = n / by[0];
    to[i % n] = by[i / 7] / n;
}

KERNEL proven_writes_a_table(float **to, float *from, long long stride, int count)
{
    for (int i = threadIdx.x; i < count; i += 32)
        to[i] = from + i * stride;
}

KERNEL proven_aligned(float4 *to, const char *from, int count)
{
    const auto *const at = reinterpret_cast<const float4 *>(
        reinterpret_cast<std::uintptr_t>(from) & ~std::uintptr_t{15});
    for (int i = threadIdx.x; i < count; i += 32)
        to[i] = at[i];
}

__noinline__ __device__ float far_away(const float *from, int i)
{
    return from[i] / from[i + 1];
}

KERNEL proven_call(float *to, const float *a, const float *b, int count)
{
    for (int i = 0; i < count; i++)
        to[i] = far_away(a, i) + far_away(b, i);
}

// --- refused ---

KERNEL refused_table(float **table, int count)
{
    float *const to = table[blockIdx.x];
    for (int i = threadIdx.x; i < count; i += 32)
        to[i] = 1;
}

KERNEL refused_table_of_structures(const tensors *list)
{
    list->of[blockIdx.x][threadIdx.x] = 1;
}

KERNEL refused_list(node *first)
{
    for (node *at = first; at != nullptr; at = at->next)
        at->value += 1;
}

KERNEL refused_constants(int i)
{
    table_in_constants[i][threadIdx.x] = 1;
}

KERNEL refused_variable()
{
    a_pointer[threadIdx.x] = 1;
}

KERNEL refused_through_shared(float **table, float *to)
{
    __shared__ float *block[32];
    block[threadIdx.x] = table[threadIdx.x];
    __syncthreads();
    to[threadIdx.x] = *block[31 - threadIdx.x];
}

KERNEL refused_number(unsigned long long *numbers)
{
    *reinterpret_cast<float *>(numbers[0] + 8 * numbers[1]) = 1;
}

KERNEL refused_halves(const unsigned *halves, float *to)
{
    const unsigned long long low = halves[0];
    const unsigned long long high = halves[1];
    *to = *reinterpret_cast<const float *>(high << 32 | low);
}

KERNEL refused_choice(float *to, float **table, int which, int count)
{
    float *const at = which != 0 ? to : table[0];
    for (int i = 0; i < count; i++)
        at[i] = 1;
}

KERNEL refused_now_and_then(float *to, float **table, int count)
{
    float *at = to;
    for (int i = 0; i < count; i++) {
        *at++ = 1;
        if (i % 100 == 99)
            at = table[i];
    }
}

KERNEL refused_packed(const unsigned long long *packed, float *to)
{
    *to = *reinterpret_cast<const float *>(packed[0] >> 16);
}

KERNEL refused_exclusive_or(const unsigned long long *links, float *to)
{
    *to = *reinterpret_cast<const float *>(links[0] ^ links[1]);
}

__noinline__ __device__ float *look_up(float **table, int i)
{
    return table[i] + 1;
}

KERNEL refused_call(float **table, float *to, int i)
{
    *to = *look_up(table, i);
}

KERNEL refused_distance(char **table, const char *begin, const char *end)
{
    table[0][end - begin] = 1;
}

KERNEL refused_distance_between_loaded(char **table, const char *begin)
{
    table[1][begin - table[0]] = 1;
}

KERNEL refused_atomic(float **table)
{
    atomicAdd(table[threadIdx.x], 1.0f);
}

KERNEL refused_exchange(unsigned long long *at)
{
    auto *const was = reinterpret_cast<float *>(atomicExch(at, 0ull));
    if (was != nullptr)
        *was = 1;
}

using function = float (*)(float);
__device__ float once(float x) { return x; }
__device__ float twice(float x) { return 2 * x; }
__device__ function functions[2] = {once, twice};

KERNEL refused_function(float *to, int i)
{
    *to = functions[i](*to);
}

KERNEL refused_through_local(float **table, float *to, int count)
{
    float *kept[16];
    for (int i = 0; i < 16; i++)
        kept[i] = table[i];
    for (int i = 0; i < count; i++)
        *kept[i % 16] = to[i];
}

// --- arrays of the thread's own ---

KERNEL proven_through_local(float *a, float *b, float *c, float *d, unsigned by, unsigned count)
{
    float *kept[4] = {a, b, c, d};
    for (unsigned i = 0; i < count; i++) {
        float *const one = kept[i % 4];
        kept[i % 4] = kept[i * by % 4] + i;
        kept[i * by % 4] = one;
    }
    for (unsigned i = 0; i < count; i++)
        *kept[i * by % 4] = 1;
}

KERNEL refused_one_of_many_in_local(float **table, float *a, unsigned by, unsigned count)
{
    float *kept[4] = {a, a + 1, a + 2, table[0]};
    for (unsigned i = 0; i < count; i++) {
        float *const one = kept[i % 4];
        kept[i % 4] = kept[i * by % 4] + i;
        kept[i * by % 4] = one;
    }
    *kept[by % 4] = 1;
}

// It is stored by an index, and read without one.
KERNEL refused_stored_anywhere_in_local(float **table, float *a, unsigned at, unsigned by)
{
    float *kept[8] = {a, a + 1, a + 2, a + 3, a + 4, a + 5, a + 6, a + 7};
    kept[by % 8] = a + by;
    kept[at % 8] = table[at];
    *kept[by * 3 % 8] = 1;
    *kept[0] = 1;
}

KERNEL refused_bytes_in_local(const unsigned char *bytes, unsigned by, float *to)
{
    union
    {
        unsigned char bytes[64];
        float *pointers[8];
    } kept;
    for (unsigned i = 0; i < 64; i++)
        kept.bytes[(i * by) % 64] = bytes[i];
    *kept.pointers[by % 8] = *to;
}

__noinline__ __device__ void put(float **where, float *what)
{
    *where = what;
}

KERNEL refused_local_by_an_address(float **table, float *a, unsigned at)
{
    float *kept[2] = {a, a + 1};
    put(&kept[at % 2], table[0]);
    *kept[0] = 1;
    *kept[1] = 1;
}

// --- atomic operations that fill four registers ---

KERNEL refused_wide_exchange(unsigned long long *at, float *to)
{
#if __CUDA_ARCH__ >= 900
    unsigned long long low;
    unsigned long long high;
    asm volatile("{\n"
                 ".reg .b128 was, put;\n"
                 "mov.b128 put, {%3, %3};\n"
                 "atom.global.exch.b128 was, [%2], put;\n"
                 "mov.b128 {%0, %1}, was;\n"
                 "}"
                 : "=l"(low), "=l"(high)
                 : "l"(at), "l"(reinterpret_cast<unsigned long long>(to))
                 : "memory");
    *reinterpret_cast<float *>(high) = static_cast<float>(low);
#else
    *reinterpret_cast<float *>(atomicExch(at, 1ull)) = *to;
#endif
}

KERNEL refused_wide_sum(float *at, float *to)
{
#if __CUDA_ARCH__ >= 900
    float a;
    float b;
    unsigned low;
    unsigned high;
    asm volatile("atom.global.v4.f32.add {%0, %1, %2, %3}, [%4], {%5, %5, %5, %5};"
                 : "=f"(a), "=f"(b), "=r"(low), "=r"(high)
                 : "l"(at), "f"(1.0f)
                 : "memory");
    const unsigned long long address = static_cast<unsigned long long>(high) << 32 | low;
    *reinterpret_cast<float *>(address) = a + b;
#else
    *reinterpret_cast<float *>(__float_as_int(atomicAdd(at, 1.0f)) * 1ull << 20) = *to;
#endif
}

// --- more than the registers hold ---

// Goes by more pointers than there are registers for.
#define FOR_EACH(what) what(0) what(1) what(2) what(3) what(4) what(5) what(6) what(7) what(8) what(9) what(10) what(11)

extern "C" __global__ void __launch_bounds__(1024, 2)
proven_kept_on_the_stack(float *to, const float *from, int by, int count)
{
#define TAKE(i) const float *at##i = from + (threadIdx.x * (by + i)) % (by + 7 * i + 1);
    FOR_EACH(TAKE)
#undef TAKE
    float sum = 0;
    for (int i = 0; i < count; i++) {
#define ADD(i) sum += at##i[i] * at##i[i * by];
        FOR_EACH(ADD)
#undef ADD
        __syncthreads();
    }
#define ADD(i) to[i] = sum + *at##i;
    FOR_EACH(ADD)
#undef ADD
}

extern "C" __global__ void __launch_bounds__(1024, 2)
refused_kept_on_the_stack(float *to, const float *const *table, int by, int count)
{
#define TAKE(i) const float *at##i = table[i] + (threadIdx.x * (by + i)) % (by + 7 * i + 1);
    FOR_EACH(TAKE)
#undef TAKE
    float sum = 0;
    for (int i = 0; i < count; i++) {
#define ADD(i) sum += at##i[i] * at##i[i * by];
        FOR_EACH(ADD)
#undef ADD
        __syncthreads();
    }
#define ADD(i) to[i] = sum + *at##i;
    FOR_EACH(ADD)
#undef ADD
}

// --- settled at the launch ---

// As products do that serve one matrix, many at a distance, and a table.
KERNEL settled_mode(float *to, float **table, int mode, int count)
{
    float *at = to;
    if (mode == 2)
        at = to + static_cast<long long>(blockIdx.x) * count;
    else if (mode == 3)
        at = table[blockIdx.x];
    for (int i = threadIdx.x; i < count; i += 32)
        at[i] = 1;
}

KERNEL settled_table(float *to, float **table, long long count)
{
    float *const at = table != nullptr ? table[blockIdx.x] : to;
    for (int i = threadIdx.x; i < count; i += 32)
        at[i] = 1;
}

KERNEL settled_flag(float *to, float **table, bool is_table, short count)
{
    float *const at = is_table ? table[blockIdx.x] : to;
    for (int i = threadIdx.x; i < count; i += 32)
        at[i] = 1;
}

KERNEL checked_offset(float **table, long long offset, float *to)
{
    const char *const at = reinterpret_cast<const char *>(table[0]) + offset;
    *to = *reinterpret_cast<const float *>(at);
}

KERNEL checked_index(char *to, const long long *at)
{
    to[at[threadIdx.x]] = 1;
}

// As losses do, whose weights are optional.
KERNEL checked_optional(float *to, const float *weights, const long long *at)
{
    const long long which = at[threadIdx.x];
    to[threadIdx.x] = weights != nullptr ? weights[which] : 1.0f;
}
