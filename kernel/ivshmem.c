// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory that a host hands to this guest, as an instance: QEMU's ivshmem devices.
 *
 * Such an instance is a guaranteed one, but is only as certain as the host's. Its
 * reserve is the device's memory (BAR 2) and never grows. The kernel makes struct
 * pages for that memory (ZONE_DEVICE), so faults, pins, dma-bufs and discards work
 * as with RAM.
 *
 * Others use such devices, too, so a device is taken only if the module parameter
 * "ivshmem" names it, or all.
 */
#include <linux/cc_platform.h>
#include <linux/delay.h>
#include <linux/memremap.h>
#include <linux/pci.h>

#include "emuv.h"

#define EMUV_IVSHMEM_DEVICE	0x1110	/* of Red Hat's, in Qumranet's name */
#define EMUV_IVSHMEM_BAR	2

/*
 * struct emuv_ivshmem - a device that an instance's memory is of
 * @inst: The instance, with a reference; it may have been destroyed
 * @bar: Its memory
 * @pagemap: The kernel's pages for @bar
 */
struct emuv_ivshmem {
	struct emuv_instance *inst;
	struct emuv_bar bar;
	struct dev_pagemap pagemap;	/* last: it ends with an array */
};

/*
 * Is it such a device, with memory of a size that an instance may have? By new_id
 * and driver_override any device comes here.
 */
static int emuv_ivshmem_check(struct pci_dev *pdev)
{
	resource_size_t start = pci_resource_start(pdev, EMUV_IVSHMEM_BAR);
	resource_size_t bytes = pci_resource_len(pdev, EMUV_IVSHMEM_BAR);

	if (pdev->vendor != PCI_VENDOR_ID_REDHAT_QUMRANET ||
	    pdev->device != EMUV_IVSHMEM_DEVICE) {
		dev_err(&pdev->dev, "%04x:%04x is no ivshmem device\n",
			pdev->vendor, pdev->device);
		return -ENODEV;
	}
	/* the kernel's mapping would be an encrypted one, which the host cannot read */
	if (cc_platform_has(CC_ATTR_GUEST_MEM_ENCRYPT)) {
		dev_err(&pdev->dev, "this machine's memory is encrypted, the host's is not\n");
		return -EOPNOTSUPP;
	}
	if (!(pci_resource_flags(pdev, EMUV_IVSHMEM_BAR) & IORESOURCE_MEM) ||
	    !start || !bytes || bytes > EMUV_MAX_BYTES ||
	    !IS_ALIGNED(start | bytes, EMUV_CHUNK_BYTES)) {
		dev_err(&pdev->dev, "%pa bytes at %pa are no whole chunks of %llu, up to %llu\n",
			&bytes, &start, EMUV_CHUNK_BYTES, EMUV_MAX_BYTES);
		return -EINVAL;
	}
	return 0;
}

/* Get the device's memory into the kernel's linear mapping, with pages. */
static int emuv_ivshmem_map(struct pci_dev *pdev, struct emuv_ivshmem *shmem)
{
	struct dev_pagemap *pagemap = &shmem->pagemap;
	resource_size_t start = pci_resource_start(pdev, EMUV_IVSHMEM_BAR);
	resource_size_t bytes = pci_resource_len(pdev, EMUV_IVSHMEM_BAR);
	struct emuv_bar *bar = &shmem->bar;
	void *vaddr;

	if (!devm_request_mem_region(&pdev->dev, start, bytes, "emuv")) {
		dev_err(&pdev->dev, "its memory is in use\n");
		return -EBUSY;
	}
	pagemap->type = MEMORY_DEVICE_GENERIC;
	pagemap->range.start = start;
	pagemap->range.end = start + bytes - 1;
	pagemap->nr_range = 1;
	vaddr = devm_memremap_pages(&pdev->dev, pagemap);
	if (IS_ERR(vaddr)) {
		dev_err(&pdev->dev, "no pages for its memory: %pe\n", vaddr);
		return PTR_ERR(vaddr);
	}
	bar->dev = &pdev->dev;
	bar->vaddr = vaddr;
	bar->first_pfn = PHYS_PFN(start);
	bar->count = bytes >> EMUV_CHUNK_SHIFT;
	return 0;
}

static int emuv_ivshmem_create(struct emuv_ivshmem *shmem)
{
	struct emuv_bar *bar = &shmem->bar;
	const struct emuv_config config = {
		.id = EMUV_ANY,
		.numa_node = EMUV_ANY,
		.virtual_bytes = (u64)bar->count << EMUV_CHUNK_SHIFT,
		.guaranteed = true,
		.swap_fd = -1,
		.bar = bar,
		.gpu_model = "ivshmem",
		.physical_name = "physical_bytes",
		.virtual_name = "the device's memory",
		.client_name = "client_virtual_bytes",
	};
	int id = emuv_instance_create(&config, &shmem->inst);

	return min(id, 0);
}

/* Does something outside the driver hold a page, which a chunk left behind? */
static bool emuv_ivshmem_is_pinned(const struct emuv_bar *bar)
{
	unsigned long pfn = bar->first_pfn;
	unsigned long end = pfn + (bar->count << EMUV_CHUNK_ORDER);

	for (; pfn < end; pfn++) {
		if (page_ref_count(pfn_to_page(pfn)) > 1)
			return true;
		if (IS_ALIGNED(pfn, EMUV_CHUNK_PAGES))
			cond_resched();
	}
	return false;
}

/*
 * Wait until nobody has any of the memory. The instance is gone, so nobody gets
 * more. Something else may lie at these addresses once the device is gone, so
 * whoever holds pages now is waited for, however long that takes. The log says so
 * each minute.
 */
static void emuv_ivshmem_drain(struct emuv_ivshmem *shmem)
{
	struct emuv_bar *bar = &shmem->bar;
	unsigned long next = jiffies;

	emuv_bar_put(bar);
	/* a task that wakes now and then does not count as hung */
	while (!wait_for_completion_timeout(&bar->unused, HZ) ||
	       emuv_ivshmem_is_pinned(bar)) {
		if (time_after_eq(jiffies, next)) {
			dev_warn(bar->dev, "waits for those who have its memory pinned\n");
			next = jiffies + 60 * HZ;
		}
		msleep(100);
	}
}

static int emuv_ivshmem_probe(struct pci_dev *pdev,
			      const struct pci_device_id *id)
{
	struct emuv_ivshmem *shmem;
	int err;

	if (!emuv_param_takes_ivshmem(pci_name(pdev)))
		return -ENODEV;
	err = emuv_ivshmem_check(pdev);
	if (err)
		return err;
	shmem = devm_kzalloc(&pdev->dev, sizeof(*shmem), GFP_KERNEL);
	if (!shmem)
		return -ENOMEM;
	err = pcim_enable_device(pdev);
	if (!err)
		err = emuv_ivshmem_map(pdev, shmem);
	if (err)
		return err;
	emuv_bar_init(&shmem->bar);
	err = emuv_ivshmem_create(shmem);
	if (err) {
		dev_err(&pdev->dev, "no instance of its memory: %d\n", err);
		emuv_ivshmem_drain(shmem);
		return err;
	}
	pci_set_drvdata(pdev, shmem);
	dev_info(&pdev->dev, "%lu MiB of a host's memory are emuv%d\n",
		 shmem->bar.count << (EMUV_CHUNK_SHIFT - 20),
		 shmem->inst->config.id);
	return 0;
}

/* The device goes, or is taken from the driver; clients lose the instance. */
static void emuv_ivshmem_remove(struct pci_dev *pdev)
{
	struct emuv_ivshmem *shmem = pci_get_drvdata(pdev);

	/* an administrator may have destroyed it already, or does so now */
	emuv_instance_remove(shmem->inst, true);
	emuv_instance_put(shmem->inst);
	emuv_ivshmem_drain(shmem);
}

/* No MODULE_DEVICE_TABLE: such a device does not load the module. */
static const struct pci_device_id emuv_ivshmem_ids[] = {
	{ PCI_DEVICE(PCI_VENDOR_ID_REDHAT_QUMRANET, EMUV_IVSHMEM_DEVICE) },
	{ }
};

static struct pci_driver emuv_ivshmem_driver = {
	.name = "emuv",
	.id_table = emuv_ivshmem_ids,
	.probe = emuv_ivshmem_probe,
	.remove = emuv_ivshmem_remove,
	/* the nodes are there once the module is loaded */
	.driver.probe_type = PROBE_FORCE_SYNCHRONOUS,
};

/* Take the devices that the parameter asks for, if it asks for any. */
int emuv_ivshmem_init(void)
{
	return emuv_param_has_ivshmem() ?
		       pci_register_driver(&emuv_ivshmem_driver) : 0;
}

void emuv_ivshmem_exit(void)
{
	if (emuv_param_has_ivshmem())
		pci_unregister_driver(&emuv_ivshmem_driver);
}
