// SPDX-License-Identifier: GPL-2.0-only
/*
 * The common part of all ioctls: copying their structures in and out.
 */
#include <linux/uaccess.h>

#include "emuv.h"

/* Larger than any structure, yet small enough to scan for zeros. */
#define EMUV_IOCTL_MAX_SIZE	4096

static const struct emuv_ioctl *emuv_ioctl_find(const struct emuv_ioctl *table,
						size_t count, unsigned int cmd)
{
	size_t i;

	for (i = 0; i < count; i++)
		if (table[i].cmd == cmd)
			return &table[i];
	return NULL;
}

long emuv_ioctl_dispatch(const struct emuv_ioctl *table, size_t count,
			 struct file *file, unsigned int cmd, unsigned long arg)
{
	const struct emuv_ioctl *ioctl = emuv_ioctl_find(table, count, cmd);
	void __user *user = (void __user *)arg;
	struct emuv_call call = { .file = file };
	u32 size;
	int err;

	if (!ioctl)
		return -ENOTTY;
	if (get_user(size, (u32 __user *)user))
		return -EFAULT;
	if (size < ioctl->min_size)
		return -EINVAL;
	if (size > EMUV_IOCTL_MAX_SIZE)
		return -E2BIG;
	err = copy_struct_from_user(&call.arg, ioctl->size, user, size);
	if (err)
		return err;
	/* user space may have changed the size between the two reads */
	call.arg.size = size;
	if (call.arg.flags & ~ioctl->flags)
		return -EINVAL;

	err = ioctl->run(&call);
	if (err)
		return err;
	/* an older caller is told as much as it knows of */
	if (ioctl->out && copy_to_user(user, &call.arg, min(size, ioctl->size)))
		err = -EFAULT;
	if (ioctl->finish)
		ioctl->finish(&call, err);
	return err;
}

int emuv_ioctl_version(struct emuv_call *call)
{
	struct emuv_version *arg = &call->arg.version;

	if (arg->reserved)
		return -EINVAL;
	arg->abi = EMUV_ABI_VERSION;
	arg->chunk_bytes = EMUV_CHUNK_BYTES;
	memset(arg->module_version, 0, sizeof(arg->module_version));
	strscpy(arg->module_version, EMUV_VERSION, sizeof(arg->module_version));
	return 0;
}

/* The ioctls of /dev/emuvN, each in the file of its noun. */
static const struct emuv_ioctl emuv_client_ioctls[] = {
	{ EMUV_IOCTL_VERSION },
	{
		EMUV_IOCTL_QUERY_INSTANCE,
		.run = emuv_instance_ioctl_query,
		.finish = emuv_instance_ioctl_query_finish,
	},
	{
		EMUV_IOCTL_QUERY_CLIENT,
		.run = emuv_client_ioctl_query,
	},
	{
		EMUV_IOCTL(EMUV_IOC_ALLOC, struct emuv_alloc, offset),
		.flags = EMUV_ALLOC_POPULATE,
		.out = true,
		.run = emuv_region_ioctl_alloc,
		.finish = emuv_region_ioctl_alloc_finish,
	},
	{
		EMUV_IOCTL(EMUV_IOC_FREE, struct emuv_free, offset),
		.run = emuv_region_ioctl_free,
	},
	{
		EMUV_IOCTL(EMUV_IOC_EXPORT, struct emuv_export, reserved),
		.flags = EMUV_EXPORT_DMABUF,
		.out = true,
		.run = emuv_region_ioctl_export,
		.finish = emuv_region_ioctl_export_finish,
	},
	{
		EMUV_IOCTL(EMUV_IOC_IMPORT, struct emuv_import, bytes),
		.out = true,
		.run = emuv_region_ioctl_import,
		.finish = emuv_region_ioctl_import_finish,
	},
	{
		EMUV_IOCTL(EMUV_IOC_DISCARD, struct emuv_discard, bytes),
		.run = emuv_region_ioctl_discard,
	},
	{
		EMUV_IOCTL(EMUV_IOC_CHARGE, struct emuv_charge, free_bytes),
		.flags = EMUV_CHARGE_WAIT,
		.out = true,
		.run = emuv_ledger_ioctl_charge,
		.finish = emuv_ledger_ioctl_charge_finish,
	},
	{
		EMUV_IOCTL(EMUV_IOC_UNCHARGE, struct emuv_charge, free_bytes),
		.flags = EMUV_UNCHARGE_CANCEL,
		.out = true,
		.run = emuv_ledger_ioctl_uncharge,
		.finish = emuv_ledger_ioctl_uncharge_finish,
	},
	{
		EMUV_IOCTL(EMUV_IOC_REPORT, struct emuv_report, faults),
		.run = emuv_ledger_ioctl_report,
	},
};

long emuv_ioctl_client(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct emuv_client *client = file->private_data;

	if (emuv_instance_is_revoked(client->inst))
		return -ENODEV;
	return emuv_ioctl_dispatch(emuv_client_ioctls,
				   ARRAY_SIZE(emuv_client_ioctls), file, cmd,
				   arg);
}
