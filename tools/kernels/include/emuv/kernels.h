/* SPDX-License-Identifier: LGPL-2.1-or-later */
/**
 * @file
 * libemuv-kernels: matrices of four-bit numbers, on the host and on the card.
 *
 * This changes a model's numbers, so a program asks for it. Nothing here needs
 * the driver or the CUDA library of emuV.
 *
 * **A matrix** has `rows` × `columns` numbers, row after row: row n has the
 * weights of output n, as torch.nn.Linear keeps them. `columns` is a multiple
 * of 32. It has three parts:
 *
 *  - codes: rows × columns / 2 bytes. Byte i of a row has column 2 i in its low
 *    four bits and column 2 i + 1 in its high ones. No gap between rows.
 *  - block scales, unless the format has none: one for each `block` columns of a
 *    row, row after row.
 *  - one tensor scale: a float.
 *
 * A number is code × block scale × tensor scale. The two scales are multiplied
 * first, in 32 bits; their product is multiplied by the code, in 32 bits.
 *
 * **Codes.** E2M1 is sign, two bits of exponent and one of mantissa: 0, 0.5, 1,
 * 1.5, 2, 3, 4, 6 and their negatives, 0 included. SYMMETRIC is two's
 * complement, −7 to 7; it has one scale a tensor and no blocks. Its code 8 is
 * never made, and stands for −8.
 *
 * **Encoding.** A block's scale is its largest magnitude over 6, in units of the
 * tensor scale, rounded to the nearest, ties to even. It never passes the
 * largest finite scale. Each number over its scale is rounded to the nearest
 * code, ties to even; what is beyond the largest code becomes the largest.
 *
 *  - E4M3 scales: the tensor scale is the tensor's largest magnitude over
 *    6 × 448, so the largest block has the largest scale.
 *  - FP16 scales: the tensor scale is 1, unless the largest magnitude passes
 *    6 × 65504; then it is that magnitude over 6 × 65504.
 *  - SYMMETRIC: the tensor scale is the largest magnitude over 7.
 *
 * A block of zeros gets scale 0 and codes 0; so does a block whose scale rounds
 * to 0. NaN and infinity have no code. A block that has one gets a scale of NaN
 * and codes 0, so it decodes as NaN as a whole. Under SYMMETRIC the whole tensor
 * does. The tensor scale is taken over finite numbers. The card and the host
 * give the same bytes.
 *
 * **Errors** are answers, never crashes: each function checks its arguments
 * before it reads or writes, and answers one of emuv_kernels_status.
 */
#ifndef EMUV_KERNELS_H
#define EMUV_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __GNUC__
#define EMUV_KERNELS_API __attribute__((visibility("default")))
#else
#define EMUV_KERNELS_API
#endif

/** The answer of a call. */
enum emuv_kernels_status {
	EMUV_KERNELS_OK = 0,
	/** A structure's size, or a word that is none of its enumeration's. */
	EMUV_KERNELS_BAD_FORMAT = 1,
	/** No rows or columns, columns not a multiple of 32, or too many bytes. */
	EMUV_KERNELS_BAD_SHAPE = 2,
	/** A stride that is shorter than its row, or splits an alignment. */
	EMUV_KERNELS_BAD_STRIDE = 3,
	/** A pointer that is null. */
	EMUV_KERNELS_BAD_POINTER = 4,
	/** A pointer that is not aligned as its parameter says. */
	EMUV_KERNELS_BAD_ALIGNMENT = 5,
	/** A pointer that the current device cannot read, or of another device. */
	EMUV_KERNELS_BAD_DEVICE = 6,
	/** Workspace for fewer than 16 rows, where rows are decoded. */
	EMUV_KERNELS_NO_WORKSPACE = 7,
	/** No cuBLAS handle, or no cuBLAS in the process, where it is needed. */
	EMUV_KERNELS_NO_CUBLAS = 8,
	/** The library was built without nvcc, or there is no card of sm_80 or
	 * later. */
	EMUV_KERNELS_NO_CARD = 9,
	/** CUDA or cuBLAS failed; emuv_kernels_detail() has its number. */
	EMUV_KERNELS_FAILED = 10
};

enum emuv_kernels_code {
	EMUV_KERNELS_E2M1 = 1,
	EMUV_KERNELS_SYMMETRIC = 2
};

enum emuv_kernels_scale {
	/** Of SYMMETRIC only. */
	EMUV_KERNELS_NO_SCALE = 0,
	/** A byte: sign, four bits of exponent, three of mantissa; to 448. */
	EMUV_KERNELS_E4M3 = 1,
	/** Two bytes: IEEE's half precision; to 65504. */
	EMUV_KERNELS_FP16_SCALE = 2
};

/** Types of numbers that are no codes. */
enum emuv_kernels_type {
	EMUV_KERNELS_FP32 = 1,
	EMUV_KERNELS_FP16 = 2,
	EMUV_KERNELS_BF16 = 3
};

/** How a matrix is coded. */
struct emuv_kernels_format {
	/** sizeof this structure, as the program knows it. */
	uint32_t size;
	/** One of emuv_kernels_code. */
	uint32_t code;
	/** One of emuv_kernels_scale. */
	uint32_t scale;
	/** Columns that share a scale: 16 or 32. 0 under SYMMETRIC. */
	uint32_t block;
};

/** A flag of a matrix: the program knows that the current device reaches its memory,
 * and that of the plain numbers beside it. Nothing is asked of the driver then, which
 * takes a microsecond or more a call. Memory that is out of reach is a fault of the
 * device, as in any kernel. */
#define EMUV_KERNELS_REACHED 1U

/** A coded matrix. Its memory is the program's. */
struct emuv_kernels_matrix {
	/** sizeof this structure, as the program knows it. */
	uint32_t size;
	/** 0, or EMUV_KERNELS_REACHED. */
	uint32_t flags;
	struct emuv_kernels_format format;
	uint64_t rows;
	/** A multiple of 32, up to 2^20. */
	uint64_t columns;
	/** rows × columns / 2 bytes, aligned to 16. */
	void *codes;
	/** emuv_kernels_scale_bytes() of them, aligned to 4; null without blocks. */
	void *scales;
	/** One float, aligned to 4. */
	float *tensor_scale;
};

/** A matrix of plain numbers. */
struct emuv_kernels_plain {
	/** sizeof this structure, as the program knows it. */
	uint32_t size;
	/** One of emuv_kernels_type. */
	uint32_t type;
	/** Aligned to 16. */
	void *data;
	/** Elements from one row to the next: at least the row's, and a multiple of
	 * 8. */
	uint64_t stride;
};

/** The most rows of x that the fused product takes. */
#define EMUV_KERNELS_FUSED_ROWS 16

/**
 * Bytes of a matrix's codes.
 * @param bytes  is left alone on an error.
 */
EMUV_KERNELS_API int
emuv_kernels_code_bytes(const struct emuv_kernels_format *format, uint64_t rows,
			uint64_t columns, uint64_t *bytes);

/** Bytes of a matrix's block scales; 0 where the format has none. */
EMUV_KERNELS_API int
emuv_kernels_scale_bytes(const struct emuv_kernels_format *format,
			 uint64_t rows, uint64_t columns, uint64_t *bytes);

/**
 * Encodes on the host: the reference. All pointers are the host's.
 * @param from  rows × columns numbers of @p to.
 * @param to  its format, shape and pointers are given; its memory is written.
 */
EMUV_KERNELS_API int
emuv_kernels_encode_host(const struct emuv_kernels_plain *from,
			 const struct emuv_kernels_matrix *to);

/**
 * Decodes on the host: the reference. Each number is rounded once to the type of
 * @p to, to nearest, ties to even.
 */
EMUV_KERNELS_API int
emuv_kernels_decode_host(const struct emuv_kernels_matrix *from,
			 const struct emuv_kernels_plain *to);

/**
 * Encodes on the current device, in order on a stream. The call returns before
 * the work is done.
 * @param from, to  as above, with memory that the device can write.
 * @param stream  a cudaStream_t; null is the default stream.
 */
EMUV_KERNELS_API int emuv_kernels_encode(const struct emuv_kernels_plain *from,
					 const struct emuv_kernels_matrix *to,
					 void *stream);

/** Decodes on the current device, in order on a stream. */
EMUV_KERNELS_API int
emuv_kernels_decode(const struct emuv_kernels_matrix *from,
		    const struct emuv_kernels_plain *to, void *stream);

/**
 * y = x · transposed(w), on the current device, in order on a stream.
 *
 * Up to EMUV_KERNELS_FUSED_ROWS rows of x are multiplied as codes are read. So w
 * is never there in full, and the same arguments give the same bits. More rows go
 * by decoding rows of w into the workspace, and cuBLAS.
 *
 * Weights are rounded to the type of x (E4M3 scales and SYMMETRIC need no
 * rounding when fused). Products are added in 32 bits; y is rounded once.
 *
 * @param w  the weights, [outputs, inputs].
 * @param x  FP16 or BF16, [count, inputs].
 * @param y  the type of x, [count, outputs]. May not overlap x or w.
 * @param count  rows of x and y; 0 does nothing.
 * @param workspace  aligned to 16; for more than 16 rows of x. As many rows of w
 *   are decoded at once as it has room for, at least 16.
 * @param workspace_bytes  16 × inputs × 2 at the least; outputs × inputs × 2 is
 *   fastest.
 * @param cublas  a cublasHandle_t, for more than 16 rows of x. Its stream is set
 *   to @p stream. One thread at a time may use a handle.
 */
EMUV_KERNELS_API int emuv_kernels_multiply(const struct emuv_kernels_matrix *w,
					   const struct emuv_kernels_plain *x,
					   const struct emuv_kernels_plain *y,
					   uint64_t count, void *workspace,
					   uint64_t workspace_bytes,
					   void *cublas, void *stream);

/** A line in English for a status; never null. */
EMUV_KERNELS_API const char *emuv_kernels_text(int status);

/** The number of CUDA's or cuBLAS's last failure in this thread; 0 if none. */
EMUV_KERNELS_API int emuv_kernels_detail(void);

#ifdef __cplusplus
}
#endif

#endif
