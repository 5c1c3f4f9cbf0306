// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/emuv-control: creates, destroys and describes instances.
 */
#include <linux/capability.h>
#include <linux/compat.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>

#include "emuv.h"

static int emuv_control_query(struct emuv_call *call)
{
	struct emuv_query_instance *arg = &call->arg.query_instance;
	struct emuv_instance *inst;

	if (arg->flags & EMUV_QUERY_NEXT)
		inst = emuv_instance_get_next(arg->id);
	else
		inst = emuv_instance_get(arg->id);
	if (!inst)
		return -ENODEV;
	emuv_instance_query(inst, arg);
	emuv_instance_put(inst);
	return 0;
}

static int emuv_control_client(struct emuv_call *call)
{
	struct emuv_query_client *arg = &call->arg.query_client;
	struct emuv_instance *inst;
	int err;

	inst = emuv_instance_get(arg->id);
	if (!inst)
		return -ENODEV;
	err = emuv_client_query(inst, arg);
	emuv_instance_put(inst);
	return err;
}

static int emuv_control_create(struct emuv_call *call)
{
	struct emuv_create *arg = &call->arg.create;
	struct emuv_config config = {
		.id = arg->id,
		.numa_node = arg->numa_node,
		.physical_bytes = arg->physical_bytes,
		.virtual_bytes = arg->virtual_bytes,
		.client_virtual_bytes = arg->client_virtual_bytes,
		.pci_device_id = arg->pci_device_id,
		.overcommit = arg->flags & EMUV_CREATE_OVERCOMMIT,
		.guaranteed = arg->flags & EMUV_CREATE_GUARANTEED,
		.bind = arg->flags & EMUV_CREATE_BIND,
		.swap_fd = arg->flags & EMUV_CREATE_SWAP ? arg->swap_fd : -1,
		.physical_name = "physical_bytes",
		.virtual_name = "virtual_bytes",
		.client_name = "client_virtual_bytes",
	};
	int id;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	if (arg->reserved || arg->reserved2)
		return -EINVAL;
	/* a caller of the first version names no file */
	if (arg->flags & EMUV_CREATE_SWAP ?
	    arg->size < offsetofend(struct emuv_create, swap_fd) : arg->swap_fd)
		return -EINVAL;
	if (arg->flags & EMUV_CREATE_SWAP && arg->swap_fd < 0)
		return -EBADF;
	memcpy(config.gpu_model, arg->gpu_model, sizeof(config.gpu_model));
	id = emuv_instance_create(&config, &call->created);
	if (id < 0)
		return id;
	arg->id = id;
	return 0;
}

static void emuv_control_create_finish(struct emuv_call *call, int err)
{
	/* nobody was told of it: whoever uses it has found it by chance */
	if (err)
		emuv_instance_remove(call->created, true);
	emuv_instance_put(call->created);
}

static int emuv_control_destroy(struct emuv_call *call)
{
	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	if (call->arg.destroy.reserved)
		return -EINVAL;
	return emuv_instance_destroy(call->arg.destroy.id,
				     call->arg.flags & EMUV_DESTROY_FORCE);
}

static int emuv_control_resize(struct emuv_call *call)
{
	struct emuv_resize *arg = &call->arg.resize;
	struct emuv_instance *inst;
	int err;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	if (arg->reserved || !arg->flags ||
	    (!(arg->flags & EMUV_RESIZE_PHYSICAL) && arg->physical_bytes) ||
	    (!(arg->flags & EMUV_RESIZE_VIRTUAL) && arg->virtual_bytes))
		return -EINVAL;
	inst = emuv_instance_get(arg->id);
	if (!inst)
		return -ENODEV;
	err = emuv_instance_resize(inst, arg);
	emuv_instance_put(inst);
	return err;
}

static const struct emuv_ioctl emuv_control_ioctls[] = {
	{ EMUV_IOCTL_VERSION },
	{
		EMUV_IOCTL_QUERY_INSTANCE,
		.flags = EMUV_QUERY_NEXT,
		.run = emuv_control_query,
	},
	{
		EMUV_IOCTL_QUERY_CLIENT,
		.run = emuv_control_client,
	},
	{
		EMUV_IOCTL(EMUV_IOC_CREATE, struct emuv_create, gpu_model),
		.flags = EMUV_CREATE_OVERCOMMIT | EMUV_CREATE_GUARANTEED |
			 EMUV_CREATE_SWAP | EMUV_CREATE_BIND,
		.out = true,
		.run = emuv_control_create,
		.finish = emuv_control_create_finish,
	},
	{
		EMUV_IOCTL(EMUV_IOC_DESTROY, struct emuv_destroy, reserved),
		.flags = EMUV_DESTROY_FORCE,
		.run = emuv_control_destroy,
	},
	{
		EMUV_IOCTL(EMUV_IOC_RESIZE, struct emuv_resize, virtual_bytes),
		.flags = EMUV_RESIZE_PHYSICAL | EMUV_RESIZE_VIRTUAL,
		.run = emuv_control_resize,
	},
};

static long emuv_control_ioctl(struct file *file, unsigned int cmd,
			       unsigned long arg)
{
	return emuv_ioctl_dispatch(emuv_control_ioctls,
				   ARRAY_SIZE(emuv_control_ioctls), file, cmd,
				   arg);
}

static const struct file_operations emuv_control_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = emuv_control_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.llseek = noop_llseek,
};

static struct miscdevice emuv_control = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "emuv-control",
	.fops = &emuv_control_fops,
	.mode = 0600,
};

int emuv_control_init(void)
{
	return misc_register(&emuv_control);
}

void emuv_control_exit(void)
{
	misc_deregister(&emuv_control);
}
