// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A 32-bit caller of every ioctl, with no C library. abi_test runs it and takes
 * its exit status. The status is 0, or the number of the step that went wrong.
 */
#include "abi_layout.h"

#define SYS_EXIT 1
#define SYS_OPEN 5
#define SYS_CLOSE 6
#define SYS_IOCTL 54
#define SYS_MUNMAP 91
#define SYS_PREAD64 180
#define SYS_PWRITE64 181
#define SYS_MMAP2 192

#define O_RDWR 2
#define PROT_READ_WRITE 3
#define MAP_SHARED 1

/* An instance above 4 GiB, and offsets in it that need more than 32 bits. */
#define INSTANCE 11
#define GIB (1ULL << 30)
#define REGION_BYTES (2 * EMUV_CHUNK_BYTES)

static long syscall6(long nr, long a, long b, long c, long d, long e, long f)
{
	long result;

	/* %[f] may be addressed by the stack pointer: it goes first. */
	__asm__ volatile("pushl %[f]\n\t"
			 "push %%ebp\n\t"
			 "mov 4(%%esp), %%ebp\n\t"
			 "int $0x80\n\t"
			 "pop %%ebp\n\t"
			 "add $4, %%esp"
			 : "=a"(result)
			 : "a"(nr), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e),
			   [f] "m"(f)
			 : "memory");
	return result;
}

static void leave(int status)
{
	for (;;)
		syscall6(SYS_EXIT, status, 0, 0, 0, 0, 0);
}

static int step;

static void check(int holds)
{
	step++;
	if (!holds)
		leave(step);
}

static long call(long fd, unsigned long request, void *argument)
{
	return syscall6(SYS_IOCTL, fd, (long)request, (long)argument, 0, 0, 0);
}

static long read_at(long fd, void *to, long bytes, __u64 offset)
{
	return syscall6(SYS_PREAD64, fd, (long)to, bytes, (long)offset,
			(long)(offset >> 32), 0);
}

static long write_at(long fd, const void *from, long bytes, __u64 offset)
{
	return syscall6(SYS_PWRITE64, fd, (long)from, bytes, (long)offset,
			(long)(offset >> 32), 0);
}

static volatile char *map(long fd, __u64 bytes, __u64 offset)
{
	return (volatile char *)syscall6(SYS_MMAP2, 0, (long)bytes,
					 PROT_READ_WRITE, MAP_SHARED, fd,
					 (long)(offset >> 12));
}

static void run(void)
{
	struct emuv_version version = { .size = sizeof(version) };
	struct emuv_create create = {
		.size = sizeof(create),
		.flags = EMUV_CREATE_OVERCOMMIT,
		.id = INSTANCE,
		.numa_node = EMUV_ANY,
		.physical_bytes = 6 * GIB,
		.virtual_bytes = 8 * GIB,
		.gpu_model = "4070",
	};
	struct emuv_query_instance instance = {
		.size = sizeof(instance),
		.id = INSTANCE,
	};
	struct emuv_query_client client = {
		.size = sizeof(client),
		.id = INSTANCE,
	};
	struct emuv_alloc large = { .size = sizeof(large), .bytes = 5 * GIB };
	struct emuv_alloc alloc = {
		.size = sizeof(alloc),
		.bytes = REGION_BYTES,
	};
	struct emuv_charge charge = {
		.size = sizeof(charge),
		.bytes = 5 * GIB,
	};
	struct emuv_charge uncharge = {
		.size = sizeof(uncharge),
		.bytes = 5 * GIB - 1,
	};
	struct emuv_report report = {
		.size = sizeof(report),
		.fetched_bytes = 1ULL << 40,
		.stalled_ns = 1ULL << 41,
	};
	struct emuv_export export = { .size = sizeof(export) };
	struct emuv_import import = { .size = sizeof(import) };
	struct emuv_discard discard = {
		.size = sizeof(discard),
		.bytes = EMUV_CHUNK_BYTES,
	};
	struct emuv_free free = { .size = sizeof(free) };
	struct emuv_destroy destroy = {
		.size = sizeof(destroy),
		.id = INSTANCE,
	};
	volatile char *mapped;
	char byte = 42;
	long control, node, other;

	control = syscall6(SYS_OPEN, (long)"/dev/emuv-control", O_RDWR, 0, 0, 0,
			   0);
	check(control >= 0); /* 1 */
	check(call(control, EMUV_IOC_VERSION, &version) == 0);
	check(version.abi == EMUV_ABI_VERSION);
	check(version.chunk_bytes == EMUV_CHUNK_BYTES);
	check(call(control, EMUV_IOC_CREATE, &create) == 0); /* 5 */
	check(call(control, EMUV_IOC_QUERY_INSTANCE, &instance) == 0);
	check(instance.physical_bytes == 6 * GIB);
	check(instance.virtual_bytes == 8 * GIB);
	check(instance.gpu_model[0] == '4' && instance.gpu_model[3] == '0');

	node = syscall6(SYS_OPEN, (long)"/dev/emuv11", O_RDWR, 0, 0, 0, 0);
	check(node >= 0); /* 10 */
	check(call(node, EMUV_IOC_ALLOC, &large) == 0);
	check(call(node, EMUV_IOC_ALLOC, &alloc) == 0);
	check(alloc.offset >= 5 * GIB);
	check(alloc.bytes == REGION_BYTES);
	check(call(node, EMUV_IOC_CHARGE, &charge) == 0); /* 15 */
	check(charge.free_bytes == GIB);
	check(call(node, EMUV_IOC_UNCHARGE, &uncharge) == 0);
	check(uncharge.free_bytes == 6 * GIB - 1);
	check(call(node, EMUV_IOC_REPORT, &report) == 0);
	check(call(control, EMUV_IOC_QUERY_CLIENT, &client) == 0); /* 20 */
	check(client.physical_bytes == 1);
	check(client.virtual_bytes == 5 * GIB + REGION_BYTES);
	check(client.fetched_bytes == 1ULL << 40);
	check(client.stalled_ns == 1ULL << 41);

	mapped = map(node, REGION_BYTES, alloc.offset);
	check((unsigned long)mapped < -4095UL);
	check(mapped[0] == 0); /* 25 */
	mapped[EMUV_CHUNK_BYTES + 7] = 41;
	check(read_at(node, &byte, 1, alloc.offset + EMUV_CHUNK_BYTES + 7) == 1);
	check(byte == 41);
	byte = 43;
	check(write_at(node, &byte, 1, alloc.offset) == 1);
	check(mapped[0] == 43);
	discard.offset = alloc.offset;
	check(call(node, EMUV_IOC_DISCARD, &discard) == 0); /* 30 */
	check(mapped[0] == 0);

	export.offset = alloc.offset;
	check(call(node, EMUV_IOC_EXPORT, &export) == 0);
	other = syscall6(SYS_OPEN, (long)"/dev/emuv11", O_RDWR, 0, 0, 0, 0);
	check(other >= 0);
	import.fd = export.fd;
	check(call(other, EMUV_IOC_IMPORT, &import) == 0);
	check(import.bytes == REGION_BYTES); /* 35 */
	check(read_at(other, &byte, 1, import.offset + EMUV_CHUNK_BYTES + 7) ==
	      1);
	check(byte == 41);
	free.offset = import.offset;
	check(call(other, EMUV_IOC_FREE, &free) == 0);

	check(syscall6(SYS_MUNMAP, (long)mapped, (long)REGION_BYTES, 0, 0, 0,
		       0) == 0);
	syscall6(SYS_CLOSE, export.fd, 0, 0, 0, 0, 0);
	syscall6(SYS_CLOSE, other, 0, 0, 0, 0, 0);
	free.offset = alloc.offset;
	check(call(node, EMUV_IOC_FREE, &free) == 0); /* 40 */
	syscall6(SYS_CLOSE, node, 0, 0, 0, 0, 0);
	check(call(control, EMUV_IOC_DESTROY, &destroy) == 0);
	syscall6(SYS_CLOSE, control, 0, 0, 0, 0, 0);
}

/* Nothing called this function: the stack comes aligned by 16. */
__attribute__((force_align_arg_pointer)) void _start(void)
{
	run();
	leave(0);
}

/* The compiler inserts calls of this function. */
void *memset(void *to, int value, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		((volatile char *)to)[i] = (char)value;
	return to;
}

void *memcpy(void *to, const void *from, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		((volatile char *)to)[i] = ((const char *)from)[i];
	return to;
}
