// SPDX-License-Identifier: GPL-2.0-only
/*
 * Physical bytes in the device-memory cgroup (dmem), where the kernel has it.
 *
 * An instance is a region of that controller, "emuv/emuvN". A charge is the
 * charging process's cgroup's as well, and is refused if that has no room. It
 * stays the cgroup's wherever that process goes.
 *
 * The controller gives a reference to its pool with each charge, and takes one
 * back with each return. A client may return a charge in many parts. So more
 * references are taken, one for each 2 MiB. Smaller parts may have to wait for
 * others; the pool counts too much until then, and never too little.
 */
#include <linux/slab.h>

#include "emuv.h"

/*
 * struct emuv_dmem_share - what a client has charged to one pool
 * @node: Entry in the client's list
 * @bytes: Bytes that the pool counts
 * @due: The part of @bytes that the client has returned
 * @refs: References to @pool, at least one
 */
struct emuv_dmem_share {
	struct list_head node;
	struct dmem_cgroup_pool_state *pool;
	u64 bytes;
	u64 due;
	unsigned long refs;
};

/* Let cgroups limit a new instance's physical bytes. */
int emuv_dmem_open(struct emuv_instance *inst)
{
	struct dmem_cgroup_region *region;

	/* a region of no bytes is none, yet the instance may grow */
	region = emuv_dmem_register(max(inst->config.physical_bytes, 1ULL),
				    inst->config.id);
	if (IS_ERR(region))
		return PTR_ERR(region);
	inst->dmem.region = region;
	return 0;
}

/* No charge comes to cgroups from now on; those made before stay there. */
void emuv_dmem_close(struct emuv_instance *inst)
{
	struct emuv_dmem *dmem = &inst->dmem;

	mutex_lock(&dmem->lock);
	if (dmem->region)
		dmem_cgroup_unregister_region(dmem->region);
	dmem->region = NULL;
	mutex_unlock(&dmem->lock);
}

static struct emuv_dmem_share *
emuv_dmem_find(const struct emuv_client *client,
	       const struct dmem_cgroup_pool_state *pool)
{
	struct emuv_dmem_share *share;

	list_for_each_entry(share, &client->dmem_shares, node)
		if (share->pool == pool)
			return share;
	return NULL;
}

/* Take references for parts, as long as the process stays in its cgroup. */
static void emuv_dmem_take_refs(const struct emuv_dmem *dmem,
				struct emuv_dmem_share *share,
				unsigned long count)
{
	struct dmem_cgroup_pool_state *pool;

	while (count-- && !dmem_cgroup_try_charge(dmem->region, 0, &pool, NULL)) {
		if (pool != share->pool) {
			dmem_cgroup_pool_state_put(pool);
			break;
		}
		share->refs++;
		cond_resched();
	}
}

/* Give all of a share back, and free it. */
static void emuv_dmem_end(struct emuv_dmem_share *share)
{
	while (share->refs-- > 1)
		dmem_cgroup_pool_state_put(share->pool);
	dmem_cgroup_uncharge(share->pool, share->bytes);
	list_del(&share->node);
	kfree(share);
}

/*
 * Charge @bytes of VRAM to the calling process's cgroup, before the ledger.
 * -ENOSPC if the cgroup has no room.
 */
int emuv_dmem_charge(struct emuv_client *client, u64 bytes)
{
	struct emuv_dmem *dmem = &client->inst->dmem;
	struct dmem_cgroup_pool_state *pool = NULL;
	struct emuv_dmem_share *share, *made;
	int err = 0;

	if (!READ_ONCE(dmem->region) || !bytes)
		return 0;
	/* no instance is that large, and the controller might overflow */
	if (bytes > EMUV_MAX_BYTES)
		return -ENOSPC;
	made = kzalloc(sizeof(*made), GFP_KERNEL_ACCOUNT);
	if (!made)
		return -ENOMEM;
	mutex_lock(&dmem->lock);
	if (dmem->region)
		err = dmem_cgroup_try_charge(dmem->region, bytes, &pool, NULL);
	if (!err && pool) {
		share = emuv_dmem_find(client, pool);
		if (!share) {
			share = made;
			made = NULL;
			share->pool = pool;
			list_add_tail(&share->node, &client->dmem_shares);
		}
		share->bytes += bytes;
		share->refs++;
		emuv_dmem_take_refs(dmem, share, bytes >> EMUV_CHUNK_SHIFT);
	}
	mutex_unlock(&dmem->lock);
	kfree(made);
	return err == -EAGAIN ? -ENOSPC : err;
}

/* Return @bytes to the client's cgroups, after the ledger; the oldest first. */
void emuv_dmem_uncharge(struct emuv_client *client, u64 bytes)
{
	struct emuv_dmem *dmem = &client->inst->dmem;
	struct emuv_dmem_share *share, *next;

	/* whoever returns bytes has charged them before */
	if (list_empty(&client->dmem_shares))
		return;
	mutex_lock(&dmem->lock);
	list_for_each_entry_safe(share, next, &client->dmem_shares, node) {
		u64 part = min(bytes, share->bytes - share->due);

		bytes -= part;
		share->due += part;
		if (share->due == share->bytes) {
			emuv_dmem_end(share);
		} else if (part && share->refs > 1) {
			dmem_cgroup_uncharge(share->pool, share->due);
			share->refs--;
			share->bytes -= share->due;
			share->due = 0;
		}
		if (!bytes)
			break;
	}
	mutex_unlock(&dmem->lock);
}

/* Return all that a client has charged, as it goes. */
void emuv_dmem_release(struct emuv_client *client)
{
	struct emuv_dmem *dmem = &client->inst->dmem;
	struct emuv_dmem_share *share, *next;

	mutex_lock(&dmem->lock);
	list_for_each_entry_safe(share, next, &client->dmem_shares, node)
		emuv_dmem_end(share);
	mutex_unlock(&dmem->lock);
}
