// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reclaim: cold chunks of instances with a swap file leave RAM when it is
 * short, and come back on a touch.
 *
 * Two ask for RAM: a touch that would fail otherwise, and the kernel's
 * shrinker. Both only leave a request, with a number, for all workers. Each
 * instance has one, so that a file that hangs holds up its own instance alone.
 * The first chunk that leaves serves the first request that it helps. A request
 * fails once all workers have looked for it in vain; those that hang do not
 * count.
 *
 * A toucher sleeps meanwhile. It may hold mmap_lock or a dma-buf's locks, but no
 * lock of the driver's that a worker waits for. A fault lets mmap_lock go, unless
 * it was tried before (vm.c). A process in reclaim may hold any lock, so it
 * waits for a short time only. A worker tries map_sem and waits for it only
 * in a revoked region.
 *
 * A worker goes round the regions like the hand of a clock. It takes a chunk
 * out of all mappings first. If nobody touches the chunk for a while, it is
 * cold. Chunks that a device, a pin or a call holds never leave.
 *
 * A place's entry in region->chunks tells where its bytes are: nothing (never
 * touched), a chunk, EMUV_AWAY or EMUV_MOVING. The thread that sets EMUV_MOVING
 * owns the place until it sets another entry. Others wait, without a lock that
 * the owner needs. So a place's bytes are never in two hands.
 *
 * A write may hang. The end of a region, or of its instance, waits for the
 * worker for a short time only. Then a region without holders is handed over to
 * the worker, which has it end. In a revoked one the worker leaves nothing in
 * the place.
 */
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/shrinker.h>
#include <linux/slab.h>
#include <linux/swap.h>
#include <linux/workqueue.h>
#include <linux/psi.h>	/* needs workqueue.h */

#include "emuv.h"
#include "trace.h"

/* The bytes are in the swap file; or on their way, there or back. */
#define EMUV_AWAY	xa_mk_value(0)
#define EMUV_MOVING	xa_mk_value(1)

/* Time without a touch after which a chunk is cold. */
#define EMUV_RECLAIM_IDLE	(HZ / 20)

/* Rounds in which only cold chunks go; then those that are in use go, too. */
#define EMUV_RECLAIM_ROUNDS	4

/* Chunks of a region that are taken out of mappings in one round. */
#define EMUV_RECLAIM_BATCH	32

/* Most chunks that the shrinker asks for at once. */
#define EMUV_RECLAIM_SCAN	16

/* Most time that a touch, and that a process in reclaim, waits for a chunk. */
#define EMUV_RECLAIM_PATIENCE	(10 * HZ)
#define EMUV_RECLAIM_THROTTLE	(HZ / 5)

/* Time without a step after which a worker hangs, since its file does. */
#define EMUV_RECLAIM_HANGS	HZ

/*
 * struct emuv_reclaim_waiter - a touch that needs a chunk, on its thread's
 * stack
 * @region: Region that the chunk is for
 * @strict: Only RAM of the same cgroup helps
 * @number: The request's
 * @served: A chunk has left RAM
 * @chunk: That chunk itself, if it suits @region; else its RAM is free
 */
struct emuv_reclaim_waiter {
	struct list_head node;
	const struct emuv_region *region;
	bool strict;
	u64 number;
	bool served;
	struct emuv_chunk *chunk;
	struct completion done;
};

/*
 * struct emuv_reclaim_read - bytes on their way back, in a worker's hands
 * @chunk: The chunk that they are read to; the worker owns it until @done
 * @err: Once @done: 0, or why the place has no chunk
 * @ended: The place has been given up
 * @left: Nobody waits any more. The worker has references of its own to the
 *	region and the module then. Both are under the region's xa_lock
 */
struct emuv_reclaim_read {
	struct work_struct work;
	struct work_struct end_work;
	struct completion done;
	struct emuv_region *region;
	unsigned long index;
	struct emuv_chunk *chunk;
	int err;
	bool ended;
	bool left;
};

/*
 * struct emuv_reclaim_visit - the worker's look at a region
 * @force: Chunks that are in use go, too, but only for touches of their own
 *	instance
 * @aging: Chunks in use are taken out of mappings
 * @budget: How many may still be
 * @hope: Some chunks may be cold soon
 * @failed: The swap file takes no chunk
 */
struct emuv_reclaim_visit {
	struct emuv_region *region;
	bool force;
	bool aging;
	unsigned int budget;
	bool hope;
	bool failed;
};

static DEFINE_SPINLOCK(emuv_reclaim_lock);	/* guards all down to @freed */
static LIST_HEAD(emuv_reclaim_workers);
static u64 emuv_reclaim_requests;		/* number of the last one */
static LIST_HEAD(emuv_reclaim_waiters);
static unsigned long emuv_reclaim_wanted;	/* chunks, for the shrinker */
static u64 emuv_reclaim_wanted_number;		/* of the shrinker's request */
static unsigned long emuv_reclaim_wanted_freed;	/* @freed when it came */
static unsigned long emuv_reclaim_freed;	/* chunks, ever */

/* Woken when a chunk has been freed, or a worker leaves a region or ends. */
static DECLARE_WAIT_QUEUE_HEAD(emuv_reclaim_progress);

/* Chunks in RAM that could leave if nobody held them. */
static atomic_long_t emuv_reclaim_candidates;

/* Until then the shrinker is quiet, since nothing could leave lately. */
static unsigned long emuv_reclaim_quiet = INITIAL_JIFFIES;

static struct shrinker *emuv_reclaim_shrinker;

static u64 emuv_reclaim_place(const struct emuv_region *region,
			      unsigned long index)
{
	return region->range.first + index;
}

/* The number of chunks that could leave has changed. */
void emuv_reclaim_count(const struct emuv_instance *inst, long chunks)
{
	if (emuv_instance_swaps(inst))
		atomic_long_add(chunks, &emuv_reclaim_candidates);
}

/* --- the places of chunks that are not in RAM --- */

bool emuv_reclaim_is_gone(const void *entry)
{
	return xa_is_value(entry);
}

/* Own a place whose bytes are away; false if they are not, or are moving. */
static bool emuv_reclaim_claim(struct emuv_region *region, unsigned long index)
{
	return xa_cmpxchg(&region->chunks, index, EMUV_AWAY, EMUV_MOVING, 0) ==
	       EMUV_AWAY;
}

/*
 * Give up an owned place: @entry tells where its bytes are now. The caller
 * holds xa_lock. Nothing is allocated, since the place has an entry.
 */
static void emuv_reclaim_settle(struct emuv_region *region, unsigned long index,
				void *entry)
{
	lockdep_assert_held(&region->chunks.xa_lock);
	if (entry)
		__xa_store(&region->chunks, index, entry, 0);
	else
		__xa_erase(&region->chunks, index);
	wake_up_all(&region->inst->swap->moved);
}

/*
 * Wait until nobody owns the place: its chunk is leaving, or coming back.
 * -EINTR on a fatal signal.
 */
int emuv_reclaim_wait(struct emuv_region *region, unsigned long index)
{
	unsigned long stall;
	int interrupted;

	psi_memstall_enter(&stall);
	interrupted = wait_event_killable(region->inst->swap->moved,
					  xa_load(&region->chunks, index) !=
						  EMUV_MOVING);
	psi_memstall_leave(&stall);
	return interrupted ? -EINTR : 0;
}

/*
 * Give up a place whose bytes were to come back: @chunk is in it then, with the
 * caller's reference, or after an error they are away as before. Returns the
 * error. That is -ENODEV in a region that was revoked meanwhile, and nothing is
 * left in the place.
 */
static int emuv_reclaim_land(struct emuv_region *region, unsigned long index,
			     struct emuv_chunk *chunk, int err)
{
	void *entry = err ? EMUV_AWAY : chunk;

	if (emuv_region_is_revoked(region)) {
		err = -ENODEV;
		entry = NULL;
	}
	if (entry != EMUV_AWAY)
		atomic_long_dec(&region->inst->swap->away);
	if (!err)
		emuv_chunk_count(region, 1);
	emuv_reclaim_settle(region, index, entry);
	return err;
}

/* Free a read that nobody waited for, and what it held. */
static void emuv_reclaim_end_work(struct work_struct *work)
{
	struct emuv_reclaim_read *read = container_of(work,
						      struct emuv_reclaim_read,
						      end_work);

	emuv_kcov_start();
	emuv_region_put(read->region);
	kfree(read);
	emuv_kcov_stop();
	/* the module's exit waits for this queue */
	module_put(THIS_MODULE);
}

/*
 * Read the bytes of a place. The thread that waits gets the chunk with a
 * reference, and frees the read.
 */
static void emuv_reclaim_read_work(struct work_struct *work)
{
	struct emuv_reclaim_read *read = container_of(work,
						      struct emuv_reclaim_read,
						      work);
	struct emuv_region *region = read->region;
	u64 place = emuv_reclaim_place(region, read->index);
	bool left;
	int err;

	emuv_kcov_start();
	err = emuv_swap_read(region->inst->swap, place, read->chunk);
	trace_emuv_swap(region->inst->config.id, place, false, err);
	xa_lock(&region->chunks);
	err = emuv_reclaim_land(region, read->index, read->chunk, err);
	left = read->left;
	if (!err && !left)
		kref_get(&read->chunk->kref);
	read->err = err;
	read->ended = true;
	xa_unlock(&region->chunks);
	if (err)
		emuv_chunk_put(read->chunk);
	emuv_kcov_stop();
	if (left)
		emuv_swap_queue_end(&read->end_work);
	else
		complete(&read->done);
}

/*
 * Wait for the end of a read. On a fatal signal leave it to the worker: -EINTR,
 * and @read is not the caller's any more.
 */
static int emuv_reclaim_await(struct emuv_reclaim_read *read)
{
	struct emuv_region *region = read->region;
	bool left;

	if (!wait_for_completion_killable(&read->done))
		return 0;
	xa_lock(&region->chunks);
	left = !read->ended;
	if (left) {
		read->left = true;
		emuv_region_get(region);
		__module_get(THIS_MODULE);
	}
	xa_unlock(&region->chunks);
	if (!left)
		wait_for_completion(&read->done);
	return left ? -EINTR : 0;
}

/*
 * Bring the bytes of an owned place back and give the place up. The chunk with a
 * reference, or an error.
 */
static struct emuv_chunk *emuv_reclaim_fetch(struct emuv_region *region,
					     unsigned long index)
{
	struct emuv_chunk *chunk = ERR_PTR(-ENOMEM);
	struct emuv_reclaim_read *read;
	int err;

	read = kzalloc(sizeof(*read), GFP_KERNEL);
	if (read)
		chunk = emuv_chunk_make(region, true);
	if (IS_ERR(chunk)) {
		kfree(read);
		xa_lock(&region->chunks);
		err = emuv_reclaim_land(region, index, NULL, PTR_ERR(chunk));
		xa_unlock(&region->chunks);
		return ERR_PTR(err);
	}
	INIT_WORK(&read->work, emuv_reclaim_read_work);
	INIT_WORK(&read->end_work, emuv_reclaim_end_work);
	init_completion(&read->done);
	read->region = region;
	read->index = index;
	read->chunk = chunk;
	emuv_swap_queue_read(region->inst->swap, &read->work);
	err = emuv_reclaim_await(read);
	if (err)
		return ERR_PTR(err);
	err = read->err;
	kfree(read);
	return err ? ERR_PTR(err) : chunk;
}

/*
 * Bring the bytes of a place back that are not in RAM. Returns the chunk, with
 * a reference; NULL if another thread was faster; or an error. -EIO means that
 * the swap file cannot be read. -EINTR means that a fatal signal came; the bytes
 * may still come back. Others are those of emuv_chunk_make(). After an error the
 * bytes are not lost, unless it is -ENODEV, in a revoked region.
 */
struct emuv_chunk *emuv_reclaim_return(struct emuv_region *region,
				       unsigned long index)
{
	struct emuv_chunk *chunk;
	unsigned long stall;

	if (emuv_reclaim_wait(region, index))
		return ERR_PTR(-EINTR);
	if (!emuv_reclaim_claim(region, index))
		return NULL;
	psi_memstall_enter(&stall);
	chunk = emuv_reclaim_fetch(region, index);
	psi_memstall_leave(&stall);
	return chunk;
}

/*
 * Forget the bytes of a place that are away, for a discard. False if the place
 * has an owner, or a chunk, or nothing. The file keeps them until the region
 * goes, or others are written there.
 */
bool emuv_reclaim_discard(struct emuv_region *region, unsigned long index)
{
	if (xa_cmpxchg(&region->chunks, index, EMUV_AWAY, NULL, 0) != EMUV_AWAY)
		return false;
	atomic_long_dec(&region->inst->swap->away);
	return true;
}

/* Forget all bytes that are away of a region without holders. */
void emuv_reclaim_release(struct emuv_region *region)
{
	struct emuv_swap *swap = region->inst->swap;
	unsigned long index;
	void *entry;

	if (!region->swapped)
		return;
	xa_for_each(&region->chunks, index, entry) {
		if (!emuv_reclaim_is_gone(entry))
			continue;
		WARN_ON_ONCE(entry != EMUV_AWAY);
		xa_erase(&region->chunks, index);
		atomic_long_dec(&swap->away);
		cond_resched();
	}
	/* queued before another region gets the places, and so done before */
	emuv_swap_trim(swap, region->range.first, region->range.count);
	region->swapped = false;
}

/* --- requests --- */

static struct emuv_reclaimer *
emuv_reclaim_worker(const struct emuv_region *region)
{
	return &region->inst->swap->reclaimer;
}

/* Make all workers look for a chunk. Returns the request's number. */
static u64 emuv_reclaim_call(void)
{
	struct emuv_reclaimer *worker;

	lockdep_assert_held(&emuv_reclaim_lock);
	list_for_each_entry(worker, &emuv_reclaim_workers, node)
		queue_work(worker->wq, &worker->work);
	return ++emuv_reclaim_requests;
}

/* Would the RAM of a chunk of the region help? */
static bool emuv_reclaim_serves(const struct emuv_reclaim_waiter *waiter,
				const struct emuv_region *region)
{
	const struct emuv_config *config = &waiter->region->inst->config;

	if (config->bind && config->numa_node != region->inst->config.numa_node)
		return false;
	return !waiter->strict || waiter->region->payer == region->payer;
}

/* Get the first waiter that a chunk of the region helps, or NULL. */
static struct emuv_reclaim_waiter *
emuv_reclaim_first(const struct emuv_region *region)
{
	struct emuv_reclaim_waiter *waiter;

	lockdep_assert_held(&emuv_reclaim_lock);
	list_for_each_entry(waiter, &emuv_reclaim_waiters, node)
		if (emuv_reclaim_serves(waiter, region))
			return waiter;
	return NULL;
}

/* May a chunk of the region that is in use leave, for a touch? */
static bool emuv_reclaim_is_forced(const struct emuv_region *region)
{
	struct emuv_reclaim_waiter *waiter;

	lockdep_assert_held(&emuv_reclaim_lock);
	list_for_each_entry(waiter, &emuv_reclaim_waiters, node)
		if (emuv_reclaim_serves(waiter, region) &&
		    waiter->region->inst == region->inst)
			return true;
	return false;
}

/* Does anybody want a chunk of the region? */
static bool emuv_reclaim_is_wanted(const struct emuv_reclaim_visit *visit)
{
	struct emuv_region *region = visit->region;
	bool wanted;

	spin_lock(&emuv_reclaim_lock);
	emuv_reclaim_worker(region)->step = jiffies;
	if (list_empty(&region->reclaim))
		wanted = false;
	else if (visit->force)
		wanted = emuv_reclaim_is_forced(region);
	else
		wanted = emuv_reclaim_wanted || emuv_reclaim_first(region);
	spin_unlock(&emuv_reclaim_lock);
	return wanted;
}

static bool emuv_reclaim_is_idle(void)
{
	bool idle;

	spin_lock(&emuv_reclaim_lock);
	idle = !emuv_reclaim_wanted && list_empty(&emuv_reclaim_waiters);
	spin_unlock(&emuv_reclaim_lock);
	return idle;
}

static void emuv_reclaim_serve(struct emuv_reclaim_waiter *waiter, bool served)
{
	lockdep_assert_held(&emuv_reclaim_lock);
	waiter->served = served;
	list_del_init(&waiter->node);
	complete(&waiter->done);
}

static bool emuv_reclaim_is_sound(const struct emuv_chunk *chunk)
{
	return emuv_chunk_sound(chunk, 0, EMUV_CHUNK_BYTES) == EMUV_CHUNK_BYTES;
}

/* Does a chunk of @from suit @to, so that it can change hands as it is? */
static bool emuv_reclaim_suits(const struct emuv_region *from,
			       const struct emuv_region *to)
{
	return from->payer == to->payer &&
	       from->inst->config.numa_node == to->inst->config.numa_node &&
	       from->inst->config.bind == to->inst->config.bind;
}

/* A chunk has left: hand it to a waiter, or free it. */
static void emuv_reclaim_give(struct emuv_region *region,
			      struct emuv_chunk *chunk)
{
	struct emuv_reclaim_waiter *waiter;

	spin_lock(&emuv_reclaim_lock);
	waiter = emuv_reclaim_first(region);
	if (waiter && emuv_reclaim_suits(region, waiter->region) &&
	    emuv_reclaim_is_sound(chunk)) {
		waiter->chunk = chunk;
		chunk = NULL;
		emuv_reclaim_serve(waiter, true);
		waiter = NULL;
	}
	spin_unlock(&emuv_reclaim_lock);
	if (!chunk)
		return;

	emuv_chunk_put(chunk);
	spin_lock(&emuv_reclaim_lock);
	WRITE_ONCE(emuv_reclaim_freed, emuv_reclaim_freed + 1);
	waiter = emuv_reclaim_first(region);
	if (waiter)
		emuv_reclaim_serve(waiter, true);
	else if (emuv_reclaim_wanted)
		WRITE_ONCE(emuv_reclaim_wanted, emuv_reclaim_wanted - 1);
	spin_unlock(&emuv_reclaim_lock);
	wake_up_all(&emuv_reclaim_progress);
}

/*
 * Ask for the RAM of another chunk, because there is none for one of @region.
 * True if a chunk has left RAM. It is in @chunk then, with old bytes in it, or
 * @chunk is NULL and its RAM is free. False if none can leave, on a fatal signal,
 * or if it takes too long. The caller holds nothing that is inside mmap_lock
 * and the dma-buf's locks.
 */
bool emuv_reclaim_ask(const struct emuv_region *region, bool strict,
		      struct emuv_chunk **chunk)
{
	struct emuv_reclaim_waiter waiter = {
		.region = region,
		.strict = strict,
	};
	unsigned long stall;

	init_completion(&waiter.done);
	spin_lock(&emuv_reclaim_lock);
	list_add_tail(&waiter.node, &emuv_reclaim_waiters);
	waiter.number = emuv_reclaim_call();
	spin_unlock(&emuv_reclaim_lock);

	psi_memstall_enter(&stall);
	wait_for_completion_killable_timeout(&waiter.done,
					     EMUV_RECLAIM_PATIENCE);
	psi_memstall_leave(&stall);
	spin_lock(&emuv_reclaim_lock);
	list_del(&waiter.node);
	spin_unlock(&emuv_reclaim_lock);
	*chunk = waiter.chunk;
	return waiter.served;
}

/* --- the workers --- */

/* Find the first chunk from @index on, with a reference, or NULL. */
static struct emuv_chunk *emuv_reclaim_find(struct emuv_region *region,
					    unsigned long *index,
					    unsigned long last)
{
	struct emuv_chunk *chunk;

	xa_lock(&region->chunks);
	chunk = xa_find(&region->chunks, index, last, XA_PRESENT);
	while (emuv_reclaim_is_gone(chunk))
		chunk = xa_find_after(&region->chunks, index, last, XA_PRESENT);
	if (chunk)
		kref_get(&chunk->kref);
	xa_unlock(&region->chunks);
	return chunk;
}

/*
 * Own the place of a chunk, and the chunk, unless somebody besides the region
 * and the caller holds it, or the region was revoked. The caller has unmapped
 * the chunk.
 */
static bool emuv_reclaim_take(const struct emuv_reclaim_visit *visit,
			      unsigned long index, struct emuv_chunk *chunk)
{
	struct emuv_region *region = visit->region;
	bool free;

	lockdep_assert_held_write(&region->map_sem);
	xa_lock(&region->chunks);
	free = !emuv_region_is_revoked(region) &&
	       xa_load(&region->chunks, index) == chunk &&
	       kref_read(&chunk->kref) == 2 && !emuv_chunk_is_pinned(chunk) &&
	       (visit->force || !READ_ONCE(chunk->young));
	if (free)
		__xa_store(&region->chunks, index, EMUV_MOVING, 0);
	xa_unlock(&region->chunks);
	return free;
}

/*
 * Give up the place of a chunk that was to leave. Its bytes are away then, or
 * after an error the chunk is in it as before. In a region that was revoked
 * meanwhile, nothing is left in it. True if the chunk is not in it any more.
 */
static bool emuv_reclaim_part(struct emuv_region *region, unsigned long index,
			      struct emuv_chunk *chunk, int err)
{
	void *entry = err ? (void *)chunk : EMUV_AWAY;

	if (emuv_region_is_revoked(region))
		entry = NULL;
	if (entry == EMUV_AWAY)
		atomic_long_inc(&region->inst->swap->away);
	if (entry == chunk)
		WRITE_ONCE(chunk->young, true);
	else
		emuv_chunk_count(region, -1);
	emuv_reclaim_settle(region, index, entry);
	return entry != chunk;
}

/* Try to move a chunk to the swap file. Takes over the caller's reference. */
static void emuv_reclaim_evict(struct emuv_reclaim_visit *visit,
			       unsigned long index, struct emuv_chunk *chunk)
{
	struct emuv_region *region = visit->region;
	u64 place = emuv_reclaim_place(region, index);
	bool taken = false, parted;
	int err;

	if (down_write_trylock(&region->map_sem)) {
		emuv_backing_unmap(region, index, index);
		taken = emuv_reclaim_take(visit, index, chunk);
		up_write(&region->map_sem);
	}
	if (!taken) {
		visit->hope = true;
		emuv_chunk_let_go(region, index, chunk);
		return;
	}
	region->swapped = true;
	err = emuv_swap_write(region->inst->swap, place, chunk);
	if (err)
		visit->failed = true;
	else if (!emuv_reclaim_is_sound(chunk))
		err = -EIO;	/* it failed meanwhile: its holders shall know */
	trace_emuv_swap(region->inst->config.id, place, true, err);
	xa_lock(&region->chunks);
	parted = emuv_reclaim_part(region, index, chunk, err);
	xa_unlock(&region->chunks);
	if (parted) {
		emuv_chunk_put(chunk);	/* the region's reference */
		emuv_reclaim_give(region, chunk);
	} else {
		emuv_chunk_let_go(region, index, chunk);
	}
}

/* A second chance: whoever uses the chunk comes by the fault handler again. */
static void emuv_reclaim_age(struct emuv_reclaim_visit *visit,
			     unsigned long index, struct emuv_chunk *chunk)
{
	visit->budget--;
	chunk->cold_since = jiffies;
	WRITE_ONCE(chunk->young, false);
	unmap_mapping_range(visit->region->inode->i_mapping,
			    (loff_t)index << EMUV_CHUNK_SHIFT,
			    EMUV_CHUNK_BYTES, 1);
}

static bool emuv_reclaim_is_held(const struct emuv_chunk *chunk)
{
	/* the region's reference and the worker's */
	return kref_read(&chunk->kref) > 2;
}

/* Age or evict a chunk. Takes over the caller's reference. */
static void emuv_reclaim_try(struct emuv_reclaim_visit *visit,
			     unsigned long index, struct emuv_chunk *chunk)
{
	bool young = READ_ONCE(chunk->young);
	bool cold = !young && time_after_eq(jiffies, chunk->cold_since +
						     EMUV_RECLAIM_IDLE);

	if (!emuv_reclaim_is_held(chunk)) {
		if ((cold || visit->force) && emuv_reclaim_is_sound(chunk)) {
			emuv_reclaim_evict(visit, index, chunk);
			return;
		}
		visit->hope = true;
		if (young && visit->aging)
			emuv_reclaim_age(visit, index, chunk);
	}
	/* the region may have been revoked meanwhile */
	emuv_chunk_let_go(visit->region, index, chunk);
}

/* Look at a part of a region; false once that is enough. */
static bool emuv_reclaim_span(struct emuv_reclaim_visit *visit,
			      unsigned long first, unsigned long end)
{
	struct emuv_region *region = visit->region;
	struct emuv_chunk *chunk;

	while (first < end) {
		if (visit->failed || !emuv_reclaim_is_wanted(visit))
			return false;
		chunk = emuv_reclaim_find(region, &first, end - 1);
		if (!chunk)
			break;
		emuv_reclaim_try(visit, first, chunk);
		first++;
		if (visit->aging && !visit->budget) {
			region->hand = first;
			return false;
		}
		cond_resched();
	}
	return true;
}

/* Enter the next region of a round, or NULL at its end. */
static struct emuv_region *emuv_reclaim_enter(struct emuv_reclaimer *worker)
{
	struct emuv_region *region;

	spin_lock(&emuv_reclaim_lock);
	region = list_first_entry_or_null(&worker->regions,
					  struct emuv_region, reclaim);
	if (region && region->round == worker->round)
		region = NULL;
	if (region) {
		region->round = worker->round;
		list_move_tail(&region->reclaim, &worker->regions);
		worker->visited = region;
	}
	spin_unlock(&emuv_reclaim_lock);
	return region;
}

/* Leave the region: it may go now, or goes if it was handed over. */
static void emuv_reclaim_leave(struct emuv_reclaimer *worker)
{
	spin_lock(&emuv_reclaim_lock);
	if (worker->visited->handed_over)
		emuv_swap_queue_end(&worker->visited->end_work);
	worker->visited = NULL;
	spin_unlock(&emuv_reclaim_lock);
	wake_up_all(&emuv_reclaim_progress);
}

/* Visit each region once, as long as anybody wants RAM. True: go on hoping. */
static bool emuv_reclaim_go_round(struct emuv_reclaimer *worker, bool force)
{
	struct emuv_region *region;
	bool hope = false;

	spin_lock(&emuv_reclaim_lock);
	worker->round++;
	worker->step = jiffies;
	spin_unlock(&emuv_reclaim_lock);
	while (!emuv_reclaim_is_idle() &&
	       (region = emuv_reclaim_enter(worker))) {
		struct emuv_reclaim_visit visit = {
			.region = region,
			.force = force,
			.budget = EMUV_RECLAIM_BATCH,
		};
		unsigned long hand = region->hand < region->range.count ?
				     region->hand : 0;

		/* first those that are cold, then the next ones to become so */
		if (emuv_reclaim_span(&visit, hand, region->range.count))
			emuv_reclaim_span(&visit, 0, hand);
		visit.aging = !force;
		if (visit.aging &&
		    emuv_reclaim_span(&visit, hand, region->range.count))
			emuv_reclaim_span(&visit, 0, hand);
		hope |= visit.hope && !visit.failed;
		emuv_reclaim_leave(worker);
	}
	return hope;
}

static void emuv_reclaim_begin(struct emuv_reclaimer *worker)
{
	spin_lock(&emuv_reclaim_lock);
	worker->begun = emuv_reclaim_requests;
	worker->step = jiffies;
	spin_unlock(&emuv_reclaim_lock);
}

/* The last request for which all workers have looked, unless they hang. */
static u64 emuv_reclaim_looked(void)
{
	struct emuv_reclaimer *worker;
	u64 looked = emuv_reclaim_requests;

	lockdep_assert_held(&emuv_reclaim_lock);
	list_for_each_entry(worker, &emuv_reclaim_workers, node)
		if (worker->begun == worker->looked ||
		    time_before(jiffies, worker->step + EMUV_RECLAIM_HANGS))
			looked = min(looked, worker->looked);
	return looked;
}

/* Tell those whom no chunk helped. */
static void emuv_reclaim_conclude(void)
{
	struct emuv_reclaim_waiter *waiter, *next;
	u64 looked = emuv_reclaim_looked();

	lockdep_assert_held(&emuv_reclaim_lock);
	list_for_each_entry_safe(waiter, next, &emuv_reclaim_waiters, node)
		if (waiter->number <= looked)
			emuv_reclaim_serve(waiter, false);
	if (!emuv_reclaim_wanted || emuv_reclaim_wanted_number > looked)
		return;
	if (emuv_reclaim_freed == emuv_reclaim_wanted_freed)
		WRITE_ONCE(emuv_reclaim_quiet, jiffies + HZ);
	WRITE_ONCE(emuv_reclaim_wanted, 0);
}

/* Later requests have queued the work. */
static void emuv_reclaim_end(struct emuv_reclaimer *worker)
{
	spin_lock(&emuv_reclaim_lock);
	worker->looked = worker->begun;
	emuv_reclaim_conclude();
	spin_unlock(&emuv_reclaim_lock);
	wake_up_all(&emuv_reclaim_progress);
}

static void emuv_reclaim_run(struct work_struct *work)
{
	struct emuv_reclaimer *worker = container_of(work, struct emuv_reclaimer,
						     work);
	/* the shrinker must not wait for it then */
	unsigned int noio = memalloc_noio_save();
	unsigned int round = 0;

	emuv_kcov_start();
	emuv_reclaim_begin(worker);
	while (!emuv_reclaim_is_idle() && round <= EMUV_RECLAIM_ROUNDS) {
		if (!emuv_reclaim_go_round(worker, round == EMUV_RECLAIM_ROUNDS))
			break;
		if (++round < EMUV_RECLAIM_ROUNDS && !emuv_reclaim_is_idle())
			schedule_timeout_uninterruptible(EMUV_RECLAIM_IDLE);
	}
	emuv_reclaim_end(worker);
	emuv_kcov_stop();
	memalloc_noio_restore(noio);
}

/* Let an instance's chunks leave. */
void emuv_reclaimer_start(struct emuv_reclaimer *worker,
			  struct workqueue_struct *wq)
{
	worker->wq = wq;
	INIT_WORK(&worker->work, emuv_reclaim_run);
	INIT_LIST_HEAD(&worker->regions);
	spin_lock(&emuv_reclaim_lock);
	worker->begun = emuv_reclaim_requests;
	worker->looked = emuv_reclaim_requests;
	list_add_tail(&worker->node, &emuv_reclaim_workers);
	spin_unlock(&emuv_reclaim_lock);
}

/* From now on nobody calls the worker, nor waits for it. It may still run. */
void emuv_reclaimer_stop(struct emuv_reclaimer *worker)
{
	spin_lock(&emuv_reclaim_lock);
	list_del(&worker->node);
	emuv_reclaim_conclude();
	spin_unlock(&emuv_reclaim_lock);
	wake_up_all(&emuv_reclaim_progress);
}

/*
 * Let the instance's worker visit a region. It has holders, and no lock is
 * held.
 */
void emuv_reclaim_add(struct emuv_region *region)
{
	struct emuv_reclaimer *worker;

	if (!emuv_instance_swaps(region->inst))
		return;
	worker = emuv_reclaim_worker(region);
	spin_lock(&emuv_reclaim_lock);
	region->round = worker->round - 1;
	list_add_tail(&region->reclaim, &worker->regions);
	spin_unlock(&emuv_reclaim_lock);
}

static bool emuv_reclaim_has_left(const struct emuv_region *region)
{
	bool left;

	spin_lock(&emuv_reclaim_lock);
	left = emuv_reclaim_worker(region)->visited != region;
	spin_unlock(&emuv_reclaim_lock);
	return left;
}

/*
 * Keep the worker away from a region from now on. It may have a chunk in hand:
 * then wait, but not for a file that hangs. False if the worker has not left.
 */
bool emuv_reclaim_forget(struct emuv_region *region)
{
	if (!emuv_instance_swaps(region->inst))
		return true;
	spin_lock(&emuv_reclaim_lock);
	list_del_init(&region->reclaim);
	spin_unlock(&emuv_reclaim_lock);
	return wait_event_timeout(emuv_reclaim_progress,
				  emuv_reclaim_has_left(region),
				  EMUV_RECLAIM_HANGS);
}

/*
 * Have a region without holders end once the worker has left it. It may be gone
 * after the call.
 */
void emuv_reclaim_hand_over(struct emuv_region *region)
{
	spin_lock(&emuv_reclaim_lock);
	if (emuv_reclaim_worker(region)->visited == region)
		region->handed_over = true;
	else
		emuv_swap_queue_end(&region->end_work);
	spin_unlock(&emuv_reclaim_lock);
}

/* --- the kernel's requests --- */

static unsigned long emuv_reclaim_shrink_count(struct shrinker *shrinker,
					       struct shrink_control *sc)
{
	if (time_before(jiffies, READ_ONCE(emuv_reclaim_quiet)))
		return 0;
	return max(atomic_long_read(&emuv_reclaim_candidates), 0L)
	       << EMUV_CHUNK_ORDER;
}

/*
 * May a process in reclaim wait for the workers? These and their I/O, which
 * allocate without __GFP_IO, must not wait for themselves, nor for a file system
 * whose locks the process holds.
 */
static bool emuv_reclaim_may_wait(const struct shrink_control *sc)
{
	const gfp_t all = __GFP_IO | __GFP_FS;

	return (sc->gfp_mask & all) == all && !current_is_kswapd();
}

static unsigned long emuv_reclaim_shrink_scan(struct shrinker *shrinker,
					      struct shrink_control *sc)
{
	unsigned long chunks = clamp(sc->nr_to_scan >> EMUV_CHUNK_ORDER, 1UL,
				     (unsigned long)EMUV_RECLAIM_SCAN);
	unsigned long before, freed;
	u64 number;

	spin_lock(&emuv_reclaim_lock);
	before = emuv_reclaim_freed;
	number = emuv_reclaim_call();
	if (!emuv_reclaim_wanted) {
		emuv_reclaim_wanted_freed = before;
		emuv_reclaim_wanted_number = number;
	}
	WRITE_ONCE(emuv_reclaim_wanted, max(emuv_reclaim_wanted, chunks));
	spin_unlock(&emuv_reclaim_lock);
	if (emuv_reclaim_may_wait(sc))
		wait_event_killable_timeout(emuv_reclaim_progress,
					    READ_ONCE(emuv_reclaim_freed) !=
							before ||
					    !READ_ONCE(emuv_reclaim_wanted),
					    EMUV_RECLAIM_THROTTLE);
	freed = READ_ONCE(emuv_reclaim_freed) - before;
	return freed ? freed << EMUV_CHUNK_ORDER : SHRINK_STOP;
}

int emuv_reclaim_init(void)
{
	int err;

	emuv_reclaim_shrinker = emuv_shrinker_alloc("emuv");
	if (!emuv_reclaim_shrinker)
		return -ENOMEM;
	emuv_reclaim_shrinker->count_objects = emuv_reclaim_shrink_count;
	emuv_reclaim_shrinker->scan_objects = emuv_reclaim_shrink_scan;
	emuv_reclaim_shrinker->seeks = DEFAULT_SEEKS;
	emuv_reclaim_shrinker->batch = EMUV_CHUNK_PAGES;
	err = emuv_shrinker_register(emuv_reclaim_shrinker, "emuv");
	if (err)
		emuv_shrinker_free(emuv_reclaim_shrinker);
	return err;
}

void emuv_reclaim_exit(void)
{
	emuv_shrinker_free(emuv_reclaim_shrinker);
}
