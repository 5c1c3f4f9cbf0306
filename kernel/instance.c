// SPDX-License-Identifier: GPL-2.0-only
/*
 * Instances: creation, lookup and removal.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/nospec.h>
#include <linux/slab.h>

#include "emuv.h"

/* All instances, and the sum of the virtual VRAM promised to them. */
static DEFINE_MUTEX(emuv_instances_lock);
static DEFINE_XARRAY_ALLOC(emuv_instances);
static u64 emuv_promised_bytes;

static dev_t emuv_devt;

/* All nodes: whichever inode is opened, its number says which instance. */
static struct cdev emuv_cdev;

static char *emuv_devnode(EMUV_DEVNODE_CONST struct device *dev, umode_t *mode)
{
	/* the node's mode is the permission; udev sets the group */
	if (mode)
		*mode = 0660;
	return NULL;
}

static void emuv_instance_free(struct emuv_instance *inst)
{
	sysfs_put(inst->ledger.told);
	emuv_dmem_close(inst);
	emuv_reserve_close(&inst->reserve);
	if (inst->reserve.payer)
		emuv_payer_put(inst->reserve.payer);
	if (inst->swap)
		emuv_swap_close(inst->swap);
	kfree(inst);
}

static void emuv_instance_release(struct device *dev)
{
	emuv_instance_free(container_of(dev, struct emuv_instance, dev));
}

static struct class emuv_class = {
	.name = "emuv",
	.devnode = emuv_devnode,
	.dev_groups = emuv_sysfs_groups,
	.dev_release = emuv_instance_release,
};

static bool emuv_model_is_valid(const char *model)
{
	size_t len = strnlen(model, EMUV_MODEL_LEN), i;

	if (!len || len == EMUV_MODEL_LEN)
		return false;
	for (i = 0; i < len; i++)
		if (model[i] < ' ' || model[i] > '~')
			return false;
	return true;
}

/* @node may come from user space, and becomes an array index. */
static bool emuv_node_is_valid(int node)
{
	if (node == EMUV_ANY)
		return true;
	if (node < 0 || node >= MAX_NUMNODES)
		return false;
	return node_online(array_index_nospec(node, MAX_NUMNODES));
}

/* Returns 0, or -EINVAL with one line in the log that names the error. */
int emuv_config_validate(const struct emuv_config *config)
{
	u64 physical = config->physical_bytes, virtual = config->virtual_bytes;

	if (config->id < EMUV_ANY || config->id >= EMUV_MAX_INSTANCES)
		pr_err("instance_id: %d is not in 0 to %d\n", config->id,
		       EMUV_MAX_INSTANCES - 1);
	else if (!emuv_node_is_valid(config->numa_node))
		pr_err("numa_node: %d is neither -1 nor a node of this host\n",
		       config->numa_node);
	else if (config->bind && config->numa_node == EMUV_ANY)
		pr_err("numa_bind: not without a numa_node\n");
	else if (physical > EMUV_MAX_BYTES)
		pr_err("%s: %llu bytes are not in 0 to %llu\n",
		       config->physical_name, physical, EMUV_MAX_BYTES);
	else if (virtual > EMUV_MAX_BYTES)
		pr_err("%s: %llu bytes are not in 0 to %llu\n",
		       config->virtual_name, virtual, EMUV_MAX_BYTES);
	else if (!(physical + virtual) || physical + virtual > EMUV_MAX_BYTES)
		pr_err("%s + %s: %llu bytes are not in 1 to %llu\n",
		       config->physical_name, config->virtual_name,
		       physical + virtual, EMUV_MAX_BYTES);
	else if (!IS_ALIGNED(virtual, EMUV_CHUNK_BYTES))
		pr_err("%s: %llu bytes are not a multiple of %llu\n",
		       config->virtual_name, virtual, EMUV_CHUNK_BYTES);
	else if (!IS_ALIGNED(config->client_virtual_bytes, EMUV_CHUNK_BYTES))
		pr_err("%s: %llu bytes are not a multiple of %llu\n",
		       config->client_name, config->client_virtual_bytes,
		       EMUV_CHUNK_BYTES);
	else if (config->overcommit && config->guaranteed)
		pr_err("guaranteed: not with overcommit=1\n");
	else if (config->guaranteed && config->swap_fd >= 0)
		pr_err("guaranteed: not with a swap file\n");
	else if (config->pci_device_id > 0xffff)
		pr_err("pci_device_id: %#x is not in 0 to 0xffff\n",
		       config->pci_device_id);
	else if (!emuv_model_is_valid(config->gpu_model))
		pr_err("gpu_model: not 1 to %d printable characters\n",
		       EMUV_MODEL_LEN - 1);
	else
		return 0;
	return -EINVAL;
}

static struct emuv_instance *emuv_instance_alloc(const struct emuv_config *config)
{
	struct emuv_instance *inst;

	inst = kzalloc(sizeof(*inst), GFP_KERNEL);
	if (!inst)
		return ERR_PTR(-ENOMEM);
	inst->config = *config;
	if (config->numa_node != EMUV_ANY)
		inst->config.numa_node = array_index_nospec(config->numa_node,
							    MAX_NUMNODES);
	uuid_gen(&inst->uuid);
	mutex_init(&inst->lock);
	mutex_init(&inst->reap_lock);
	mutex_init(&inst->resize_lock);
	inst->virtual_bytes = config->virtual_bytes;
	emuv_dmem_init(&inst->dmem);
	emuv_reserve_init(&inst->reserve);
	INIT_LIST_HEAD(&inst->clients);
	INIT_LIST_HEAD(&inst->lingering);
	INIT_DELAYED_WORK(&inst->reap_work, emuv_region_reap_work);
	INIT_DELAYED_WORK(&inst->floor_work, emuv_state_floor_work);
	emuv_range_tree_init(&inst->ranges,
			     config->virtual_bytes >> EMUV_CHUNK_SHIFT);
	emuv_ledger_init(&inst->ledger, config->physical_bytes,
			 config->virtual_bytes, config->client_virtual_bytes);
	return inst;
}

/* Bytes of the host's memory that an instance of this size is promised. */
static u64 emuv_instance_promised(const struct emuv_config *config, u64 virtual)
{
	return config->bar ? 0 : virtual;
}

/* Promise @bytes more of virtual VRAM; -ENOMEM if the host cannot back all. */
static int emuv_instance_promise(const struct emuv_config *config, u64 bytes)
{
	lockdep_assert_held(&emuv_instances_lock);
	/* an instance of VRAM alone adds nothing to the promised bytes */
	if (bytes && !config->overcommit &&
	    emuv_promised_bytes + bytes > emuv_floor_backable_bytes())
		return -ENOMEM;
	emuv_promised_bytes += bytes;
	return 0;
}

/*
 * Reserve the id that @inst asks for, or any, and its part of the promised
 * bytes; lookups do not find it yet.
 */
static int emuv_instance_reserve(struct emuv_instance *inst)
{
	const struct emuv_config *config = &inst->config;
	const int any = inst->config.id == EMUV_ANY;
	struct xa_limit limit = {
		.min = any ? 0 : inst->config.id,
		.max = any ? EMUV_MAX_INSTANCES - 1 : inst->config.id,
	};
	const u64 bytes = emuv_instance_promised(config, config->virtual_bytes);
	u32 id;
	int err;

	err = emuv_instance_promise(config, bytes);
	if (err)
		return err;
	err = xa_alloc(&emuv_instances, &id, NULL, limit, GFP_KERNEL);
	if (err) {
		emuv_promised_bytes -= bytes;
		return err == -EBUSY ? (any ? -ENOSPC : -EEXIST) : err;
	}
	inst->config.id = id;
	return 0;
}

static void emuv_instance_unreserve(struct emuv_instance *inst)
{
	lockdep_assert_held(&emuv_instances_lock);
	xa_erase(&emuv_instances, inst->config.id);
	emuv_promised_bytes -= emuv_instance_promised(&inst->config,
						      inst->virtual_bytes);
}

static int emuv_instance_publish(struct emuv_instance *inst)
{
	int err;

	device_initialize(&inst->dev);
	inst->dev.class = &emuv_class;
	inst->dev.parent = inst->config.bar ? inst->config.bar->dev : NULL;
	inst->dev.devt = emuv_devt + inst->config.id;
	err = dev_set_name(&inst->dev, "emuv%d", inst->config.id);
	if (err)
		return err;
	err = device_add(&inst->dev);
	if (!err)
		emuv_ledger_tell(&inst->ledger,
				 sysfs_get_dirent(inst->dev.kobj.sd, "state"));
	return err;
}

/* Reserve all that a guaranteed instance may ever need. */
static int emuv_instance_guarantee(struct emuv_instance *inst)
{
	if (!inst->config.guaranteed)
		return 0;
	if (inst->config.bar)
		return emuv_reserve_fill(&inst->reserve, inst->config.bar);
	inst->reserve.payer = emuv_payer_get();
	if (!inst->reserve.payer)
		return -ENOMEM;
	return emuv_reserve_grow(inst, inst->ranges.size);
}

static int emuv_instance_use_swap(struct emuv_instance *inst)
{
	struct emuv_swap *swap;

	if (inst->config.swap_fd < 0)
		return 0;
	swap = emuv_swap_open(&inst->config);
	if (IS_ERR(swap))
		return PTR_ERR(swap);
	inst->swap = swap;
	return 0;
}

/*
 * Create an instance. Returns its id or an error; @made, unless it is NULL, gets
 * the instance with a reference.
 */
int emuv_instance_create(const struct emuv_config *config,
			 struct emuv_instance **made)
{
	struct emuv_instance *inst;
	int err;

	err = emuv_config_validate(config);
	if (err)
		return err;
	inst = emuv_instance_alloc(config);
	if (IS_ERR(inst))
		return PTR_ERR(inst);
	/* whoever is refused has taken no memory from others before */
	mutex_lock(&emuv_instances_lock);
	err = emuv_instance_reserve(inst);
	mutex_unlock(&emuv_instances_lock);
	if (err)
		goto err_free;
	/* these take long: not under the lock */
	err = emuv_instance_guarantee(inst);
	if (!err)
		err = emuv_instance_use_swap(inst);
	if (!err)
		err = emuv_dmem_open(inst);
	mutex_lock(&emuv_instances_lock);
	if (err)
		goto err_unreserve;
	err = emuv_instance_publish(inst);
	if (err)
		goto err_put;
	xa_store(&emuv_instances, inst->config.id, inst, GFP_KERNEL);
	emuv_debugfs_add(inst);
	err = inst->config.id;
	if (made) {
		get_device(&inst->dev);
		*made = inst;
	}
	mutex_unlock(&emuv_instances_lock);
	return err;

err_put:
	/* another instance may get the number, and so the name, right after */
	emuv_dmem_close(inst);
	emuv_instance_unreserve(inst);
	mutex_unlock(&emuv_instances_lock);
	/* its attributes could be read for a moment */
	mutex_lock(&inst->lock);
	inst->dead = true;
	mutex_unlock(&inst->lock);
	cancel_delayed_work_sync(&inst->floor_work);
	put_device(&inst->dev);
	return err;

err_unreserve:
	emuv_instance_unreserve(inst);
	mutex_unlock(&emuv_instances_lock);
err_free:
	emuv_instance_free(inst);
	return err;
}

/*
 * Refuse new clients from now on; -EBUSY if a client or a region is left. With
 * @force these lose the instance instead.
 */
static int emuv_instance_kill(struct emuv_instance *inst, bool force)
{
	bool used;

	mutex_lock(&inst->lock);
	used = !list_empty(&inst->clients) || !RB_EMPTY_ROOT(&inst->ranges.root);
	if (!used || force) {
		inst->dead = true;
		/* a chunk that is given up from now on may be pinned */
		emuv_reserve_end(&inst->reserve);
	}
	if (used && force) {
		/* also read without the lock; whoever sees it sees the above */
		smp_store_release(&inst->revoked, true);
		emuv_ledger_end(&inst->ledger);
	}
	mutex_unlock(&inst->lock);
	return used && !force ? -EBUSY : 0;
}

/* Take away the name, by which it can be found; its id stays reserved. */
static void emuv_instance_withdraw(struct emuv_instance *inst)
{
	lockdep_assert_held(&emuv_instances_lock);
	xa_store(&emuv_instances, inst->config.id, NULL, GFP_KERNEL);
	device_del(&inst->dev);
}

/*
 * Free all that a dead instance has, but for its id. This takes long, above all
 * if somebody reads in debugfs.
 */
static void emuv_instance_dissolve(struct emuv_instance *inst)
{
	cancel_delayed_work_sync(&inst->reap_work);
	cancel_delayed_work_sync(&inst->floor_work);
	/* another instance may get the number, and so the name, right after */
	emuv_dmem_close(inst);
	emuv_reserve_close(&inst->reserve);
	if (emuv_instance_is_revoked(inst))
		emuv_region_revoke_all(inst);
	emuv_region_abandon(inst);
	emuv_debugfs_remove(inst);
}

/* Get the instance with this id, with a reference, or NULL. */
struct emuv_instance *emuv_instance_get(int id)
{
	struct emuv_instance *inst = NULL;

	mutex_lock(&emuv_instances_lock);
	if (id >= 0)
		inst = xa_load(&emuv_instances, id);
	if (inst)
		get_device(&inst->dev);
	mutex_unlock(&emuv_instances_lock);
	return inst;
}

/*
 * Remove an instance, which the caller holds; -EBUSY if it is in use, unless
 * @force takes it from its holders. -ENODEV if it has gone.
 */
int emuv_instance_remove(struct emuv_instance *inst, bool force)
{
	int err;

	/* this may take long: not under the lock of all instances */
	if (!force)
		emuv_region_reap(inst);
	mutex_lock(&emuv_instances_lock);
	err = -ENODEV;
	if (xa_load(&emuv_instances, inst->config.id) == inst)
		err = emuv_instance_kill(inst, force);
	if (!err)
		emuv_instance_withdraw(inst);
	mutex_unlock(&emuv_instances_lock);
	if (err)
		return err;
	emuv_instance_dissolve(inst);
	mutex_lock(&emuv_instances_lock);
	emuv_instance_unreserve(inst);
	mutex_unlock(&emuv_instances_lock);
	put_device(&inst->dev);
	return 0;
}

/* Remove the instance with this id. */
int emuv_instance_destroy(int id, bool force)
{
	struct emuv_instance *inst;
	int err;

	inst = emuv_instance_get(id);
	if (!inst)
		return -ENODEV;
	err = emuv_instance_remove(inst, force);
	emuv_instance_put(inst);
	return err;
}

/*
 * Enter new sizes, if nothing is in their way. -ENODEV if the instance has gone,
 * -EBUSY if its clients have more.
 */
static int emuv_instance_set_sizes(struct emuv_instance *inst, u64 physical,
				   u64 virtual)
{
	const unsigned long before = inst->ranges.size;
	int err;

	lockdep_assert_held(&emuv_instances_lock);
	mutex_lock(&inst->lock);
	err = inst->dead ? -ENODEV :
			   emuv_range_resize(&inst->ranges,
					     virtual >> EMUV_CHUNK_SHIFT);
	if (err)
		goto out_unlock;
	err = emuv_ledger_resize(&inst->ledger, physical, virtual,
				 inst->config.client_virtual_bytes);
	if (err)
		inst->ranges.size = before;
	else
		WRITE_ONCE(inst->virtual_bytes, virtual);
out_unlock:
	mutex_unlock(&inst->lock);
	return err;
}

/* Check and promise what an instance grows by. */
static int emuv_instance_may_have(struct emuv_instance *inst, u64 physical,
				  u64 virtual)
{
	struct emuv_config config = inst->config;
	int err;

	config.physical_bytes = physical;
	config.virtual_bytes = virtual;
	config.physical_name = "physical_bytes";
	config.virtual_name = "virtual_bytes";
	err = emuv_config_validate(&config);
	if (err)
		return err;
	if (emuv_instance_swaps(inst) && !emuv_swap_holds(inst->swap, virtual))
		return -EINVAL;
	/* a device has the memory that it has */
	if (config.bar && virtual != inst->virtual_bytes)
		return -EINVAL;
	if (virtual <= inst->virtual_bytes)
		return 0;
	mutex_lock(&emuv_instances_lock);
	err = emuv_instance_promise(&config, virtual - inst->virtual_bytes);
	mutex_unlock(&emuv_instances_lock);
	return err;
}

/* Change to sizes of which growth is promised; undone on failure. */
static int emuv_instance_change(struct emuv_instance *inst, u64 physical,
				u64 virtual)
{
	const u64 before = inst->virtual_bytes;
	const u64 more = virtual > before ? virtual - before : 0;
	const bool fill = more && inst->config.guaranteed;
	unsigned long surplus = 0;
	int err = 0;

	/* this takes long: not under the lock of all instances */
	if (fill)
		err = emuv_reserve_grow(inst, more >> EMUV_CHUNK_SHIFT);
	mutex_lock(&emuv_instances_lock);
	if (!err) {
		err = emuv_instance_set_sizes(inst, physical, virtual);
		if (err && fill)
			surplus = more >> EMUV_CHUNK_SHIFT;
	}
	if (err)
		emuv_promised_bytes -= more;
	else if (virtual < before)
		emuv_promised_bytes -= before - virtual;
	mutex_unlock(&emuv_instances_lock);
	if (!err && virtual < before && inst->config.guaranteed)
		surplus = (before - virtual) >> EMUV_CHUNK_SHIFT;
	if (surplus)
		emuv_reserve_shrink(&inst->reserve, surplus);
	return err;
}

/* Change the sizes of an instance, which the caller holds. */
int emuv_instance_resize(struct emuv_instance *inst,
			 const struct emuv_resize *arg)
{
	struct emuv_ledger ledger;
	u64 physical, virtual;
	int err;

	if (mutex_lock_killable(&inst->resize_lock))
		return -EINTR;
	emuv_ledger_read(&inst->ledger, &ledger);
	physical = arg->flags & EMUV_RESIZE_PHYSICAL ? arg->physical_bytes :
						       ledger.physical_limit;
	virtual = arg->flags & EMUV_RESIZE_VIRTUAL ? arg->virtual_bytes :
						     inst->virtual_bytes;
	err = emuv_instance_may_have(inst, physical, virtual);
	if (err)
		goto out_unlock;
	if (virtual < inst->virtual_bytes)
		emuv_region_reap(inst);
	err = emuv_instance_change(inst, physical, virtual);
out_unlock:
	mutex_unlock(&inst->resize_lock);
	return err;
}

/* Get the instance with the smallest id that is at least @id, or NULL. */
struct emuv_instance *emuv_instance_get_next(int id)
{
	unsigned long index = max(id, 0);
	struct emuv_instance *inst;

	mutex_lock(&emuv_instances_lock);
	inst = xa_find(&emuv_instances, &index, ULONG_MAX, XA_PRESENT);
	if (inst)
		get_device(&inst->dev);
	mutex_unlock(&emuv_instances_lock);
	return inst;
}

/* Fill in the answer that describes @inst. */
void emuv_instance_query(struct emuv_instance *inst,
			 struct emuv_query_instance *arg)
{
	struct emuv_ledger ledger;

	emuv_ledger_read(&inst->ledger, &ledger);
	arg->id = inst->config.id;
	arg->clients = READ_ONCE(inst->client_count);
	arg->physical_bytes = ledger.physical_limit;
	arg->virtual_bytes = ledger.virtual_limit;
	arg->physical_used_bytes = ledger.physical_used;
	arg->virtual_used_bytes = ledger.virtual_used;
	arg->unowned_bytes = ledger.unowned;
	arg->resident_bytes = emuv_instance_resident_bytes(inst);
	arg->fetched_bytes = ledger.counters.fetched_bytes;
	arg->evicted_bytes = ledger.counters.evicted_bytes;
	arg->spills = ledger.counters.spills;
	arg->faults = ledger.counters.faults;
	arg->hit_bytes = ledger.counters.hit_bytes;
	arg->miss_bytes = ledger.counters.miss_bytes;
	arg->stalled_ns = ledger.counters.stalled_ns;
	arg->numa_node = inst->config.numa_node;
	arg->pci_device_id = inst->config.pci_device_id;
	export_uuid(arg->uuid, &inst->uuid);
	memcpy(arg->gpu_model, inst->config.gpu_model, sizeof(arg->gpu_model));
	arg->state = emuv_state(inst, NULL);
	arg->waiters = ledger.waiter_count;
	arg->reserve_bytes = emuv_reserve_bytes(&inst->reserve);
	arg->created = (inst->config.overcommit ? EMUV_CREATE_OVERCOMMIT : 0) |
		       (inst->config.guaranteed ? EMUV_CREATE_GUARANTEED : 0) |
		       (emuv_instance_swaps(inst) ? EMUV_CREATE_SWAP : 0) |
		       (inst->config.bind ? EMUV_CREATE_BIND : 0);
	arg->reserved = 0;
	arg->client_virtual_bytes = ledger.client_limit;
	arg->swapped_bytes = emuv_instance_swapped_bytes(inst);
}

int emuv_instance_ioctl_query(struct emuv_call *call)
{
	struct emuv_client *client = call->file->private_data;

	emuv_instance_query(client->inst, &call->arg.query_instance);
	call->arg.query_instance.state = emuv_state(client->inst,
						    &client->account);
	return 0;
}

void emuv_instance_ioctl_query_finish(struct emuv_call *call, int err)
{
	struct emuv_client *client = call->file->private_data;

	/* a caller of the first version is not told the state */
	if (!err && call->arg.query_instance.size >=
		    offsetofend(struct emuv_query_instance, state))
		emuv_ledger_saw(&client->inst->ledger, &client->account,
				call->arg.query_instance.state);
}

int emuv_instance_init(void)
{
	int err;

	err = alloc_chrdev_region(&emuv_devt, 0, EMUV_MAX_INSTANCES, "emuv");
	if (err)
		return err;
	err = class_register(&emuv_class);
	if (err)
		goto err_unregister_region;
	cdev_init(&emuv_cdev, &emuv_client_fops);
	emuv_cdev.owner = THIS_MODULE;
	err = cdev_add(&emuv_cdev, emuv_devt, EMUV_MAX_INSTANCES);
	if (err)
		goto err_unregister_class;
	return 0;

err_unregister_class:
	class_unregister(&emuv_class);
err_unregister_region:
	unregister_chrdev_region(emuv_devt, EMUV_MAX_INSTANCES);
	return err;
}

/* Remove all instances. None has clients, since a client holds the module. */
void emuv_instance_exit(void)
{
	struct emuv_instance *inst;
	unsigned long id;

	mutex_lock(&emuv_instances_lock);
	xa_for_each(&emuv_instances, id, inst) {
		mutex_lock(&inst->lock);
		inst->dead = true;
		mutex_unlock(&inst->lock);
		emuv_instance_withdraw(inst);
		emuv_instance_dissolve(inst);
		emuv_instance_unreserve(inst);
		put_device(&inst->dev);
	}
	mutex_unlock(&emuv_instances_lock);
	cdev_del(&emuv_cdev);
	xa_destroy(&emuv_instances);
	class_unregister(&emuv_class);
	unregister_chrdev_region(emuv_devt, EMUV_MAX_INSTANCES);
}
