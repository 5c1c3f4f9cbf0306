// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of dmem.c against a made-up controller: no pool counts too little,
 * and nothing is left in one. Few kernels have the real controller.
 */
#include <kunit/test.h>
#include <linux/random.h>

#include "emuv.h"

#define POOLS	2
#define LIMIT	(64 * EMUV_CHUNK_BYTES)

/* A cgroup's. */
struct dmem_cgroup_pool_state {
	u64 bytes;
	unsigned long refs;
};

struct dmem_cgroup_region {
	u64 size;
};

static struct dmem_cgroup_pool_state dmem_pools[POOLS];
static struct dmem_cgroup_region dmem_region;
static unsigned int dmem_current;	/* the calling process's pool */
static bool dmem_failed;		/* it was used in a way that is an error */

static struct dmem_cgroup_region *dmem_fake_register(u64 size, int id)
{
	dmem_region.size = size;
	return &dmem_region;
}

static void dmem_fake_unregister(struct dmem_cgroup_region *region)
{
}

static int dmem_fake_try_charge(struct dmem_cgroup_region *region, u64 size,
				struct dmem_cgroup_pool_state **pool,
				struct dmem_cgroup_pool_state **full)
{
	struct dmem_cgroup_pool_state *here = &dmem_pools[dmem_current];

	if (size > LIMIT - here->bytes)
		return -EAGAIN;
	here->bytes += size;
	here->refs++;
	*pool = here;
	return 0;
}

static void dmem_fake_put(struct dmem_cgroup_pool_state *pool)
{
	dmem_failed |= !pool->refs;
	pool->refs--;
}

static void dmem_fake_uncharge(struct dmem_cgroup_pool_state *pool, u64 size)
{
	dmem_failed |= size > pool->bytes;
	pool->bytes -= size;
	dmem_fake_put(pool);
	/* without a reference the cgroup may go, and its count with it */
	dmem_failed |= pool->bytes && !pool->refs;
}

#define emuv_dmem_register dmem_fake_register
#define dmem_cgroup_unregister_region dmem_fake_unregister
#define dmem_cgroup_try_charge dmem_fake_try_charge
#define dmem_cgroup_pool_state_put dmem_fake_put
#define dmem_cgroup_uncharge dmem_fake_uncharge
#include "dmem.c"

struct dmem_model {
	struct emuv_instance inst;
	struct emuv_client clients[2];
};

static int dmem_kunit_init(struct kunit *test)
{
	struct dmem_model *model;
	int i;

	model = kunit_kzalloc(test, sizeof(*model), GFP_KERNEL);
	if (!model)
		return -ENOMEM;
	model->inst.config.physical_bytes = 2 * LIMIT;
	mutex_init(&model->inst.dmem.lock);
	for (i = 0; i < ARRAY_SIZE(model->clients); i++) {
		model->clients[i].inst = &model->inst;
		INIT_LIST_HEAD(&model->clients[i].dmem_shares);
	}
	memset(dmem_pools, 0, sizeof(dmem_pools));
	dmem_current = 0;
	dmem_failed = false;
	test->priv = model;
	return emuv_dmem_open(&model->inst);
}

static void dmem_expect_nothing_left(struct kunit *test)
{
	int i;

	KUNIT_EXPECT_FALSE(test, dmem_failed);
	for (i = 0; i < POOLS; i++) {
		KUNIT_EXPECT_EQ(test, dmem_pools[i].bytes, 0ULL);
		KUNIT_EXPECT_EQ(test, dmem_pools[i].refs, 0UL);
	}
}

static void dmem_charges_the_callers_cgroup(struct kunit *test)
{
	struct dmem_model *model = test->priv;
	struct emuv_client *client = &model->clients[0];

	KUNIT_EXPECT_EQ(test, emuv_dmem_charge(client, 5000), 0);
	dmem_current = 1;
	KUNIT_EXPECT_EQ(test, emuv_dmem_charge(client, 7000), 0);
	KUNIT_EXPECT_EQ(test, dmem_pools[0].bytes, 5000ULL);
	KUNIT_EXPECT_EQ(test, dmem_pools[1].bytes, 7000ULL);
	emuv_dmem_uncharge(client, 12000);
	dmem_expect_nothing_left(test);
}

static void dmem_refuses_where_a_cgroup_has_no_room(struct kunit *test)
{
	struct dmem_model *model = test->priv;
	struct emuv_client *client = &model->clients[0];

	KUNIT_EXPECT_EQ(test, emuv_dmem_charge(client, LIMIT), 0);
	KUNIT_EXPECT_EQ(test, emuv_dmem_charge(client, 1), -ENOSPC);
	KUNIT_EXPECT_EQ(test, emuv_dmem_charge(client, U64_MAX), -ENOSPC);
	KUNIT_EXPECT_EQ(test, dmem_pools[0].bytes, (u64)LIMIT);
	dmem_current = 1;
	KUNIT_EXPECT_EQ(test, emuv_dmem_charge(client, 1), 0);
	emuv_dmem_release(client);
	dmem_expect_nothing_left(test);
}

static void dmem_returns_whole_chunks_at_once(struct kunit *test)
{
	struct dmem_model *model = test->priv;
	struct emuv_client *client = &model->clients[0];
	int left;

	KUNIT_EXPECT_EQ(test, emuv_dmem_charge(client, 8 * EMUV_CHUNK_BYTES), 0);
	for (left = 7; left >= 0; left--) {
		emuv_dmem_uncharge(client, EMUV_CHUNK_BYTES);
		KUNIT_EXPECT_EQ(test, dmem_pools[0].bytes,
				left * EMUV_CHUNK_BYTES);
	}
	dmem_expect_nothing_left(test);
}

static void dmem_counts_after_its_instance_has_gone(struct kunit *test)
{
	struct dmem_model *model = test->priv;
	struct emuv_client *client = &model->clients[0];

	KUNIT_EXPECT_EQ(test, emuv_dmem_charge(client, 5000), 0);
	emuv_dmem_close(&model->inst);
	KUNIT_EXPECT_EQ(test, emuv_dmem_charge(client, 5000), 0);
	KUNIT_EXPECT_EQ(test, dmem_pools[0].bytes, 5000ULL);
	emuv_dmem_uncharge(client, 10000);
	dmem_expect_nothing_left(test);
}

/* Thousands of random steps: a pool never counts less than what it should. */
static void dmem_never_counts_too_little(struct kunit *test)
{
	struct dmem_model *model = test->priv;
	u64 held[ARRAY_SIZE(model->clients)] = { };
	struct rnd_state random;
	int step, i;

	prandom_seed_state(&random, 7);
	for (step = 0; step < 20000; step++) {
		u32 which = prandom_u32_state(&random) % ARRAY_SIZE(held);
		struct emuv_client *client = &model->clients[which];
		u64 bytes = prandom_u32_state(&random) % (4 * EMUV_CHUNK_BYTES);
		u64 sum = 0, counted = 0;

		dmem_current = prandom_u32_state(&random) % POOLS;
		if (prandom_u32_state(&random) % 2) {
			if (!emuv_dmem_charge(client, bytes))
				held[which] += bytes;
		} else {
			bytes = min(bytes, held[which]);
			emuv_dmem_uncharge(client, bytes);
			held[which] -= bytes;
		}
		for (i = 0; i < ARRAY_SIZE(held); i++)
			sum += held[i];
		for (i = 0; i < POOLS; i++)
			counted += dmem_pools[i].bytes;
		KUNIT_ASSERT_GE(test, counted, sum);
		KUNIT_ASSERT_FALSE(test, dmem_failed);
	}
	for (i = 0; i < ARRAY_SIZE(held); i++)
		emuv_dmem_release(&model->clients[i]);
	dmem_expect_nothing_left(test);
}

static struct kunit_case dmem_cases[] = {
	KUNIT_CASE(dmem_charges_the_callers_cgroup),
	KUNIT_CASE(dmem_refuses_where_a_cgroup_has_no_room),
	KUNIT_CASE(dmem_returns_whole_chunks_at_once),
	KUNIT_CASE(dmem_counts_after_its_instance_has_gone),
	KUNIT_CASE(dmem_never_counts_too_little),
	{ }
};

static struct kunit_suite dmem_suite = {
	.name = "emuv_dmem",
	.init = dmem_kunit_init,
	.test_cases = dmem_cases,
};

kunit_test_suite(dmem_suite);
