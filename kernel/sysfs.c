// SPDX-License-Identifier: GPL-2.0-only
/*
 * /sys/class/emuv/emuvN: one value a file, except vram_info, which is a summary
 * for people. docs/ABI/sysfs-class-emuv describes all files.
 */
#include <linux/ctype.h>
#include <linux/sizes.h>
#include <linux/sysfs.h>

#include "emuv.h"

static struct emuv_instance *to_instance(struct device *dev)
{
	return container_of(dev, struct emuv_instance, dev);
}

/* A file that shows one number of the ledger. */
#define EMUV_LEDGER_ATTR(_name, _expr)					\
static ssize_t _name##_show(struct device *dev,				\
			    struct device_attribute *attr, char *buf)	\
{									\
	struct emuv_ledger ledger;					\
									\
	emuv_ledger_read(&to_instance(dev)->ledger, &ledger);		\
	return sysfs_emit(buf, "%llu\n", (_expr));			\
}									\
static DEVICE_ATTR_RO(_name)

EMUV_LEDGER_ATTR(physical_bytes, ledger.physical_limit);
EMUV_LEDGER_ATTR(virtual_bytes, ledger.virtual_limit);
EMUV_LEDGER_ATTR(total_bytes, ledger.physical_limit + ledger.virtual_limit);
EMUV_LEDGER_ATTR(physical_used_bytes, ledger.physical_used);
EMUV_LEDGER_ATTR(virtual_used_bytes, ledger.virtual_used);
EMUV_LEDGER_ATTR(unowned_bytes, ledger.unowned);
EMUV_LEDGER_ATTR(physical_peak_bytes, ledger.physical_peak);
EMUV_LEDGER_ATTR(virtual_peak_bytes, ledger.virtual_peak);
EMUV_LEDGER_ATTR(fetched_bytes, ledger.counters.fetched_bytes);
EMUV_LEDGER_ATTR(evicted_bytes, ledger.counters.evicted_bytes);
EMUV_LEDGER_ATTR(spills, ledger.counters.spills);
EMUV_LEDGER_ATTR(faults, ledger.counters.faults);
EMUV_LEDGER_ATTR(hit_bytes, ledger.counters.hit_bytes);
EMUV_LEDGER_ATTR(miss_bytes, ledger.counters.miss_bytes);
EMUV_LEDGER_ATTR(stalled_ns, ledger.counters.stalled_ns);
EMUV_LEDGER_ATTR(client_virtual_bytes, ledger.client_limit);
EMUV_LEDGER_ATTR(waiters, (u64)ledger.waiter_count);

/* A file that shows any other value. */
#define EMUV_ATTR(_name, _format, ...)					\
static ssize_t _name##_show(struct device *dev,				\
			    struct device_attribute *attr, char *buf)	\
{									\
	struct emuv_instance *inst __maybe_unused = to_instance(dev);	\
									\
	return sysfs_emit(buf, _format "\n", __VA_ARGS__);		\
}									\
static DEVICE_ATTR_RO(_name)

EMUV_ATTR(gpu_model, "%s", inst->config.gpu_model);
EMUV_ATTR(resident_bytes, "%llu", emuv_instance_resident_bytes(inst));
EMUV_ATTR(lingering_bytes, "%llu", READ_ONCE(inst->lingering_bytes));
EMUV_ATTR(reserve_bytes, "%llu", emuv_reserve_bytes(&inst->reserve));
EMUV_ATTR(swapped_bytes, "%llu", emuv_instance_swapped_bytes(inst));
EMUV_ATTR(swap, "%d", emuv_instance_swaps(inst));
EMUV_ATTR(guaranteed, "%d", inst->config.guaranteed);
EMUV_ATTR(clients, "%u", READ_ONCE(inst->client_count));
EMUV_ATTR(chunk_bytes, "%llu", EMUV_CHUNK_BYTES);
EMUV_ATTR(uuid, "%pUb", &inst->uuid);
EMUV_ATTR(numa_node, "%d", inst->config.numa_node);
EMUV_ATTR(numa_bind, "%d", inst->config.bind);
EMUV_ATTR(pci_device_id, "0x%04x", inst->config.pci_device_id);

static ssize_t state_show(struct device *dev, struct device_attribute *attr,
			  char *buf)
{
	static const struct {
		u32 bit;
		const char *name;
	} names[] = {
		{ EMUV_STATE_ROOM, "room" },
		{ EMUV_STATE_NEAR_LIMIT, "near-limit" },
		{ EMUV_STATE_WAITERS, "waiters" },
		{ EMUV_STATE_NEAR_FLOOR, "near-floor" },
	};
	u32 state = emuv_state_shown(to_instance(dev));
	int len = 0, i;

	for (i = 0; i < ARRAY_SIZE(names); i++)
		if (state & names[i].bit)
			len += sysfs_emit_at(buf, len, "%s%s", len ? " " : "",
					     names[i].name);
	return len + sysfs_emit_at(buf, len, "\n");
}
static DEVICE_ATTR_RO(state);

/*
 * Get the family name to show in front of a model, or "". A number with or
 * without one of the suffixes means a GeForce, as in 4070 or 4070 Ti SUPER.
 */
static const char *emuv_model_family(const char *model)
{
	static const char * const suffixes[] = { "", " Ti", " SUPER", " Ti SUPER" };
	size_t digits = 0, i;

	while (isdigit(model[digits]))
		digits++;
	if (digits < 3 || digits > 4)
		return "";
	for (i = 0; i < ARRAY_SIZE(suffixes); i++)
		if (!strcasecmp(model + digits, suffixes[i]))
			return digits == 4 && model[0] >= '2' ?
			       "NVIDIA GeForce RTX " : "NVIDIA GeForce GTX ";
	return "";
}

static int emuv_emit_size(char *buf, int at, const char *what, u64 bytes)
{
	bool gb = bytes && IS_ALIGNED(bytes, SZ_1G);

	return sysfs_emit_at(buf, at, "%s: %llu %s\n", what,
			     bytes >> (gb ? 30 : 20), gb ? "GB" : "MB");
}

static ssize_t vram_info_show(struct device *dev, struct device_attribute *attr,
			      char *buf)
{
	struct emuv_instance *inst = to_instance(dev);
	const char *model = inst->config.gpu_model;
	struct emuv_ledger ledger;
	int len;

	emuv_ledger_read(&inst->ledger, &ledger);
	len = sysfs_emit(buf, "GPU: %s%s\n", emuv_model_family(model), model);
	len += emuv_emit_size(buf, len, "Physical VRAM", ledger.physical_limit);
	len += emuv_emit_size(buf, len, "Virtual VRAM", ledger.virtual_limit);
	len += emuv_emit_size(buf, len, "Total VRAM",
			      ledger.physical_limit + ledger.virtual_limit);
	len += emuv_emit_size(buf, len, "Physical used", ledger.physical_used);
	len += emuv_emit_size(buf, len, "Virtual used", ledger.virtual_used);
	len += emuv_emit_size(buf, len, "Backed by RAM",
			      emuv_instance_resident_bytes(inst));
	len += sysfs_emit_at(buf, len, "Clients: %u\n",
			     READ_ONCE(inst->client_count));
	return len;
}
static DEVICE_ATTR_RO(vram_info);

static struct attribute *emuv_sysfs_attrs[] = {
	&dev_attr_gpu_model.attr,
	&dev_attr_physical_bytes.attr,
	&dev_attr_virtual_bytes.attr,
	&dev_attr_total_bytes.attr,
	&dev_attr_client_virtual_bytes.attr,
	&dev_attr_physical_used_bytes.attr,
	&dev_attr_virtual_used_bytes.attr,
	&dev_attr_unowned_bytes.attr,
	&dev_attr_lingering_bytes.attr,
	&dev_attr_physical_peak_bytes.attr,
	&dev_attr_virtual_peak_bytes.attr,
	&dev_attr_resident_bytes.attr,
	&dev_attr_reserve_bytes.attr,
	&dev_attr_guaranteed.attr,
	&dev_attr_swap.attr,
	&dev_attr_swapped_bytes.attr,
	&dev_attr_clients.attr,
	&dev_attr_chunk_bytes.attr,
	&dev_attr_uuid.attr,
	&dev_attr_numa_node.attr,
	&dev_attr_numa_bind.attr,
	&dev_attr_pci_device_id.attr,
	&dev_attr_fetched_bytes.attr,
	&dev_attr_evicted_bytes.attr,
	&dev_attr_spills.attr,
	&dev_attr_faults.attr,
	&dev_attr_hit_bytes.attr,
	&dev_attr_miss_bytes.attr,
	&dev_attr_stalled_ns.attr,
	&dev_attr_state.attr,
	&dev_attr_waiters.attr,
	&dev_attr_vram_info.attr,
	NULL
};

static const struct attribute_group emuv_sysfs_group = {
	.attrs = emuv_sysfs_attrs,
};

const struct attribute_group *emuv_sysfs_groups[] = {
	&emuv_sysfs_group,
	NULL
};
