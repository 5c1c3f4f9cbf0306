# SPDX-License-Identifier: LGPL-2.1-or-later
"""The functions behind <emuv/advice.h>, by ctypes."""

import ctypes
import os
import threading
import typing
import weakref

OK, ABSENT, IDLE, FREED = 0, -1, -2, -6
TIERS = 8
_TIER_NAMES = ("vram", "ram", "card")
LOWEST, HIGHEST = -100, 100
(ACCESS, PREFETCH, PROMOTE, DEMOTE, DISCARD, READ_MOSTLY, PIN,
 UNPIN) = range(8)


class AdviceError(RuntimeError):
    """The program's own error, as the library tells it. Its `code` is one of
    emuv_advice_result in <emuv/advice.h>."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class Place(typing.NamedTuple):
    """The places of registered bytes."""

    # Of most of them: "vram", "ram", or "card" for VRAM of a card that lends it;
    # "unknown" without the library.
    tier: str
    vram_bytes: int
    ram_bytes: int
    card_bytes: int = 0


class Stats(typing.NamedTuple):
    """Counts since memory was registered; of all memory, since the start."""

    moves: bool  # memory can move
    accesses: int
    vram_hit_bytes: int  # found there by the accesses
    ram_hit_bytes: int
    fetches: int  # units of up to 32 MiB that came to VRAM
    evictions: int  # that left it
    fetched_bytes: int  # copied to VRAM
    evicted_bytes: int  # copied from it
    moving_ns: int  # from each move's begin to its end
    card_hit_bytes: int = 0  # found on cards that lend VRAM


class _Place(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("tier", ctypes.c_uint32),
                ("bytes", ctypes.c_uint64 * TIERS)]


class _Stats(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("moves", ctypes.c_uint32),
                ("accesses", ctypes.c_uint64),
                ("hit_bytes", ctypes.c_uint64 * TIERS),
                ("fetches", ctypes.c_uint64), ("evictions", ctypes.c_uint64),
                ("fetched_bytes", ctypes.c_uint64),
                ("evicted_bytes", ctypes.c_uint64),
                ("moving_ns", ctypes.c_uint64)]


_KEY = ctypes.c_uint64


class _Memory(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("flags", ctypes.c_uint32),
                ("address", ctypes.c_uint64), ("bytes", ctypes.c_uint64),
                ("priority", ctypes.c_int32), ("reserved", ctypes.c_uint32),
                ("key", _KEY)]


class _Calls(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_uint32), ("reserved", ctypes.c_uint32),
        ("enter", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Memory))),
        ("forget", ctypes.CFUNCTYPE(ctypes.c_int, _KEY)),
        ("hint", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_KEY),
                                  ctypes.c_size_t, ctypes.c_int,
                                  ctypes.c_uint32)),
        ("where", ctypes.CFUNCTYPE(ctypes.c_int, _KEY,
                                   ctypes.POINTER(_Place))),
        ("stats", ctypes.CFUNCTYPE(ctypes.c_int, _KEY,
                                   ctypes.POINTER(_Stats))),
        ("text", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_int)),
    ]


class _Library:
    """The library's functions. As long as it is not loaded, all of them answer
    ABSENT."""

    def __init__(self):
        self.there = False
        self.enter = self.forget = self.hint = self._absent
        self.where = self.stats = self._absent
        self._text = None

    @staticmethod
    def _absent(*_):
        return ABSENT

    def look(self):
        """True where it is loaded. It may come later: only finding it is
        remembered."""
        if not self.there:
            calls = self._find()
            if calls is not None:
                # Each reading of a structure's field makes a new object.
                self._text, self.stats = calls.text, calls.stats
                self.where, self.hint = calls.where, calls.hint
                self.forget, self.enter = calls.forget, calls.enter
                self.there = True
        return self.there

    @staticmethod
    def _find():
        for name, mode in ((None, os.RTLD_LAZY),
                           ("libcuda.so.1", os.RTLD_LAZY | os.RTLD_NOLOAD)):
            try:
                get = ctypes.CDLL(name, mode=mode).emuv_advice_1
            except (OSError, AttributeError):
                continue
            get.restype = ctypes.POINTER(_Calls)
            return get().contents
        return None

    def heard(self, result):
        """True if the library heard it; raises what the program did wrong."""
        if result == OK:
            return True
        if result in (ABSENT, IDLE):
            return False
        raise AdviceError(result, self._text(result).decode())


library = _Library()


class _Record:
    """A key's number in the library, as an array of one; 0: it has none. With
    the memory's owner the record goes, too."""

    __slots__ = ("number", "at", "_owner")

    def __init__(self, key, number, owner):
        self.number = (_KEY * 1)(number)
        # Made once, since each hint is given it; null: it has no number.
        self.at = ctypes.cast(self.number if number else None,
                              ctypes.POINTER(_KEY))
        try:
            self._owner = weakref.ref(owner, lambda _: _drop(key, self))
        except TypeError:  # a number, or an object that has none
            self._owner = None

    def close(self):
        """Forgets the number in the library, once."""
        number, self.number[0] = self.number[0], 0
        self._owner = None
        self.at = ctypes.POINTER(_KEY)()
        return number == 0 or library.forget(number) == OK


# The end of an owner may come at any moment, also while the lock is held.
_lock = threading.RLock()  # guards the next
_records = {}  # by the program's keys


def _renew_lock():
    global _lock  # another thread of the parent may have held it
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def _drop(key, record):
    with _lock:
        if _records.get(key) is record:
            del _records[key]
    record.close()


def available():
    """True where emuV's library is loaded."""
    return library.look()


def registered(key):
    """True while a key names memory. Nobody may have heard of it."""
    return key in _records


def _extent(memory, size):
    """The address and the bytes of what a program calls memory."""
    if hasattr(memory, "data_ptr"):  # PyTorch
        if size is None and not memory.is_contiguous():
            raise TypeError("a tensor has to be contiguous")
        return memory.data_ptr(), (memory.numel() * memory.element_size()
                                   if size is None else size)
    interface = getattr(memory, "__cuda_array_interface__", None)
    if interface is not None and interface.get("strides") is None:
        count = int(interface["typestr"][2:])
        for extent in interface["shape"]:
            count *= extent
        return interface["data"][0], count if size is None else size
    if size is None:
        raise TypeError("an address needs bytes=; an array has to be "
                        "contiguous")
    return int(memory), int(size)


def register(key, memory, bytes=None, priority=0):
    """Registers memory under a key, to say things of it.

    key: anything that a dictionary takes. A key that is there names the new
    memory from then on, and what was said of the old one is over.
    memory: a contiguous tensor or array on the card, or an address of the card
    with `bytes`. It lies in one allocation, and is not held: the key goes with
    the object that is handed in here. So hand in what owns the memory, such as
    a torch.nn.Parameter and not its `data`. The key of an address goes by
    forget() alone; forget it before an allocator has that memory again.
    priority: -100 to 100; the lowest leaves VRAM first.
    Returns True if the library heard it; raises AdviceError, TypeError and
    ValueError, and all is as before.
    """
    address, size = _extent(memory, bytes)
    if size < 0 or size >= 1 << 64 or not 0 <= address < 1 << 64:
        raise ValueError("the address and the bytes have 64 bits")
    if not LOWEST <= priority <= HIGHEST:
        raise ValueError(f"a priority is {LOWEST} to {HIGHEST}")
    library.look()
    asked = _Memory(size=ctypes.sizeof(_Memory), address=address, bytes=size,
                    priority=priority)
    heard = library.heard(library.enter(asked))
    made = _Record(key, asked.key if heard else 0, memory)
    with _lock:
        old = _records.get(key)
        _records[key] = made
    if old is not None:
        old.close()
    return heard


def forget(key):
    """Forgets a key, its priority and its pin. Raises KeyError."""
    with _lock:
        record = _records.pop(key)
    return record.number[0] != 0 and record.close()


def _hint(what, text):
    def tell(*keys):
        if len(keys) != 1:
            return Group(keys).tell(what)
        at = _records[keys[0]].at
        if not at:
            return False
        result = library.hint(at, 1, what, 0)
        return True if result == OK else library.heard(result)
    tell.__doc__ = text + """

    Takes keys; all of them are heard. Returns True if the library heard it;
    raises KeyError, and AdviceError for the first that is wrong."""
    return tell


access = _hint(ACCESS, "Memory is used about now. Memory that is used often comes.")
prefetch = _hint(PREFETCH, "Memory is used soon: it comes to VRAM.")
promote = _hint(PROMOTE, "Memory belongs in VRAM: it comes, and is in use.")
demote = _hint(DEMOTE, "Memory is not used for long: it leaves VRAM first.")
discard = _hint(DISCARD, "The bytes are dead, until later work writes them.")
read_mostly = _hint(READ_MOSTLY, "Memory is seldom written.")
pin = _hint(PIN, "Memory comes to VRAM and stays.")
unpin = _hint(UNPIN, "Memory need not stay any more.")


class Group:
    """Several keys, to say the same of all by one call. Of a key that is
    forgotten or registered anew later, nothing is said any more."""

    def __init__(self, keys):
        numbers = [_records[key].number[0] for key in keys]
        numbers = [each for each in numbers if each]
        self._count = len(numbers)
        self._numbers = (_KEY * max(1, self._count))(*numbers)

    def tell(self, what):
        """Says a hint, one of this module's constants, as the functions do."""
        return library.heard(self.try_to_tell(what))

    def try_to_tell(self, what):
        """The same; returns the first error and raises nothing."""
        if self._count == 0:
            return IDLE
        return library.hint(self._numbers, self._count, what, 0)


def where(key):
    """The Place of a key's bytes. Raises KeyError and AdviceError."""
    found = _Place(size=ctypes.sizeof(_Place))
    number = _records[key].number[0]
    if not number or not library.heard(library.where(number, found)):
        return Place("unknown", 0, 0)
    return Place(_TIER_NAMES[found.tier], *found.bytes[:len(_TIER_NAMES)])


def stats(key=None):
    """The Stats of a key; without one, of all memory. Raises KeyError and
    AdviceError."""
    found = _Stats(size=ctypes.sizeof(_Stats))
    number = 0 if key is None else _records[key].number[0]
    if key is None or number:
        library.look()
        library.heard(library.stats(number, found))
    return Stats(bool(found.moves), found.accesses, found.hit_bytes[0],
                 found.hit_bytes[1], found.fetches, found.evictions,
                 found.fetched_bytes, found.evicted_bytes, found.moving_ns,
                 found.hit_bytes[2])
