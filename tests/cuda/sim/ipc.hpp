// SPDX-License-Identifier: GPL-2.0-or-later
// VRAM that another process made, opened by an IPC handle.
#pragma once

namespace sim {

struct context;

// All that was opened in a context goes with it.
void close_opened(context &which);

} // namespace sim
