/* SPDX-License-Identifier: GPL-2.0-only */
/* The driver's tracepoints: /sys/kernel/tracing/events/emuv. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM emuv

#if !defined(EMUV_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define EMUV_TRACE_H

#include <linux/tracepoint.h>

TRACE_EVENT(emuv_chunk_back,
	TP_PROTO(int instance, unsigned long index, bool contiguous),
	TP_ARGS(instance, index, contiguous),
	TP_STRUCT__entry(
		__field(int, instance)
		__field(unsigned long, index)
		__field(bool, contiguous)
	),
	TP_fast_assign(
		__entry->instance = instance;
		__entry->index = index;
		__entry->contiguous = contiguous;
	),
	TP_printk("emuv%d chunk=%lu contiguous=%d", __entry->instance,
		  __entry->index, __entry->contiguous)
);

TRACE_EVENT(emuv_chunk_release,
	TP_PROTO(int instance, unsigned long index),
	TP_ARGS(instance, index),
	TP_STRUCT__entry(
		__field(int, instance)
		__field(unsigned long, index)
	),
	TP_fast_assign(
		__entry->instance = instance;
		__entry->index = index;
	),
	TP_printk("emuv%d chunk=%lu", __entry->instance, __entry->index)
);

TRACE_EVENT(emuv_swap,
	TP_PROTO(int instance, unsigned long index, bool out, int err),
	TP_ARGS(instance, index, out, err),
	TP_STRUCT__entry(
		__field(int, instance)
		__field(unsigned long, index)
		__field(bool, out)
		__field(int, err)
	),
	TP_fast_assign(
		__entry->instance = instance;
		__entry->index = index;
		__entry->out = out;
		__entry->err = err;
	),
	TP_printk("emuv%d chunk=%lu %s err=%d", __entry->instance,
		  __entry->index, __entry->out ? "out" : "in", __entry->err)
);

TRACE_EVENT(emuv_fault,
	TP_PROTO(int instance, unsigned long index, unsigned int result),
	TP_ARGS(instance, index, result),
	TP_STRUCT__entry(
		__field(int, instance)
		__field(unsigned long, index)
		__field(unsigned int, result)
	),
	TP_fast_assign(
		__entry->instance = instance;
		__entry->index = index;
		__entry->result = result;
	),
	TP_printk("emuv%d chunk=%lu result=%#x", __entry->instance,
		  __entry->index, __entry->result)
);

DECLARE_EVENT_CLASS(emuv_region,
	TP_PROTO(int instance, u64 offset, u64 bytes),
	TP_ARGS(instance, offset, bytes),
	TP_STRUCT__entry(
		__field(int, instance)
		__field(u64, offset)
		__field(u64, bytes)
	),
	TP_fast_assign(
		__entry->instance = instance;
		__entry->offset = offset;
		__entry->bytes = bytes;
	),
	TP_printk("emuv%d offset=%llu bytes=%llu", __entry->instance,
		  __entry->offset, __entry->bytes)
);

DEFINE_EVENT(emuv_region, emuv_region_create,
	TP_PROTO(int instance, u64 offset, u64 bytes),
	TP_ARGS(instance, offset, bytes)
);

DEFINE_EVENT(emuv_region, emuv_region_release,
	TP_PROTO(int instance, u64 offset, u64 bytes),
	TP_ARGS(instance, offset, bytes)
);

#endif /* EMUV_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
