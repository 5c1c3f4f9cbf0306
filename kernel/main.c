// SPDX-License-Identifier: GPL-2.0-only
/*
 * emuV: virtual VRAM in system RAM, and a ledger of limits and charges.
 */
#include <linux/module.h>

#include "emuv.h"

#define CREATE_TRACE_POINTS
#include "trace.h"

static int __init emuv_init(void)
{
	int err;

	emuv_debugfs_init();
	err = emuv_swap_init();
	if (err)
		goto err_debugfs;
	err = emuv_reclaim_init();
	if (err)
		goto err_swap;
	err = emuv_instance_init();
	if (err)
		goto err_reclaim;
	err = emuv_param_create_instances();
	if (err)
		goto err_instance;
	err = emuv_ivshmem_init();
	if (err)
		goto err_instance;
	/* last: from here on user space can create instances */
	err = emuv_control_init();
	if (err)
		goto err_ivshmem;
	return 0;

err_ivshmem:
	emuv_ivshmem_exit();
err_instance:
	emuv_instance_exit();
err_reclaim:
	emuv_reclaim_exit();
err_swap:
	emuv_swap_exit();
err_debugfs:
	emuv_debugfs_exit();
	return err;
}

static void __exit emuv_exit(void)
{
	emuv_control_exit();
	emuv_ivshmem_exit();
	emuv_instance_exit();
	emuv_reclaim_exit();
	emuv_swap_exit();
	emuv_debugfs_exit();
}

module_init(emuv_init);
module_exit(emuv_exit);

MODULE_DESCRIPTION("Virtual VRAM backed by system RAM, with a ledger per tenant");
MODULE_LICENSE("GPL");
MODULE_VERSION(EMUV_VERSION);
