// SPDX-License-Identifier: GPL-2.0-only
/*
 * Module parameters, and the instances that they ask for.
 *
 * A bad value is refused before anything has been made. One line in the log
 * names the parameter and its range.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/sizes.h>

#include "emuv.h"

/* Largest number of instances that one load can make. */
#define EMUV_PARAM_MAX		64

/* Parse a whole number in a range; @unit is for the error message. */
static int emuv_param_parse(const char *val, const struct kernel_param *kp,
			    long long min, long long max, const char *unit,
			    long long *number)
{
	int err = val ? kstrtoll(val, 0, number) : -EINVAL;

	if (!err && *number >= min && *number <= max)
		return 0;
	pr_err("%s: '%s' is not a whole number from %lld to %lld%s\n",
	       kp->name, val ?: "", min, max, unit);
	return -EINVAL;
}

/* Numbers are kept as given, each list in its own unit. */
static int emuv_param_get(char *buf, const struct kernel_param *kp)
{
	return sysfs_emit(buf, "%lld\n", *(long long *)kp->arg);
}

static int emuv_param_set_gb(const char *val, const struct kernel_param *kp)
{
	return emuv_param_parse(val, kp, 0, EMUV_MAX_BYTES / SZ_1G, " GiB",
				kp->arg);
}

static int emuv_param_set_mb(const char *val, const struct kernel_param *kp)
{
	return emuv_param_parse(val, kp, 0, EMUV_MAX_BYTES / SZ_1M, " MiB",
				kp->arg);
}

static int emuv_param_set_id(const char *val, const struct kernel_param *kp)
{
	return emuv_param_parse(val, kp, 0, EMUV_MAX_INSTANCES - 1, "", kp->arg);
}

static int emuv_param_set_node(const char *val, const struct kernel_param *kp)
{
	return emuv_param_parse(val, kp, EMUV_ANY, MAX_NUMNODES - 1, "",
				kp->arg);
}

static int emuv_param_set_pci_id(const char *val, const struct kernel_param *kp)
{
	return emuv_param_parse(val, kp, 0, 0xffff, "", kp->arg);
}

#define EMUV_PARAM_OPS(_type)						\
static const struct kernel_param_ops param_ops_emuv_##_type = {	\
	.set = emuv_param_set_##_type,					\
	.get = emuv_param_get,						\
}

EMUV_PARAM_OPS(gb);
EMUV_PARAM_OPS(mb);
EMUV_PARAM_OPS(id);
EMUV_PARAM_OPS(node);
EMUV_PARAM_OPS(pci_id);
#define param_check_emuv_gb(name, p) __param_check(name, p, long long)
#define param_check_emuv_mb(name, p) __param_check(name, p, long long)
#define param_check_emuv_id(name, p) __param_check(name, p, long long)
#define param_check_emuv_node(name, p) __param_check(name, p, long long)
#define param_check_emuv_pci_id(name, p) __param_check(name, p, long long)

static char *gpu_model[EMUV_PARAM_MAX];
static unsigned int gpu_models;
module_param_array(gpu_model, charp, &gpu_models, 0444);
MODULE_PARM_DESC(gpu_model,
		 "GPU models: 4070, 4090, ... or a name; one for all instances or one each (default: GPU)");

static long long physical_vram_gb[EMUV_PARAM_MAX];
static unsigned int physical_gbs;
module_param_array(physical_vram_gb, emuv_gb, &physical_gbs, 0444);
MODULE_PARM_DESC(physical_vram_gb,
		 "Physical VRAM of each instance in GiB, 0 to 1048576 (default: 0; without any size no instance)");

static long long physical_vram_mb[EMUV_PARAM_MAX];
static unsigned int physical_mbs;
module_param_array(physical_vram_mb, emuv_mb, &physical_mbs, 0444);
MODULE_PARM_DESC(physical_vram_mb,
		 "The same in MiB, 0 to 1073741824, instead of physical_vram_gb");

static long long virtual_vram_gb[EMUV_PARAM_MAX];
static unsigned int virtual_gbs;
module_param_array(virtual_vram_gb, emuv_gb, &virtual_gbs, 0444);
MODULE_PARM_DESC(virtual_vram_gb,
		 "Virtual VRAM (system RAM) of each instance in GiB, 0 to 1048576 (default: 0; without any size no instance)");

static long long virtual_vram_mb[EMUV_PARAM_MAX];
static unsigned int virtual_mbs;
module_param_array(virtual_vram_mb, emuv_mb, &virtual_mbs, 0444);
MODULE_PARM_DESC(virtual_vram_mb,
		 "The same in MiB, 0 to 1073741824 in steps of 2, instead of virtual_vram_gb");

static long long instance_id;
module_param(instance_id, emuv_id, 0444);
MODULE_PARM_DESC(instance_id,
		 "Number of the first instance, 0 to 1023 (default: 0)");

/* the kernel has a per-CPU variable numa_node */
static long long nodes[EMUV_PARAM_MAX];
static unsigned int node_count;
module_param_array_named(numa_node, nodes, emuv_node, &node_count, 0444);
MODULE_PARM_DESC(numa_node,
		 "NUMA node to take memory from; one for all instances or one each; -1: whoever touches it first (default: -1)");

static long long pci_device_id[EMUV_PARAM_MAX];
static unsigned int pci_device_ids;
module_param_array(pci_device_id, emuv_pci_id, &pci_device_ids, 0444);
MODULE_PARM_DESC(pci_device_id,
		 "PCI device id of the card an instance belongs to, 0 to 0xffff; one for all instances or one each (default: 0, none)");

static bool overcommit;
module_param(overcommit, bool, 0444);
MODULE_PARM_DESC(overcommit,
		 "Promise these instances more virtual VRAM than the host can back (default: N)");

static bool guaranteed;
module_param(guaranteed, bool, 0444);
MODULE_PARM_DESC(guaranteed,
		 "Reserve the RAM behind these instances' virtual VRAM at once (default: N)");

static long long client_virtual_mb;
module_param(client_virtual_mb, emuv_mb, 0444);
MODULE_PARM_DESC(client_virtual_mb,
		 "Virtual VRAM in MiB that one client of these instances may allocate, 0 to 1073741824 in steps of 2 (default: 0, all)");

static bool numa_bind;
module_param(numa_bind, bool, 0444);
MODULE_PARM_DESC(numa_bind,
		 "Take no memory from other nodes when numa_node is short of it (default: N)");

static char *ivshmem[EMUV_PARAM_MAX];
static unsigned int ivshmems;
module_param_array(ivshmem, charp, &ivshmems, 0444);
MODULE_PARM_DESC(ivshmem,
		 "In a guest: PCI addresses of ivshmem devices that become instances, such as 0000:00:04.0, or all (default: none)");

/* -1: the default */
static long long host_floor_mb = -1;

static int host_floor_set(const char *val, const struct kernel_param *kp)
{
	return emuv_param_parse(val, kp, 0, EMUV_MAX_BYTES / SZ_1M, " MiB",
				&host_floor_mb);
}

static int host_floor_get(char *buf, const struct kernel_param *kp)
{
	return sysfs_emit(buf, "%llu\n", emuv_param_floor() / SZ_1M);
}

static const struct kernel_param_ops host_floor_ops = {
	.set = host_floor_set,
	.get = host_floor_get,
};
module_param_cb(host_floor_mb, &host_floor_ops, NULL, 0444);
MODULE_PARM_DESC(host_floor_mb,
		 "Host memory in MiB that is never taken, 0 to 1073741824 (default: 1/16 of RAM, at most 4096)");

/*
 * Bytes of host memory that are never taken. The default leaves enough for the
 * host's own programs, without holding back much of a large host.
 */
u64 emuv_param_floor(void)
{
	u64 ram = (u64)totalram_pages() << PAGE_SHIFT;

	if (host_floor_mb >= 0)
		return (u64)host_floor_mb * SZ_1M;
	return min(ram / 16, 4ULL * SZ_1G);
}

/* Parse a PCI address, all of the text; sscanf() also takes 0x and blanks. */
static bool emuv_param_parse_address(const char *text, unsigned int address[4])
{
	int end = 0;

	return !text[strspn(text, "0123456789abcdefABCDEF:.")] &&
	       sscanf(text, "%x:%x:%x.%x%n", &address[0], &address[1],
		      &address[2], &address[3], &end) == 4 &&
	       !text[end];
}

static int emuv_param_check_ivshmem(void)
{
	unsigned int i, address[4];

	for (i = 0; i < ivshmems; i++) {
		if (!strcmp(ivshmem[i], "all") ||
		    emuv_param_parse_address(ivshmem[i], address))
			continue;
		pr_err("ivshmem: '%s' is neither a PCI address, such as 0000:00:04.0, nor all\n",
		       ivshmem[i]);
		return -EINVAL;
	}
	if (ivshmems && !EMUV_HAS_IVSHMEM) {
		pr_err("ivshmem: not in this kernel, which lacks CONFIG_PCI or CONFIG_ZONE_DEVICE\n");
		return -EOPNOTSUPP;
	}
	return 0;
}

bool emuv_param_has_ivshmem(void)
{
	return ivshmems;
}

/* Is the device with this address to become an instance? */
bool emuv_param_takes_ivshmem(const char *pci_name)
{
	unsigned int i, one[4], other[4];

	for (i = 0; i < ivshmems; i++)
		if (!strcmp(ivshmem[i], "all") ||
		    (emuv_param_parse_address(ivshmem[i], one) &&
		     emuv_param_parse_address(pci_name, other) &&
		     !memcmp(one, other, sizeof(one))))
			return true;
	return false;
}

/* A size, given in one of two units. */
struct emuv_param_size {
	const char *name;
	const long long *values;
	unsigned int count;
	u64 unit;
};

static int emuv_param_size(struct emuv_param_size *size, const char *gb_name,
			   const long long *gb, unsigned int gbs,
			   const char *mb_name, const long long *mb,
			   unsigned int mbs)
{
	if (gbs && mbs) {
		pr_err("%s and %s: give one of them\n", gb_name, mb_name);
		return -EINVAL;
	}
	*size = mbs ? (struct emuv_param_size){ mb_name, mb, mbs, SZ_1M } :
		      (struct emuv_param_size){ gb_name, gb, gbs, SZ_1G };
	return 0;
}

static u64 emuv_param_bytes(const struct emuv_param_size *size, unsigned int i)
{
	return size->count ? size->values[i] * size->unit : 0;
}

/*
 * Does a list have one value for each of @count instances, or @shared or none?
 */
static bool emuv_param_fits(const char *name, unsigned int values,
			    unsigned int count, bool shared)
{
	if (!values || values == count || (shared && values == 1))
		return true;
	pr_err("%s: %u values for %u instances; give %s%u\n", name,
	       values, count, shared && count > 1 ? "1 or " : "", count);
	return false;
}

/* Index of instance @i's value in a list that fits. */
static unsigned int emuv_param_index(unsigned int values, unsigned int i)
{
	return values == 1 ? 0 : i;
}

static long long emuv_param_pick(const long long *list, unsigned int values,
				 unsigned int i, long long otherwise)
{
	return values ? list[emuv_param_index(values, i)] : otherwise;
}

static int emuv_param_config(struct emuv_config *config,
			     const struct emuv_param_size *physical,
			     const struct emuv_param_size *virtual,
			     unsigned int i)
{
	const char *model = "GPU";

	if (gpu_models)
		model = gpu_model[emuv_param_index(gpu_models, i)];

	*config = (struct emuv_config){
		.id = instance_id + i,
		.numa_node = emuv_param_pick(nodes, node_count, i, EMUV_ANY),
		.physical_bytes = emuv_param_bytes(physical, i),
		.virtual_bytes = emuv_param_bytes(virtual, i),
		.client_virtual_bytes = client_virtual_mb * SZ_1M,
		.pci_device_id = emuv_param_pick(pci_device_id, pci_device_ids,
						 i, 0),
		.overcommit = overcommit,
		.guaranteed = guaranteed,
		.bind = numa_bind,
		.swap_fd = -1,
		.physical_name = physical->name,
		.virtual_name = virtual->name,
		.client_name = "client_virtual_mb",
	};
	if (strscpy(config->gpu_model, model, sizeof(config->gpu_model)) < 0)
		config->gpu_model[0] = '\0';	/* too long: refused as empty */
	return emuv_config_validate(config);
}

/* Create the instances that the parameters ask for. */
int emuv_param_create_instances(void)
{
	struct emuv_param_size physical, virtual;
	struct emuv_config config;
	unsigned int count, i;
	int err;

	err = emuv_param_size(&physical, "physical_vram_gb", physical_vram_gb,
			      physical_gbs, "physical_vram_mb",
			      physical_vram_mb, physical_mbs);
	if (!err)
		err = emuv_param_size(&virtual, "virtual_vram_gb",
				      virtual_vram_gb, virtual_gbs,
				      "virtual_vram_mb", virtual_vram_mb,
				      virtual_mbs);
	if (!err)
		err = emuv_param_check_ivshmem();
	if (err)
		return err;

	count = physical.count ?: virtual.count;
	if (!emuv_param_fits(virtual.name, virtual.count, count, false) ||
	    !emuv_param_fits("gpu_model", gpu_models, count ?: 1, true) ||
	    !emuv_param_fits("numa_node", node_count, count ?: 1, true) ||
	    !emuv_param_fits("pci_device_id", pci_device_ids, count ?: 1, true))
		return -EINVAL;

	for (i = 0; i < count; i++) {
		err = emuv_param_config(&config, &physical, &virtual, i);
		if (err)
			return err;
	}
	for (i = 0; i < count; i++) {
		emuv_param_config(&config, &physical, &virtual, i);
		err = emuv_instance_create(&config, NULL);
		if (err < 0) {
			if (err == -ENOMEM)
				pr_err("%s: no memory, or more than the host can back in all; overcommit=1 without guaranteed=1 promises that all the same\n",
				       virtual.name);
			return err;
		}
	}
	return 0;
}
