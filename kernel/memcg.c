// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory cgroups: the room left in one.
 *
 * A region's memory is charged to the cgroup of the process that allocated the
 * region. Others that touch it do not pay, such as a reader or a kernel thread
 * that works for a device. The charge is part of each allocation (__GFP_ACCOUNT
 * in a set_active_memcg() scope).
 *
 * This file keeps a touch that does not fit from filling the cgroup. In a full
 * cgroup, the next allocation of its processes would wake the OOM killer.
 */
#include <linux/hashtable.h>
#include <linux/memcontrol.h>
#include <linux/page_counter.h>
#include <linux/slab.h>
#include <linux/swap.h>

#include "emuv.h"

/* The cgroups that pay for regions. */
static DEFINE_HASHTABLE(emuv_payers, 6);
static DEFINE_MUTEX(emuv_payers_lock);

static struct emuv_payer *emuv_payer_find(struct mem_cgroup *memcg)
{
	struct emuv_payer *payer;

	lockdep_assert_held(&emuv_payers_lock);
	hash_for_each_possible(emuv_payers, payer, node, (unsigned long)memcg)
		if (payer->memcg == memcg)
			return payer;
	return NULL;
}

/* Takes over the reference to @memcg, unless there is no memory. */
static struct emuv_payer *emuv_payer_add(struct mem_cgroup *memcg)
{
	struct emuv_payer *payer = kzalloc(sizeof(*payer), GFP_KERNEL);

	lockdep_assert_held(&emuv_payers_lock);
	if (!payer)
		return NULL;
	payer->memcg = memcg;
	init_rwsem(&payer->tight);
	hash_add(emuv_payers, &payer->node, (unsigned long)memcg);
	return payer;
}

/* Get the cgroup of the calling process, or NULL if there is no memory. */
struct emuv_payer *emuv_payer_get(void)
{
	struct mem_cgroup *memcg = get_mem_cgroup_from_mm(current->mm);
	struct emuv_payer *payer;

	mutex_lock(&emuv_payers_lock);
	payer = emuv_payer_find(memcg);
	if (!payer) {
		payer = emuv_payer_add(memcg);
		if (payer)
			memcg = NULL;
	}
	if (payer)
		payer->regions++;
	mutex_unlock(&emuv_payers_lock);
	mem_cgroup_put(memcg);
	return payer;
}

void emuv_payer_put(struct emuv_payer *payer)
{
	bool last;

	mutex_lock(&emuv_payers_lock);
	last = !--payer->regions;
	if (last)
		hash_del(&payer->node);
	mutex_unlock(&emuv_payers_lock);
	if (!last)
		return;
	mem_cgroup_put(payer->memcg);
	kfree(payer);
}

#ifdef CONFIG_MEMCG

/* Adds both of the kernel's LRU schemes; only the one in use counts pages. */
static unsigned long emuv_memcg_lru(const struct mem_cgroup_per_node *node,
				    int zone, bool file)
{
	const int lru = file ? LRU_INACTIVE_FILE : LRU_INACTIVE_ANON;
	unsigned long pages;

	pages = READ_ONCE(node->lru_zone_size[zone][lru]) +
		READ_ONCE(node->lru_zone_size[zone][lru + LRU_ACTIVE]);
#ifdef CONFIG_LRU_GEN
	for (int gen = 0; gen < MAX_NR_GENS; gen++) {
		const long *sizes = node->lruvec.lrugen.nr_pages[gen][file];

		/* a size may be slightly off, and so negative */
		pages += max(READ_ONCE(sizes[zone]), 0L);
	}
#endif
	return pages;
}

/* Pages of swap that the limits of the cgroup and its ancestors leave it. */
static unsigned long emuv_memcg_swap(struct mem_cgroup *memcg)
{
	long pages = get_nr_swap_pages();

	/* cgroup v1 limits memory and swap together: swapping needs no room */
	if (!cgroup_subsys_on_dfl(memory_cgrp_subsys))
		return max(pages, 0L);
	for (; memcg; memcg = parent_mem_cgroup(memcg)) {
		long max = READ_ONCE(memcg->swap.max);

		pages = min_t(long, pages,
			      max - (long)page_counter_read(&memcg->swap));
	}
	return max(pages, 0L);
}

/*
 * Pages that the kernel could reclaim from the processes of the cgroup and of
 * the cgroups below it.
 */
static unsigned long emuv_memcg_reclaimable(struct mem_cgroup *memcg)
{
	struct cgroup_subsys_state *css;
	unsigned long anon = 0, file = 0;
	int nid, zone;

	rcu_read_lock();
	css_for_each_descendant_pre(css, &memcg->css) {
		struct mem_cgroup *below = mem_cgroup_from_css(css);

		for_each_node_state(nid, N_MEMORY) {
			for (zone = 0; zone < MAX_NR_ZONES; zone++) {
				anon += emuv_memcg_lru(below->nodeinfo[nid],
						       zone, false);
				file += emuv_memcg_lru(below->nodeinfo[nid],
						       zone, true);
			}
		}
	}
	rcu_read_unlock();
	return file + min(anon, emuv_memcg_swap(memcg));
}

static bool emuv_memcg_fits(struct mem_cgroup *memcg, unsigned long pages,
			    unsigned long reclaimable)
{
	unsigned long used = page_counter_read(&memcg->memory);

	for (; memcg; memcg = parent_mem_cgroup(memcg))
		if (READ_ONCE(memcg->memory.max) + reclaimable < used + pages)
			return false;
	return true;
}

/*
 * Do @pages more fit within the limits of the cgroup and of its ancestors?
 * Other cgroups' use of an ancestor is left out: the kernel may reclaim it, and
 * a charge fails if it cannot. Charges that processors keep in stock for the
 * cgroup count as used, as in memory.current. Without a cgroup there is always
 * room.
 */
bool emuv_payer_has_room(const struct emuv_payer *payer, unsigned long pages)
{
	struct mem_cgroup *memcg = payer->memcg;

	/* the charges of a removed cgroup are its parent's */
	while (memcg && !mem_cgroup_online(memcg))
		memcg = parent_mem_cgroup(memcg);
	return !memcg || emuv_memcg_fits(memcg, pages, 0) ||
	       emuv_memcg_fits(memcg, pages, emuv_memcg_reclaimable(memcg));
}

#else /* CONFIG_MEMCG */

bool emuv_payer_has_room(const struct emuv_payer *payer, unsigned long pages)
{
	return true;
}

#endif /* CONFIG_MEMCG */
