// SPDX-License-Identifier: GPL-2.0-only
/*
 * Physical bytes in the device-memory cgroup (dmem), where the kernel has it.
 *
 * An instance is a region of that controller, "emuv/emuvN". A charge is the
 * charging process's cgroup's as well, and is refused if that has no room. It
 * stays the cgroup's wherever that process goes. A client may return it in parts.
 *
 * The controller gives a reference to a cgroup's pool with each charge, and takes
 * one with each return. A client keeps one for each pool, and gets another one
 * for each part that comes back. It gets none if the cgroup was removed, or left
 * the controller. The pool then counts too much until the client has returned all
 * that it had charged there. It never counts too little.
 */
#include <linux/slab.h>

#include "emuv.h"

/*
 * struct emuv_dmem_share - what a client has charged to one pool
 * @node: Entry in the client's list
 * @pool: Pool, with a reference
 * @bytes: Bytes that the pool counts
 * @due: The part of @bytes that the client has returned
 */
struct emuv_dmem_share {
	struct list_head node;
	struct dmem_cgroup_pool_state *pool;
	u64 bytes;
	u64 due;
};

void emuv_dmem_init(struct emuv_dmem *dmem)
{
	init_rwsem(&dmem->lock);
}

void emuv_dmem_init_client(struct emuv_client *client)
{
	mutex_init(&client->dmem_lock);
	INIT_LIST_HEAD(&client->dmem_shares);
}

/*
 * Let cgroups limit a new instance's physical bytes. The controller shows the
 * size of now for good: it cannot be told of another one.
 */
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

	down_write(&dmem->lock);
	if (dmem->region)
		dmem_cgroup_unregister_region(dmem->region);
	WRITE_ONCE(dmem->region, NULL);
	up_write(&dmem->lock);
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

/* Have the pool forget what is due; this takes a reference to it. */
static void emuv_dmem_settle(struct emuv_dmem_share *share)
{
	dmem_cgroup_uncharge(share->pool, share->due);
	share->bytes -= share->due;
	share->due = 0;
}

/* Enter a charge that a pool has taken. True if the client now has @made. */
static bool emuv_dmem_keep(struct emuv_client *client,
			   struct dmem_cgroup_pool_state *pool, u64 bytes,
			   struct emuv_dmem_share *made)
{
	struct emuv_dmem_share *share;

	mutex_lock(&client->dmem_lock);
	share = emuv_dmem_find(client, pool);
	if (share) {
		share->bytes += bytes;
		/* one reference is enough */
		emuv_dmem_settle(share);
	} else {
		made->pool = pool;
		made->bytes = bytes;
		list_add_tail(&made->node, &client->dmem_shares);
	}
	mutex_unlock(&client->dmem_lock);
	return !share;
}

/*
 * Charge @bytes of VRAM, at most the instance's limit, to the calling process's
 * cgroup, before the ledger. @pool becomes a name of what was charged, for
 * emuv_dmem_uncharge(); NULL if nothing was. -ENOSPC if the cgroup has no room.
 */
int emuv_dmem_charge(struct emuv_client *client, u64 bytes,
		     const struct dmem_cgroup_pool_state **pool)
{
	struct emuv_dmem *dmem = &client->inst->dmem;
	struct dmem_cgroup_pool_state *charged = NULL;
	struct emuv_dmem_share *made;
	int err = 0;

	*pool = NULL;
	if (!READ_ONCE(dmem->region) || !bytes)
		return 0;
	made = kzalloc(sizeof(*made), GFP_KERNEL_ACCOUNT);
	if (!made)
		return -ENOMEM;
	down_read(&dmem->lock);
	if (dmem->region)
		err = dmem_cgroup_try_charge(dmem->region, bytes, &charged,
					     NULL);
	if (!err && charged && emuv_dmem_keep(client, charged, bytes, made))
		made = NULL;
	up_read(&dmem->lock);
	kfree(made);
	*pool = charged;
	return err == -EAGAIN ? -ENOSPC : err;
}

/* Give all of a share back, and free it. */
static void emuv_dmem_end(struct emuv_dmem_share *share)
{
	dmem_cgroup_uncharge(share->pool, share->bytes);
	list_del(&share->node);
	kfree(share);
}

/* Return at most @bytes of a share, which may go. Returns how many it had. */
static u64 emuv_dmem_return(const struct emuv_dmem *dmem,
			    struct emuv_dmem_share *share, u64 bytes)
{
	struct dmem_cgroup_pool_state *pool = NULL;
	u64 part = min(bytes, share->bytes - share->due);

	share->due += part;
	if (share->due == share->bytes) {
		emuv_dmem_end(share);
		return part;
	}
	/* the nearest pool above this one and itself is this one, if it lives */
	if (part && dmem->region)
		pool = dmem_cgroup_get_common_ancestor(share->pool,
						       share->pool);
	if (pool == share->pool)
		emuv_dmem_settle(share);
	else
		dmem_cgroup_pool_state_put(pool);
	return part;
}

/*
 * Return @bytes that the client has charged, after the ledger: those that were
 * charged to @pool, unless it is NULL, and then the oldest. @pool is compared and
 * not followed, since other threads of the client may have returned all of it.
 */
void emuv_dmem_uncharge(struct emuv_client *client, u64 bytes,
			const struct dmem_cgroup_pool_state *pool)
{
	struct emuv_dmem *dmem = &client->inst->dmem;
	struct emuv_dmem_share *share, *next;

	/* whoever returns bytes has charged them before */
	if (list_empty(&client->dmem_shares))
		return;
	down_read(&dmem->lock);
	mutex_lock(&client->dmem_lock);
	share = pool ? emuv_dmem_find(client, pool) : NULL;
	if (share)
		bytes -= emuv_dmem_return(dmem, share, bytes);
	list_for_each_entry_safe(share, next, &client->dmem_shares, node) {
		if (!bytes)
			break;
		bytes -= emuv_dmem_return(dmem, share, bytes);
	}
	mutex_unlock(&client->dmem_lock);
	up_read(&dmem->lock);
}

/* Return all that a client has charged, as it goes. */
void emuv_dmem_release(struct emuv_client *client)
{
	struct emuv_dmem_share *share, *next;

	/* no other thread has the client any more */
	list_for_each_entry_safe(share, next, &client->dmem_shares, node)
		emuv_dmem_end(share);
}
