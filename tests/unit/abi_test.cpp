// SPDX-License-Identifier: GPL-2.0-or-later
// The layout of the ABI's structures: a program built yesterday must be
// understood today, by a 64-bit kernel and from a 32-bit program.
#include <cstddef>

#include <gtest/gtest.h>
#include <linux/emuv.h>

namespace {

template <typename T>
constexpr bool begins_with_size_and_flags()
{
    return offsetof(T, size) == 0 && offsetof(T, flags) == 4 &&
           sizeof(T) % 8 == 0 && alignof(T) == 8;
}

TEST(abi, every_structure_begins_with_size_and_flags)
{
    EXPECT_TRUE(begins_with_size_and_flags<emuv_version>());
    EXPECT_TRUE(begins_with_size_and_flags<emuv_query_instance>());
    EXPECT_TRUE(begins_with_size_and_flags<emuv_query_client>());
    EXPECT_TRUE(begins_with_size_and_flags<emuv_create>());
    EXPECT_TRUE(begins_with_size_and_flags<emuv_resize>());
    EXPECT_TRUE(begins_with_size_and_flags<emuv_alloc>());
    EXPECT_TRUE(begins_with_size_and_flags<emuv_free>());
    EXPECT_TRUE(begins_with_size_and_flags<emuv_export>());
    EXPECT_TRUE(begins_with_size_and_flags<emuv_import>());
    EXPECT_TRUE(begins_with_size_and_flags<emuv_discard>());
    EXPECT_TRUE(begins_with_size_and_flags<emuv_charge>());
    EXPECT_TRUE(begins_with_size_and_flags<emuv_report>());
    // It has no 64-bit member, and so no need of 8-byte alignment.
    EXPECT_EQ(offsetof(emuv_destroy, size), 0U);
    EXPECT_EQ(offsetof(emuv_destroy, flags), 4U);
}

TEST(abi, sizes_stay)
{
    EXPECT_EQ(sizeof(emuv_version), 56U);
    EXPECT_EQ(sizeof(emuv_query_instance), 248U);
    EXPECT_EQ(sizeof(emuv_query_client), 152U);
    EXPECT_EQ(sizeof(emuv_create), 120U);
    EXPECT_EQ(sizeof(emuv_destroy), 16U);
    EXPECT_EQ(sizeof(emuv_resize), 32U);
    EXPECT_EQ(sizeof(emuv_alloc), 24U);
    EXPECT_EQ(sizeof(emuv_free), 16U);
    EXPECT_EQ(sizeof(emuv_export), 24U);
    EXPECT_EQ(sizeof(emuv_import), 32U);
    EXPECT_EQ(sizeof(emuv_discard), 24U);
    EXPECT_EQ(sizeof(emuv_charge), 32U);
    EXPECT_EQ(sizeof(emuv_report), 64U);
}

TEST(abi, members_stay_where_they_are)
{
    EXPECT_EQ(offsetof(emuv_version, chunk_bytes), 16U);
    EXPECT_EQ(offsetof(emuv_version, module_version), 24U);
    EXPECT_EQ(offsetof(emuv_query_instance, physical_bytes), 16U);
    EXPECT_EQ(offsetof(emuv_query_instance, faults), 88U);
    EXPECT_EQ(offsetof(emuv_query_instance, numa_node), 96U);
    EXPECT_EQ(offsetof(emuv_query_instance, uuid), 104U);
    EXPECT_EQ(offsetof(emuv_query_instance, gpu_model), 120U);
    EXPECT_EQ(offsetof(emuv_query_client, client), 16U);
    EXPECT_EQ(offsetof(emuv_query_instance, hit_bytes), 184U);
    EXPECT_EQ(offsetof(emuv_query_client, comm), 80U);
    EXPECT_EQ(offsetof(emuv_query_client, hit_bytes), 96U);
    EXPECT_EQ(offsetof(emuv_query_client, resident_bytes), 128U);
    EXPECT_EQ(offsetof(emuv_report, hit_bytes), 40U);
    EXPECT_EQ(offsetof(emuv_create, physical_bytes), 16U);
    EXPECT_EQ(offsetof(emuv_create, pci_device_id), 32U);
    EXPECT_EQ(offsetof(emuv_create, gpu_model), 40U);
    EXPECT_EQ(offsetof(emuv_alloc, bytes), 8U);
    EXPECT_EQ(offsetof(emuv_export, fd), 16U);
    EXPECT_EQ(offsetof(emuv_import, offset), 16U);
    EXPECT_EQ(offsetof(emuv_charge, deadline_ns), 24U);
    EXPECT_EQ(offsetof(emuv_query_instance, state), 208U);
    EXPECT_EQ(offsetof(emuv_query_instance, reserve_bytes), 216U);
    EXPECT_EQ(offsetof(emuv_query_instance, client_virtual_bytes), 232U);
    EXPECT_EQ(offsetof(emuv_create, client_virtual_bytes), 104U);
    EXPECT_EQ(offsetof(emuv_query_instance, swapped_bytes), 240U);
    EXPECT_EQ(offsetof(emuv_create, swap_fd), 112U);
}

TEST(abi, request_numbers_stay)
{
    EXPECT_EQ(EMUV_IOC_VERSION, 0xeb00U);
    EXPECT_EQ(EMUV_IOC_QUERY_INSTANCE, 0xeb01U);
    EXPECT_EQ(EMUV_IOC_QUERY_CLIENT, 0xeb02U);
    EXPECT_EQ(EMUV_IOC_CREATE, 0xeb10U);
    EXPECT_EQ(EMUV_IOC_DESTROY, 0xeb11U);
    EXPECT_EQ(EMUV_IOC_ALLOC, 0xeb20U);
    EXPECT_EQ(EMUV_IOC_FREE, 0xeb21U);
    EXPECT_EQ(EMUV_IOC_EXPORT, 0xeb22U);
    EXPECT_EQ(EMUV_IOC_IMPORT, 0xeb23U);
    EXPECT_EQ(EMUV_IOC_DISCARD, 0xeb24U);
    EXPECT_EQ(EMUV_IOC_CHARGE, 0xeb25U);
    EXPECT_EQ(EMUV_IOC_UNCHARGE, 0xeb26U);
    EXPECT_EQ(EMUV_IOC_REPORT, 0xeb27U);
}

} // namespace
