/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The layout of every structure of the ABI, asserted alike in 32-bit C and in
 * 64-bit C++. These figures may never change. A structure may get new members
 * at its end; enter them here, and its new size.
 */
#ifndef EMUV_TESTS_ABI_LAYOUT_H
#define EMUV_TESTS_ABI_LAYOUT_H

#include <stddef.h>
#include <linux/emuv.h>

#ifdef __cplusplus
#define LAYOUT_ASSERT static_assert
#else
#define LAYOUT_ASSERT _Static_assert
#endif

#define LAYOUT_SIZE(type, bytes) \
	LAYOUT_ASSERT(sizeof(struct type) == (bytes), #type)
#define LAYOUT_FIELD(type, field, at, bytes) \
	LAYOUT_ASSERT(offsetof(struct type, field) == (at) && \
		      sizeof(((struct type *)0)->field) == (bytes), \
		      #type "." #field)
#define LAYOUT_VALUE(name, value) LAYOUT_ASSERT((name) == (value), #name)

LAYOUT_SIZE(emuv_version, 56);
LAYOUT_FIELD(emuv_version, size, 0, 4);
LAYOUT_FIELD(emuv_version, flags, 4, 4);
LAYOUT_FIELD(emuv_version, abi, 8, 4);
LAYOUT_FIELD(emuv_version, reserved, 12, 4);
LAYOUT_FIELD(emuv_version, chunk_bytes, 16, 8);
LAYOUT_FIELD(emuv_version, module_version, 24, 32);

LAYOUT_SIZE(emuv_query_instance, 248);
LAYOUT_FIELD(emuv_query_instance, size, 0, 4);
LAYOUT_FIELD(emuv_query_instance, flags, 4, 4);
LAYOUT_FIELD(emuv_query_instance, id, 8, 4);
LAYOUT_FIELD(emuv_query_instance, clients, 12, 4);
LAYOUT_FIELD(emuv_query_instance, physical_bytes, 16, 8);
LAYOUT_FIELD(emuv_query_instance, virtual_bytes, 24, 8);
LAYOUT_FIELD(emuv_query_instance, physical_used_bytes, 32, 8);
LAYOUT_FIELD(emuv_query_instance, virtual_used_bytes, 40, 8);
LAYOUT_FIELD(emuv_query_instance, unowned_bytes, 48, 8);
LAYOUT_FIELD(emuv_query_instance, resident_bytes, 56, 8);
LAYOUT_FIELD(emuv_query_instance, fetched_bytes, 64, 8);
LAYOUT_FIELD(emuv_query_instance, evicted_bytes, 72, 8);
LAYOUT_FIELD(emuv_query_instance, spills, 80, 8);
LAYOUT_FIELD(emuv_query_instance, faults, 88, 8);
LAYOUT_FIELD(emuv_query_instance, numa_node, 96, 4);
LAYOUT_FIELD(emuv_query_instance, pci_device_id, 100, 4);
LAYOUT_FIELD(emuv_query_instance, uuid, 104, 16);
LAYOUT_FIELD(emuv_query_instance, gpu_model, 120, 64);
LAYOUT_FIELD(emuv_query_instance, hit_bytes, 184, 8);
LAYOUT_FIELD(emuv_query_instance, miss_bytes, 192, 8);
LAYOUT_FIELD(emuv_query_instance, stalled_ns, 200, 8);
LAYOUT_FIELD(emuv_query_instance, state, 208, 4);
LAYOUT_FIELD(emuv_query_instance, waiters, 212, 4);
LAYOUT_FIELD(emuv_query_instance, reserve_bytes, 216, 8);
LAYOUT_FIELD(emuv_query_instance, created, 224, 4);
LAYOUT_FIELD(emuv_query_instance, reserved, 228, 4);
LAYOUT_FIELD(emuv_query_instance, client_virtual_bytes, 232, 8);
LAYOUT_FIELD(emuv_query_instance, swapped_bytes, 240, 8);

LAYOUT_SIZE(emuv_query_client, 152);
LAYOUT_FIELD(emuv_query_client, size, 0, 4);
LAYOUT_FIELD(emuv_query_client, flags, 4, 4);
LAYOUT_FIELD(emuv_query_client, id, 8, 4);
LAYOUT_FIELD(emuv_query_client, pid, 12, 4);
LAYOUT_FIELD(emuv_query_client, client, 16, 8);
LAYOUT_FIELD(emuv_query_client, physical_bytes, 24, 8);
LAYOUT_FIELD(emuv_query_client, virtual_bytes, 32, 8);
LAYOUT_FIELD(emuv_query_client, imported_bytes, 40, 8);
LAYOUT_FIELD(emuv_query_client, fetched_bytes, 48, 8);
LAYOUT_FIELD(emuv_query_client, evicted_bytes, 56, 8);
LAYOUT_FIELD(emuv_query_client, spills, 64, 8);
LAYOUT_FIELD(emuv_query_client, faults, 72, 8);
LAYOUT_FIELD(emuv_query_client, comm, 80, 16);
LAYOUT_FIELD(emuv_query_client, hit_bytes, 96, 8);
LAYOUT_FIELD(emuv_query_client, miss_bytes, 104, 8);
LAYOUT_FIELD(emuv_query_client, stalled_ns, 112, 8);
LAYOUT_FIELD(emuv_query_client, waiting_bytes, 120, 8);
LAYOUT_FIELD(emuv_query_client, resident_bytes, 128, 8);
LAYOUT_FIELD(emuv_query_client, pinned_bytes, 136, 8);
LAYOUT_FIELD(emuv_query_client, lingering_bytes, 144, 8);

LAYOUT_SIZE(emuv_create, 120);
LAYOUT_FIELD(emuv_create, size, 0, 4);
LAYOUT_FIELD(emuv_create, flags, 4, 4);
LAYOUT_FIELD(emuv_create, id, 8, 4);
LAYOUT_FIELD(emuv_create, numa_node, 12, 4);
LAYOUT_FIELD(emuv_create, physical_bytes, 16, 8);
LAYOUT_FIELD(emuv_create, virtual_bytes, 24, 8);
LAYOUT_FIELD(emuv_create, pci_device_id, 32, 4);
LAYOUT_FIELD(emuv_create, reserved, 36, 4);
LAYOUT_FIELD(emuv_create, gpu_model, 40, 64);
LAYOUT_FIELD(emuv_create, client_virtual_bytes, 104, 8);
LAYOUT_FIELD(emuv_create, swap_fd, 112, 4);
LAYOUT_FIELD(emuv_create, reserved2, 116, 4);

LAYOUT_SIZE(emuv_destroy, 16);
LAYOUT_FIELD(emuv_destroy, size, 0, 4);
LAYOUT_FIELD(emuv_destroy, flags, 4, 4);
LAYOUT_FIELD(emuv_destroy, id, 8, 4);
LAYOUT_FIELD(emuv_destroy, reserved, 12, 4);

LAYOUT_SIZE(emuv_resize, 32);
LAYOUT_FIELD(emuv_resize, size, 0, 4);
LAYOUT_FIELD(emuv_resize, flags, 4, 4);
LAYOUT_FIELD(emuv_resize, id, 8, 4);
LAYOUT_FIELD(emuv_resize, reserved, 12, 4);
LAYOUT_FIELD(emuv_resize, physical_bytes, 16, 8);
LAYOUT_FIELD(emuv_resize, virtual_bytes, 24, 8);

LAYOUT_SIZE(emuv_alloc, 24);
LAYOUT_FIELD(emuv_alloc, size, 0, 4);
LAYOUT_FIELD(emuv_alloc, flags, 4, 4);
LAYOUT_FIELD(emuv_alloc, bytes, 8, 8);
LAYOUT_FIELD(emuv_alloc, offset, 16, 8);

LAYOUT_SIZE(emuv_free, 16);
LAYOUT_FIELD(emuv_free, size, 0, 4);
LAYOUT_FIELD(emuv_free, flags, 4, 4);
LAYOUT_FIELD(emuv_free, offset, 8, 8);

LAYOUT_SIZE(emuv_export, 24);
LAYOUT_FIELD(emuv_export, size, 0, 4);
LAYOUT_FIELD(emuv_export, flags, 4, 4);
LAYOUT_FIELD(emuv_export, offset, 8, 8);
LAYOUT_FIELD(emuv_export, fd, 16, 4);
LAYOUT_FIELD(emuv_export, reserved, 20, 4);

LAYOUT_SIZE(emuv_import, 32);
LAYOUT_FIELD(emuv_import, size, 0, 4);
LAYOUT_FIELD(emuv_import, flags, 4, 4);
LAYOUT_FIELD(emuv_import, fd, 8, 4);
LAYOUT_FIELD(emuv_import, reserved, 12, 4);
LAYOUT_FIELD(emuv_import, offset, 16, 8);
LAYOUT_FIELD(emuv_import, bytes, 24, 8);

LAYOUT_SIZE(emuv_discard, 24);
LAYOUT_FIELD(emuv_discard, size, 0, 4);
LAYOUT_FIELD(emuv_discard, flags, 4, 4);
LAYOUT_FIELD(emuv_discard, offset, 8, 8);
LAYOUT_FIELD(emuv_discard, bytes, 16, 8);

LAYOUT_SIZE(emuv_charge, 32);
LAYOUT_FIELD(emuv_charge, size, 0, 4);
LAYOUT_FIELD(emuv_charge, flags, 4, 4);
LAYOUT_FIELD(emuv_charge, bytes, 8, 8);
LAYOUT_FIELD(emuv_charge, free_bytes, 16, 8);
LAYOUT_FIELD(emuv_charge, deadline_ns, 24, 8);

LAYOUT_SIZE(emuv_report, 64);
LAYOUT_FIELD(emuv_report, size, 0, 4);
LAYOUT_FIELD(emuv_report, flags, 4, 4);
LAYOUT_FIELD(emuv_report, fetched_bytes, 8, 8);
LAYOUT_FIELD(emuv_report, evicted_bytes, 16, 8);
LAYOUT_FIELD(emuv_report, spills, 24, 8);
LAYOUT_FIELD(emuv_report, faults, 32, 8);
LAYOUT_FIELD(emuv_report, hit_bytes, 40, 8);
LAYOUT_FIELD(emuv_report, miss_bytes, 48, 8);
LAYOUT_FIELD(emuv_report, stalled_ns, 56, 8);

LAYOUT_VALUE(EMUV_IOC_VERSION, 0xEB00);
LAYOUT_VALUE(EMUV_IOC_QUERY_INSTANCE, 0xEB01);
LAYOUT_VALUE(EMUV_IOC_QUERY_CLIENT, 0xEB02);
LAYOUT_VALUE(EMUV_IOC_CREATE, 0xEB10);
LAYOUT_VALUE(EMUV_IOC_DESTROY, 0xEB11);
LAYOUT_VALUE(EMUV_IOC_RESIZE, 0xEB12);
LAYOUT_VALUE(EMUV_IOC_ALLOC, 0xEB20);
LAYOUT_VALUE(EMUV_IOC_FREE, 0xEB21);
LAYOUT_VALUE(EMUV_IOC_EXPORT, 0xEB22);
LAYOUT_VALUE(EMUV_IOC_IMPORT, 0xEB23);
LAYOUT_VALUE(EMUV_IOC_DISCARD, 0xEB24);
LAYOUT_VALUE(EMUV_IOC_CHARGE, 0xEB25);
LAYOUT_VALUE(EMUV_IOC_UNCHARGE, 0xEB26);
LAYOUT_VALUE(EMUV_IOC_REPORT, 0xEB27);
LAYOUT_VALUE(EMUV_QUERY_NEXT, 1);
LAYOUT_VALUE(EMUV_QUERY_MEMORY, 1);
LAYOUT_VALUE(EMUV_CREATE_OVERCOMMIT, 1);
LAYOUT_VALUE(EMUV_CREATE_GUARANTEED, 2);
LAYOUT_VALUE(EMUV_DESTROY_FORCE, 1);
LAYOUT_VALUE(EMUV_UNCHARGE_CANCEL, 1);
LAYOUT_VALUE(EMUV_CREATE_SWAP, 4);
LAYOUT_VALUE(EMUV_CREATE_BIND, 8);
LAYOUT_VALUE(EMUV_RESIZE_PHYSICAL, 1);
LAYOUT_VALUE(EMUV_RESIZE_VIRTUAL, 2);
LAYOUT_VALUE(EMUV_ALLOC_POPULATE, 1);
LAYOUT_VALUE(EMUV_EXPORT_DMABUF, 1);
LAYOUT_VALUE(EMUV_CHARGE_WAIT, 1);
LAYOUT_VALUE(EMUV_NO_DEADLINE, 0xffffffffffffffff);
LAYOUT_VALUE(EMUV_STATE_ROOM, 1);
LAYOUT_VALUE(EMUV_STATE_NEAR_LIMIT, 2);
LAYOUT_VALUE(EMUV_STATE_WAITERS, 4);
LAYOUT_VALUE(EMUV_STATE_NEAR_FLOOR, 8);
LAYOUT_VALUE(EMUV_ABI_VERSION, 1);
LAYOUT_VALUE(EMUV_CHUNK_BYTES, 2097152);
LAYOUT_VALUE(EMUV_MAX_BYTES, 1125899906842624);
LAYOUT_VALUE(EMUV_MAX_INSTANCES, 1024);
LAYOUT_VALUE(EMUV_MODEL_LEN, 64);
LAYOUT_VALUE(EMUV_UUID_LEN, 16);
LAYOUT_VALUE(EMUV_COMM_LEN, 16);
LAYOUT_VALUE(EMUV_ANY, -1);

#endif
