#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Writes the forwarders of a library that stands in front of another one.

A table classes every symbol (symbols.def). From that come the assembly of the
forwarders, the tables that the C++ side includes, and the linker's list of
exported symbols. With --stub and --typedefs it first compares the table with
the driver's stub library and with cudaTypedefs.h, and fails where they differ.
"""

import argparse
import pathlib
import re
import struct
import sys

CLASSES = ("hooked", "watched", "refused", "forwarded", "recorded")


class Symbol:
    def __init__(self, kind, name, base=None, version=0, ptsz=False):
        self.kind = kind
        self.name = name
        self.base = base
        self.version = version
        self.ptsz = ptsz


def read_table(path):
    """The symbols of a table, in its order; exits on a line it cannot read."""
    symbols = []
    seen = set()
    for number, line in enumerate(pathlib.Path(path).read_text().splitlines(),
                                  1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        if words[0] not in CLASSES or len(words) < 2:
            sys.exit(f"{path}:{number}: not a class and a symbol: {line}")
        if words[1] in seen:
            sys.exit(f"{path}:{number}: {words[1]} is classed twice")
        seen.add(words[1])
        if len(words) == 2:
            symbols.append(Symbol(words[0], words[1]))
            continue
        if len(words) not in (4, 5) or not words[3].isdigit() or (
                len(words) == 5 and words[4] != "ptsz"):
            sys.exit(f"{path}:{number}: expected NAME VERSION [ptsz]: {line}")
        symbols.append(Symbol(words[0], words[1], words[2], int(words[3]),
                              len(words) == 5))
    return symbols


def dynamic_functions(path):
    """The functions that an ELF64 little-endian library defines for others."""
    data = pathlib.Path(path).read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        sys.exit(f"{path}: not a 64-bit little-endian ELF file")
    offset, = struct.unpack_from("<Q", data, 0x28)
    entry, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * entry)
                for i in range(count)]
    names = set()
    for section in sections:
        if section[1] != 11:  # SHT_DYNSYM
            continue
        strings = sections[section[6]]
        for at in range(section[4], section[4] + section[5], section[9]):
            name, info, _, index = struct.unpack_from("<IBBH", data, at)
            if index != 0 and info & 0xF in (2, 10):  # defined FUNC, IFUNC
                start = strings[4] + name
                names.add(data[start:data.index(b"\0", start)].decode())
    return names


def procedure_versions(path):
    """{name: {version: {"", "ptsz"}}} as cudaTypedefs.h declares them."""
    found = {}
    pattern = r"PFN_(\w+?)_v(\d+)(?:_(ptds|ptsz))?\)"
    for name, version, thread in re.findall(pattern,
                                            pathlib.Path(path).read_text()):
        found.setdefault(name, {}).setdefault(int(version), set()).add(
            "ptsz" if thread else "")
    return found


def check(symbols, exported, versions):
    """The table's mistakes, as lines of text."""
    wrong = []
    classed = {symbol.name for symbol in symbols}
    for name in sorted(exported - classed):
        wrong.append(f"{name}: exported by the driver, not classed")
    own = {}
    for symbol in symbols:
        if symbol.kind == "forwarded":
            continue
        if symbol.base is None:
            wrong.append(f"{symbol.name}: {symbol.kind}, without NAME VERSION")
            continue
        if symbol.name in exported:
            variant = "ptsz" if symbol.ptsz else ""
            if variant not in versions.get(symbol.base, {}).get(
                    symbol.version, ()):
                wrong.append(f"{symbol.name}: cudaTypedefs.h has no "
                             f"{symbol.base} of version {symbol.version}")
        own.setdefault(symbol.base, set()).add((symbol.version, symbol.ptsz))
    # A version of a hooked function without a hook is a hole in the limits.
    for base, have in sorted(own.items()):
        for version, variants in sorted(versions.get(base, {}).items()):
            for variant in sorted(variants):
                if (version, variant == "ptsz") not in have:
                    wrong.append(f"{base}: version {version} {variant} "
                                 "is neither hooked nor refused")
    return wrong


X86_64 = """
/* rdi..r9, rax (how many vector registers a variadic call uses) and the vector
   registers may hold arguments; r11 is free between caller and callee. */
.macro save_arguments
    push %rax; push %rdi; push %rsi; push %rdx
    push %rcx; push %r8; push %r9; push %r10
    sub $136, %rsp
    movups %xmm0, (%rsp); movups %xmm1, 16(%rsp)
    movups %xmm2, 32(%rsp); movups %xmm3, 48(%rsp)
    movups %xmm4, 64(%rsp); movups %xmm5, 80(%rsp)
    movups %xmm6, 96(%rsp); movups %xmm7, 112(%rsp)
.endm
.macro restore_arguments
    movups (%rsp), %xmm0; movups 16(%rsp), %xmm1
    movups 32(%rsp), %xmm2; movups 48(%rsp), %xmm3
    movups 64(%rsp), %xmm4; movups 80(%rsp), %xmm5
    movups 96(%rsp), %xmm6; movups 112(%rsp), %xmm7
    add $136, %rsp
    pop %r10; pop %r9; pop %r8; pop %rcx
    pop %rdx; pop %rsi; pop %rdi; pop %rax
.endm

.macro first_call name, resolve     /* r11d: of which */
.type \\name, @function
\\name:
    save_arguments
    mov %r11d, %edi
    call \\resolve
    mov %rax, %r11
    restore_arguments
    jmp *%r11
.size \\name, . - \\name
.endm

.text
"""

X86_64_DLOPEN = """
.globl dlopen
.type dlopen, @function
dlopen:             /* the caller's return address stays: glibc looks at it */
    save_arguments
    mov 200(%rsp), %rsi          /* who calls */
    call emuv_dlopen_name
    mov %rax, 184(%rsp)          /* what will be popped into rdi */
    call emuv_dlopen_next
    mov %rax, %r11
    restore_arguments
    jmp *%r11
.size dlopen, . - dlopen
"""

AARCH64 = """
.macro save_arguments
    stp x29, x30, [sp, #-224]!
    mov x29, sp
    stp x0, x1, [sp, #16]
    stp x2, x3, [sp, #32]
    stp x4, x5, [sp, #48]
    stp x6, x7, [sp, #64]
    str x8, [sp, #80]
    stp q0, q1, [sp, #96]
    stp q2, q3, [sp, #128]
    stp q4, q5, [sp, #160]
    stp q6, q7, [sp, #192]
.endm
.macro restore_arguments
    ldp q0, q1, [sp, #96]
    ldp q2, q3, [sp, #128]
    ldp q4, q5, [sp, #160]
    ldp q6, q7, [sp, #192]
    ldr x8, [sp, #80]
    ldp x6, x7, [sp, #64]
    ldp x4, x5, [sp, #48]
    ldp x2, x3, [sp, #32]
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #224
.endm

.macro first_call name, resolve     // w17: of which
.type \\name, %function
\\name:
    save_arguments
    mov w0, w17
    bl \\resolve
    mov x16, x0
    restore_arguments
    br x16
.size \\name, . - \\name
.endm

.text
"""

AARCH64_DLOPEN = """
.globl dlopen
.type dlopen, @function
dlopen:             // the caller's return address stays: glibc looks at it
    save_arguments
    ldr x1, [sp, #8]    // who calls
    bl emuv_dlopen_name
    str x0, [sp, #16]
    bl emuv_dlopen_next
    mov x16, x0
    restore_arguments
    br x16
.size dlopen, . - dlopen
"""


def first_call(machine, label, number, way):
    """A stub for an unresolved entry: it goes to @p way with the entry's
    number."""
    if machine == "x86_64":
        return f"{label}: mov ${number}, %r11d; jmp {way}"
    return f"{label}: mov w17, #{number}\n    b {way}"


def jump(machine, name, at):
    """A function that jumps to the address in the table's entry."""
    way = (f"    jmp *{at}(%rip)" if machine == "x86_64" else
           f"    adrp x16, {at}\n    ldr x16, [x16, #:lo12:{at}]\n    br x16")
    return (f".type {name}, %function\n{name}:\n{way}\n"
            f".size {name}, . - {name}")


def entries(name, values, section=".data"):
    """A table of addresses that the C++ side knows."""
    return (f"\n.section {section}, \"aw\"\n.balign 8\n.globl {name}\n"
            f".hidden {name}\n.type {name}, %object\n{name}:\n"
            + "".join(f"    .quad {value}\n" for value in values)
            + f".size {name}, . - {name}")


def forwarders(symbols, machine, dlopen, newer=0):
    """The assembly: a stub for each symbol's first call, the table of their
    addresses, and the exported functions that are not written in C++.
    @p newer: the number of stubs for functions that have no symbol."""
    x86 = machine == "x86_64"
    text = [X86_64 if x86 else AARCH64]
    if dlopen:
        text.append(X86_64_DLOPEN if x86 else AARCH64_DLOPEN)
    text.append("first_call emuv_first_call, emuv_resolve")
    text += [first_call(machine, f".Lfirst{i}", i, "emuv_first_call")
             for i, _ in enumerate(symbols)]
    watched = 0
    for i, symbol in enumerate(symbols):
        if symbol.kind == "hooked":
            continue
        at = f"emuv_table + {8 * i}"
        if symbol.kind == "watched":
            at = f"emuv_watched + {8 * watched}"
            watched += 1
        text.append(f".globl {symbol.name}")
        if symbol.kind == "refused":
            text.append(f".type {symbol.name}, %function\n{symbol.name}:")
            text.append(f"    mov ${i}, %edi\n    jmp emuv_refuse" if x86 else
                        f"    mov w0, #{i}\n    b emuv_refuse")
            text.append(f".size {symbol.name}, . - {symbol.name}")
        else:
            text.append(jump(machine, symbol.name, at))
    if newer:
        text.append("first_call emuv_first_newer, emuv_resolve_newer")
    for i in range(newer):
        text.append(first_call(machine, f".Lnewer{i}", i, "emuv_first_newer"))
        text.append(jump(machine, f"emuv_newer_{i}", f"emuv_newer + {8 * i}"))
    text.append(entries("emuv_table",
                        [f".Lfirst{i}" for i, _ in enumerate(symbols)]))
    if newer:
        text.append(entries("emuv_newer",
                            [f".Lnewer{i}" for i in range(newer)]))
        text.append(entries("emuv_newer_stubs",
                            [f"emuv_newer_{i}" for i in range(newer)],
                            ".data.rel.ro"))
    text.append('.section .note.GNU-stack, "", %progbits')
    return "\n".join(text) + "\n"


def tables(symbols):
    """Lists for the C++ side, each behind a macro it defines."""
    lines = ["#ifdef EMUV_SYMBOL"]
    lines += [f"EMUV_SYMBOL({s.name})" for s in symbols]
    lines += ["#undef EMUV_SYMBOL", "#endif", "#ifdef EMUV_PROCEDURE"]
    own = [s for s in symbols if s.kind != "forwarded" and s.base]
    lines += [f"EMUV_PROCEDURE({s.name}, \"{s.base}\", {s.version}, "
              f"{'true' if s.ptsz else 'false'})" for s in own]
    lines += ["#undef EMUV_PROCEDURE", "#endif", "#ifdef EMUV_WATCHED"]
    lines += [f"EMUV_WATCHED({s.name}, {'true' if s.ptsz else 'false'})"
              for s in symbols if s.kind == "watched"]
    lines += ["#undef EMUV_WATCHED", "#endif"]
    return "\n".join(lines) + "\n"


def exports(symbols, dlopen, extra):
    names = [s.name for s in symbols] + (["dlopen"] if dlopen else [])
    names += ["emuv_stands_in_front", *extra]
    return ("{\n  global:\n" + "".join(f"    {n};\n" for n in names)
            + "  local: *;\n};\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", required=True)
    parser.add_argument("--stub")
    parser.add_argument("--typedefs")
    parser.add_argument("--machine", choices=("x86_64", "aarch64"))
    parser.add_argument("--dlopen", action="store_true")
    parser.add_argument("--newer", type=int, default=0,
                        help="stubs for functions that have no symbol")
    parser.add_argument("--extra", action="append", default=[],
                        help="a symbol of the library's own")
    parser.add_argument("--output", help="folder; without it, only check")
    options = parser.parse_args()

    symbols = read_table(options.table)
    if options.stub:
        wrong = check(symbols, dynamic_functions(options.stub),
                      procedure_versions(options.typedefs))
        if wrong:
            sys.exit("\n".join(f"{options.table}: {line}" for line in wrong))
    if not options.output:
        print(f"{len(symbols)} symbols: " + ", ".join(
            f"{sum(s.kind == kind for s in symbols)} {kind}"
            for kind in CLASSES))
        return
    out = pathlib.Path(options.output)
    out.mkdir(parents=True, exist_ok=True)
    for name, text in (
            ("forwarders.S", forwarders(symbols, options.machine,
                                        options.dlopen, options.newer)),
            ("symbols.inc", tables(symbols)),
            ("exports.map", exports(symbols, options.dlopen,
                                    options.extra))):
        (out / name).write_text(text)


if __name__ == "__main__":
    main()
