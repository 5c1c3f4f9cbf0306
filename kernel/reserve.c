// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reserves: all the chunks that a guaranteed instance may ever need, allocated
 * when it is created. A chunk leaves the reserve to back a place, and comes
 * back when nothing holds it any more. In the reserve chunks are zeroed, but for
 * those of a device that nobody has used yet.
 */
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/wait.h>

#include "emuv.h"

void emuv_reserve_init(struct emuv_reserve *reserve)
{
	spin_lock_init(&reserve->lock);
	INIT_LIST_HEAD(&reserve->chunks);
	init_waitqueue_head(&reserve->returned);
}

static void emuv_reserve_free_list(struct list_head *chunks)
{
	struct emuv_chunk *chunk, *next;

	list_for_each_entry_safe(chunk, next, chunks, node) {
		list_del(&chunk->node);
		emuv_chunk_free(chunk);
		cond_resched();
	}
}

/*
 * Fill the reserve of a new instance with a device's memory. A chunk is wiped when
 * it is first taken: a host need not back it before. -ENOMEM leaves the reserve
 * filled in part.
 */
int emuv_reserve_fill(struct emuv_reserve *reserve, struct emuv_bar *bar)
{
	struct emuv_chunk *chunk;
	unsigned long i;

	for (i = 0; i < bar->count; i++) {
		chunk = kzalloc(sizeof(*chunk), GFP_KERNEL_ACCOUNT);
		if (!chunk)
			return -ENOMEM;
		kref_init(&chunk->kref);
		refcount_inc(&bar->users);
		chunk->bar = bar;
		chunk->first_pfn = bar->first_pfn + (i << EMUV_CHUNK_ORDER);
		chunk->vaddr = bar->vaddr + (i << EMUV_CHUNK_SHIFT);
		chunk->reserve = reserve;
		chunk->stale = true;
		spin_lock(&reserve->lock);
		list_add_tail(&chunk->node, &reserve->chunks);
		reserve->count++;
		spin_unlock(&reserve->lock);
		cond_resched();
	}
	return 0;
}

/*
 * Allocate @count more chunks for an instance's reserve at its payer's expense.
 * -ENOMEM, or -EINTR on a fatal signal; the reserve is as it was then.
 */
int emuv_reserve_grow(struct emuv_instance *inst, unsigned long count)
{
	struct emuv_reserve *reserve = &inst->reserve;
	struct emuv_payer *payer = reserve->payer;
	struct mem_cgroup *before;
	unsigned long made = 0;
	LIST_HEAD(chunks);
	int err = 0;

	/* fail early, instead of filling the host to its floor first */
	if (!emuv_backing_has_room(inst, payer, count))
		return -ENOMEM;
	before = set_active_memcg(payer->memcg);
	while (!err && made < count) {
		struct emuv_chunk *chunk;

		chunk = emuv_chunk_charge(&inst->config, payer);
		if (chunk) {
			chunk->reserve = reserve;
			list_add(&chunk->node, &chunks);
			made++;
		} else {
			err = -ENOMEM;
		}
		if (fatal_signal_pending(current))
			err = -EINTR;
		cond_resched();
	}
	set_active_memcg(before);
	if (err) {
		emuv_reserve_free_list(&chunks);
		return err;
	}
	spin_lock(&reserve->lock);
	if (!reserve->closed) {
		list_splice_init(&chunks, &reserve->chunks);
		reserve->count += made;
	}
	spin_unlock(&reserve->lock);
	wake_up_all(&reserve->returned);
	/* the instance has gone meanwhile */
	emuv_reserve_free_list(&chunks);
	return 0;
}

/*
 * Free @count chunks that no place needs any more. Those that threads have in hand
 * go as they come back.
 */
void emuv_reserve_shrink(struct emuv_reserve *reserve, unsigned long count)
{
	unsigned long missing;
	LIST_HEAD(gone);

	spin_lock(&reserve->lock);
	missing = min(count, reserve->lost);
	reserve->lost -= missing;
	for (count -= missing; count && !list_empty(&reserve->chunks); count--) {
		list_move(reserve->chunks.next, &gone);
		reserve->count--;
	}
	reserve->surplus += count;
	spin_unlock(&reserve->lock);
	emuv_reserve_free_list(&gone);
}

/* A chunk will not be in the reserve again. */
static void emuv_reserve_miss(struct emuv_reserve *reserve)
{
	lockdep_assert_held(&reserve->lock);
	if (reserve->surplus)
		reserve->surplus--;
	else
		reserve->lost++;
}

/* Keep no chunk from now on; those in the reserve stay there. */
void emuv_reserve_end(struct emuv_reserve *reserve)
{
	spin_lock(&reserve->lock);
	reserve->closed = true;
	spin_unlock(&reserve->lock);
	wake_up_all(&reserve->returned);
}

/* Free the chunks in the reserve. Others are freed when they would come back. */
void emuv_reserve_close(struct emuv_reserve *reserve)
{
	LIST_HEAD(gone);

	emuv_reserve_end(reserve);
	spin_lock(&reserve->lock);
	list_splice_init(&reserve->chunks, &gone);
	reserve->count = 0;
	spin_unlock(&reserve->lock);
	emuv_reserve_free_list(&gone);
}

u64 emuv_reserve_bytes(struct emuv_reserve *reserve)
{
	unsigned long count;

	spin_lock(&reserve->lock);
	count = reserve->count;
	spin_unlock(&reserve->lock);
	return (u64)count << EMUV_CHUNK_SHIFT;
}

/* Return a chunk that nothing holds; false if the caller has to free it. */
bool emuv_reserve_return(struct emuv_chunk *chunk)
{
	struct emuv_reserve *reserve = chunk->reserve;
	bool sound = emuv_chunk_sound(chunk, 0, EMUV_CHUNK_BYTES) ==
		     EMUV_CHUNK_BYTES;
	bool kept;

	/* once it is closed, something outside may still use the pages */
	if (sound && !READ_ONCE(reserve->closed))
		memset(chunk->vaddr, 0, EMUV_CHUNK_BYTES);
	kref_init(&chunk->kref);
	spin_lock(&reserve->lock);
	kept = sound && !reserve->closed && !reserve->surplus;
	if (kept) {
		list_add(&chunk->node, &reserve->chunks);
		reserve->count++;
	} else if (!sound || reserve->surplus) {
		emuv_reserve_miss(reserve);
	}
	spin_unlock(&reserve->lock);
	wake_up_all(&reserve->returned);
	return kept;
}

static struct emuv_chunk *emuv_reserve_first(struct emuv_reserve *reserve)
{
	struct emuv_chunk *chunk;

	spin_lock(&reserve->lock);
	chunk = list_first_entry_or_null(&reserve->chunks, struct emuv_chunk,
					 node);
	if (chunk) {
		list_del(&chunk->node);
		reserve->count--;
	}
	spin_unlock(&reserve->lock);
	return chunk;
}

static struct emuv_chunk *emuv_reserve_take(struct emuv_reserve *reserve)
{
	struct emuv_chunk *chunk;

	while ((chunk = emuv_reserve_first(reserve))) {
		if (emuv_chunk_sound(chunk, 0, EMUV_CHUNK_BYTES) ==
		    EMUV_CHUNK_BYTES)
			break;
		/* its memory has failed in the reserve */
		spin_lock(&reserve->lock);
		emuv_reserve_miss(reserve);
		spin_unlock(&reserve->lock);
		wake_up_all(&reserve->returned);
		emuv_chunk_free(chunk);
	}
	if (chunk && chunk->stale)
		memset(chunk->vaddr, 0, EMUV_CHUNK_BYTES);
	if (chunk)
		chunk->stale = false;
	return chunk;
}

/*
 * Try to replace a chunk whose memory has failed, at the creator's expense. A
 * device has no other memory.
 */
static struct emuv_chunk *emuv_reserve_replace(struct emuv_instance *inst)
{
	struct emuv_reserve *reserve = &inst->reserve;
	struct mem_cgroup *before;
	struct emuv_chunk *chunk;

	if (!READ_ONCE(reserve->lost) || inst->config.bar)
		return NULL;
	before = set_active_memcg(reserve->payer->memcg);
	chunk = emuv_chunk_charge(&inst->config, reserve->payer);
	set_active_memcg(before);
	if (!chunk)
		return NULL;
	spin_lock(&reserve->lock);
	/* otherwise another thread was faster: an ordinary chunk does, too */
	if (reserve->lost) {
		reserve->lost--;
		chunk->reserve = reserve;
	}
	spin_unlock(&reserve->lock);
	return chunk;
}

/* Is there something to do for a thread that wants a chunk for @index? */
static bool emuv_reserve_is_ready(struct emuv_region *region,
				  unsigned long index)
{
	struct emuv_reserve *reserve = &region->inst->reserve;

	return !list_empty(&reserve->chunks) || READ_ONCE(reserve->lost) ||
	       READ_ONCE(reserve->closed) || xa_load(&region->chunks, index);
}

/*
 * Take a chunk for @index out of the reserve. NULL if @index is backed meanwhile,
 * on a fatal signal, if failed memory cannot be replaced, or once the reserve is
 * closed.
 *
 * The reserve was filled for every place of the instance, and a surplus is all in
 * the hands of threads. So if it is empty and a place is not backed, another
 * thread has a chunk in hand beyond the surplus. That thread backs a
 * place with it, returns it, or counts it as lost. It touches no user memory
 * before, and each of the three wakes us.
 */
struct emuv_chunk *emuv_reserve_get(struct emuv_region *region,
				    unsigned long index)
{
	struct emuv_reserve *reserve = &region->inst->reserve;
	struct emuv_chunk *chunk;

	for (;;) {
		chunk = emuv_reserve_take(reserve);
		if (!chunk)
			chunk = emuv_reserve_replace(region->inst);
		if (chunk || READ_ONCE(reserve->lost) ||
		    READ_ONCE(reserve->closed) ||
		    xa_load(&region->chunks, index) ||
		    wait_event_killable(reserve->returned,
					emuv_reserve_is_ready(region, index)))
			return chunk;
	}
}
