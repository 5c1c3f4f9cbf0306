// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory cgroups: how much one of them has room for.
 *
 * A region's memory is charged to the cgroup of the process that allocated it,
 * whoever touches it: a reader, or a kernel thread that works for a device. The
 * charge goes with the allocations (__GFP_ACCOUNT in a set_active_memcg()
 * scope); what is here keeps a touch that does not fit from filling the cgroup,
 * where the OOM killer would be called for whatever its processes want next.
 */
#include <linux/memcontrol.h>
#include <linux/page_counter.h>
#include <linux/swap.h>

#include "emuv.h"

#ifdef CONFIG_MEMCG

static unsigned long emuv_memcg_lru(struct mem_cgroup *memcg, enum lru_list lru)
{
	unsigned long pages = 0;
	int nid, zone;

	for_each_node_state(nid, N_MEMORY) {
		struct mem_cgroup_per_node *node = memcg->nodeinfo[nid];

		for (zone = 0; zone < MAX_NR_ZONES; zone++)
			pages += READ_ONCE(node->lru_zone_size[zone][lru]);
	}
	return pages;
}

/* Pages that the kernel would take from the cgroup's processes for more. */
static unsigned long emuv_memcg_reclaimable(struct mem_cgroup *memcg)
{
	unsigned long anon = emuv_memcg_lru(memcg, LRU_INACTIVE_ANON) +
			     emuv_memcg_lru(memcg, LRU_ACTIVE_ANON);

	return emuv_memcg_lru(memcg, LRU_INACTIVE_FILE) +
	       emuv_memcg_lru(memcg, LRU_ACTIVE_FILE) +
	       min_t(unsigned long, anon, max(get_nr_swap_pages(), 0L));
}

/*
 * Has the cgroup, and each that it lies in, room for @pages? What processors
 * keep at hand for it counts as used, as in memory.current. Without a cgroup
 * there is always room.
 */
bool emuv_memcg_has_room(struct mem_cgroup *memcg, unsigned long pages)
{
	unsigned long reclaimable;

	if (!memcg)
		return true;
	reclaimable = emuv_memcg_reclaimable(memcg);
	for (; memcg; memcg = parent_mem_cgroup(memcg)) {
		unsigned long used = page_counter_read(&memcg->memory);
		unsigned long max = READ_ONCE(memcg->memory.max);

		if (max + reclaimable < used + pages)
			return false;
	}
	return true;
}

#endif /* CONFIG_MEMCG */
