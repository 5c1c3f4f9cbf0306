// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of backing.c against a model: backing, contents and holders of
 * chunks. Each test runs with chunks of one folio and with chunks of single
 * pages.
 */
#include <kunit/test.h>
#include <linux/prandom.h>

#include "emuv.h"

/* Tracepoints belong to the driver's own module. */
#define EMUV_TRACE_H
static inline void trace_emuv_chunk_back(int instance, unsigned long index,
					 bool contiguous)
{
}

static inline void trace_emuv_chunk_release(int instance, unsigned long index)
{
}

static inline void trace_emuv_swap(int instance, unsigned long index, bool out,
				   int err)
{
}

static u64 backing_floor;

u64 emuv_param_floor(void)
{
	return backing_floor;
}

void emuv_region_put(struct emuv_region *region)
{
}

bool emuv_payer_has_room(const struct emuv_payer *payer, unsigned long pages)
{
	return true;
}

/* Makes the page allocator refuse large folios. */
static bool backing_fragmented;

static struct folio *backing_alloc_folio(gfp_t gfp, unsigned int order, int nid)
{
	return backing_fragmented ? NULL : __folio_alloc_node(gfp, order, nid);
}

/* newer kernels have a macro of this name */
#undef __folio_alloc_node
#define __folio_alloc_node backing_alloc_folio
#include "floor.c"
#include "reserve.c"
#include "swap.c"
#include "reclaim.c"
#include "backing.c"

#define CHUNKS		6
#define PARTS		4	/* of a chunk, each written on its own */
#define PART_BYTES	(EMUV_CHUNK_BYTES / PARTS)

/*
 * struct backing_model - an instance and its expected state
 * @resident: The chunk is backed
 * @value: Byte at both ends of each part
 * @held: Number of holds within the driver
 * @pinned: Page of the chunk that something outside holds, or NULL
 */
struct backing_model {
	struct emuv_instance inst;
	struct emuv_payer payer;
	struct emuv_region region;
	struct inode inode;
	bool resident[CHUNKS];
	u8 value[CHUNKS][PARTS];
	unsigned int held[CHUNKS];
	struct page *pinned[CHUNKS];
};

static int backing_kunit_init(struct kunit *test, bool fragmented)
{
	struct backing_model *model;

	model = kunit_kzalloc(test, sizeof(*model), GFP_KERNEL);
	if (!model)
		return -ENOMEM;
	inode_init_once(&model->inode);
	model->inode.i_mapping = &model->inode.i_data;
	model->inst.config.numa_node = EMUV_ANY;
	model->region.inst = &model->inst;
	init_rwsem(&model->payer.tight);
	model->region.payer = &model->payer;
	model->region.inode = &model->inode;
	model->region.range.count = CHUNKS;
	init_rwsem(&model->region.map_sem);
	xa_init_flags(&model->region.chunks, XA_FLAGS_ACCOUNT);
	backing_floor = 0;
	backing_fragmented = fragmented;
	test->priv = model;
	return 0;
}

static int backing_kunit_init_pieces(struct kunit *test)
{
	return backing_kunit_init(test, false);
}

static int backing_kunit_init_pages(struct kunit *test)
{
	return backing_kunit_init(test, true);
}

static void backing_kunit_exit(struct kunit *test)
{
	struct backing_model *model = test->priv;
	unsigned long i;

	if (!model)
		return;
	for (i = 0; i < CHUNKS; i++)
		if (model->pinned[i])
			put_page(model->pinned[i]);
	emuv_backing_abandon(&model->region);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&model->inst.resident), 0);
	xa_destroy(&model->region.chunks);
}

/* Compare every chunk with the model. */
static void backing_expect_model(struct kunit *test)
{
	struct backing_model *model = test->priv;
	unsigned long i, part, resident = 0;

	for (i = 0; i < CHUNKS; i++) {
		struct emuv_chunk *chunk = emuv_chunk_get(&model->region, i);

		KUNIT_ASSERT_EQ(test, !!chunk, model->resident[i]);
		if (!chunk)
			continue;
		resident++;
		for (part = 0; part < PARTS; part++) {
			const u8 *at = chunk->vaddr + part * PART_BYTES;

			KUNIT_EXPECT_EQ(test, at[0], model->value[i][part]);
			KUNIT_EXPECT_EQ(test, at[PART_BYTES - 1],
					model->value[i][part]);
		}
		emuv_chunk_put(chunk);
	}
	KUNIT_EXPECT_EQ(test, emuv_instance_resident_bytes(&model->inst),
			resident * EMUV_CHUNK_BYTES);
}

/* Back a chunk, as a touch does. A new chunk must be all zeros. */
static void backing_touch(struct kunit *test, unsigned long i)
{
	struct backing_model *model = test->priv;
	struct emuv_chunk *chunk = emuv_chunk_back(&model->region, i);

	KUNIT_ASSERT_FALSE(test, IS_ERR(chunk));
	KUNIT_EXPECT_EQ(test, !chunk->folio, backing_fragmented);
	if (!model->resident[i])
		KUNIT_EXPECT_NULL(test, memchr_inv(chunk->vaddr, 0,
						   EMUV_CHUNK_BYTES));
	model->resident[i] = true;
	emuv_chunk_put(chunk);
}

static void backing_write(struct kunit *test, unsigned long i,
			  unsigned long part, u8 value)
{
	struct backing_model *model = test->priv;
	struct emuv_chunk *chunk;
	u8 *at;

	backing_touch(test, i);
	chunk = emuv_chunk_get(&model->region, i);
	at = chunk->vaddr + part * PART_BYTES;
	at[0] = value;
	at[PART_BYTES - 1] = value;
	model->value[i][part] = value;
	/* the kernel address must lead to the chunk's own page */
	KUNIT_EXPECT_PTR_EQ(test,
			    emuv_chunk_page(chunk, part * PART_BYTES >>
					    PAGE_SHIFT),
			    is_vmalloc_addr(at) ? vmalloc_to_page(at) :
						  virt_to_page(at));
	emuv_chunk_put(chunk);
}

static bool backing_is_held(const struct backing_model *model, unsigned long i)
{
	return model->held[i] || model->pinned[i];
}

/* Discard parts [@from, @to), numbered across all chunks. */
static void backing_discard(struct kunit *test, unsigned long from,
			    unsigned long to)
{
	struct backing_model *model = test->priv;
	unsigned long at, i;

	KUNIT_EXPECT_EQ(test,
			emuv_backing_discard(&model->region, from * PART_BYTES,
					     (to - from) * PART_BYTES),
			0);
	for (at = from; at < to; at++)
		model->value[at / PARTS][at % PARTS] = 0;
	for (i = 0; i < CHUNKS; i++)
		if (from <= i * PARTS && to >= (i + 1) * PARTS &&
		    !backing_is_held(model, i))
			model->resident[i] = false;
}

static void backing_release(struct kunit *test)
{
	struct backing_model *model = test->priv;
	bool held = false;
	unsigned long i;

	for (i = 0; i < CHUNKS; i++)
		held |= backing_is_held(model, i);
	KUNIT_EXPECT_EQ(test, emuv_backing_release(&model->region), !held);
	for (i = 0; i < CHUNKS; i++) {
		if (backing_is_held(model, i))
			continue;
		model->resident[i] = false;
		memset(model->value[i], 0, PARTS);
	}
}

static void backing_hold(struct kunit *test, unsigned long first,
			 unsigned long count)
{
	struct backing_model *model = test->priv;
	unsigned long i;

	KUNIT_ASSERT_EQ(test,
			emuv_backing_hold(&model->region, first, count), 0);
	for (i = first; i < first + count; i++) {
		model->resident[i] = true;
		model->held[i]++;
	}
}

static void backing_unhold(struct kunit *test, unsigned long i)
{
	struct backing_model *model = test->priv;

	emuv_backing_unhold(&model->region, i, 1);
	model->held[i]--;
}

/* Pin or unpin a page, as something outside the driver does. */
static void backing_pin(struct kunit *test, unsigned long i, unsigned long page)
{
	struct backing_model *model = test->priv;
	struct emuv_chunk *chunk;

	if (model->pinned[i]) {
		put_page(model->pinned[i]);
		model->pinned[i] = NULL;
		return;
	}
	backing_touch(test, i);
	chunk = emuv_chunk_get(&model->region, i);
	model->pinned[i] = emuv_chunk_page(chunk, page);
	get_page(model->pinned[i]);
	emuv_chunk_put(chunk);
}

static void backing_gives_everybody_the_same_zeros(struct kunit *test)
{
	struct backing_model *model = test->priv;
	struct emuv_chunk *one, *two;

	KUNIT_EXPECT_NULL(test, emuv_chunk_get(&model->region, 0));
	one = emuv_chunk_back(&model->region, 0);
	KUNIT_ASSERT_FALSE(test, IS_ERR(one));
	KUNIT_EXPECT_NULL(test, memchr_inv(one->vaddr, 0, EMUV_CHUNK_BYTES));
	two = emuv_chunk_back(&model->region, 0);
	KUNIT_EXPECT_PTR_EQ(test, one, two);
	emuv_chunk_put(two);
	emuv_chunk_put(one);
	model->resident[0] = true;
	backing_expect_model(test);
}

static void backing_discards_to_the_byte(struct kunit *test)
{
	struct backing_model *model = test->priv;
	struct emuv_chunk *chunk;
	const u8 *at;

	backing_touch(test, 1);
	chunk = emuv_chunk_get(&model->region, 1);
	memset(chunk->vaddr, 0xa5, EMUV_CHUNK_BYTES);
	KUNIT_EXPECT_EQ(test,
			emuv_backing_discard(&model->region,
					     EMUV_CHUNK_BYTES + 4095, 4098),
			0);
	at = chunk->vaddr;
	KUNIT_EXPECT_EQ(test, at[4094], 0xa5);
	KUNIT_EXPECT_NULL(test, memchr_inv(at + 4095, 0, 4098));
	KUNIT_EXPECT_EQ(test, at[4095 + 4098], 0xa5);
	emuv_chunk_put(chunk);
}

static void backing_that_is_held_is_zeroed_where_it_is(struct kunit *test)
{
	struct backing_model *model = test->priv;
	struct emuv_chunk *before, *after;

	backing_write(test, 2, 0, 0x11);
	backing_pin(test, 2, 77);
	before = emuv_chunk_get(&model->region, 2);
	emuv_chunk_put(before);
	backing_discard(test, 0, CHUNKS * PARTS);
	backing_expect_model(test);
	after = emuv_chunk_get(&model->region, 2);
	KUNIT_EXPECT_PTR_EQ(test, before, after);
	emuv_chunk_put(after);
	backing_release(test);
	backing_expect_model(test);
	backing_pin(test, 2, 77);
	backing_release(test);
	backing_expect_model(test);
}

static void backing_ends_at_the_floor(struct kunit *test)
{
	struct backing_model *model = test->priv;

	backing_write(test, 0, 0, 0x33);
	backing_floor = U64_MAX / 2;
	KUNIT_EXPECT_EQ(test, PTR_ERR(emuv_chunk_back(&model->region, 1)),
			-ENOMEM);
	KUNIT_EXPECT_EQ(test, emuv_backing_populate(&model->region, 1, 2),
			-ENOMEM);
	KUNIT_EXPECT_EQ(test, emuv_backing_hold(&model->region, 0, 2),
			-ENOMEM);
	backing_expect_model(test);
	/* the backed chunk stays usable, and nothing holds it */
	backing_write(test, 0, 1, 0x44);
	backing_release(test);
	backing_floor = 0;
	KUNIT_EXPECT_EQ(test, emuv_backing_populate(&model->region, 1, 2), 0);
	model->resident[1] = true;
	model->resident[2] = true;
	backing_expect_model(test);
}

/* Random steps from a fixed seed, so that a failure can be repeated. */
static void backing_agrees_with_the_model_whatever_comes(struct kunit *test)
{
	struct backing_model *model = test->priv;
	struct rnd_state chance;
	int round;

	prandom_seed_state(&chance, 3);
	for (round = 0; round < 600; round++) {
		u32 dice = prandom_u32_state(&chance);
		unsigned long i = (dice >> 4) % CHUNKS;
		unsigned long from = (dice >> 8) % (CHUNKS * PARTS);
		unsigned long count = 1 + (dice >> 16) % (CHUNKS - i);

		switch (dice % 8) {
		case 0:
			backing_touch(test, i);
			break;
		case 1:
		case 2:
			backing_write(test, i, (dice >> 16) % PARTS,
				      1 + (dice >> 20) % 255);
			break;
		case 3:
			backing_discard(test, from, from + 1 + (dice >> 16) %
					(CHUNKS * PARTS - from));
			break;
		case 4:
			backing_release(test);
			break;
		case 5:
			backing_hold(test, i, count);
			break;
		case 6:
			if (model->held[i])
				backing_unhold(test, i);
			break;
		default:
			backing_pin(test, i, (dice >> 16) % EMUV_CHUNK_PAGES);
		}
		backing_expect_model(test);
	}
	for (round = 0; round < CHUNKS; round++)
		while (model->held[round])
			backing_unhold(test, round);
}

static struct kunit_case backing_kunit_cases[] = {
	KUNIT_CASE(backing_gives_everybody_the_same_zeros),
	KUNIT_CASE(backing_discards_to_the_byte),
	KUNIT_CASE(backing_that_is_held_is_zeroed_where_it_is),
	KUNIT_CASE(backing_ends_at_the_floor),
	KUNIT_CASE(backing_agrees_with_the_model_whatever_comes),
	{}
};

static struct kunit_suite backing_pieces_kunit = {
	.name = "emuv_backing_pieces",
	.init = backing_kunit_init_pieces,
	.exit = backing_kunit_exit,
	.test_cases = backing_kunit_cases,
};

static struct kunit_suite backing_pages_kunit = {
	.name = "emuv_backing_pages",
	.init = backing_kunit_init_pages,
	.exit = backing_kunit_exit,
	.test_cases = backing_kunit_cases,
};

kunit_test_suites(&backing_pieces_kunit, &backing_pages_kunit);
