/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A program's advice about its memory to emuV's CUDA library.
 *
 * A program registers parts of its allocations, and is given a key for each.
 * Then it says what it knows of them: which it uses next, which not for long,
 * which are dead. These are hints. The program is right without them. The
 * library asks the same rules as ever before it moves anything.
 *
 * The functions below are in this header alone. They answer EMUV_ADVICE_ABSENT
 * as long as the library is not loaded, so a program that uses them builds and
 * runs without emuV. Link with -ldl before glibc 2.34.
 *
 * Every function may be called from any thread, at any time, but not from a
 * handler of signals. Each answers with EMUV_ADVICE_OK, or with an error below
 * 0 that emuv_advice_text() puts into words. In the child of a process that had
 * used CUDA each answers EMUV_ADVICE_IDLE, whatever it is given.
 *
 * Addresses are device addresses. A key holds nothing: once the allocation is
 * freed, its key answers EMUV_ADVICE_FREED. A framework's allocator that keeps
 * freed memory for the next tensor frees no allocation. So forget a key before
 * its memory goes back to such an allocator. Otherwise the key speaks of
 * whatever lies there next.
 */
#ifndef EMUV_ADVICE_H
#define EMUV_ADVICE_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Later versions may answer with others below 0. */
enum emuv_advice_result {
	EMUV_ADVICE_OK = 0,
	EMUV_ADVICE_ABSENT = -1,   /* emuV's library is not loaded */
	EMUV_ADVICE_IDLE = -2,     /* it stands aside: before cuInit(), without
				      a limit, in the child of a fork */
	EMUV_ADVICE_KEY = -3,      /* nothing is registered under this key */
	EMUV_ADVICE_ADDRESS = -4,  /* no allocation is known at this address */
	EMUV_ADVICE_RANGE = -5,    /* no bytes, or past the allocation's end */
	EMUV_ADVICE_FREED = -6,    /* the memory of this key has been freed */
	EMUV_ADVICE_VALUE = -7,    /* an argument is out of its range, or null */
	EMUV_ADVICE_FULL = -8,     /* too many keys: 1,048,576 */
	EMUV_ADVICE_PINNED = -9    /* more than three quarters of the share */
};

/* Things to say of registered memory; see the functions of the same names. */
enum emuv_advice_hint {
	EMUV_HINT_ACCESS = 0,
	EMUV_HINT_PREFETCH = 1,
	EMUV_HINT_PROMOTE = 2,
	EMUV_HINT_DEMOTE = 3,
	EMUV_HINT_DISCARD = 4,
	EMUV_HINT_READ_MOSTLY = 5,
	EMUV_HINT_PIN = 6,
	EMUV_HINT_UNPIN = 7
};

/* Places of memory. The rest is for tiers to come. */
enum emuv_tier {
	EMUV_TIER_VRAM = 0, /* of the program's own card: the fastest */
	EMUV_TIER_RAM = 1,  /* system RAM */
	EMUV_TIER_CARD = 2, /* VRAM of a card that lends it (EMUV_TIER) */
	EMUV_TIERS = 8
};

/* No key. */
#define EMUV_ADVICE_NONE ((uint64_t)0)
/* Stands for all memory, in emuv_advice_statistics() alone. */
#define EMUV_ADVICE_ALL ((uint64_t)0)

/* From the one that leaves VRAM first to the one that leaves last. */
#define EMUV_PRIORITY_LOWEST (-100)
#define EMUV_PRIORITY_NORMAL 0
#define EMUV_PRIORITY_HIGHEST 100

/*
 * Structures begin with their size in bytes, as the program knows them, and
 * grow at their end. The library reads and writes nothing beyond that size. In
 * an answer the size says how much of the structure the library knew: what lies
 * behind is left alone. A size of less than 8, or of more than 4096, is an
 * error. The functions of this header fill the sizes in.
 */

/* Memory to be registered. */
struct emuv_advice_memory {
	uint32_t size;
	uint32_t flags;    /* must be 0 */
	uint64_t address;  /* of the device */
	uint64_t bytes;    /* 1 up to the end of the allocation there */
	int32_t priority;  /* EMUV_PRIORITY_LOWEST to EMUV_PRIORITY_HIGHEST */
	uint32_t reserved; /* must be 0 */
	uint64_t key;      /* out; EMUV_ADVICE_NONE after an error */
};

struct emuv_advice_place {
	uint32_t size;
	uint32_t tier; /* that has most of the bytes */
	uint64_t bytes[EMUV_TIERS];
};

/*
 * Moves are of the units that the memory lies in, up to 32 MiB each, which may
 * hold other memory as well.
 */
struct emuv_advice_stats {
	uint32_t size;
	uint32_t moves; /* 1 where memory can move */
	uint64_t accesses;
	uint64_t hit_bytes[EMUV_TIERS]; /* found there by those accesses */
	uint64_t fetches;       /* units that came to VRAM since registration */
	uint64_t evictions;     /* units that left it */
	uint64_t fetched_bytes; /* copied to VRAM */
	uint64_t evicted_bytes; /* copied from it: unchanged units are not */
	uint64_t moving_ns;     /* from each move's begin to its end */
};

/*
 * The library's functions, as emuv_advice_1() hands them out. They stay where
 * they are until the process ends. Later versions add to the end of the table
 * and say so by its size: whoever calls such a function looks at that first.
 */
struct emuv_advice_calls {
	uint32_t size;
	uint32_t reserved;
	int (*enter)(struct emuv_advice_memory *memory);
	int (*forget)(uint64_t key);
	/* flags must be 0 */
	int (*hint)(const uint64_t *keys, size_t count, int what,
		    uint32_t flags);
	int (*where)(uint64_t key, struct emuv_advice_place *out);
	int (*stats)(uint64_t key, struct emuv_advice_stats *out);
	const char *(*text)(int result);
};

#ifndef EMUV_ADVICE_NO_CALLS

/*
 * The library's functions; null where it is not loaded. Only finding it is
 * remembered: it may be loaded later.
 */
static __inline__ const struct emuv_advice_calls *emuv_advice_library(void)
{
	typedef const struct emuv_advice_calls *(*get_calls)(void);
	static const struct emuv_advice_calls *known;
	union {
		void *object;
		get_calls function;
	} found;
	const struct emuv_advice_calls *calls;
	void *library;

	calls = __atomic_load_n(&known, __ATOMIC_ACQUIRE);
	if (calls)
		return calls;
	/* The null handle is glibc's RTLD_DEFAULT: preloaded, it is there. */
	found.object = dlsym((void *)0, "emuv_advice_1");
	if (!found.object) {
		library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
		if (library) {
			found.object = dlsym(library, "emuv_advice_1");
			dlclose(library); /* the library itself stays */
		}
	}
	if (!found.object)
		return NULL;
	calls = found.function();
	__atomic_store_n(&known, calls, __ATOMIC_RELEASE);
	return calls;
}

/* 1 where the library is loaded. */
static __inline__ int emuv_advice_is_there(void)
{
	return emuv_advice_library() != NULL;
}

/* A result in words, for people: a string that stays. */
static __inline__ const char *emuv_advice_text(int result)
{
	const struct emuv_advice_calls *calls = emuv_advice_library();

	if (calls)
		return calls->text(result);
	return result == EMUV_ADVICE_OK ? "no error"
					: "emuV's library is not loaded";
}

/*
 * Registers memory, to say things of it by the key that it is given. It is a
 * part of one allocation, or all of it. The library hands out each key once, so
 * parts of a program that know nothing of each other cannot meet. The priority
 * says which memory leaves VRAM first where nothing else decides. Of keys that
 * share a unit the highest one counts.
 */
static __inline__ int emuv_advice_register(uint64_t *key, const void *memory,
					   uint64_t bytes, int priority)
{
	const struct emuv_advice_calls *calls = emuv_advice_library();
	struct emuv_advice_memory of;
	int result;

	if (!key)
		return EMUV_ADVICE_VALUE;
	*key = EMUV_ADVICE_NONE;
	if (!calls)
		return EMUV_ADVICE_ABSENT;
	of.size = sizeof of;
	of.flags = of.reserved = 0;
	of.address = (uint64_t)(uintptr_t)memory;
	of.bytes = bytes;
	of.priority = priority;
	of.key = EMUV_ADVICE_NONE;
	result = calls->enter(&of);
	*key = of.key;
	return result;
}

/* Forgets a key, its priority and its pin. Its number never comes again. */
static __inline__ int emuv_advice_forget(uint64_t key)
{
	const struct emuv_advice_calls *calls = emuv_advice_library();

	if (!calls)
		return EMUV_ADVICE_ABSENT;
	return calls->forget(key);
}

/*
 * Says the same of several keys: emuv_advice_hint. All of them are heard; the
 * answer is the first error.
 */
static __inline__ int emuv_advice_tell(const uint64_t *keys, size_t count,
				       int what)
{
	const struct emuv_advice_calls *calls = emuv_advice_library();

	if (!calls)
		return EMUV_ADVICE_ABSENT;
	return calls->hint(keys, count, what, 0);
}

/* It is used about now. Counts where its bytes are; what is used often comes. */
static __inline__ int emuv_advice_access(uint64_t key)
{
	return emuv_advice_tell(&key, 1, EMUV_HINT_ACCESS);
}

/* It is used soon: it comes to VRAM, and a launch that needs it waits. */
static __inline__ int emuv_advice_prefetch(uint64_t key)
{
	return emuv_advice_tell(&key, 1, EMUV_HINT_PREFETCH);
}

/* It belongs in VRAM: it comes, and counts as used often. */
static __inline__ int emuv_advice_promote(uint64_t key)
{
	return emuv_advice_tell(&key, 1, EMUV_HINT_PROMOTE);
}

/* It is not used for long: it leaves VRAM first. Its bytes stay. */
static __inline__ int emuv_advice_demote(uint64_t key)
{
	return emuv_advice_tell(&key, 1, EMUV_HINT_DEMOTE);
}

/*
 * Its bytes are dead: they need no copy. They are undefined from here on, until
 * work that is launched later writes them.
 */
static __inline__ int emuv_advice_discard(uint64_t key)
{
	return emuv_advice_tell(&key, 1, EMUV_HINT_DISCARD);
}

/* It is seldom written: its copy in system RAM is kept. */
static __inline__ int emuv_advice_read_mostly(uint64_t key)
{
	return emuv_advice_tell(&key, 1, EMUV_HINT_READ_MOSTLY);
}

/* It comes to VRAM and stays: up to three quarters of the share. */
static __inline__ int emuv_advice_pin(uint64_t key)
{
	return emuv_advice_tell(&key, 1, EMUV_HINT_PIN);
}

/* It need not stay any more. */
static __inline__ int emuv_advice_unpin(uint64_t key)
{
	return emuv_advice_tell(&key, 1, EMUV_HINT_UNPIN);
}

/* Finds the places of its bytes; 0 of each after an error. */
static __inline__ int emuv_advice_where(uint64_t key,
					struct emuv_advice_place *out)
{
	const struct emuv_advice_calls *calls = emuv_advice_library();

	if (!out)
		return EMUV_ADVICE_VALUE;
	memset(out, 0, sizeof *out);
	if (!calls)
		return EMUV_ADVICE_ABSENT;
	out->size = sizeof *out;
	return calls->where(key, out);
}

/*
 * Counts since it was registered; of EMUV_ADVICE_ALL, since the start. After an
 * error all counts are 0.
 */
static __inline__ int emuv_advice_statistics(uint64_t key,
					     struct emuv_advice_stats *out)
{
	const struct emuv_advice_calls *calls = emuv_advice_library();

	if (!out)
		return EMUV_ADVICE_VALUE;
	memset(out, 0, sizeof *out);
	if (!calls)
		return EMUV_ADVICE_ABSENT;
	out->size = sizeof *out;
	return calls->stats(key, out);
}

#endif /* EMUV_ADVICE_NO_CALLS */

#ifdef __cplusplus
}
#endif

#endif /* EMUV_ADVICE_H */
