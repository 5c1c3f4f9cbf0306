// SPDX-License-Identifier: GPL-2.0-only
/*
 * The RAM behind a region: 2 MiB chunks, backed on first touch.
 *
 * A chunk is one 2 MiB folio if the page allocator has one at hand. The
 * kernel's linear mapping then serves it. In fragmented memory a chunk is 4 KiB
 * pages, put together by vmap(). Both are ordinary reference-counted pages: a
 * pinned page outlives its chunk until it is unpinned. So are those of a device
 * (ivshmem.c), which come from an instance's reserve alone.
 */
#include <linux/memcontrol.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "emuv.h"
#include "trace.h"

/*
 * Pages left free in a memory cgroup for other needs of its processes, above
 * all page tables. A fault allocates one before it comes here, and one to map a
 * chunk. So each thread of a process that touches needs two.
 */
#define EMUV_MEMCG_SLACK	128
#define EMUV_MEMCG_THREAD	2

/* Times that other chunks make way for one. */
#define EMUV_CHUNK_TRIES	32

/* Chunks that are unmapped in one go, while faults wait. */
#define EMUV_SLICE_CHUNKS	16

/*
 * struct emuv_kept - a part of a chunk that a discard zeroes in place
 * @index: Place of @chunk in the region
 * @from, @to: Bytes of @chunk
 */
struct emuv_kept {
	struct emuv_chunk *chunk;
	unsigned long index;
	u32 from;
	u32 to;
};

/* Bytes being allocated on each node now, by all instances together. */
static atomic_long_t emuv_backing_in_flight[MAX_NUMNODES];

/*
 * Count the bytes from @at on, at most @count, before the first page whose
 * memory has failed. Failed pages are never read, written or mapped.
 */
size_t emuv_chunk_sound(const struct emuv_chunk *chunk, size_t at, size_t count)
{
	size_t page;

	if (!IS_ENABLED(CONFIG_MEMORY_FAILURE))
		return count;
	for (page = round_down(at, PAGE_SIZE); page < at + count;
	     page += PAGE_SIZE)
		if (PageHWPoison(emuv_chunk_page(chunk, page >> PAGE_SHIFT)))
			return max(page, at) - at;
	return count;
}

void emuv_chunk_free(struct emuv_chunk *chunk)
{
	if (chunk->bar)
		emuv_bar_put(chunk->bar);
	else if (!chunk->folio)
		vfree(chunk->vaddr);	/* frees pages and array too */
	else if (emuv_chunk_sound(chunk, 0, EMUV_CHUNK_BYTES) == EMUV_CHUNK_BYTES)
		folio_put(chunk->folio);
	/*
	 * Otherwise a page has failed, and the folio stays out of use. The page
	 * allocator holds back a failed single page, but would hand out the
	 * folio again.
	 */
	kfree(chunk);
}

static bool emuv_chunk_alloc_folio(struct emuv_chunk *chunk, int node)
{
	/*
	 * Try as hard as for a huge page of MADV_HUGEPAGE: one round of
	 * compaction and reclaim. With __GFP_NORETRY there would be neither
	 * when caches fill the host, and many chunks would needlessly be single
	 * pages. With __GFP_RETRY_MAYFAIL the round would be repeated for each
	 * chunk when there is no folio. None of the three wakes the OOM killer
	 * at this order.
	 */
	chunk->folio = __folio_alloc_node(EMUV_CHUNK_GFP | __GFP_THISNODE,
					  EMUV_CHUNK_ORDER, node);
	if (chunk->folio) {
		emuv_folio_disown(chunk->folio);
		chunk->vaddr = folio_address(chunk->folio);
	}
	return chunk->folio;
}

static bool emuv_chunk_alloc_pages(struct emuv_chunk *chunk, int node)
{
	/* fails instead of waking the OOM killer */
	const gfp_t gfp = EMUV_CHUNK_GFP | __GFP_THISNODE | __GFP_RETRY_MAYFAIL;
	unsigned long i;

	chunk->pages = kvmalloc_array(EMUV_CHUNK_PAGES, sizeof(*chunk->pages),
				      GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!chunk->pages)
		return false;
	for (i = 0; i < EMUV_CHUNK_PAGES; i++) {
		chunk->pages[i] = alloc_pages_node(node, gfp, 0);
		if (!chunk->pages[i])
			goto err_free_pages;
	}
	chunk->vaddr = vmap(chunk->pages, EMUV_CHUNK_PAGES,
			    VM_MAP | VM_MAP_PUT_PAGES, PAGE_KERNEL);
	if (chunk->vaddr)
		return true;

err_free_pages:
	while (i--)
		__free_page(chunk->pages[i]);
	kvfree(chunk->pages);
	chunk->pages = NULL;
	return false;
}

/* Try the instance's nodes that stay above their floor, the nearest first. */
static bool emuv_chunk_alloc_near(struct emuv_chunk *chunk,
				  const struct emuv_config *config,
				  bool (*alloc)(struct emuv_chunk *chunk,
						int node))
{
	int node = NUMA_NO_NODE;
	bool done = false;

	while (!done &&
	       (node = emuv_floor_next_node(config, node)) != NUMA_NO_NODE) {
		/* no counter shows allocations in progress */
		u64 in_flight = atomic_long_add_return(EMUV_CHUNK_BYTES,
						       &emuv_backing_in_flight[node]);

		done = emuv_floor_node_bytes(node, config->returning) >=
			       in_flight &&
		       alloc(chunk, node);
		atomic_long_sub(EMUV_CHUNK_BYTES,
				&emuv_backing_in_flight[node]);
	}
	return done;
}

/*
 * Is a folio free, so that a cgroup or the floor refused it? Then single pages
 * are not tried: they would fill the cgroup's remaining room.
 */
static bool emuv_chunk_is_refused(const struct emuv_config *config)
{
	int node = NUMA_NO_NODE;

	while ((node = emuv_floor_next_node(config, node)) != NUMA_NO_NODE) {
		struct folio *folio;

		folio = __folio_alloc_node(GFP_NOWAIT | __GFP_NOWARN |
					   __GFP_THISNODE,
					   EMUV_CHUNK_ORDER, node);
		if (folio) {
			folio_put(folio);
			return true;
		}
	}
	return false;
}

struct emuv_chunk *emuv_chunk_alloc(const struct emuv_config *config)
{
	struct emuv_chunk *chunk;

	chunk = kzalloc(sizeof(*chunk), GFP_KERNEL_ACCOUNT);
	if (!chunk)
		return NULL;
	kref_init(&chunk->kref);
	chunk->young = true;
	if (!emuv_chunk_alloc_near(chunk, config, emuv_chunk_alloc_folio) &&
	    (emuv_chunk_is_refused(config) ||
	     !emuv_chunk_alloc_near(chunk, config, emuv_chunk_alloc_pages))) {
		kfree(chunk);
		chunk = NULL;
	}
	return chunk;
}

static void emuv_chunk_release(struct kref *kref)
{
	struct emuv_chunk *chunk = container_of(kref, struct emuv_chunk, kref);

	if (!chunk->reserve || !emuv_reserve_return(chunk))
		emuv_chunk_free(chunk);
}

void emuv_chunk_put(struct emuv_chunk *chunk)
{
	kref_put(&chunk->kref, emuv_chunk_release);
}

/*
 * Find the chunk that backs @index, with a reference; NULL if there is none in
 * RAM. In the same look, tell whether the bytes of the place are elsewhere.
 */
static struct emuv_chunk *emuv_chunk_find(struct emuv_region *region,
					  unsigned long index, bool *gone)
{
	struct emuv_chunk *chunk;

	xa_lock(&region->chunks);
	chunk = xa_load(&region->chunks, index);
	*gone = emuv_reclaim_is_gone(chunk);
	if (*gone)
		chunk = NULL;
	if (chunk)
		kref_get(&chunk->kref);
	xa_unlock(&region->chunks);
	return chunk;
}

/*
 * Get the chunk that backs @index, with a reference; NULL if there is none in
 * RAM. This is no use of it that would keep it in RAM.
 */
struct emuv_chunk *emuv_chunk_get(struct emuv_region *region,
				  unsigned long index)
{
	bool gone;

	return emuv_chunk_find(region, index, &gone);
}

/*
 * Get the chunk that backs @index, with a reference, for a reader. NULL if the
 * place was never touched; or an error of emuv_reclaim_return().
 */
struct emuv_chunk *emuv_chunk_look(struct emuv_region *region,
				   unsigned long index)
{
	struct emuv_chunk *chunk;
	bool gone;

	do {
		chunk = emuv_chunk_find(region, index, &gone);
		if (gone)
			chunk = emuv_reclaim_return(region, index);
	} while (gone && !chunk);
	if (!IS_ERR_OR_NULL(chunk))
		WRITE_ONCE(chunk->young, true);
	return chunk;
}

/* Is @index backed by a chunk in RAM? It may leave at once. */
bool emuv_chunk_is_in_ram(struct emuv_region *region, unsigned long index)
{
	const void *entry = xa_load(&region->chunks, index);

	return entry && !emuv_reclaim_is_gone(entry);
}

static void emuv_chunk_zero(const struct emuv_chunk *chunk, size_t from,
			    size_t to)
{
	while (from < to) {
		size_t sound = emuv_chunk_sound(chunk, from, to - from);

		memset(chunk->vaddr + from, 0, sound);
		from = round_down(from + sound, PAGE_SIZE) + PAGE_SIZE;
	}
}

/* Does the payer's cgroup have room for @chunks more, and for other needs? */
static bool emuv_chunk_fits(const struct emuv_payer *payer, unsigned long chunks)
{
	unsigned long threads = get_nr_threads(current);

	/* a chunk of single pages has a list of them */
	return emuv_payer_has_room(payer, chunks * (EMUV_CHUNK_PAGES + 1) +
					  threads * EMUV_MEMCG_THREAD +
					  EMUV_MEMCG_SLACK);
}

/* Allocate a chunk if there is room for one of each thread that does so now. */
static struct emuv_chunk *emuv_chunk_take(const struct emuv_config *config,
					  struct emuv_payer *payer, bool *fits)
{
	struct emuv_chunk *chunk = NULL;

	*fits = emuv_chunk_fits(payer, atomic_inc_return(&payer->takers));
	if (*fits)
		chunk = emuv_chunk_alloc(config);
	/* whoever sees the smaller number sees what was charged */
	atomic_dec_return_release(&payer->takers);
	return chunk;
}

/*
 * Allocate a chunk charged to the payer's cgroup, all of it or nothing. A
 * cgroup without room for a whole chunk must not be filled by a part, or its
 * processes would hit the limit. The caller has made the cgroup active.
 *
 * As many threads allocate at once as there is room for, however many come. If
 * one finds too little, it waits for them to end, and looks again alone. So
 * nobody takes the room that another has seen, and nobody is refused for what
 * others give back.
 */
struct emuv_chunk *emuv_chunk_charge(const struct emuv_config *config,
				     struct emuv_payer *payer)
{
	struct emuv_chunk *chunk;
	bool fits;

	if (down_read_killable(&payer->tight))
		return NULL;
	chunk = emuv_chunk_take(config, payer, &fits);
	up_read(&payer->tight);
	if (fits || down_write_killable(&payer->tight))
		return chunk;
	chunk = emuv_chunk_take(config, payer, &fits);
	up_write(&payer->tight);
	return chunk;
}

/* Empty @index; in a guaranteed region its entry stays allocated. */
static void emuv_chunk_vacate(struct emuv_region *region, unsigned long index)
{
	if (region->inst->config.guaranteed)
		__xa_store(&region->chunks, index, XA_ZERO_ENTRY, 0);
	else
		__xa_erase(&region->chunks, index);
}

/* The number of chunks in RAM has changed. */
void emuv_chunk_count(struct emuv_region *region, long chunks)
{
	atomic_long_add(chunks, &region->resident);
	atomic_long_add(chunks, &region->inst->resident);
	emuv_reclaim_count(region->inst, chunks);
}

/*
 * Allocate a chunk for a region at its payer's expense. If the region's
 * instance has a swap file and there is no RAM, other chunks leave RAM for it.
 * Its bytes are zero. A chunk for bytes that come back may take half of the
 * floor in the end. -ENOMEM, or -EINTR on a fatal signal.
 */
struct emuv_chunk *emuv_chunk_make(struct emuv_region *region, bool returning)
{
	const struct emuv_instance *inst = region->inst;
	struct emuv_config config = inst->config;
	struct mem_cgroup *before = set_active_memcg(region->payer->memcg);
	struct emuv_chunk *chunk;
	int tries = EMUV_CHUNK_TRIES;

	chunk = emuv_chunk_charge(&inst->config, region->payer);
	while (!chunk && emuv_instance_swaps(inst) &&
	       !emuv_region_is_revoked(region) && tries--) {
		bool strict = !emuv_chunk_fits(region->payer, 1);

		if (!emuv_reclaim_ask(region, strict, &chunk))
			break;
		if (chunk) {
			emuv_chunk_zero(chunk, 0, EMUV_CHUNK_BYTES);
			WRITE_ONCE(chunk->young, true);
		} else {
			chunk = emuv_chunk_charge(&inst->config, region->payer);
		}
	}
	config.returning = returning;
	if (!chunk && returning)
		chunk = emuv_chunk_charge(&config, region->payer);
	set_active_memcg(before);
	if (!chunk)
		chunk = ERR_PTR(fatal_signal_pending(current) ? -EINTR :
								-ENOMEM);
	return chunk;
}

/*
 * Insert @made at @index, or drop it if another chunk came first. Returns the
 * chunk that backs @index now, with a reference; NULL if it has left RAM again;
 * -ENODEV in a revoked region.
 */
static struct emuv_chunk *emuv_chunk_insert(struct emuv_region *region,
					    unsigned long index,
					    struct emuv_chunk *made)
{
	/* a guaranteed region's index is complete, so that nothing is allocated */
	void *none = region->inst->config.guaranteed ? XA_ZERO_ENTRY : NULL;
	struct emuv_chunk *chunk;
	int err;

	xa_lock(&region->chunks);
	chunk = __xa_cmpxchg(&region->chunks, index, none, made,
			     GFP_KERNEL_ACCOUNT);
	err = xa_err(chunk);
	/* looked at last: the lock may have been dropped to allocate */
	if (!err && emuv_region_is_revoked(region)) {
		if (!chunk)
			emuv_chunk_vacate(region, index);
		err = -ENODEV;
	}
	if (!err && !chunk) {
		chunk = made;
		made = NULL;
		emuv_chunk_count(region, 1);
	}
	if (!err && emuv_reclaim_is_gone(chunk))
		chunk = NULL;
	else if (!err)
		kref_get(&chunk->kref);
	xa_unlock(&region->chunks);

	if (made)
		emuv_chunk_put(made);
	else
		trace_emuv_chunk_back(region->inst->config.id,
				      region->range.first + index,
				      chunk->folio);
	if (region->inst->config.guaranteed)
		wake_up_all(&region->inst->reserve.returned);
	return err ? ERR_PTR(err) : chunk;
}

/*
 * Get a chunk from the instance's reserve. Only failed memory, a fatal signal
 * or revocation prevents that.
 */
static struct emuv_chunk *
emuv_chunk_back_guaranteed(struct emuv_region *region, unsigned long index)
{
	struct emuv_chunk *chunk;

	while (!(chunk = emuv_reserve_get(region, index))) {
		chunk = emuv_chunk_get(region, index);
		if (chunk)
			return chunk;
		if (fatal_signal_pending(current))
			return ERR_PTR(-EINTR);
		if (emuv_region_is_revoked(region))
			return ERR_PTR(-ENODEV);
		if (READ_ONCE(region->inst->reserve.lost))
			return ERR_PTR(-ENOMEM);
	}
	return emuv_chunk_insert(region, index, chunk);
}

/* Back a place that was never touched. NULL if its bytes are away meanwhile. */
static struct emuv_chunk *emuv_chunk_back_new(struct emuv_region *region,
					      unsigned long index)
{
	struct emuv_chunk *chunk = emuv_chunk_make(region, false);
	struct mem_cgroup *before;

	if (IS_ERR(chunk))
		return chunk;
	before = set_active_memcg(region->payer->memcg);
	chunk = emuv_chunk_insert(region, index, chunk);
	set_active_memcg(before);
	return chunk;
}

/*
 * Get the chunk that backs @index, with a reference; allocate one if there is
 * none. The memory is charged to the region's cgroup. -ENOMEM if the host
 * cannot or may not give it; -EINTR if that is for a fatal signal. -EIO if the
 * swap file cannot be read; -ENODEV in a revoked region. Concurrent callers get
 * the same chunk.
 */
struct emuv_chunk *emuv_chunk_back(struct emuv_region *region,
				   unsigned long index)
{
	struct emuv_chunk *chunk;

	do {
		if (emuv_region_is_revoked(region))
			return ERR_PTR(-ENODEV);
		chunk = emuv_chunk_look(region, index);
		if (chunk)
			return chunk;
		if (region->inst->config.guaranteed)
			return emuv_chunk_back_guaranteed(region, index);
		chunk = emuv_chunk_back_new(region, index);
	} while (!chunk);
	return chunk;
}

/*
 * Allocate the whole index of a guaranteed region, so that no touch allocates
 * anything. -ENOMEM, or -EINTR on a fatal signal.
 */
int emuv_backing_index(struct emuv_region *region, unsigned long count)
{
	unsigned long i;
	int err = 0;

	for (i = 0; !err && i < count; i++) {
		err = xa_reserve(&region->chunks, i, GFP_KERNEL_ACCOUNT);
		if (fatal_signal_pending(current))
			err = -EINTR;
		cond_resched();
	}
	return err;
}

/* Does something outside the driver hold the chunk's pages? */
bool emuv_chunk_is_pinned(const struct emuv_chunk *chunk)
{
	unsigned long i;

	if (chunk->folio)
		return folio_ref_count(chunk->folio) > 1;
	for (i = 0; i < EMUV_CHUNK_PAGES; i++)
		if (page_ref_count(emuv_chunk_page(chunk, i)) > 1)
			return true;
	return false;
}

static void emuv_chunk_forget(struct emuv_region *region, unsigned long index)
{
	emuv_chunk_vacate(region, index);
	emuv_chunk_count(region, -1);
	trace_emuv_chunk_release(region->inst->config.id,
				 region->range.first + index);
}

/*
 * Remove the chunk from the region, unless someone besides the region holds it
 * or its pages are pinned. In a revoked region pins do not matter: their own
 * references keep the pages for them. The caller has unmapped the chunk and
 * keeps it unmapped. If true, the region's reference is the caller's.
 */
static bool emuv_chunk_remove(struct emuv_region *region, unsigned long index,
			      struct emuv_chunk *chunk)
{
	bool held;

	/* xa_lock keeps emuv_chunk_get() out: held chunks stay in place */
	xa_lock(&region->chunks);
	held = kref_read(&chunk->kref) > 1 ||
	       (!emuv_region_is_revoked(region) && emuv_chunk_is_pinned(chunk));
	if (!held)
		emuv_chunk_forget(region, index);
	xa_unlock(&region->chunks);
	return !held;
}

static void emuv_chunk_put_list(struct list_head *gone)
{
	struct emuv_chunk *chunk, *next;

	list_for_each_entry_safe(chunk, next, gone, node) {
		list_del(&chunk->node);
		emuv_chunk_put(chunk);
		cond_resched();
	}
}

/* Remove the range from all mappings. */
void emuv_backing_unmap(struct emuv_region *region, unsigned long first,
			unsigned long last)
{
	lockdep_assert_held_write(&region->map_sem);
	unmap_mapping_range(region->inode->i_mapping,
			    (loff_t)first << EMUV_CHUNK_SHIFT,
			    (loff_t)(last - first + 1) << EMUV_CHUNK_SHIFT, 1);
}

/* Remove the chunk at @index of a revoked region, if nobody uses it any more. */
static void emuv_backing_sweep(struct emuv_region *region, unsigned long index)
{
	struct emuv_chunk *chunk;

	/* others who remove chunks hold it, too: @chunk stays valid */
	down_write(&region->map_sem);
	emuv_backing_unmap(region, index, index);
	chunk = xa_load(&region->chunks, index);
	if (chunk && (emuv_reclaim_is_gone(chunk) ||
		      !emuv_chunk_remove(region, index, chunk)))
		chunk = NULL;
	up_write(&region->map_sem);
	if (chunk)
		emuv_chunk_put(chunk);
}

/*
 * Put a chunk that is, or was, at @index of a region, which the caller holds. In
 * a revoked region the last user removes it. The caller holds no map_sem.
 */
void emuv_chunk_let_go(struct emuv_region *region, unsigned long index,
		       struct emuv_chunk *chunk)
{
	emuv_chunk_put(chunk);
	/* pairs with emuv_backing_revoke(): one of the two sees the other */
	smp_mb();
	if (emuv_region_is_revoked(region))
		emuv_backing_sweep(region, index);
}

/*
 * Remove the failed page at @pos from all mappings; the kernel does so only for
 * pages of its own page cache. The next touch comes to the fault handler. A fault
 * that looked at the page before it failed is over by then, and no later one maps
 * the page.
 */
void emuv_backing_fail(struct emuv_region *region, u64 pos)
{
	down_write(&region->map_sem);
	unmap_mapping_range(region->inode->i_mapping,
			    round_down(pos, PAGE_SIZE), PAGE_SIZE, 1);
	up_write(&region->map_sem);
}

/*
 * Find the next slice of a range, which starts at the first backed chunk; false
 * if there is none. Memory is unmapped slice by slice, so that a fault waits
 * for at most one.
 */
static bool emuv_backing_slice(struct emuv_region *region,
			       unsigned long *first, unsigned long *end,
			       unsigned long last)
{
	if (*first > last ||
	    !xa_find(&region->chunks, first, last, XA_PRESENT))
		return false;
	*end = min(*first + EMUV_SLICE_CHUNKS - 1, last);
	return true;
}

/* Undo emuv_backing_hold(). */
void emuv_backing_unhold(struct emuv_region *region, unsigned long first,
			 unsigned long count)
{
	unsigned long i;

	for (i = first; i < first + count; i++) {
		/* a held chunk stays in place */
		emuv_chunk_let_go(region, i, xa_load(&region->chunks, i));
		cond_resched();
	}
}

/*
 * Back a whole range and hold every chunk in place. -ENOMEM if the host cannot;
 * -EIO if memory of the range has failed; -EINTR on a fatal signal. On failure
 * nothing is held, but backed chunks stay backed.
 */
int emuv_backing_hold(struct emuv_region *region, unsigned long first,
		      unsigned long count)
{
	struct emuv_chunk *chunk;
	unsigned long i;
	int err;

	for (i = first; i < first + count; i++) {
		if (fatal_signal_pending(current)) {
			err = -EINTR;
			goto err_unhold;
		}
		chunk = emuv_chunk_back(region, i);
		if (IS_ERR(chunk)) {
			err = PTR_ERR(chunk);
			goto err_unhold;
		}
		if (emuv_chunk_sound(chunk, 0, EMUV_CHUNK_BYTES) <
		    EMUV_CHUNK_BYTES) {
			emuv_chunk_let_go(region, i, chunk);
			err = -EIO;
			goto err_unhold;
		}
		cond_resched();
	}
	return 0;

err_unhold:
	emuv_backing_unhold(region, first, i - first);
	return err;
}

/* Do the host and the payer's cgroup have room for @count chunks now? */
bool emuv_backing_has_room(const struct emuv_instance *inst,
			   const struct emuv_payer *payer, unsigned long count)
{
	return emuv_floor_bytes(&inst->config) >= (u64)count << EMUV_CHUNK_SHIFT &&
	       emuv_payer_has_room(payer, count << EMUV_CHUNK_ORDER);
}

/* Back a whole new range, where nothing is backed yet. */
int emuv_backing_populate(struct emuv_region *region, unsigned long first,
			  unsigned long count)
{
	int err;

	/* fail early, instead of filling the host to its floor first */
	if (!region->inst->config.guaranteed &&
	    !emuv_instance_swaps(region->inst) &&
	    !emuv_backing_has_room(region->inst, region->payer, count))
		return -ENOMEM;
	err = emuv_backing_hold(region, first, count);
	if (!err)
		emuv_backing_unhold(region, first, count);
	return err;
}

/*
 * Prepare the discard of a slice: bytes outside RAM are forgotten, or come back
 * if their chunk lies in the range in part. 0, or an error of
 * emuv_chunk_look().
 */
static int emuv_backing_settle(struct emuv_region *region, unsigned long first,
			       unsigned long end, u64 offset, u64 bytes)
{
	unsigned long index;
	void *entry;
	int err = 0;

	xa_for_each_range(&region->chunks, index, entry, first, end) {
		u64 start = (u64)index << EMUV_CHUNK_SHIFT;
		bool whole = offset <= start &&
			     offset + bytes >= start + EMUV_CHUNK_BYTES;
		struct emuv_chunk *chunk;

		if (!emuv_reclaim_is_gone(entry))
			continue;
		err = emuv_reclaim_wait(region, index);
		if (err)
			break;
		if (whole && emuv_reclaim_discard(region, index))
			continue;
		chunk = emuv_chunk_look(region, index);
		err = PTR_ERR_OR_ZERO(chunk);
		if (err)
			break;
		if (chunk)
			emuv_chunk_let_go(region, index, chunk);
	}
	return err;
}

/*
 * Discard a slice. Whole chunks that nothing holds go to @gone. Held chunks,
 * and chunks that lie in the range in part, go to @kept with a reference.
 * Returns the number of kept chunks. @again: a chunk has left RAM meanwhile.
 */
static unsigned int emuv_backing_detach(struct emuv_region *region,
					unsigned long first, unsigned long end,
					u64 offset, u64 bytes,
					struct emuv_kept *kept,
					struct list_head *gone, bool *again)
{
	struct emuv_chunk *chunk;
	unsigned int count = 0;
	unsigned long index;

	*again = false;
	emuv_backing_unmap(region, first, end);
	xa_for_each_range(&region->chunks, index, chunk, first, end) {
		u64 start = (u64)index << EMUV_CHUNK_SHIFT;
		u64 from = max(offset, start) - start;
		u64 to = min(offset + bytes, start + EMUV_CHUNK_BYTES) - start;

		if (emuv_reclaim_is_gone(chunk)) {
			*again = true;
			continue;
		}
		if (to - from == EMUV_CHUNK_BYTES &&
		    emuv_chunk_remove(region, index, chunk)) {
			list_add_tail(&chunk->node, gone);
			continue;
		}
		kref_get(&chunk->kref);
		kept[count].chunk = chunk;
		kept[count].index = index;
		kept[count].from = from;
		kept[count].to = to;
		count++;
	}
	return count;
}

/*
 * Make [@offset, @offset + @bytes) read as zeros. Whole chunks go back to the
 * host. Parts of chunks, and chunks held from outside, are zeroed in place.
 * Held memory thus stays within the instance's limit, and pins and mappings
 * keep seeing the same memory. No lock is held while zeroing, as if a holder
 * wrote the zeros. -EINTR on a fatal signal. -ENOMEM or -EIO if part of a chunk
 * is away and cannot come back. After an error a part of the range may be done.
 */
int emuv_backing_discard(struct emuv_region *region, u64 offset, u64 bytes)
{
	unsigned long first = offset >> EMUV_CHUNK_SHIFT;
	unsigned long last = (offset + bytes - 1) >> EMUV_CHUNK_SHIFT;
	struct emuv_kept kept[EMUV_SLICE_CHUNKS];
	unsigned long end;
	LIST_HEAD(gone);
	bool again;
	int err;

	while (emuv_backing_slice(region, &first, &end, last)) {
		unsigned int count, i;

		err = emuv_backing_settle(region, first, end, offset, bytes);
		if (err)
			return err;

		if (down_write_killable(&region->map_sem))
			return -EINTR;
		count = emuv_backing_detach(region, first, end, offset, bytes,
					    kept, &gone, &again);
		up_write(&region->map_sem);
		emuv_chunk_put_list(&gone);
		for (i = 0; i < count; i++) {
			emuv_chunk_zero(kept[i].chunk, kept[i].from,
					kept[i].to);
			emuv_chunk_let_go(region, kept[i].index,
					  kept[i].chunk);
			cond_resched();
		}
		if (fatal_signal_pending(current))
			return -EINTR;
		if (!again)
			first = end + 1;
	}
	return 0;
}

/* Does a device pin pages of the chunk, as far as the kernel can tell? */
static bool emuv_chunk_is_device_pinned(const struct emuv_chunk *chunk)
{
	const unsigned long step = chunk->folio ? EMUV_CHUNK_PAGES : 1;
	unsigned long i;

	for (i = 0; i < EMUV_CHUNK_PAGES; i += step)
		if (folio_maybe_dma_pinned(page_folio(emuv_chunk_page(chunk, i))))
			return true;
	return false;
}

/*
 * Count the bytes of a slice's chunks with pages that are pinned for devices.
 * The slice starts at @first, which moves behind it; false at the region's end.
 * No reference is taken: who only looks must not be in the way of a discard.
 */
bool emuv_backing_pinned_bytes(struct emuv_region *region, unsigned long *first,
			       u64 *bytes)
{
	unsigned long last = region->range.count - 1, end, index;

	if (!emuv_backing_slice(region, first, &end, last))
		return false;
	for (index = *first; index <= end; index++) {
		struct emuv_chunk *chunk;

		xa_lock(&region->chunks);
		chunk = xa_load(&region->chunks, index);
		if (chunk && !emuv_reclaim_is_gone(chunk) &&
		    emuv_chunk_is_device_pinned(chunk))
			*bytes += EMUV_CHUNK_BYTES;
		xa_unlock(&region->chunks);
	}
	*first = end + 1;
	return true;
}

/*
 * Free the chunks of an unmapped region that nobody uses, and forget the bytes
 * that are away. The worker may still have a chunk in hand.
 */
void emuv_backing_empty(struct emuv_region *region)
{
	unsigned long first = 0, last = region->range.count - 1, end;

	for (; emuv_backing_slice(region, &first, &end, last); first = end + 1) {
		struct emuv_chunk *chunk;
		unsigned long index;
		LIST_HEAD(gone);

		/* others who remove chunks look at the same ones */
		down_write(&region->map_sem);
		xa_for_each_range(&region->chunks, index, chunk, first, end)
			if (!emuv_reclaim_is_gone(chunk) &&
			    emuv_chunk_remove(region, index, chunk))
				list_add_tail(&chunk->node, &gone);
		up_write(&region->map_sem);
		emuv_chunk_put_list(&gone);
		/* whoever owns a place that is moving ends with it later */
		xa_for_each_range(&region->chunks, index, chunk, first, end)
			if (emuv_reclaim_is_gone(chunk))
				emuv_reclaim_discard(region, index);
	}
}

/*
 * Take the memory of a revoked region from its holders. Pinned pages go to the
 * host when they are unpinned. Chunks that a device or a read in progress holds
 * stay until it lets them go; no mapping has them any more.
 */
void emuv_backing_revoke(struct emuv_region *region)
{
	/*
	 * From here on all who insert or map a chunk see the mark, or were done
	 * before.
	 */
	xa_lock(&region->chunks);
	xa_unlock(&region->chunks);
	/* pairs with emuv_chunk_let_go() */
	smp_mb();
	/* if the worker stays, it sees the mark as it ends with its chunk */
	emuv_reclaim_forget(region);
	down_write(&region->map_sem);
	emuv_backing_unmap(region, 0, region->range.count - 1);
	up_write(&region->map_sem);
	/* whoever owns a place that is moving sees the mark */
	emuv_backing_empty(region);
}

/*
 * Free the chunks of a region that has no holders, and thus no mappings. True
 * if none is left; false if something outside still pins pages.
 */
bool emuv_backing_release(struct emuv_region *region)
{
	struct emuv_chunk *chunk;
	unsigned long index;
	bool pinned = false;

	emuv_reclaim_release(region);
	xa_for_each(&region->chunks, index, chunk) {
		if (emuv_chunk_remove(region, index, chunk))
			emuv_chunk_put(chunk);
		else
			pinned = true;
		cond_resched();
	}
	return !pinned;
}

/* Leave the pages of such a region to whatever pins them. */
void emuv_backing_abandon(struct emuv_region *region)
{
	struct emuv_chunk *chunk;
	unsigned long index;

	xa_for_each(&region->chunks, index, chunk) {
		xa_lock(&region->chunks);
		emuv_chunk_forget(region, index);
		xa_unlock(&region->chunks);
		emuv_chunk_put(chunk);
		cond_resched();
	}
}
