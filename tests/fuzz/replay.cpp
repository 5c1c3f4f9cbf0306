// SPDX-License-Identifier: GPL-2.0-or-later
// Gives a fuzzed part every input of a folder, without a fuzzer.
#include "fuzz.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

int main(int argc, char **argv)
{
    if (argc != 2) {
        std::fputs("usage: replay DIRECTORY\n", stderr);
        return 2;
    }
    int inputs = 0;
    for (const auto &entry : std::filesystem::directory_iterator(argv[1])) {
        std::ifstream file(entry.path(), std::ios::binary);
        const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
        std::printf("%s\n", entry.path().c_str());
        std::fflush(stdout); // a crash leaves its input's name last
        LLVMFuzzerTestOneInput(
            reinterpret_cast<const std::uint8_t *>(bytes.data()), bytes.size());
        inputs++;
    }
    std::printf("%d inputs\n", inputs);
    return inputs == 0;
}
