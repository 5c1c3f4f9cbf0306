// SPDX-License-Identifier: GPL-2.0-or-later
// A system in which a process may not read its own memory by a system call, as
// in containers that filter those.
#pragma once

#include <cerrno>
#include <cstddef>
#include <thread>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/// Runs a call in a thread of its own, where that is so.
/// @return false where the system has no such filters
template <typename Call>
bool with_reading_denied(Call call)
{
    bool is_denied = false;
    std::thread thread([&] {
        sock_filter steps[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        const sock_fprog filter{4, steps};
        is_denied = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
        if (is_denied)
            call();
    });
    thread.join();
    return is_denied;
}
