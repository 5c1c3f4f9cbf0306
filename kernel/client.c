// SPDX-License-Identifier: GPL-2.0-only
/*
 * Clients: open files of /dev/emuvN, and their operations.
 */
#include <linux/compat.h>
#include <linux/file.h>
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/splice.h>
#include <linux/uio.h>

#include "emuv.h"

/* Get the client's region that starts at @offset, with a reference, or NULL. */
struct emuv_region *emuv_client_region(struct emuv_client *client, u64 offset)
{
	struct emuv_region *region = NULL;

	if (offset & (EMUV_CHUNK_BYTES - 1))
		return NULL;
	xa_lock(&client->regions);
	region = xa_load(&client->regions, offset >> EMUV_CHUNK_SHIFT);
	if (region)
		emuv_region_get(region);
	xa_unlock(&client->regions);
	return region;
}

/*
 * Get the client's region that the byte at @offset lies in, with a reference,
 * or NULL. The region is the one that was looked up, whatever the client's
 * other threads put in its place meanwhile. No reference is taken to a region
 * of others: a stranger must not keep it from being freed.
 */
struct emuv_region *emuv_client_region_at(struct emuv_client *client, u64 offset)
{
	struct emuv_instance *inst = client->inst;
	struct emuv_region *region = NULL;
	struct emuv_range *range;

	mutex_lock(&inst->lock);
	range = emuv_range_find(&inst->ranges, offset >> EMUV_CHUNK_SHIFT);
	if (range)
		region = xa_load(&client->regions, range->first);
	/* the client lets go under this lock: its reference is still there */
	if (region && &region->range == range)
		emuv_region_get(region);
	else
		region = NULL;
	mutex_unlock(&inst->lock);
	return region;
}

static int emuv_client_open(struct inode *inode, struct file *file)
{
	struct emuv_instance *inst = emuv_instance_get(iminor(inode));
	struct emuv_client *client;
	int err;

	if (!inst)
		return -ENXIO;
	client = kzalloc(sizeof(*client), GFP_KERNEL_ACCOUNT);
	if (!client) {
		err = -ENOMEM;
		goto err_put_instance;
	}
	/* regions come and go with no mount each */
	err = emuv_fs_pin();
	if (err)
		goto err_free;
	client->inst = inst;
	client->pid = get_pid(task_tgid(current));
	get_task_comm(client->comm, current->group_leader);
	emuv_dmem_init_client(client);
	xa_init_flags(&client->regions, XA_FLAGS_ACCOUNT);
	client->account.seen = emuv_state(inst, &client->account);

	mutex_lock(&inst->lock);
	if (inst->dead) {
		mutex_unlock(&inst->lock);
		err = -ENODEV;
		goto err_unpin;
	}
	client->number = ++inst->last_client;
	list_add_tail(&client->node, &inst->clients);
	/* also read without the lock */
	WRITE_ONCE(inst->client_count, inst->client_count + 1);
	mutex_unlock(&inst->lock);

	/* the file takes over the reference to the instance */
	file->private_data = client;
	return 0;

err_unpin:
	put_pid(client->pid);
	emuv_fs_unpin();
err_free:
	kfree(client);
err_put_instance:
	emuv_instance_put(inst);
	return err;
}

static int emuv_client_release(struct inode *inode, struct file *file)
{
	struct emuv_client *client = file->private_data;
	struct emuv_instance *inst = client->inst;
	struct emuv_region *region;
	unsigned long first;

	xa_for_each(&client->regions, first, region) {
		emuv_region_drop(client, emuv_region_offset(region));
		cond_resched();
	}
	xa_destroy(&client->regions);
	emuv_ledger_close(&inst->ledger, &client->account);
	emuv_dmem_release(client);

	mutex_lock(&inst->lock);
	list_del(&client->node);
	WRITE_ONCE(inst->client_count, inst->client_count - 1);
	mutex_unlock(&inst->lock);

	put_pid(client->pid);
	emuv_fs_unpin();
	kfree(client);
	emuv_instance_put(inst);
	return 0;
}

static u64 emuv_client_size(const struct emuv_client *client)
{
	return emuv_instance_virtual_bytes(client->inst);
}

static ssize_t emuv_client_read(struct kiocb *iocb, struct iov_iter *to)
{
	struct emuv_client *client = iocb->ki_filp->private_data;
	struct emuv_region *region;
	u64 pos = iocb->ki_pos;
	ssize_t done;

	if (emuv_instance_is_revoked(client->inst))
		return -ENODEV;
	if (pos >= emuv_client_size(client))
		return 0;
	if (emuv_raw_is_allowed(iocb->ki_filp)) {
		done = emuv_raw_read(client->inst, pos, to);
	} else {
		region = emuv_client_region_at(client, pos);
		if (!region)
			return -EACCES;
		done = emuv_io_read(region, pos - emuv_region_offset(region),
				    to);
		emuv_region_put(region);
	}
	if (done > 0)
		iocb->ki_pos += done;
	return done;
}

static ssize_t emuv_client_write(struct kiocb *iocb, struct iov_iter *from)
{
	struct emuv_client *client = iocb->ki_filp->private_data;
	struct emuv_region *region;
	u64 pos = iocb->ki_pos;
	ssize_t done;

	if (!iov_iter_count(from))
		return 0;
	if (emuv_instance_is_revoked(client->inst))
		return -ENODEV;
	if (pos >= emuv_client_size(client))
		return -ENOSPC;
	if (emuv_raw_is_allowed(iocb->ki_filp)) {
		done = emuv_raw_write(client->inst, pos, from);
	} else {
		region = emuv_client_region_at(client, pos);
		if (!region)
			return -EACCES;
		done = emuv_io_write(region, pos - emuv_region_offset(region),
				     from);
		emuv_region_put(region);
	}
	if (done > 0)
		iocb->ki_pos += done;
	return done;
}

static loff_t emuv_client_llseek(struct file *file, loff_t offset, int whence)
{
	return fixed_size_llseek(file, offset, whence,
				 emuv_client_size(file->private_data));
}

/*
 * The mapping gets its region's file and its place there, as from
 * dma_buf_mmap(), and so joins the region's other mappings. It keeps the client,
 * too.
 */
static int emuv_client_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct emuv_client *client = file->private_data;
	u64 size = emuv_client_size(client);
	struct emuv_region *region;
	struct file *mapped;
	u64 offset;
	int err;

	if (emuv_instance_is_revoked(client->inst))
		return -ENODEV;
	if (vma->vm_pgoff >= size >> PAGE_SHIFT ||
	    vma_pages(vma) > (size >> PAGE_SHIFT) - vma->vm_pgoff)
		return -EINVAL;
	offset = (u64)vma->vm_pgoff << PAGE_SHIFT;
	region = emuv_client_region_at(client, offset);
	if (!region)
		return -EACCES;
	if (vma->vm_end - vma->vm_start > emuv_region_end(region) - offset) {
		err = -EACCES;
		goto out_put_region;
	}
	mapped = emuv_regionfd_mapped(region);
	if (IS_ERR(mapped)) {
		err = PTR_ERR(mapped);
		goto out_put_region;
	}
	vma->vm_pgoff -= region->range.first << EMUV_CHUNK_ORDER;
	err = emuv_vm_mmap(region, vma, file);
	if (!err)
		vma_set_file(vma, mapped);
	fput(mapped);

out_put_region:
	emuv_region_put(region);
	return err;
}

/* Describe the client with the smallest number from @arg->client on. */
int emuv_client_query(struct emuv_instance *inst, struct emuv_query_client *arg)
{
	struct emuv_memory memory = {};
	struct emuv_client *client;
	struct emuv_account account;
	int err = 0;

	mutex_lock(&inst->lock);
	list_for_each_entry(client, &inst->clients, node)
		if (client->number >= arg->client)
			goto found;
	mutex_unlock(&inst->lock);
	return -ENOENT;

found:
	emuv_ledger_read_account(&inst->ledger, &client->account, &account);
	arg->id = inst->config.id;
	arg->pid = pid_vnr(client->pid);
	arg->client = client->number;
	memcpy(arg->comm, client->comm, sizeof(arg->comm));
	mutex_unlock(&inst->lock);

	arg->physical_bytes = account.physical;
	arg->virtual_bytes = account.virtual;
	arg->imported_bytes = account.imported;
	arg->fetched_bytes = account.counters.fetched_bytes;
	arg->evicted_bytes = account.counters.evicted_bytes;
	arg->spills = account.counters.spills;
	arg->faults = account.counters.faults;
	arg->hit_bytes = account.counters.hit_bytes;
	arg->miss_bytes = account.counters.miss_bytes;
	arg->stalled_ns = account.counters.stalled_ns;
	arg->waiting_bytes = account.waiting;
	if (arg->flags & EMUV_QUERY_MEMORY)
		err = emuv_region_sum(inst, arg->client, &memory);
	arg->resident_bytes = memory.resident;
	arg->pinned_bytes = memory.pinned;
	arg->lingering_bytes = memory.lingering;
	return err;
}

int emuv_client_ioctl_query(struct emuv_call *call)
{
	struct emuv_client *client = call->file->private_data;

	return emuv_client_query(client->inst, &call->arg.query_client);
}

static __poll_t emuv_client_poll(struct file *file, poll_table *wait)
{
	struct emuv_client *client = file->private_data;

	return emuv_state_poll(client->inst, &client->account, file, wait);
}

static void emuv_client_show_fdinfo(struct seq_file *seq, struct file *file)
{
	struct emuv_client *client = file->private_data;
	struct emuv_account account;

	emuv_ledger_read_account(&client->inst->ledger, &client->account,
				 &account);
	seq_printf(seq, "emuv-instance:\t%d\n", client->inst->config.id);
	seq_printf(seq, "emuv-client:\t%llu\n", client->number);
	seq_printf(seq, "emuv-physical-bytes:\t%llu\n", account.physical);
	seq_printf(seq, "emuv-virtual-bytes:\t%llu\n", account.virtual);
	seq_printf(seq, "emuv-imported-bytes:\t%llu\n", account.imported);
	seq_printf(seq, "emuv-waiting-bytes:\t%llu\n", account.waiting);
}

const struct file_operations emuv_client_fops = {
	.owner = THIS_MODULE,
	.open = emuv_client_open,
	.release = emuv_client_release,
	.llseek = emuv_client_llseek,
	.read_iter = emuv_client_read,
	.write_iter = emuv_client_write,
	.splice_read = copy_splice_read,
	.splice_write = iter_file_splice_write,
	.mmap = emuv_client_mmap,
	.get_unmapped_area = emuv_get_unmapped_area,
	.fsync = noop_fsync,	/* memory has no backing store */
	.poll = emuv_client_poll,
	.unlocked_ioctl = emuv_ioctl_client,
	.compat_ioctl = compat_ptr_ioctl,
	.show_fdinfo = emuv_client_show_fdinfo,
};
