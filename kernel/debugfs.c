// SPDX-License-Identifier: GPL-2.0-only
/*
 * /sys/kernel/debug/emuv/emuvN/regions and clients: the regions and the clients of
 * an instance, one a line, for people who look for what holds memory. A region's
 * client is the one that allocated it, which may have gone. The format is no ABI.
 */
#include <linux/debugfs.h>
#include <linux/seq_file.h>
#include <linux/string_helpers.h>

#include "emuv.h"

static struct dentry *emuv_debugfs_root;

static const char *emuv_debugfs_state(const struct emuv_region *region)
{
	if (!kref_read(&region->kref))
		return "lingering";
	return region->owner ? "owned" : "unowned";
}

/*
 * struct emuv_debugfs_reader - an open file
 * @next: Chunk of the instance at which the next region is looked for, or number
 *	from which on the next client is
 */
struct emuv_debugfs_reader {
	struct emuv_instance *inst;
	u64 next;
};

/* Positions: 0 is the heading, others are a region's first chunk + 1. */
static void *emuv_debugfs_start(struct seq_file *seq, loff_t *pos)
{
	struct emuv_debugfs_reader *reader = seq->private;
	struct emuv_instance *inst = reader->inst;
	struct emuv_range *range;

	if (!*pos)
		return SEQ_START_TOKEN;
	mutex_lock(&inst->lock);
	range = emuv_range_next(&inst->ranges, *pos - 1);
	if (range)
		*pos = (loff_t)range->first + 1;
	mutex_unlock(&inst->lock);
	return range ? pos : NULL;
}

static void *emuv_debugfs_next(struct seq_file *seq, void *at, loff_t *pos)
{
	struct emuv_debugfs_reader *reader = seq->private;

	*pos = at == SEQ_START_TOKEN ? 1 : (loff_t)reader->next + 1;
	return emuv_debugfs_start(seq, pos);
}

static void emuv_debugfs_stop(struct seq_file *seq, void *at)
{
}

static int emuv_debugfs_show(struct seq_file *seq, void *at)
{
	struct emuv_debugfs_reader *reader = seq->private;
	struct emuv_instance *inst = reader->inst;
	struct emuv_region *region;
	struct emuv_range *range;
	u64 pinned;

	if (at == SEQ_START_TOKEN) {
		seq_puts(seq, "offset bytes resident pinned devices holders client state\n");
		return 0;
	}
	reader->next = *(loff_t *)at;
	mutex_lock(&inst->lock);
	range = emuv_range_find(&inst->ranges, *(loff_t *)at - 1);
	if (!range)
		goto out_skip;
	region = container_of(range, struct emuv_region, range);
	reader->next = range->first + range->count;
	if (!emuv_region_pinned_bytes(region, &pinned))
		goto out_skip;
	seq_printf(seq, "%llu %llu %llu %llu %d %u %llu %s\n",
		   emuv_region_offset(region), emuv_region_bytes(region),
		   emuv_region_resident_bytes(region), pinned,
		   atomic_read(&region->devices), kref_read(&region->kref),
		   region->client,
		   emuv_debugfs_state(region));
	mutex_unlock(&inst->lock);
	return 0;

out_skip:
	mutex_unlock(&inst->lock);
	return SEQ_SKIP;
}

static const struct seq_operations emuv_debugfs_regions_ops = {
	.start = emuv_debugfs_start,
	.next = emuv_debugfs_next,
	.stop = emuv_debugfs_stop,
	.show = emuv_debugfs_show,
};

/* Positions: 0 is the heading, others are a client's number or one before it. */
static void *emuv_debugfs_start_client(struct seq_file *seq, loff_t *pos)
{
	struct emuv_debugfs_reader *reader = seq->private;
	struct emuv_query_client client = { .client = *pos };

	if (!*pos)
		return SEQ_START_TOKEN;
	if (emuv_client_query(reader->inst, &client))
		return NULL;
	*pos = client.client;
	return pos;
}

static void *emuv_debugfs_next_client(struct seq_file *seq, void *at,
				      loff_t *pos)
{
	struct emuv_debugfs_reader *reader = seq->private;

	*pos = at == SEQ_START_TOKEN ? 1 : (loff_t)reader->next;
	return emuv_debugfs_start_client(seq, pos);
}

static int emuv_debugfs_show_client(struct seq_file *seq, void *at)
{
	struct emuv_debugfs_reader *reader = seq->private;
	struct emuv_query_client client = { .flags = EMUV_QUERY_MEMORY };
	int err;

	if (at == SEQ_START_TOKEN) {
		seq_puts(seq, "client pid virtual resident pinned lingering imported physical waiting command\n");
		return 0;
	}
	client.client = *(loff_t *)at;
	reader->next = client.client + 1;
	err = emuv_client_query(reader->inst, &client);
	if (err)
		return err == -ENOENT ? SEQ_SKIP : err;
	reader->next = client.client + 1;
	seq_printf(seq, "%llu %d %llu %llu %llu %llu %llu %llu %llu ",
		   client.client, client.pid, client.virtual_bytes,
		   client.resident_bytes, client.pinned_bytes,
		   client.lingering_bytes, client.imported_bytes,
		   client.physical_bytes, client.waiting_bytes);
	/* one word, though a process chooses its name */
	seq_escape_str(seq, client.comm,
		       ESCAPE_OCTAL | ESCAPE_NAP | ESCAPE_APPEND, " \\");
	seq_putc(seq, '\n');
	return 0;
}

static const struct seq_operations emuv_debugfs_clients_ops = {
	.start = emuv_debugfs_start_client,
	.next = emuv_debugfs_next_client,
	.stop = emuv_debugfs_stop,
	.show = emuv_debugfs_show_client,
};

static int emuv_debugfs_open(struct inode *inode, struct file *file,
			     const struct seq_operations *ops)
{
	struct emuv_debugfs_reader *reader;

	reader = __seq_open_private(file, ops, sizeof(*reader));
	if (!reader)
		return -ENOMEM;
	reader->inst = inode->i_private;
	return 0;
}

static int emuv_debugfs_open_regions(struct inode *inode, struct file *file)
{
	return emuv_debugfs_open(inode, file, &emuv_debugfs_regions_ops);
}

static int emuv_debugfs_open_clients(struct inode *inode, struct file *file)
{
	return emuv_debugfs_open(inode, file, &emuv_debugfs_clients_ops);
}

static const struct file_operations emuv_debugfs_regions_fops = {
	.owner = THIS_MODULE,
	.open = emuv_debugfs_open_regions,
	.read = seq_read,
	.llseek = seq_lseek,
	.release = seq_release_private,
};

static const struct file_operations emuv_debugfs_clients_fops = {
	.owner = THIS_MODULE,
	.open = emuv_debugfs_open_clients,
	.read = seq_read,
	.llseek = seq_lseek,
	.release = seq_release_private,
};

void emuv_debugfs_add(struct emuv_instance *inst)
{
	inst->debugfs = debugfs_create_dir(dev_name(&inst->dev),
					   emuv_debugfs_root);
	debugfs_create_file("regions", 0400, inst->debugfs, inst,
			    &emuv_debugfs_regions_fops);
	debugfs_create_file("clients", 0400, inst->debugfs, inst,
			    &emuv_debugfs_clients_fops);
}

/* Waits for readers, who may write to user memory: not under a lock. */
void emuv_debugfs_remove(struct emuv_instance *inst)
{
	debugfs_remove_recursive(inst->debugfs);
}

/* No failure of debugfs matters to anything else. */
void emuv_debugfs_init(void)
{
	emuv_debugfs_root = debugfs_create_dir("emuv", NULL);
}

void emuv_debugfs_exit(void)
{
	debugfs_remove_recursive(emuv_debugfs_root);
}
