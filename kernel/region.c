// SPDX-License-Identifier: GPL-2.0-only
/*
 * Regions: parts of an offset space that clients, mappings, descriptors and
 * devices hold together.
 *
 * When the last holder lets go, the memory returns to the instance. Something
 * that the driver does not know, such as a GPU driver or io_uring, may still
 * pin pages. The region then stays in the ledger until they are unpinned, since
 * pinned memory is not free.
 */
#include <linux/memcontrol.h>
#include <linux/slab.h>

#include "emuv.h"
#include "trace.h"

#define EMUV_REAP_INTERVAL	(HZ / 10)

static void emuv_region_free(struct emuv_region *region)
{
	struct emuv_instance *inst = region->inst;

	lockdep_assert_held(&inst->lock);
	trace_emuv_region_release(inst->config.id, emuv_region_offset(region),
				  emuv_region_bytes(region));
	emuv_range_erase(&inst->ranges, &region->range);
	emuv_ledger_return(&inst->ledger, emuv_region_bytes(region));
	mem_cgroup_put(region->memcg);
	kfree(region);
}

/*
 * Free the lingering regions whose pages nothing outside holds any more; with
 * @force all of them.
 */
static void emuv_region_reap_locked(struct emuv_instance *inst, bool force)
{
	struct emuv_region *region, *next;

	lockdep_assert_held(&inst->lock);
	list_for_each_entry_safe(region, next, &inst->lingering, lingering) {
		if (!emuv_backing_release(inst, region->range.first,
					  region->range.count, force))
			continue;
		list_del(&region->lingering);
		emuv_region_free(region);
	}
}

void emuv_region_reap(struct emuv_instance *inst, bool force)
{
	mutex_lock(&inst->lock);
	emuv_region_reap_locked(inst, force);
	mutex_unlock(&inst->lock);
}

void emuv_region_reap_work(struct work_struct *work)
{
	struct emuv_instance *inst = container_of(to_delayed_work(work),
						  struct emuv_instance,
						  reap_work);

	mutex_lock(&inst->lock);
	emuv_region_reap_locked(inst, false);
	if (!list_empty(&inst->lingering) && !inst->dead)
		schedule_delayed_work(&inst->reap_work, EMUV_REAP_INTERVAL);
	mutex_unlock(&inst->lock);
}

static void emuv_region_release(struct kref *kref)
{
	struct emuv_region *region = container_of(kref, struct emuv_region,
						  kref);
	struct emuv_instance *inst = region->inst;
	bool released;

	/* a large region takes long: not under the instance's lock */
	released = emuv_backing_release(inst, region->range.first,
					region->range.count, false);
	mutex_lock(&inst->lock);
	if (released) {
		emuv_region_free(region);
	} else {
		list_add_tail(&region->lingering, &inst->lingering);
		schedule_delayed_work(&inst->reap_work, EMUV_REAP_INTERVAL);
	}
	mutex_unlock(&inst->lock);
	emuv_instance_put(inst);
}

void emuv_region_put(struct emuv_region *region)
{
	kref_put(&region->kref, emuv_region_release);
}

/* Enter a new region into the ledger and the offset space. */
static int emuv_region_place(struct emuv_client *client,
			     struct emuv_region *region, u64 bytes)
{
	struct emuv_instance *inst = client->inst;
	int err;

	lockdep_assert_held(&inst->lock);
	err = emuv_ledger_take(&inst->ledger, &client->account, bytes);
	if (err)
		return err;
	err = emuv_range_insert(&inst->ranges, &region->range,
				bytes >> EMUV_CHUNK_SHIFT);
	if (err) {
		emuv_ledger_disown(&inst->ledger, &client->account, bytes);
		emuv_ledger_return(&inst->ledger, bytes);
	}
	return err;
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

	region = kzalloc(sizeof(*region), GFP_KERNEL_ACCOUNT);
	if (!region)
		return -ENOMEM;
	kref_init(&region->kref);
	INIT_LIST_HEAD(&region->lingering);
	init_rwsem(&region->discard_sem);
	region->inst = inst;
	region->memcg = get_mem_cgroup_from_mm(current->mm);

	mutex_lock(&inst->lock);
	err = emuv_region_place(client, region, bytes);
	if (err == -ENOSPC && !list_empty(&inst->lingering)) {
		emuv_region_reap_locked(inst, false);
		err = emuv_region_place(client, region, bytes);
	}
	mutex_unlock(&inst->lock);
	if (err) {
		mem_cgroup_put(region->memcg);
		kfree(region);
		return err;
	}
	get_device(&inst->dev);
	*offset = emuv_region_offset(region);
	trace_emuv_region_create(inst->config.id, *offset, bytes);

	/* a raw write may have left data here; it is not the client's */
	emuv_backing_release(inst, region->range.first, region->range.count,
			     true);
	if (populate) {
		err = emuv_backing_populate(inst, region->range.first,
					    region->range.count, region->memcg);
		if (err)
			goto err_put_region;
	}

	region->owner = client;
	err = xa_err(xa_store(&client->regions, region->range.first, region,
			      GFP_KERNEL_ACCOUNT));
	if (!err)
		return 0;
	region->owner = NULL;

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
 * Discard part of a region; @offset counts from the start of the offset space.
 * -EBUSY while devices have the region mapped.
 */
int emuv_region_discard(struct emuv_region *region, u64 offset, u64 bytes)
{
	int err;

	/* memory outside belongs to others */
	if (offset < emuv_region_offset(region) ||
	    offset > emuv_region_end(region) ||
	    bytes > emuv_region_end(region) - offset)
		return -EINVAL;
	if (down_read_killable(&region->discard_sem))
		return -EINTR;
	if (atomic_read(&region->devices))
		err = -EBUSY;
	else
		err = emuv_backing_discard(region->inst, offset, bytes);
	up_read(&region->discard_sem);
	return err;
}

/* Does a device have some of the range mapped, in any region? */
bool emuv_region_any_device(struct emuv_instance *inst, u64 offset, u64 bytes)
{
	struct rb_node *node;
	bool any = false;

	mutex_lock(&inst->lock);
	for (node = rb_first(&inst->ranges.root); node && !any;
	     node = rb_next(node)) {
		struct emuv_region *region = container_of(node,
							  struct emuv_region,
							  range.rb);

		any = emuv_region_offset(region) < offset + bytes &&
		      emuv_region_end(region) > offset &&
		      atomic_read(&region->devices);
	}
	mutex_unlock(&inst->lock);
	return any;
}
