// SPDX-License-Identifier: GPL-2.0-only
/*
 * Regions: parts of an offset space that clients, mappings, descriptors and
 * devices hold together.
 *
 * When the last holder lets go, the memory returns to the instance. Something
 * that the driver does not know, such as a GPU driver or io_uring, may still
 * pin pages. The region then stays in the ledger until they are unpinned, since
 * pinned memory is not free. So does a region with a chunk on its way to a swap
 * file that hangs. Nobody waits for either.
 */
#include <linux/file.h>
#include <linux/module.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "emuv.h"
#include "trace.h"

#define EMUV_REAP_INTERVAL	(HZ / 10)

/* Regions that are looked at in one go, while others wait for the instance. */
#define EMUV_REGION_SLICE	256

static void emuv_region_unmake(struct emuv_region *region)
{
	xa_destroy(&region->chunks);
	emuv_payer_put(region->payer);
	kfree(region);
}

static void emuv_region_free(struct emuv_region *region)
{
	struct emuv_instance *inst = region->inst;

	lockdep_assert_held(&inst->lock);
	trace_emuv_region_release(inst->config.id, emuv_region_offset(region),
				  emuv_region_bytes(region));
	emuv_range_erase(&inst->ranges, &region->range);
	emuv_ledger_return(&inst->ledger, emuv_region_bytes(region));
	emuv_region_unmake(region);
}

/* A region lingers, or does not any more. */
static void emuv_region_count_lingering(struct emuv_instance *inst, s64 bytes)
{
	lockdep_assert_held(&inst->lock);
	WRITE_ONCE(inst->lingering_bytes, inst->lingering_bytes + bytes);
}

/* Keep a region that nobody holds and something has pinned. */
static void emuv_region_linger(struct emuv_region *region)
{
	struct emuv_instance *inst = region->inst;

	lockdep_assert_held(&inst->lock);
	list_add_tail(&region->lingering, &inst->lingering);
	emuv_region_count_lingering(inst, emuv_region_bytes(region));
}

/* Free such a region. */
static void emuv_region_free_lingering(struct emuv_region *region)
{
	struct emuv_instance *inst = region->inst;

	list_del(&region->lingering);
	emuv_region_count_lingering(inst, -(s64)emuv_region_bytes(region));
	emuv_region_free(region);
}

/*
 * Free the lingering regions whose pages nothing outside holds any more. A large
 * region takes long, above all if its chunks are zeroed: not under the
 * instance's lock. Returns after every region that lingered at the call has been
 * tried, by whomever, unless a fatal signal comes.
 */
void emuv_region_reap(struct emuv_instance *inst)
{
	struct emuv_region *region, *next;
	LIST_HEAD(tried);

	if (mutex_lock_killable(&inst->reap_lock))
		return;
	mutex_lock(&inst->lock);
	list_splice_init(&inst->lingering, &tried);
	mutex_unlock(&inst->lock);
	list_for_each_entry_safe(region, next, &tried, lingering) {
		if (!emuv_backing_release(region))
			continue;
		mutex_lock(&inst->lock);
		emuv_region_free_lingering(region);
		mutex_unlock(&inst->lock);
	}
	mutex_lock(&inst->lock);
	list_splice(&tried, &inst->lingering);
	mutex_unlock(&inst->lock);
	mutex_unlock(&inst->reap_lock);
}

/* Free the lingering regions of an instance that goes; leave pinned pages. */
void emuv_region_abandon(struct emuv_instance *inst)
{
	struct emuv_region *region, *next;

	/* a reaper that still runs has regions in its hands */
	mutex_lock(&inst->reap_lock);
	mutex_lock(&inst->lock);
	list_for_each_entry_safe(region, next, &inst->lingering, lingering) {
		emuv_backing_abandon(region);
		emuv_region_free_lingering(region);
	}
	mutex_unlock(&inst->lock);
	mutex_unlock(&inst->reap_lock);
}

/* The work takes long: it must not hold up others of its CPU. */
static void emuv_region_reap_later(struct emuv_instance *inst)
{
	lockdep_assert_held(&inst->lock);
	queue_delayed_work(system_dfl_wq, &inst->reap_work,
			   EMUV_REAP_INTERVAL);
}

void emuv_region_reap_work(struct work_struct *work)
{
	struct emuv_instance *inst = container_of(to_delayed_work(work),
						  struct emuv_instance,
						  reap_work);

	emuv_kcov_start();
	emuv_region_reap(inst);
	mutex_lock(&inst->lock);
	if (!list_empty(&inst->lingering) && !inst->dead)
		emuv_region_reap_later(inst);
	mutex_unlock(&inst->lock);
	emuv_kcov_stop();
}

/* End a region that nobody holds, nor visits. */
static void emuv_region_destroy(struct emuv_region *region)
{
	struct emuv_instance *inst = region->inst;
	bool released;

	emuv_inode_destroy(region);
	/* a large region takes long: not under the instance's lock */
	released = emuv_backing_release(region);
	mutex_lock(&inst->lock);
	/* an instance that has gone has no ledger to keep pinned memory in */
	if (!released && inst->dead) {
		emuv_backing_abandon(region);
		released = true;
	}
	if (released) {
		emuv_region_free(region);
	} else {
		emuv_region_linger(region);
		emuv_region_reap_later(inst);
	}
	mutex_unlock(&inst->lock);
	emuv_instance_put(inst);
}

/* The same for a region that was handed over. It holds the module by its inode. */
static void emuv_region_destroy_work(struct work_struct *work)
{
	struct emuv_region *region = container_of(work, struct emuv_region,
						  end_work);

	emuv_kcov_start();
	__module_get(THIS_MODULE);
	mutex_lock(&region->inst->lock);
	emuv_region_count_lingering(region->inst,
				    -(s64)emuv_region_bytes(region));
	mutex_unlock(&region->inst->lock);
	emuv_region_destroy(region);
	/* the module's exit waits for this queue */
	module_put(THIS_MODULE);
	emuv_kcov_stop();
}

static void emuv_region_release(struct kref *kref)
{
	struct emuv_region *region = container_of(kref, struct emuv_region,
						  kref);

	if (emuv_reclaim_forget(region)) {
		emuv_region_destroy(region);
		return;
	}
	mutex_lock(&region->inst->lock);
	emuv_region_count_lingering(region->inst, emuv_region_bytes(region));
	mutex_unlock(&region->inst->lock);
	/* all but the chunk that the worker has in hand */
	emuv_backing_empty(region);
	emuv_reclaim_hand_over(region);
}

void emuv_region_put(struct emuv_region *region)
{
	kref_put(&region->kref, emuv_region_release);
}

/*
 * Get the region that the byte at @offset lies in, with a reference; NULL if
 * there is none, or none that still has holders.
 */
struct emuv_region *emuv_region_at(struct emuv_instance *inst, u64 offset)
{
	struct emuv_region *region = NULL;
	struct emuv_range *range;

	mutex_lock(&inst->lock);
	range = emuv_range_find(&inst->ranges, offset >> EMUV_CHUNK_SHIFT);
	if (range)
		region = container_of(range, struct emuv_region, range);
	if (region && !kref_get_unless_zero(&region->kref))
		region = NULL;
	mutex_unlock(&inst->lock);
	return region;
}

/* Get the first region with holders that ends behind chunk @index, likewise. */
static struct emuv_region *emuv_region_next(struct emuv_instance *inst,
					    unsigned long index)
{
	struct emuv_region *region = NULL;
	struct emuv_range *range;

	mutex_lock(&inst->lock);
	for (range = emuv_range_next(&inst->ranges, index); range;
	     range = emuv_range_next(&inst->ranges, range->first + range->count)) {
		region = container_of(range, struct emuv_region, range);
		if (kref_get_unless_zero(&region->kref))
			break;
		region = NULL;
	}
	mutex_unlock(&inst->lock);
	return region;
}

/* Take all regions of a dead instance from their holders. */
void emuv_region_revoke_all(struct emuv_instance *inst)
{
	struct emuv_region *region;
	unsigned long index = 0;

	while ((region = emuv_region_next(inst, index))) {
		index = region->range.first + region->range.count;
		emuv_backing_revoke(region);
		emuv_region_put(region);
		cond_resched();
	}
}

/*
 * Count the bytes of a region that devices have pinned. The instance's lock is let
 * go in between; false if the region has gone meanwhile.
 */
bool emuv_region_pinned_bytes(struct emuv_region *region, u64 *bytes)
{
	unsigned long first = region->range.first, index = 0;
	struct emuv_instance *inst = region->inst;

	lockdep_assert_held(&inst->lock);
	*bytes = 0;
	while (emuv_backing_pinned_bytes(region, &index, bytes)) {
		mutex_unlock(&inst->lock);
		cond_resched();
		mutex_lock(&inst->lock);
		/* one that took its place, number and address does as well */
		if (emuv_range_find(&inst->ranges, first) != &region->range)
			return false;
	}
	return true;
}

/* Add a region to the sums of the client that allocated it. */
static void emuv_region_add(struct emuv_region *region, struct emuv_memory *sum)
{
	u64 resident, pinned;

	/* freed, and not in the hands of others */
	if (!kref_read(&region->kref)) {
		sum->lingering += emuv_region_bytes(region);
		return;
	}
	if (!region->owner)
		return;
	resident = emuv_region_resident_bytes(region);
	/* a chunk may come in between */
	if (emuv_region_pinned_bytes(region, &pinned)) {
		sum->resident += max(resident, pinned);
		sum->pinned += pinned;
	}
}

/*
 * Sum up the memory of the client with this number, which may have gone. Regions
 * come and go meanwhile, since others must not wait for long: so the sums are of
 * no one moment. -EINTR on a fatal signal.
 */
int emuv_region_sum(struct emuv_instance *inst, u64 client,
		    struct emuv_memory *sum)
{
	unsigned long next = 0, looked = 0;
	struct emuv_range *range;
	int err = 0;

	memset(sum, 0, sizeof(*sum));
	mutex_lock(&inst->lock);
	while (!err && (range = emuv_range_next(&inst->ranges, next))) {
		struct emuv_region *region = container_of(range,
							  struct emuv_region,
							  range);

		next = range->first + range->count;
		if (region->client == client)
			emuv_region_add(region, sum);
		if (++looked % EMUV_REGION_SLICE)
			continue;
		mutex_unlock(&inst->lock);
		cond_resched();
		if (fatal_signal_pending(current))
			err = -EINTR;
		mutex_lock(&inst->lock);
	}
	mutex_unlock(&inst->lock);
	return err;
}

/* Enter a new region into the ledger and the offset space. */
static int emuv_region_place(struct emuv_client *client,
			     struct emuv_region *region, u64 bytes)
{
	struct emuv_instance *inst = client->inst;
	int err;

	mutex_lock(&inst->lock);
	if (inst->dead) {
		err = -ENODEV;
		goto out_unlock;
	}
	err = emuv_ledger_take(&inst->ledger, &client->account, bytes);
	if (err)
		goto out_unlock;
	err = emuv_range_insert(&inst->ranges, &region->range,
				bytes >> EMUV_CHUNK_SHIFT);
	if (err) {
		emuv_ledger_disown(&inst->ledger, &client->account, bytes);
		emuv_ledger_return(&inst->ledger, bytes);
	}
out_unlock:
	mutex_unlock(&inst->lock);
	return err;
}

static struct emuv_region *emuv_region_make(struct emuv_instance *inst,
					    u64 bytes)
{
	struct emuv_region *region;
	int err;

	region = kzalloc(sizeof(*region), GFP_KERNEL_ACCOUNT);
	if (!region)
		return ERR_PTR(-ENOMEM);
	region->payer = emuv_payer_get();
	if (!region->payer) {
		err = -ENOMEM;
		goto err_free;
	}
	err = emuv_inode_create(region, bytes);
	if (err)
		goto err_put_payer;
	kref_init(&region->kref);
	init_rwsem(&region->map_sem);
	xa_init_flags(&region->chunks, XA_FLAGS_ACCOUNT);
	INIT_LIST_HEAD(&region->lingering);
	INIT_LIST_HEAD(&region->reclaim);
	INIT_WORK(&region->end_work, emuv_region_destroy_work);
	init_rwsem(&region->discard_sem);
	region->inst = inst;
	if (inst->config.guaranteed) {
		err = emuv_backing_index(region, bytes >> EMUV_CHUNK_SHIFT);
		if (err)
			goto err_destroy_inode;
	}
	return region;

err_destroy_inode:
	xa_destroy(&region->chunks);
	emuv_inode_destroy(region);
err_put_payer:
	emuv_payer_put(region->payer);
err_free:
	kfree(region);
	return ERR_PTR(err);
}

/*
 * Allocate a region for a client, which then holds it. It has @bytes, a
 * multiple of a chunk above 0. The call sets @offset before anybody else can
 * find the region. After the call only @offset may name the region, since
 * another thread may have freed it.
 */
int emuv_region_create(struct emuv_client *client, u64 bytes, bool populate,
		       u64 *offset)
{
	struct emuv_instance *inst = client->inst;
	struct emuv_region *region;
	int err;

	/* before a guaranteed region's index is allocated */
	if (bytes > emuv_instance_virtual_bytes(inst))
		return -ENOSPC;
	region = emuv_region_make(inst, bytes);
	if (IS_ERR(region))
		return PTR_ERR(region);
	region->client = client->number;

	err = emuv_region_place(client, region, bytes);
	if (err == -ENOSPC) {
		emuv_region_reap(inst);
		err = emuv_region_place(client, region, bytes);
	}
	if (err) {
		emuv_inode_destroy(region);
		emuv_region_unmake(region);
		return err;
	}
	get_device(&inst->dev);
	*offset = emuv_region_offset(region);
	trace_emuv_region_create(inst->config.id, *offset, bytes);
	emuv_reclaim_add(region);

	if (populate) {
		err = emuv_backing_populate(region, 0, region->range.count);
		if (err)
			goto err_put_region;
	}

	mutex_lock(&inst->lock);
	err = xa_err(xa_store(&client->regions, region->range.first, region,
			      GFP_KERNEL_ACCOUNT));
	/* whoever frees it from now on needs the lock */
	if (!err)
		region->owner = client;
	mutex_unlock(&inst->lock);
	if (!err)
		return 0;

err_put_region:
	emuv_ledger_disown(&inst->ledger, &client->account, bytes);
	emuv_region_put(region);
	return err;
}

/*
 * Make a client hold a region that it was handed. The caller must hold a
 * reference; the client takes one of its own.
 */
int emuv_region_import(struct emuv_client *client, struct emuv_region *region)
{
	struct emuv_instance *inst = client->inst;
	int err;

	if (region->inst != inst)
		return -EXDEV;
	mutex_lock(&inst->lock);
	err = xa_insert(&client->regions, region->range.first, region,
			GFP_KERNEL_ACCOUNT);
	if (!err) {
		emuv_region_get(region);
		emuv_ledger_import(&inst->ledger, &client->account,
				   emuv_region_bytes(region));
	}
	mutex_unlock(&inst->lock);
	return err == -EBUSY ? -EEXIST : err;
}

/* Make a client drop its region at @offset; -ENOENT if it holds none. */
int emuv_region_drop(struct emuv_client *client, u64 offset)
{
	struct emuv_instance *inst = client->inst;
	struct emuv_region *region;

	if (offset & (EMUV_CHUNK_BYTES - 1))
		return -ENOENT;
	mutex_lock(&inst->lock);
	region = xa_erase(&client->regions, offset >> EMUV_CHUNK_SHIFT);
	if (region && region->owner == client) {
		region->owner = NULL;
		emuv_ledger_disown(&inst->ledger, &client->account,
				   emuv_region_bytes(region));
	} else if (region) {
		emuv_ledger_import(&inst->ledger, &client->account,
				   -(s64)emuv_region_bytes(region));
	}
	mutex_unlock(&inst->lock);
	if (!region)
		return -ENOENT;
	emuv_region_put(region);
	return 0;
}

/*
 * Discard part of a region, at @offset in it. -EBUSY while devices have the
 * region mapped.
 */
int emuv_region_discard(struct emuv_region *region, u64 offset, u64 bytes)
{
	int err;

	/* others' memory lies outside */
	if (offset > emuv_region_bytes(region) ||
	    bytes > emuv_region_bytes(region) - offset)
		return -EINVAL;
	if (down_read_killable(&region->discard_sem))
		return -EINTR;
	if (atomic_read(&region->devices))
		err = -EBUSY;
	else
		err = emuv_backing_discard(region, offset, bytes);
	up_read(&region->discard_sem);
	return err;
}

int emuv_region_ioctl_alloc(struct emuv_call *call)
{
	struct emuv_client *client = call->file->private_data;
	struct emuv_alloc *arg = &call->arg.alloc;

	if (!arg->bytes)
		return -EINVAL;
	/* no instance is that large; below, rounding up cannot overflow */
	if (arg->bytes > EMUV_MAX_BYTES)
		return -ENOSPC;
	arg->bytes = round_up(arg->bytes, EMUV_CHUNK_BYTES);
	return emuv_region_create(client, arg->bytes,
				  arg->flags & EMUV_ALLOC_POPULATE,
				  &arg->offset);
}

void emuv_region_ioctl_alloc_finish(struct emuv_call *call, int err)
{
	if (err)
		emuv_region_drop(call->file->private_data,
				 call->arg.alloc.offset);
}

int emuv_region_ioctl_free(struct emuv_call *call)
{
	return emuv_region_drop(call->file->private_data,
				call->arg.free.offset);
}

int emuv_region_ioctl_export(struct emuv_call *call)
{
	struct emuv_export *arg = &call->arg.export;
	struct emuv_region *region;
	int fd;

	if (arg->reserved)
		return -EINVAL;
	if (!(call->file->f_mode & FMODE_READ))
		return -EACCES;
	region = emuv_client_region(call->file->private_data, arg->offset);
	if (!region)
		return -ENOENT;
	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0)
		goto err_put_region;

	/* the file takes over the reference */
	if (arg->flags & EMUV_EXPORT_DMABUF)
		call->made = emuv_dmabuf_create(region, call->file->f_mode);
	else
		call->made = emuv_regionfd_create(region, call->file->f_mode);
	if (IS_ERR(call->made)) {
		put_unused_fd(fd);
		fd = PTR_ERR(call->made);
		goto err_put_region;
	}
	arg->fd = fd;
	return 0;

err_put_region:
	emuv_region_put(region);
	return fd;
}

void emuv_region_ioctl_export_finish(struct emuv_call *call, int err)
{
	if (err) {
		put_unused_fd(call->arg.export.fd);
		fput(call->made);
	} else {
		fd_install(call->arg.export.fd, call->made);
	}
}

int emuv_region_ioctl_import(struct emuv_call *call)
{
	const fmode_t both = FMODE_READ | FMODE_WRITE;
	struct emuv_import *arg = &call->arg.import;
	struct emuv_region *region;
	struct file *file;
	int err;

	if (arg->reserved)
		return -EINVAL;
	file = fget(arg->fd);
	if (!file)
		return -EBADF;
	region = emuv_regionfd_region(file);
	if (!region) {
		err = -EINVAL;
	} else if ((file->f_mode & both) != both) {
		err = -EBADF;
	} else {
		arg->offset = emuv_region_offset(region);
		arg->bytes = emuv_region_bytes(region);
		err = emuv_region_import(call->file->private_data, region);
	}
	fput(file);
	return err;
}

void emuv_region_ioctl_import_finish(struct emuv_call *call, int err)
{
	if (err)
		emuv_region_drop(call->file->private_data,
				 call->arg.import.offset);
}

int emuv_region_ioctl_discard(struct emuv_call *call)
{
	struct emuv_client *client = call->file->private_data;
	struct emuv_discard *arg = &call->arg.discard;
	u64 size = emuv_instance_virtual_bytes(client->inst);
	struct emuv_region *region;
	int err;

	if (!arg->bytes || arg->offset > size ||
	    arg->bytes > size - arg->offset)
		return -EINVAL;
	if (!(call->file->f_mode & FMODE_WRITE))
		return -EACCES;
	region = emuv_client_region_at(client, arg->offset);
	if (!region)
		return -EACCES;
	if (arg->bytes > emuv_region_end(region) - arg->offset)
		err = -EACCES;
	else
		err = emuv_region_discard(region,
					  arg->offset -
					  emuv_region_offset(region),
					  arg->bytes);
	emuv_region_put(region);
	return err;
}
