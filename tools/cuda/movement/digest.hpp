// SPDX-License-Identifier: LGPL-2.1-or-later
// A digest of memory by a kernel of our own, which tells whether it has
// changed.
#pragma once

namespace emuv::cuda {

/// emuv_digest(at, count, scratch, out) sets two 64-bit words at @p out, in
/// VRAM or pinned memory. They are a sum over @p count 16-byte words at @p at,
/// in which the position of each counts. By chance, two different contents have
/// the same sum once in 2^128 tries. Nobody is expected to search for such a
/// pair in their own memory.
///
/// At @p scratch are three 64-bit words in VRAM, 0 when the kernel begins and
/// when it ends. One such kernel uses them at a time. Its blocks are whole
/// warps.
///
/// The last warp to be done writes the sum and clears the scratch. Otherwise
/// the driver would be called three times, and each call takes a lock that
/// launches take.
///
/// PTX, which any driver since CUDA 9 compiles for any card it knows.
inline constexpr char digest_ptx[] = R"(.version 6.0
.target sm_50
.address_size 64
.visible .entry emuv_digest(
    .param .u64 at, .param .u64 count, .param .u64 scratch, .param .u64 out)
{
    .reg .pred %p<8>;
    .reg .b32 %r<16>;
    .reg .b64 %at, %count, %scratch, %out, %i, %step, %a, %b, %x, %y, %t, %u, %v;
    ld.param.u64 %at, [at];
    ld.param.u64 %count, [count];
    ld.param.u64 %scratch, [scratch];
    ld.param.u64 %out, [out];
    cvta.to.global.u64 %at, %at;
    cvta.to.global.u64 %scratch, %scratch;
    cvta.to.global.u64 %out, %out;
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %ntid.x;
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, %nctaid.x;
    mul.wide.u32 %i, %r0, %r1;
    cvt.u64.u32 %t, %r2;
    add.u64 %i, %i, %t;
    mul.wide.u32 %step, %r3, %r1;
    mov.u64 %a, 0;
    mov.u64 %b, 0;
next:
    setp.ge.u64 %p0, %i, %count;
    @%p0 bra sum;
    shl.b64 %t, %i, 4;
    add.u64 %t, %at, %t;
    ld.global.v2.u64 {%x, %y}, [%t];
    mul.lo.u64 %t, %i, 0xd6e8feb86659fd93;
    xor.b64 %x, %x, %t;
    mul.lo.u64 %x, %x, 0x9e3779b97f4a7c15;
    shr.u64 %t, %x, 29;
    xor.b64 %x, %x, %t;
    mul.lo.u64 %x, %x, 0xbf58476d1ce4e5b9;
    shr.u64 %t, %x, 32;
    xor.b64 %x, %x, %t;
    add.u64 %y, %y, %x;
    mul.lo.u64 %y, %y, 0x94d049bb133111eb;
    shr.u64 %t, %y, 31;
    xor.b64 %y, %y, %t;
    mul.lo.u64 %y, %y, 0xd6e8feb86659fd93;
    shr.u64 %t, %y, 32;
    xor.b64 %y, %y, %t;
    shl.b64 %t, %y, 1;
    xor.b64 %t, %t, %x;
    add.u64 %a, %a, %t;
    add.u64 %b, %b, %y;
    add.u64 %i, %i, %step;
    bra next;
sum:
    mov.u32 %r4, 16;
half:
    mov.b64 {%r5, %r6}, %a;
    mov.b64 {%r7, %r8}, %b;
    shfl.sync.down.b32 %r5, %r5, %r4, 31, 0xffffffff;
    shfl.sync.down.b32 %r6, %r6, %r4, 31, 0xffffffff;
    shfl.sync.down.b32 %r7, %r7, %r4, 31, 0xffffffff;
    shfl.sync.down.b32 %r8, %r8, %r4, 31, 0xffffffff;
    mov.b64 %u, {%r5, %r6};
    mov.b64 %v, {%r7, %r8};
    add.u64 %a, %a, %u;
    add.u64 %b, %b, %v;
    shr.u32 %r4, %r4, 1;
    setp.ne.u32 %p1, %r4, 0;
    @%p1 bra half;
    and.b32 %r9, %r2, 31;
    setp.ne.u32 %p2, %r9, 0;
    @%p2 bra done;
    red.global.add.u64 [%scratch], %a;
    red.global.add.u64 [%scratch+8], %b;
    membar.gl;
    mul.lo.u32 %r10, %r1, %r3;
    shr.u32 %r10, %r10, 5;
    sub.u32 %r10, %r10, 1;
    atom.global.inc.u32 %r11, [%scratch+16], %r10;
    setp.ne.u32 %p3, %r11, %r10;
    @%p3 bra done;
    membar.gl;
    atom.global.exch.b64 %a, [%scratch], 0;
    atom.global.exch.b64 %b, [%scratch+8], 0;
    st.global.v2.u64 [%out], {%a, %b};
done:
    ret;
}
)";

inline constexpr unsigned digest_threads = 256;

} // namespace emuv::cuda
