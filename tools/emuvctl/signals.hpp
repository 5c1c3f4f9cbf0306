// SPDX-License-Identifier: GPL-2.0-or-later
// The signals that this program takes for itself, and gives back to a program
// that it becomes.
#pragma once

#include <csignal>

namespace emuvctl {

/// Has SIGINT and SIGTERM end a wait, not a change that is half done. A file
/// that cannot be written to is an error from now on, and no signal. In main,
/// once.
void take_signals();

/// True once SIGINT or SIGTERM has come.
bool asked_to_end();

/// The action of a signal as this program was started with it: SIG_IGN where
/// its caller ignores it, otherwise SIG_DFL.
struct sigaction inherited_action(int number);

/// Undoes take_signals(), in a process that is to become a program. A signal
/// that has come meanwhile comes again, and is to this process what it is to
/// its caller.
void give_signals_back();

} // namespace emuvctl
