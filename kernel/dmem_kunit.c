// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of dmem.c against a made-up controller: each pool counts what was
 * charged to it, and nothing is left in one. Few kernels have the real controller.
 */
#include <kunit/test.h>
#include <linux/prandom.h>

#include "emuv.h"

#define POOLS	3
#define LIMIT	(64 * EMUV_CHUNK_BYTES)

/*
 * A cgroup's. @gone: it was removed, and others' references to it are all that
 * there are.
 */
struct dmem_cgroup_pool_state {
	u64 bytes;
	unsigned long refs;
	bool gone;
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
	region->size = 0;
}

static int dmem_fake_try_charge(struct dmem_cgroup_region *region, u64 size,
				struct dmem_cgroup_pool_state **pool,
				struct dmem_cgroup_pool_state **full)
{
	struct dmem_cgroup_pool_state *here = &dmem_pools[dmem_current];

	dmem_failed |= !region->size || here->gone;
	if (size > LIMIT - here->bytes)
		return -EAGAIN;
	here->bytes += size;
	here->refs++;
	*pool = here;
	return 0;
}

/* The real one complains, too, once its region is not registered. */
static struct dmem_cgroup_pool_state *
dmem_fake_ancestor(struct dmem_cgroup_pool_state *a,
		   struct dmem_cgroup_pool_state *b)
{
	struct dmem_cgroup_pool_state *found = a->gone ? &dmem_pools[0] : a;

	dmem_failed |= a != b || !a->refs || !dmem_region.size;
	found->refs++;
	return found;
}

static void dmem_fake_put(struct dmem_cgroup_pool_state *pool)
{
	if (!pool)
		return;
	dmem_failed |= !pool->refs;
	pool->refs--;
	/* without a reference the cgroup may go, and its count with it */
	dmem_failed |= pool->bytes && !pool->refs;
}

static void dmem_fake_uncharge(struct dmem_cgroup_pool_state *pool, u64 size)
{
	dmem_failed |= size > pool->bytes;
	pool->bytes -= size;
	dmem_fake_put(pool);
}

#define emuv_dmem_register dmem_fake_register
#define dmem_cgroup_unregister_region dmem_fake_unregister
#define dmem_cgroup_try_charge dmem_fake_try_charge
#define dmem_cgroup_get_common_ancestor dmem_fake_ancestor
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
	emuv_dmem_init(&model->inst.dmem);
	for (i = 0; i < ARRAY_SIZE(model->clients); i++) {
		model->clients[i].inst = &model->inst;
		emuv_dmem_init_client(&model->clients[i]);
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

static void dmem_expect_counts(struct kunit *test, u64 first, u64 second)
{
	KUNIT_EXPECT_EQ(test, dmem_pools[0].bytes, first);
	KUNIT_EXPECT_EQ(test, dmem_pools[1].bytes, second);
}

static void dmem_charges_the_callers_cgroup(struct kunit *test)
{
	struct dmem_model *model = test->priv;
	struct emuv_client *client = &model->clients[0];
	const struct dmem_cgroup_pool_state *pool;

	KUNIT_EXPECT_EQ(test, emuv_dmem_charge(client, 5000, &pool), 0);
	KUNIT_EXPECT_PTR_EQ(test, pool, &dmem_pools[0]);
	dmem_current = 1;
	KUNIT_EXPECT_EQ(test, emuv_dmem_charge(client, 7000, &pool), 0);
	KUNIT_EXPECT_PTR_EQ(test, pool, &dmem_pools[1]);
	dmem_expect_counts(test, 5000, 7000);
	emuv_dmem_uncharge(client, 12000, NULL);
	dmem_expect_nothing_left(test);
}

static void dmem_refuses_where_a_cgroup_has_no_room(struct kunit *test)
{
	struct dmem_model *model = test->priv;
	struct emuv_client *client = &model->clients[0];
	const struct dmem_cgroup_pool_state *pool;

	KUNIT_EXPECT_EQ(test, emuv_dmem_charge(client, LIMIT, &pool), 0);
	KUNIT_EXPECT_EQ(test, emuv_dmem_charge(client, 1, &pool), -ENOSPC);
	KUNIT_EXPECT_PTR_EQ(test, pool, NULL);
	dmem_expect_counts(test, LIMIT, 0);
	dmem_current = 1;
	KUNIT_EXPECT_EQ(test, emuv_dmem_charge(client, 1, &pool), 0);
	emuv_dmem_release(client);
	dmem_expect_nothing_left(test);
}

/* The ledger has refused what one cgroup had taken. */
static void dmem_takes_a_charge_back_from_the_cgroup_that_took_it(struct kunit *test)
{
	struct dmem_model *model = test->priv;
	struct emuv_client *client = &model->clients[0];
	const struct dmem_cgroup_pool_state *pool;

	KUNIT_EXPECT_EQ(test, emuv_dmem_charge(client, 5000, &pool), 0);
	dmem_current = 1;
	KUNIT_EXPECT_EQ(test, emuv_dmem_charge(client, 7000, &pool), 0);
	emuv_dmem_uncharge(client, 7000, pool);
	dmem_expect_counts(test, 5000, 0);
	KUNIT_EXPECT_EQ(test, emuv_dmem_charge(client, 300, &pool), 0);
	KUNIT_EXPECT_EQ(test, emuv_dmem_charge(client, 7000, &pool), 0);
	emuv_dmem_uncharge(client, 7000, pool);
	dmem_expect_counts(test, 5000, 300);
	/* another thread has returned what that cgroup had */
	KUNIT_EXPECT_EQ(test, emuv_dmem_charge(client, 700, &pool), 0);
	emuv_dmem_uncharge(client, 5700, NULL);
	dmem_expect_counts(test, 0, 300);
	emuv_dmem_uncharge(client, 300, pool);
	dmem_expect_nothing_left(test);
}

static void dmem_returns_each_part_at_once(struct kunit *test)
{
	struct dmem_model *model = test->priv;
	struct emuv_client *client = &model->clients[0];
	const struct dmem_cgroup_pool_state *pool;
	u64 left;

	KUNIT_EXPECT_EQ(test, emuv_dmem_charge(client, 1000, &pool), 0);
	for (left = 1000; left--;) {
		emuv_dmem_uncharge(client, 1, NULL);
		KUNIT_EXPECT_EQ(test, dmem_pools[0].bytes, left);
		KUNIT_EXPECT_EQ(test, dmem_pools[0].refs, left ? 1UL : 0UL);
	}
	dmem_expect_nothing_left(test);
}

static void dmem_counts_parts_of_a_removed_cgroup_to_the_end(struct kunit *test)
{
	struct dmem_model *model = test->priv;
	struct emuv_client *client = &model->clients[0];
	const struct dmem_cgroup_pool_state *pool;

	dmem_current = 1;
	KUNIT_EXPECT_EQ(test, emuv_dmem_charge(client, 5000, &pool), 0);
	dmem_pools[1].gone = true;
	emuv_dmem_uncharge(client, 4000, NULL);
	dmem_expect_counts(test, 0, 5000);
	emuv_dmem_uncharge(client, 1000, NULL);
	dmem_expect_nothing_left(test);
}

static void dmem_counts_after_its_instance_has_gone(struct kunit *test)
{
	struct dmem_model *model = test->priv;
	struct emuv_client *client = &model->clients[0];
	const struct dmem_cgroup_pool_state *pool;

	KUNIT_EXPECT_EQ(test, emuv_dmem_charge(client, 5000, &pool), 0);
	emuv_dmem_close(&model->inst);
	KUNIT_EXPECT_EQ(test, emuv_dmem_charge(client, 5000, &pool), 0);
	KUNIT_EXPECT_PTR_EQ(test, pool, NULL);
	emuv_dmem_uncharge(client, 4000, NULL);
	dmem_expect_counts(test, 5000, 0);
	emuv_dmem_uncharge(client, 6000, NULL);
	dmem_expect_nothing_left(test);
}

/* Thousands of random steps: all pools together count what the clients have. */
static void dmem_counts_what_is_charged(struct kunit *test)
{
	const struct dmem_cgroup_pool_state *pool;
	struct dmem_model *model = test->priv;
	u64 held[ARRAY_SIZE(model->clients)] = { };
	struct rnd_state random;
	int step, i;

	prandom_seed_state(&random, 7);
	for (step = 0; step < 5000; step++) {
		u32 which = prandom_u32_state(&random) % ARRAY_SIZE(held);
		struct emuv_client *client = &model->clients[which];
		u64 bytes = prandom_u32_state(&random) % (4 * EMUV_CHUNK_BYTES);
		u64 sum = 0, counted = 0;

		dmem_current = prandom_u32_state(&random) % POOLS;
		switch (prandom_u32_state(&random) % 4) {
		case 0:
			/* refused by the ledger */
			if (!emuv_dmem_charge(client, bytes, &pool))
				emuv_dmem_uncharge(client, bytes, pool);
			break;
		case 1:
			bytes = min(bytes, held[which]);
			emuv_dmem_uncharge(client, bytes, NULL);
			held[which] -= bytes;
			break;
		default:
			if (!emuv_dmem_charge(client, bytes, &pool))
				held[which] += bytes;
		}
		for (i = 0; i < ARRAY_SIZE(held); i++)
			sum += held[i];
		for (i = 0; i < POOLS; i++)
			counted += dmem_pools[i].bytes;
		KUNIT_ASSERT_EQ(test, counted, sum);
		KUNIT_ASSERT_FALSE(test, dmem_failed);
	}
	for (i = 0; i < ARRAY_SIZE(held); i++)
		emuv_dmem_release(&model->clients[i]);
	dmem_expect_nothing_left(test);
}

static struct kunit_case dmem_cases[] = {
	KUNIT_CASE(dmem_charges_the_callers_cgroup),
	KUNIT_CASE(dmem_refuses_where_a_cgroup_has_no_room),
	KUNIT_CASE(dmem_takes_a_charge_back_from_the_cgroup_that_took_it),
	KUNIT_CASE(dmem_returns_each_part_at_once),
	KUNIT_CASE(dmem_counts_parts_of_a_removed_cgroup_to_the_end),
	KUNIT_CASE(dmem_counts_after_its_instance_has_gone),
	KUNIT_CASE(dmem_counts_what_is_charged),
	{ }
};

static struct kunit_suite dmem_suite = {
	.name = "emuv_dmem",
	.init = dmem_kunit_init,
	.test_cases = dmem_cases,
};

kunit_test_suite(dmem_suite);
