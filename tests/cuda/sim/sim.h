/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The simulated CUDA driver's interface for tests, beyond CUDA itself.
 *
 * The simulated driver is a libcuda.so.1 over host memory. It reads, once, at
 * cuInit():
 *
 *   EMUV_SIM_VRAM       VRAM of each device: bytes, or with K, M, G (256M)
 *   EMUV_SIM_DEVICES    number of devices, 1 to 16 (1)
 *   EMUV_SIM_HOST_NUMA  0: no memory on HOST_NUMA locations, as before CUDA 12
 *   EMUV_SIM_APART      number of a device that reaches no other, and none it
 *   EMUV_SIM_CONTEXT    VRAM that each context takes for itself (0)
 *   EMUV_SIM_LAG        microseconds that work on a stream begins late at most,
 *                       at random: exposes code that did not wait for it (0)
 *
 * Device addresses are addresses of this process, so a kernel is a host
 * function: it runs once a launch, on the thread of its stream. A touch of a
 * device address that is not mapped ends it with CUDA_ERROR_ILLEGAL_ADDRESS,
 * which stays with the context. A kernel left that way is not unwound, so it
 * must own nothing: no destructor of its own runs.
 *
 * Finding these functions: dlopen() the driver by its full path (RTLD_NOLOAD
 * if it is in the process already), then dlsym "emuv_sim_get".
 */
#ifndef EMUV_TESTS_CUDA_SIM_H
#define EMUV_TESTS_CUDA_SIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The size of a frame, and the granularity of cuMemCreate() and cuMemMap(). */
#define EMUV_SIM_FRAME_BYTES ((size_t)2 << 20)

struct emuv_sim_launch {
	unsigned int grid[3];
	unsigned int block[3];
	unsigned int shared_bytes;
	int device;
};

/* One parameter of a kernel, as cuFuncGetParamInfo() reports it. */
struct emuv_sim_param {
	size_t offset;
	size_t size;
};

/* params[i] points to the i-th parameter's value, taken at the launch. */
typedef void (*emuv_sim_function)(const struct emuv_sim_launch *launch,
				  void *const *params);

struct emuv_sim_kernel {
	const char *name;
	emuv_sim_function run;
	const struct emuv_sim_param *params;
	size_t param_count;
};

/* A variable in device memory, found by cuModuleGetGlobal(). */
struct emuv_sim_global {
	const char *name;
	size_t bytes;
	const void *initial; /* NULL: zeros */
};

#define EMUV_SIM_MODULE_MAGIC "EMUVSIM1"

/*
 * An image that cuModuleLoadData() of the simulated driver takes. The arrays it
 * points to must outlive the module; the structure itself need not.
 */
struct emuv_sim_module {
	char magic[8]; /* EMUV_SIM_MODULE_MAGIC, without the NUL */
	const struct emuv_sim_kernel *kernels;
	size_t kernel_count;
	const struct emuv_sim_global *globals;
	size_t global_count;
};

/* Bytes that copies moved since the process began, by source and destination.
 * HOST_NUMA memory and registered pages are host memory. A copy counts as a
 * whole by its first byte. */
struct emuv_sim_copied {
	uint64_t host_to_device;
	uint64_t device_to_host;
	uint64_t device_to_device;
	uint64_t host_to_host;
};

struct emuv_sim_api {
	/* How often the entry point was called, by its name without _v2, _ptds
	 * and the like ("cuMemCreate"), since the process began. */
	uint64_t (*calls)(const char *name);

	void (*copied)(struct emuv_sim_copied *out);

	/* Let the nth call from now (1: the next) of `name` fail with the given
	 * CUresult and do nothing else. NULL: of any entry point that allocates
	 * or maps memory. nth 0 takes an order back. */
	void (*fail)(const char *name, unsigned int nth, int result);

	/* Bytes of VRAM in use on a device, without any limit's view. */
	uint64_t (*vram_used)(int device);

	/* Bytes of host memory held by HOST_NUMA allocations. */
	uint64_t (*host_used)(void);

	/* Ranges of addresses that are reserved, and mappings of every kind in
	 * the table: both return to their old values when nothing leaks. */
	size_t (*reservations)(void);
	size_t (*mappings)(void);
};

/* The driver's own symbol. */
__attribute__((visibility("default")))
const struct emuv_sim_api *emuv_sim_get(void);

#ifdef __cplusplus
}
#endif
#endif
