// SPDX-License-Identifier: GPL-2.0-only
/*
 * The floor: host memory that is never taken.
 *
 * Only memory that a chunk can come from counts. Zones of movable memory supply
 * none. Memory of another node does not help processes that are bound to this
 * node. So each node keeps a share of the floor, in proportion to its memory
 * that chunks can come from. Memory above its share may be taken.
 */
#include <linux/cpuset.h>
#include <linux/mm.h>
#include <linux/vmstat.h>

#include "emuv.h"

static unsigned long emuv_floor_managed(int node)
{
	struct zone *zones = NODE_DATA(node)->node_zones;
	unsigned long pages = 0;
	int i;

	for (i = 0; i <= gfp_zone(EMUV_CHUNK_GFP); i++)
		pages += zone_managed_pages(&zones[i]) -
			 zone_cma_pages(&zones[i]);
	return pages;
}

static unsigned long emuv_floor_managed_by_all(void)
{
	unsigned long pages = 0;
	int node;

	for_each_node_state(node, N_MEMORY)
		pages += emuv_floor_managed(node);
	return pages;
}

/* Part of the reclaimable memory is in use and should stay. */
static unsigned long emuv_floor_spare(unsigned long pages, unsigned long low)
{
	return pages - min(pages / 2, low);
}

static unsigned long emuv_floor_node_state(pg_data_t *node,
					   enum node_stat_item item)
{
	/* a sum of per-CPU counters may be negative for a moment */
	return max(atomic_long_read(&node->vm_stat[item]), 0L);
}

/*
 * Count the pages of a node that a chunk could come from, without swapping. The
 * estimate is the kernel's for available memory (si_mem_available()), zone by
 * zone.
 */
static unsigned long emuv_floor_available(int node)
{
	pg_data_t *pgdat = NODE_DATA(node);
	const int highest = gfp_zone(EMUV_CHUNK_GFP);
	unsigned long pages = 0, low = 0, cache;
	int i;

	for (i = 0; i <= highest; i++) {
		struct zone *zone = &pgdat->node_zones[i];
		unsigned long reserve, free, cma, lent;

		if (!managed_zone(zone))
			continue;
		reserve = high_wmark_pages(zone) + zone->lowmem_reserve[highest];
		/* the contiguous memory allocator lends to movable pages only */
		cma = zone_page_state(zone, NR_FREE_CMA_PAGES);
		free = zone_page_state(zone, NR_FREE_PAGES);
		free -= min(free, cma);
		lent = zone_cma_pages(zone) - min(zone_cma_pages(zone), cma);
		cache = zone_page_state(zone, NR_ZONE_ACTIVE_FILE) +
			zone_page_state(zone, NR_ZONE_INACTIVE_FILE);
		cache -= min(cache, lent);
		pages += free - min(free, reserve);
		pages += emuv_floor_spare(cache, low_wmark_pages(zone));
		low += low_wmark_pages(zone);
	}
	cache = emuv_floor_node_state(pgdat, NR_SLAB_RECLAIMABLE_B) +
		emuv_floor_node_state(pgdat, NR_KERNEL_MISC_RECLAIMABLE);
	return pages + emuv_floor_spare(cache, low);
}

static unsigned long emuv_floor_share(int node)
{
	unsigned long all = emuv_floor_managed_by_all();
	u64 floor = min_t(u64, emuv_param_floor() >> PAGE_SHIFT, all);

	return all ? div64_ul(floor * emuv_floor_managed(node), all) : 0;
}

/*
 * Bytes that may be taken from a node. Bytes that come back from a swap file
 * (@returning) may take half of the floor: losing them is worse.
 */
u64 emuv_floor_node_bytes(int node, bool returning)
{
	unsigned long available = emuv_floor_available(node);
	unsigned long share = emuv_floor_share(node) >> returning;

	return (u64)(available - min(available, share)) << PAGE_SHIFT;
}

/* Bytes that may be taken for an instance. */
u64 emuv_floor_bytes(const struct emuv_config *config)
{
	int node = NUMA_NO_NODE;
	u64 bytes = 0;

	while ((node = emuv_floor_next_node(config, node)) != NUMA_NO_NODE)
		bytes += emuv_floor_node_bytes(node, false);
	return bytes;
}

/* Bytes that could be taken if the host did nothing else. */
u64 emuv_floor_backable_bytes(void)
{
	u64 bytes = (u64)emuv_floor_managed_by_all() << PAGE_SHIFT;

	return bytes - min(bytes, emuv_param_floor());
}

/*
 * Find the node that supplies an instance's memory after node @after has none,
 * within the caller's cpuset. Pass NUMA_NO_NODE as @after to get the first
 * node. NUMA_NO_NODE means that there are no more nodes.
 */
int emuv_floor_next_node(const struct emuv_config *config, int after)
{
	int nid = config->numa_node == EMUV_ANY ? numa_mem_id() :
						  config->numa_node;
	struct zoneref *z = node_zonelist(nid, EMUV_CHUNK_GFP)->_zonerefs;
	bool passed = after == NUMA_NO_NODE;

	for (; zonelist_zone(z); z++) {
		int node = zonelist_node_idx(z);

		if (zonelist_zone_idx(z) > gfp_zone(EMUV_CHUNK_GFP) ||
		    (config->bind && node != nid))
			continue;
		if (node == after)
			passed = true;
		else if (passed && node_isset(node, cpuset_current_mems_allowed))
			return node;
	}
	return NUMA_NO_NODE;
}
