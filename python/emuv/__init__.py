# SPDX-License-Identifier: LGPL-2.1-or-later
"""Tells emuV's CUDA library of a program's memory.

    import emuv
    emuv.register("layer 0", tensor)        # or an address, and bytes=...
    emuv.prefetch("layer 0")
    print(emuv.where("layer 0"))

These are hints: a program is right without them. If the library is not
loaded, each of them does nothing and answers False. For PyTorch's models see
emuv.torch.enable().
"""

from emuv.advice import (
    AdviceError,
    Group,
    Place,
    Stats,
    access,
    available,
    demote,
    discard,
    forget,
    pin,
    prefetch,
    promote,
    read_mostly,
    register,
    registered,
    stats,
    unpin,
    where,
)

__all__ = [
    "AdviceError", "Group", "Place", "Stats", "access", "available", "demote",
    "discard", "forget", "pin", "prefetch", "promote", "read_mostly",
    "register", "registered", "stats", "unpin", "where",
]
