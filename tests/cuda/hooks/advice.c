/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The header for C, as the oldest C takes it; and all of its functions. */
#include <emuv/advice.h>

int advice_in_c(const void *memory, uint64_t bytes, uint64_t *key,
		struct emuv_advice_place *place,
		struct emuv_advice_stats *stats);

/* Registers memory, says all there is to say of it, asks, and forgets it. */
int advice_in_c(const void *memory, uint64_t bytes, uint64_t *key,
		struct emuv_advice_place *place,
		struct emuv_advice_stats *stats)
{
	int (*const hints[])(uint64_t) = {
		emuv_advice_access, emuv_advice_prefetch, emuv_advice_promote,
		emuv_advice_demote, emuv_advice_read_mostly, emuv_advice_pin,
		emuv_advice_unpin, emuv_advice_discard
	};
	size_t i;
	int result = emuv_advice_register(key, memory, bytes,
					  EMUV_PRIORITY_NORMAL);

	for (i = 0; !result && i < sizeof hints / sizeof hints[0]; i++)
		result = hints[i](*key);
	if (!result)
		result = emuv_advice_where(*key, place);
	if (!result)
		result = emuv_advice_statistics(*key, stats);
	return result ? result : emuv_advice_forget(*key);
}
