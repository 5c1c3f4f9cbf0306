// SPDX-License-Identifier: GPL-2.0-or-later
// The prover against kernels whose verdict is known, as nvcc compiles them, and
// against files that are damaged.
#include "proof/cache.hpp"
#include "proof/cubin.hpp"
#include "proof/fatbin.hpp"
#include "proof/sass.hpp"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace proof = emuv::cuda::proof;

namespace {

using content = std::vector<unsigned char>;

content read(const std::string &path)
{
    std::ifstream file(path, std::ios::binary);
    EXPECT_TRUE(file) << path;
    return {std::istreambuf_iterator<char>(file), {}};
}

std::string cubin_of(unsigned sm)
{
    return std::string(PROOF_FOLDER "/kernels.sm_") + std::to_string(sm) +
           ".cubin";
}

// Reads and proves all that there is.
std::size_t prove_all(proof::bytes file)
{
    std::size_t proven = 0;
    proof::each_image(file, [&](const proof::code_image &image) {
        if (image.refused != nullptr)
            return;
        const auto code = proof::read_cubin(image.content);
        if (!code)
            return;
        for (const auto &kernel : code->kernels)
            proven += proof::prove(kernel).proven() ? 1 : 0;
    });
    return proven;
}

class proofs : public testing::TestWithParam<unsigned>
{
protected:
    content file_ = read(cubin_of(GetParam()));
    std::optional<proof::cubin> code_ = proof::read_cubin(file_);

    const proof::kernel_code *find(std::string_view name)
    {
        for (const auto &kernel : code_->kernels)
            if (kernel.name == name)
                return &kernel;
        ADD_FAILURE() << "there is no " << name;
        return nullptr;
    }
    proof::verdict verdict_of(std::string_view name)
    {
        const proof::kernel_code *const kernel = find(name);
        return kernel != nullptr ? proof::prove(*kernel) : proof::verdict();
    }
    // Of launches like the one with these parameters.
    proof::verdict verdict_of(std::string_view name, const content &parameters)
    {
        const proof::kernel_code *const kernel = find(name);
        return kernel != nullptr ? proof::prove(*kernel, parameters)
                                 : proof::verdict();
    }

    // Parameters of 8, 8, 4 and 4 bytes, or of 8, 8 and 8.
    static content given(std::uint64_t to, std::uint64_t table,
                         std::uint64_t rest)
    {
        content made(24);
        std::memcpy(made.data(), &to, 8);
        std::memcpy(made.data() + 8, &table, 8);
        std::memcpy(made.data() + 16, &rest, 8);
        return made;
    }
    static std::uint64_t words(std::uint32_t low, std::uint32_t high)
    {
        return std::uint64_t{high} << 32 | low;
    }
};

TEST_P(proofs, each_kernel_has_the_verdict_of_its_name)
{
    ASSERT_TRUE(code_);
    EXPECT_EQ(code_->sm, GetParam());
    std::size_t kernels = 0;
    for (const auto &kernel : code_->kernels) {
        const proof::verdict what = proof::prove(kernel);
        const bool wanted = kernel.name.substr(0, 8) != "refused_" &&
                            kernel.name.substr(0, 8) != "settled_";
        EXPECT_EQ(what.proven(), wanted)
            << kernel.name << ": " << describe(what.why) << " at 0x" << std::hex
            << what.where;
        kernels++;
    }
    EXPECT_GT(kernels, 25U);
}

TEST_P(proofs, verdict_names_the_parameters_that_accesses_go_by)
{
    ASSERT_TRUE(code_);
    using bases = std::vector<proof::base>;
    EXPECT_EQ(verdict_of("proven_copy").bases, (bases{{0, false}, {8, false}}));
    EXPECT_EQ(verdict_of("proven_choice").bases,
              (bases{{0, false}, {8, false}}));
    EXPECT_EQ(verdict_of("proven_writes_a_table").bases, (bases{{0, false}}));
    EXPECT_TRUE(verdict_of("proven_list").any_parameter);
    EXPECT_TRUE(verdict_of("refused_table").bases.empty());
    EXPECT_FALSE(verdict_of("proven_copy").by_descriptor);
    EXPECT_EQ(verdict_of("proven_descriptor").by_descriptor,
              GetParam() == 90U || GetParam() == 100U);
}

TEST_P(proofs, address_that_is_surely_loaded_is_told_from_one_that_may_be)
{
    ASSERT_TRUE(code_);
    for (const char *name : {"refused_table", "refused_number",
                             "refused_atomic", "refused_wide_exchange"})
        EXPECT_EQ(verdict_of(name).why, proof::obstacle::from_memory) << name;
    EXPECT_EQ(verdict_of("refused_constants").why,
              proof::obstacle::from_constants);
    for (const char *name :
         {"refused_choice", "refused_now_and_then", "refused_list"})
        EXPECT_EQ(verdict_of(name).why, proof::obstacle::perhaps_loaded)
            << name;
}

TEST_P(proofs, parameter_beside_a_loaded_value_is_to_be_checked)
{
    ASSERT_TRUE(code_);
    using bases = std::vector<proof::base>;
    EXPECT_EQ(verdict_of("checked_offset").bases,
              (bases{{0, false}, {8, true}, {16, false}}));
    EXPECT_EQ(verdict_of("checked_index").bases,
              (bases{{0, true}, {8, false}}));
}

TEST_P(proofs, parameters_of_a_launch_settle_which_way_it_goes)
{
    ASSERT_TRUE(code_);
    constexpr std::uint64_t address = 0x210000000000;
    const auto mode = [&](std::uint32_t which, std::uint32_t count) {
        return given(address, address + 512, words(which, count));
    };
    EXPECT_EQ(verdict_of("settled_mode").why, proof::obstacle::perhaps_loaded);
    const proof::verdict one = verdict_of("settled_mode", mode(0, 100));
    EXPECT_TRUE(one.proven()) << describe(one.why);
    EXPECT_EQ(one.bases, (std::vector<proof::base>{{0, false}}));
    // It holds for all launches that go the same way, and no other.
    EXPECT_TRUE(one.is_about(mode(0, 7)));
    EXPECT_TRUE(one.is_about(mode(1, 100)));
    EXPECT_FALSE(one.is_about(mode(3, 100)));
    EXPECT_FALSE(one.is_about(content(12))) << "that has no such parameter";
    EXPECT_TRUE(verdict_of("settled_mode", mode(2, 100)).proven());
    const proof::verdict table = verdict_of("settled_mode", mode(3, 100));
    EXPECT_FALSE(table.proven());
    EXPECT_TRUE(table.is_about(mode(3, 8)));
    EXPECT_FALSE(table.is_about(mode(0, 100)));
}

TEST_P(proofs, null_and_a_flag_settle_it)
{
    ASSERT_TRUE(code_);
    constexpr std::uint64_t address = 0x210000000000;
    EXPECT_FALSE(verdict_of("settled_table").proven());
    const proof::verdict none =
        verdict_of("settled_table", given(address, 0, 100));
    EXPECT_TRUE(none.proven()) << describe(none.why);
    // Either half tells that there is one.
    EXPECT_FALSE(none.is_about(given(address, 512, 100)));
    EXPECT_FALSE(none.is_about(given(address, address, 100)));
    EXPECT_FALSE(
        verdict_of("settled_table", given(address, address, 100)).proven());
    // A byte, and a count of two bytes behind it.
    const auto flag = [&](bool is, std::uint64_t count) {
        return given(address, address, (is ? 1 : 0) | count << 16);
    };
    const proof::verdict plain = verdict_of("settled_flag", flag(false, 9));
    EXPECT_TRUE(plain.proven()) << describe(plain.why);
    EXPECT_TRUE(plain.is_about(flag(false, 200)));
    EXPECT_FALSE(plain.is_about(flag(true, 9)));
    EXPECT_FALSE(verdict_of("settled_flag", flag(true, 9)).proven());
}

TEST_P(proofs, launch_without_an_optional_parameter_needs_no_address_there)
{
    ASSERT_TRUE(code_);
    using bases = std::vector<proof::base>;
    constexpr std::uint64_t address = 0x210000000000;
    EXPECT_EQ(verdict_of("checked_optional").bases,
              (bases{{0, false}, {8, true}, {16, false}}));
    const content without = given(address, 0, address);
    const content with = given(address, address, address);
    const proof::verdict none = verdict_of("checked_optional", without);
    EXPECT_TRUE(none.proven()) << describe(none.why);
    EXPECT_EQ(none.bases, (bases{{0, false}}));
    EXPECT_TRUE(none.is_about(without));
    EXPECT_FALSE(none.is_about(with));
    const proof::verdict some = verdict_of("checked_optional", with);
    EXPECT_TRUE(some.proven()) << describe(some.why);
    EXPECT_TRUE(some.is_about(with));
    EXPECT_TRUE(proof::hold(some.bases, with));
    EXPECT_FALSE(proof::hold(some.bases, without));
}

TEST_P(proofs, number_that_is_no_address_makes_the_loaded_one_the_address)
{
    ASSERT_TRUE(code_);
    constexpr std::uint64_t address = 0x210000000000;
    const content number = given(512, address, 0);
    const content pointer = given(address, address, 0);
    const proof::verdict loaded = verdict_of("checked_index", number);
    EXPECT_EQ(loaded.why, proof::obstacle::from_memory);
    EXPECT_TRUE(loaded.is_about(number));
    EXPECT_TRUE(loaded.is_about(given(64, address, 0)));
    EXPECT_FALSE(loaded.is_about(pointer)) << "it is the pointer there";
    const proof::verdict named = verdict_of("checked_index", pointer);
    EXPECT_TRUE(named.proven()) << describe(named.why);
    EXPECT_FALSE(proof::hold(named.bases, number));
}

TEST_P(proofs, parameters_make_no_proof_of_what_is_always_loaded)
{
    ASSERT_TRUE(code_);
    constexpr std::uint64_t address = 0x210000000040;
    for (const auto &kernel : code_->kernels)
        if (kernel.name.substr(0, 8) == "refused_" &&
            // These come to their loop by their parameters.
            kernel.name != "refused_choice" &&
            kernel.name != "refused_now_and_then") {
            content some(kernel.parameter_bytes, 1);
            for (std::size_t at = 0; at + 8 <= some.size(); at += 8)
                std::memcpy(some.data() + at, &address, 8);
            EXPECT_FALSE(proof::prove(kernel, some).proven()) << kernel.name;
        }
}

TEST_P(proofs, damaged_code_is_survived)
{
    ASSERT_TRUE(code_);
    std::mt19937 random(GetParam());
    for (const auto &kernel : code_->kernels)
        for (int round = 0; round < 8; round++) {
            content damaged(kernel.code.begin(), kernel.code.end());
            for (int i = 0; i < 3; i++)
                damaged[random() % damaged.size()] ^=
                    static_cast<unsigned char>(1U << random() % 8);
            proof::kernel_code other = kernel;
            other.code = damaged;
            proof::prove(other);
            proof::prove(other, content(kernel.parameter_bytes, 1));
        }
}

TEST_P(proofs, unknown_instruction_is_no_proof)
{
    ASSERT_TRUE(code_);
    for (const auto &kernel : code_->kernels) {
        content damaged(kernel.code.begin(), kernel.code.end());
        damaged[0] = 0xff; // 0xfff is no operation
        damaged[1] |= 0x0f;
        proof::kernel_code other = kernel;
        other.code = damaged;
        EXPECT_EQ(proof::prove(other).why, proof::obstacle::unknown_code)
            << kernel.name;
    }
}

TEST_P(proofs, code_that_runs_past_its_end_is_no_proof)
{
    ASSERT_TRUE(code_);
    for (const auto &kernel : code_->kernels) {
        proof::kernel_code other = kernel;
        other.code = kernel.code.first(16);
        EXPECT_FALSE(proof::prove(other).proven()) << kernel.name;
        other.code = kernel.code.first(kernel.code.size() - 8);
        EXPECT_FALSE(proof::prove(other).proven()) << kernel.name;
    }
}

TEST_P(proofs, few_registers_change_no_verdict)
{
    for (const unsigned sm : {80U, 90U, 100U, 120U}) {
        if (sm != GetParam())
            continue;
        const content file = read(PROOF_FOLDER "/kernels.sm_" +
                                  std::to_string(sm) + ".spilled.cubin");
        const auto code = proof::read_cubin(file);
        ASSERT_TRUE(code);
        for (const auto &kernel : code->kernels) {
            const proof::verdict what = proof::prove(kernel);
            const proof::verdict usual = verdict_of(kernel.name);
            EXPECT_EQ(what.proven(), usual.proven())
                << kernel.name << ": " << describe(what.why) << " at 0x"
                << std::hex << what.where;
            EXPECT_EQ(what.bases, usual.bases) << kernel.name;
        }
    }
}

TEST(proof_stack, is_lost_to_an_atomic_operation_that_fills_its_register)
{
    const content file = read(PROOF_FOLDER "/kernels.sm_90.spilled.cubin");
    const auto code = proof::read_cubin(file);
    ASSERT_TRUE(code);
    const auto kernel =
        std::find_if(code->kernels.begin(), code->kernels.end(),
                     [](const proof::kernel_code &each) {
                         return each.name == "proven_kept_on_the_stack";
                     });
    ASSERT_NE(kernel, code->kernels.end());
    // No way leads behind the end. There is one that fills register 0, and then
    // one that fills register 1 as well, which is the stack's.
    const auto with_last = [&](std::uint64_t type) {
        const std::uint64_t last[] = {0x00000002040089a8,
                                      0x00056200081ee1e6 | type << 9};
        content changed(kernel->code.begin(), kernel->code.end());
        std::memcpy(changed.data() + changed.size() - sizeof last, last,
                    sizeof last);
        proof::kernel_code other = *kernel;
        other.code = changed;
        return proof::prove(other).proven();
    };
    EXPECT_TRUE(with_last(0)) << "32 bits";
    EXPECT_FALSE(with_last(2)) << "64 bits";
}

INSTANTIATE_TEST_SUITE_P(sm, proofs, testing::Values(80, 86, 89, 90, 100, 120),
                         testing::PrintToStringParamName());

TEST(proof_files, truncated_file_gives_no_more_proofs)
{
    const content file = read(cubin_of(90));
    const std::size_t all = prove_all(file);
    EXPECT_GT(all, 10U);
    for (std::size_t size = 0; size < file.size();
         size += size < 4096 ? 61 : 2477) {
        // Of its own, so that a read behind the end is seen.
        const content part(file.begin(),
                           file.begin() + static_cast<std::ptrdiff_t>(size));
        EXPECT_LE(prove_all(part), all) << size;
    }
}

TEST(proof_files, damaged_file_is_survived)
{
    const content file = read(cubin_of(80));
    std::mt19937 random(7);
    for (int round = 0; round < 60; round++) {
        content damaged = file;
        for (int i = 0; i < 20; i++) {
            // Headers lie at the begin and at the end.
            const std::size_t far = random() % 6000;
            const std::size_t at =
                random() % 2 != 0 ? far : damaged.size() - 1 - far;
            damaged[at] = static_cast<unsigned char>(random());
        }
        prove_all(damaged);
    }
}

TEST(proof_files, packed_fatbins_have_the_proofs_of_what_they_hold)
{
    const std::size_t all =
        prove_all(read(cubin_of(80))) + prove_all(read(cubin_of(90)));
    EXPECT_EQ(prove_all(read(PROOF_FOLDER "/kernels.none.fatbin")), all);
    EXPECT_EQ(prove_all(read(PROOF_FOLDER "/kernels.speed.fatbin")), all)
        << "LZ4";
    std::size_t refused = 0;
    const content file = read(PROOF_FOLDER "/kernels.size.fatbin");
    proof::each_image(file, [&](const proof::code_image &image) {
        refused += image.refused != nullptr ? 1 : 0;
    });
    if (refused == 0) { // the library is there
        EXPECT_EQ(prove_all(file), all) << "Zstandard";
    }
}

TEST(proof_files, truncated_fatbin_is_survived)
{
    const content file = read(PROOF_FOLDER "/kernels.speed.fatbin");
    for (std::size_t size = 0; size < file.size();
         size += size < 256 ? 7 : 3001) {
        const content part(file.begin(),
                           file.begin() + static_cast<std::ptrdiff_t>(size));
        prove_all(part);
    }
}

TEST(proof_files, block_of_lz4_fills_its_target_or_is_refused)
{
    // "abcd", and six bytes from four back.
    const content block = {0x42, 'a', 'b', 'c', 'd', 4, 0, 0x00};
    content out(10);
    EXPECT_TRUE(proof::unpack_lz4(block, out));
    EXPECT_EQ(std::string(out.begin(), out.end()), "abcdabcdab");
    content shorter(9);
    EXPECT_FALSE(proof::unpack_lz4(block, shorter));
    content longer(11);
    EXPECT_FALSE(proof::unpack_lz4(block, longer));
    const content behind = {0x42, 'a', 'b', 'c', 'd', 5, 0, 0x00};
    EXPECT_FALSE(proof::unpack_lz4(behind, out)) << "from before the begin";
    for (std::size_t size = 0; size < block.size() - 1; size++)
        EXPECT_FALSE(proof::unpack_lz4(proof::bytes(block).first(size), out));
}

TEST(proof_files, other_files_are_refused)
{
    for (const std::string text : {"", "x",
                                   "\x7f"
                                   "ELF",
                                   ".version 8.0\n.target sm_90\n"}) {
        const content file(text.begin(), text.end());
        std::size_t refused = 0;
        proof::each_image(file, [&](const proof::code_image &image) {
            refused += image.refused != nullptr ? 1 : 0;
        });
        EXPECT_EQ(refused, 1U) << text;
    }
}

class verdict_cache : public testing::Test
{
protected:
    verdict_cache()
    {
        std::string name = testing::TempDir() + "emuv-proof-XXXXXX";
        folder_ = mkdtemp(name.data());
        path_ = folder_ + "/cache/verdicts";
        proof::cache first(folder_ + "/cache");
        first.keep(one_, what());
        EXPECT_TRUE(first.save());
    }
    ~verdict_cache() override { std::filesystem::remove_all(folder_); }

    static proof::verdict what()
    {
        proof::verdict made;
        made.why = proof::obstacle::none;
        made.bases = {{0, false}, {24, true}};
        made.any_parameter = true;
        made.by_descriptor = true;
        made.accesses = 7;
        return made;
    }
    // A verdict about launches whose first parameter begins with this number.
    static proof::verdict about(std::uint32_t number)
    {
        using kind = proof::term::kind;
        proof::verdict made = what();
        made.bases = {{0, false}, {24, false}};
        made.terms = {
            {.is = kind::word, .number = 0},
            {.is = kind::number, .number = number},
            {.is = kind::comparison, .how = 2, .a = 0, .b = 1},
        };
        made.premises = {{2, true}};
        made.accesses = number;
        return made;
    }
    static content word(std::size_t number)
    {
        return {static_cast<unsigned char>(number), 0, 0, 0};
    }
    bool knows() const
    {
        const proof::cache other(folder_ + "/cache");
        return other.find(one_) != nullptr;
    }

    const proof::fingerprint one_ = {{1, 2}};
    std::string folder_;
    std::string path_;
};

TEST_F(verdict_cache, keeps_what_it_was_given)
{
    const proof::cache other(folder_ + "/cache");
    const proof::verdict *const found = other.find(one_);
    ASSERT_NE(found, nullptr);
    EXPECT_TRUE(found->proven());
    EXPECT_EQ(found->bases, what().bases);
    EXPECT_TRUE(found->any_parameter);
    EXPECT_TRUE(found->by_descriptor);
    EXPECT_EQ(found->accesses, 7U);
    EXPECT_EQ(other.find({{2, 1}}), nullptr);
}

TEST_F(verdict_cache, keeps_verdicts_about_certain_launches_apart)
{
    proof::cache first(folder_ + "/cache");
    first.keep(one_, about(5));
    first.keep(one_, about(6));
    first.keep(one_, about(5));
    EXPECT_TRUE(first.save());
    proof::cache other(folder_ + "/cache");
    ASSERT_NE(other.find(one_), nullptr);
    EXPECT_EQ(other.find(one_)->accesses, 7U);
    for (const unsigned char number : content{5, 6}) {
        ASSERT_NE(other.find(one_, word(number)), nullptr);
        EXPECT_EQ(other.find(one_, word(number))->accesses, number);
    }
    EXPECT_EQ(other.find(one_, word(7)), nullptr);
    EXPECT_EQ(other.find(one_, content(3)), nullptr) << "too short";
}

TEST_F(verdict_cache, has_no_verdict_whose_base_is_no_address_in_the_launch)
{
    proof::cache all(folder_ + "/cache");
    proof::verdict made = about(5);
    made.bases = {{8, true}};
    all.keep(one_, made);
    content launch = word(5);
    EXPECT_EQ(all.find(one_, launch), nullptr) << "it has no such parameter";
    launch.resize(16);
    EXPECT_EQ(all.find(one_, launch), nullptr) << "it is null";
    launch[12] = 1; // 4 GiB
    EXPECT_NE(all.find(one_, launch), nullptr);
}

TEST_F(verdict_cache, new_verdict_takes_the_place_of_one_that_is_not_asked_for)
{
    constexpr std::size_t most = proof::cache::most_of_one;
    for (std::uint32_t i = 0; i < most; i++) {
        proof::cache program(folder_ + "/cache");
        program.keep(one_, about(i));
        EXPECT_TRUE(program.save());
    }
    proof::cache program(folder_ + "/cache");
    ASSERT_NE(program.find(one_, word(0)), nullptr); // it is used again
    program.keep(one_, about(most));
    EXPECT_TRUE(program.save());
    proof::cache next(folder_ + "/cache");
    EXPECT_NE(next.find(one_, word(most)), nullptr) << "the new one";
    EXPECT_NE(next.find(one_, word(0)), nullptr);
    EXPECT_EQ(next.find(one_, word(1)), nullptr) << "the oldest one";
    EXPECT_NE(next.find(one_, word(2)), nullptr);
    EXPECT_NE(next.find(one_), nullptr) << "the one about all launches";
}

TEST_F(verdict_cache, keeps_one_verdict_about_all_launches_of_a_kernel)
{
    const auto before = std::filesystem::file_size(path_);
    proof::cache program(folder_ + "/cache");
    for (std::uint32_t i = 0; i < 100; i++) {
        proof::verdict one = about(i);
        one.premises.clear();
        program.keep(one_, one);
    }
    EXPECT_TRUE(program.save());
    EXPECT_EQ(std::filesystem::file_size(path_), before);
    EXPECT_TRUE(knows());
}

TEST_F(verdict_cache, full_file_keeps_the_verdicts_of_the_last_program)
{
    // 64 KiB each.
    proof::verdict large = what();
    large.bases.resize(16000);
    const std::uint64_t count = 2 * proof::cache::most_bytes / (64 << 10);
    proof::cache first(folder_ + "/cache");
    for (std::uint64_t i = 0; i < count; i++)
        first.keep({{100 + i, 0}}, large);
    EXPECT_TRUE(first.save());
    EXPECT_LT(std::filesystem::file_size(path_), proof::cache::most_bytes);
    EXPECT_GT(std::filesystem::file_size(path_),
              proof::cache::most_bytes * 9 / 10);
    proof::cache last(folder_ + "/cache");
    last.keep({{UINT64_MAX, 0}}, what());
    EXPECT_TRUE(last.save());
    EXPECT_LT(std::filesystem::file_size(path_), proof::cache::most_bytes);
    const proof::cache next(folder_ + "/cache");
    EXPECT_NE(next.find({{UINT64_MAX, 0}}), nullptr);
    EXPECT_NE(next.find({{100, 0}}), nullptr) << "what has room stays";
}

TEST_F(verdict_cache, file_that_is_too_large_is_ignored_and_replaced)
{
    std::filesystem::resize_file(path_, proof::cache::most_bytes);
    EXPECT_FALSE(knows());
    proof::cache other(folder_ + "/cache");
    other.keep(one_, what());
    EXPECT_TRUE(other.save());
    EXPECT_TRUE(knows());
    EXPECT_LT(std::filesystem::file_size(path_), 1000U);
}

TEST_F(verdict_cache, is_the_users_alone)
{
    using std::filesystem::perms;
    EXPECT_EQ(std::filesystem::status(path_).permissions(),
              perms::owner_read | perms::owner_write);
    EXPECT_EQ(std::filesystem::status(folder_ + "/cache").permissions(),
              perms::owner_all);
}

TEST_F(verdict_cache, file_that_others_may_read_is_ignored)
{
    using std::filesystem::perms;
    std::filesystem::permissions(path_, perms::group_read,
                                 std::filesystem::perm_options::add);
    EXPECT_FALSE(knows());
}

TEST_F(verdict_cache, folder_that_others_may_write_to_is_ignored)
{
    using std::filesystem::perms;
    std::filesystem::permissions(folder_ + "/cache",
                                 perms::group_read | perms::others_read |
                                     perms::others_exec,
                                 std::filesystem::perm_options::add);
    EXPECT_TRUE(knows()) << "that others may read";
    std::filesystem::permissions(folder_ + "/cache", perms::group_write,
                                 std::filesystem::perm_options::add);
    EXPECT_FALSE(knows());
    proof::cache other(folder_ + "/cache");
    other.keep({{3, 3}}, what());
    EXPECT_FALSE(other.save());
}

TEST_F(verdict_cache, link_is_ignored)
{
    std::filesystem::rename(path_, folder_ + "/elsewhere");
    std::filesystem::create_symlink(folder_ + "/elsewhere", path_);
    EXPECT_FALSE(knows());
    proof::cache other(folder_ + "/cache");
    other.keep({{3, 3}}, what());
    EXPECT_FALSE(other.save());
    EXPECT_TRUE(std::filesystem::is_symlink(path_));
}

TEST_F(verdict_cache, damaged_file_is_ignored_and_replaced)
{
    const content whole = read(path_);
    for (std::size_t at = 0; at < whole.size(); at++) {
        content damaged = whole;
        damaged[at] ^= 1;
        std::ofstream(path_, std::ios::binary)
            .write(reinterpret_cast<const char *>(damaged.data()),
                   static_cast<std::streamsize>(damaged.size()));
        ASSERT_FALSE(knows()) << at;
    }
    std::filesystem::resize_file(path_, whole.size() / 2);
    ASSERT_FALSE(knows());
    proof::cache other(folder_ + "/cache");
    other.keep(one_, what());
    EXPECT_TRUE(other.save());
    EXPECT_TRUE(knows());
}

TEST_F(verdict_cache, programs_at_once_keep_each_others_verdicts)
{
    proof::cache a(folder_ + "/cache");
    proof::cache b(folder_ + "/cache");
    a.keep({{4, 4}}, what());
    b.keep({{5, 5}}, what());
    EXPECT_TRUE(a.save());
    EXPECT_TRUE(b.save());
    const proof::cache all(folder_ + "/cache");
    EXPECT_NE(all.find(one_), nullptr);
    EXPECT_NE(all.find({{4, 4}}), nullptr);
    EXPECT_NE(all.find({{5, 5}}), nullptr);
}

TEST_F(verdict_cache, program_puts_back_nothing_that_it_did_not_ask_for)
{
    constexpr std::size_t most = proof::cache::most_of_one;
    const auto fill = [&](proof::cache &with, std::uint32_t first) {
        for (std::uint32_t i = 0; i < most; i++)
            with.keep(one_, about(first + i));
        EXPECT_TRUE(with.save());
    };
    proof::cache before(folder_ + "/cache");
    fill(before, 0);
    proof::cache program(folder_ + "/cache");
    proof::cache other(folder_ + "/cache");
    fill(other, 100); // in place of those
    program.keep({{4, 4}}, what());
    EXPECT_TRUE(program.save());
    proof::cache next(folder_ + "/cache");
    EXPECT_NE(next.find({{4, 4}}), nullptr);
    for (std::size_t i = 0; i < most; i++) {
        EXPECT_NE(next.find(one_, word(100 + i)), nullptr) << i;
        EXPECT_EQ(next.find(one_, word(i)), nullptr) << i;
    }
}

TEST(proof_fingerprint, differs_with_all_that_a_verdict_depends_on)
{
    const content code(64, 1);
    proof::kernel_code kernel;
    kernel.sm = 90;
    kernel.code = code;
    const auto before = proof::fingerprint_of(kernel);
    EXPECT_EQ(before, proof::fingerprint_of(kernel));
    const auto differs = [&](auto change) {
        proof::kernel_code other = kernel;
        change(other);
        return proof::fingerprint_of(other) != before;
    };
    EXPECT_TRUE(differs([](auto &of) { of.sm = 80; }));
    EXPECT_TRUE(differs([](auto &of) { of.entry_point = 16; }));
    EXPECT_TRUE(differs([](auto &of) { of.parameters = 0x210; }));
    EXPECT_TRUE(differs([](auto &of) { of.parameter_bytes = 8; }));
    EXPECT_TRUE(differs([](auto &of) { of.addresses[0] = "malloc"; }));
    EXPECT_TRUE(differs([](auto &of) { of.targets[0] = {16}; }));
    EXPECT_TRUE(differs([](auto &of) { of.relocated = true; }));
    EXPECT_TRUE(differs([](auto &of) { of.code = of.code.first(48); }));
}

} // namespace
