// SPDX-License-Identifier: GPL-2.0-or-later
// Checks libemuv-kernels on this machine's card against its reference on the
// host, then measures it. tests/bench/run-kernels builds and starts it.
//
//   device check             each check is a line; exit status 1 if one fails
//   device measure           a row for each shape and number of rows of x
#include "../../tools/kernels/codes.hpp"
#include "../bench/check.hpp"

#include <emuv/kernels.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <cublas_v2.h>
#include <cuda_runtime.h>

using namespace emuv::kernels;

namespace {

constexpr std::uint32_t format_size = sizeof(emuv_kernels_format);
const std::vector<std::pair<const char *, emuv_kernels_format>> formats = {
    {"e2m1-e4m3-16", {format_size, EMUV_KERNELS_E2M1, EMUV_KERNELS_E4M3, 16}},
    {"e2m1-e4m3-32", {format_size, EMUV_KERNELS_E2M1, EMUV_KERNELS_E4M3, 32}},
    {"e2m1-fp16-16",
     {format_size, EMUV_KERNELS_E2M1, EMUV_KERNELS_FP16_SCALE, 16}},
    {"e2m1-fp16-32",
     {format_size, EMUV_KERNELS_E2M1, EMUV_KERNELS_FP16_SCALE, 32}},
    {"symmetric",
     {format_size, EMUV_KERNELS_SYMMETRIC, EMUV_KERNELS_NO_SCALE, 0}}};

int wrong = 0;

void expect(bool holds, const std::string &what)
{
    std::printf("%s: %s\n", holds ? "ok" : "FAILED", what.c_str());
    wrong += holds ? 0 : 1;
}

// Memory of the card, and its bytes on the host.
struct on_card
{
    explicit on_card(std::size_t count)
        : bytes(std::max<std::size_t>(count, 16))
    {
        CHECK(cudaMalloc(&at, bytes));
        CHECK(cudaMemset(at, 0, bytes));
    }
    on_card(const on_card &) = delete;
    on_card &operator=(const on_card &) = delete;
    ~on_card() { cudaFree(at); }

    void put(const void *from, std::size_t count) const
    {
        CHECK(cudaMemcpy(at, from, count, cudaMemcpyHostToDevice));
    }
    std::vector<unsigned char> get() const
    {
        std::vector<unsigned char> out(bytes);
        CHECK(cudaMemcpy(out.data(), at, bytes, cudaMemcpyDeviceToHost));
        return out;
    }

    void *at = nullptr;
    std::size_t bytes;
};

std::uint64_t code_bytes(const emuv_kernels_format &of, std::uint64_t rows,
                         std::uint64_t columns)
{
    std::uint64_t bytes = 0;
    emuv_kernels_code_bytes(&of, rows, columns, &bytes);
    return bytes;
}

std::uint64_t scale_bytes(const emuv_kernels_format &of, std::uint64_t rows,
                          std::uint64_t columns)
{
    std::uint64_t bytes = 0;
    emuv_kernels_scale_bytes(&of, rows, columns, &bytes);
    return bytes;
}

struct coded_on_card
{
    coded_on_card(const emuv_kernels_format &of, std::uint64_t rows,
                  std::uint64_t columns)
        : codes(code_bytes(of, rows, columns)),
          scales(scale_bytes(of, rows, columns)), tensor_scale(4)
    {
        is = {sizeof(is),
              0,
              of,
              rows,
              columns,
              codes.at,
              of.block == 0 ? nullptr : scales.at,
              static_cast<float *>(tensor_scale.at)};
    }
    on_card codes;
    on_card scales;
    on_card tensor_scale;
    emuv_kernels_matrix is{};
};

emuv_kernels_plain plain(std::uint32_t type, void *at, std::uint64_t stride)
{
    return {sizeof(emuv_kernels_plain), type, at, stride};
}

std::vector<std::uint16_t> weights(std::uint64_t count, std::uint32_t type,
                                   unsigned seed)
{
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 0.05F);
    std::vector<std::uint16_t> out(count);
    for (auto &each : out) {
        const float value = normal(random);
        each = type == EMUV_KERNELS_FP16 ? to_fp16(value) : to_bf16(value);
    }
    return out;
}

// Rows from this one on are of NaN, infinity and zeros.
void spoil(std::vector<std::uint16_t> &of, std::uint64_t columns)
{
    of[columns + 3] = 0x7fc0; // NaN in both types
    of[2 * columns + 40] = 0xffff;
    std::fill_n(of.begin() + static_cast<long>(3 * columns), 32, 0x8000);
}

void check_codes(const char *name, const emuv_kernels_format &format,
                 std::uint32_t type, bool spoilt)
{
    constexpr std::uint64_t rows = 333;
    constexpr std::uint64_t columns = 1056;
    auto from = weights(rows * columns, type, 1);
    if (spoilt)
        spoil(from, columns);
    coded_on_card card(format, rows, columns);
    std::vector<unsigned char> codes(card.codes.bytes);
    std::vector<unsigned char> scales(card.scales.bytes);
    std::vector<std::uint16_t> back(rows * columns);
    float tensor_scale = 0;
    emuv_kernels_matrix host = card.is;
    host.codes = codes.data();
    host.scales = format.block == 0 ? nullptr : scales.data();
    host.tensor_scale = &tensor_scale;
    const auto source = plain(type, from.data(), columns);
    const auto target = plain(type, back.data(), columns);
    bool held = emuv_kernels_encode_host(&source, &host) == EMUV_KERNELS_OK &&
                emuv_kernels_decode_host(&host, &target) == EMUV_KERNELS_OK;
    on_card numbers(from.size() * 2);
    numbers.put(from.data(), from.size() * 2);
    const auto on = plain(type, numbers.at, columns);
    held =
        held && emuv_kernels_encode(&on, &card.is, nullptr) == EMUV_KERNELS_OK;
    const auto card_scale = card.tensor_scale.get();
    held = held && card.codes.get() == codes && card.scales.get() == scales &&
           std::memcmp(card_scale.data(), &tensor_scale, 4) == 0;
    held =
        held && emuv_kernels_decode(&card.is, &on, nullptr) == EMUV_KERNELS_OK;
    held = held &&
           std::memcmp(numbers.get().data(), back.data(), back.size() * 2) == 0;
    expect(held, std::string(name) + ", type " + std::to_string(type) +
                     (spoilt ? ", with NaN and zeros" : "") +
                     ": the card's bytes are the host's");
}

struct shape
{
    std::uint64_t outputs;
    std::uint64_t inputs;
    std::uint64_t count;
};

// The result against sums in 64 bits of the decoded weights.
void check_product(const char *name, const emuv_kernels_format &format,
                   std::uint32_t type, const shape &is, cublasHandle_t blas)
{
    const auto read = type == EMUV_KERNELS_FP16 ? from_fp16 : from_bf16;
    const auto w = weights(is.outputs * is.inputs, type, 2);
    const auto x = weights(is.count * is.inputs, type, 3);
    const std::uint64_t stride = (is.outputs + 7) / 8 * 8;
    on_card numbers(w.size() * 2);
    on_card given(x.size() * 2);
    on_card result(is.count * stride * 2);
    on_card space(16 * is.inputs * 2);
    numbers.put(w.data(), w.size() * 2);
    given.put(x.data(), x.size() * 2);
    coded_on_card card(format, is.outputs, is.inputs);
    const auto source = plain(type, numbers.at, is.inputs);
    const auto from = plain(type, given.at, is.inputs);
    const auto to = plain(type, result.at, stride);
    bool held = emuv_kernels_encode(&source, &card.is, nullptr) == 0;
    const auto multiply = [&] {
        return emuv_kernels_multiply(&card.is, &from, &to, is.count, space.at,
                                     space.bytes, blas, nullptr) == 0;
    };
    held = held && multiply();
    const auto once = result.get();
    held = held && multiply() && result.get() == once;
    held = held && emuv_kernels_decode(&card.is, &source, nullptr) == 0;
    const auto decoded = numbers.get();
    const auto *const rounded =
        reinterpret_cast<const std::uint16_t *>(decoded.data());
    const auto *const got =
        reinterpret_cast<const std::uint16_t *>(once.data());
    // Decoded weights are rounded; in the fused product they are not.
    const double step = type == EMUV_KERNELS_FP16 ? 0x1p-11 : 0x1p-8;
    double worst = 0;
    for (std::uint64_t m = 0; m < is.count; m++)
        for (std::uint64_t n = 0; n < is.outputs; n += 7) {
            double sum = 0;
            double size = 0;
            for (std::uint64_t k = 0; k < is.inputs; k++) {
                const double one = double{read(x[m * is.inputs + k])} *
                                   double{read(rounded[n * is.inputs + k])};
                sum += one;
                size += one * one;
            }
            worst = std::max(
                worst, std::fabs(read(got[m * stride + n]) - sum) /
                           (step * (std::fabs(sum) + 4 * std::sqrt(size))));
        }
    expect(held && worst <= 1,
           std::string(name) + ", type " + std::to_string(type) + ", " +
               std::to_string(is.outputs) + " x " + std::to_string(is.inputs) +
               ", M " + std::to_string(is.count) +
               ": the product of the decoded weights, twice the same (" +
               std::to_string(worst) + " of the allowed error)");
}

void check_refusals()
{
    const auto &format = formats.front().second;
    coded_on_card card(format, 32, 64);
    std::vector<std::uint16_t> host(32 * 64);
    const auto there = plain(EMUV_KERNELS_FP16, host.data(), 64);
    expect(emuv_kernels_encode(&there, &card.is, nullptr) ==
               EMUV_KERNELS_BAD_DEVICE,
           "pageable memory of the host is refused");
    void *pinned = nullptr;
    CHECK(cudaMallocHost(&pinned, 32 * 64 * 2));
    std::memset(pinned, 0, 32 * 64 * 2);
    const auto known = plain(EMUV_KERNELS_FP16, pinned, 64);
    expect(emuv_kernels_encode(&known, &card.is, nullptr) == EMUV_KERNELS_OK &&
               cudaDeviceSynchronize() == cudaSuccess,
           "pinned memory of the host, such as spilled memory, is taken");
    CHECK(cudaFreeHost(pinned));
    int count = 0;
    CHECK(cudaGetDeviceCount(&count));
    if (count > 1) {
        CHECK(cudaSetDevice(1));
        on_card other(32 * 64 * 2);
        CHECK(cudaSetDevice(0));
        const auto away = plain(EMUV_KERNELS_FP16, other.at, 64);
        expect(emuv_kernels_encode(&away, &card.is, nullptr) ==
                   EMUV_KERNELS_BAD_DEVICE,
               "memory of another card is refused");
    }
}

int check_all()
{
    cublasHandle_t blas = nullptr;
    CHECK(cublasCreate(&blas));
    for (const auto &[name, format] : formats)
        for (const std::uint32_t type :
             {EMUV_KERNELS_FP16, EMUV_KERNELS_BF16}) {
            check_codes(name, format, type, false);
            check_codes(name, format, type, true);
            for (const shape &is :
                 {shape{128, 128, 1}, shape{333, 1056, 3}, shape{333, 1056, 8},
                  shape{64, 8192, 9}, shape{1001, 4096, 16},
                  shape{333, 1056, 17}, shape{1001, 2048, 64}})
                check_product(name, format, type, is, blas);
        }
    check_refusals();
    CHECK(cublasDestroy(blas));
    std::printf("%d failed\n", wrong);
    return wrong == 0 ? 0 : 1;
}

// Microseconds of a call: the median of 20 batches, each a graph, so that what
// the processor takes for a launch does not count. Weights come in turn from
// several copies, or they would be read from the card's cache.
template <typename Call>
double time_of(cudaStream_t stream, const Call &call)
{
    constexpr int batch = 20;
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t work = nullptr;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    call(0);
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < batch; i++)
        call(i);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&work, graph, 0));
    CHECK(cudaGraphLaunch(work, stream));
    std::vector<float> times(20);
    for (float &each : times) {
        CHECK(cudaEventRecord(begin, stream));
        CHECK(cudaGraphLaunch(work, stream));
        CHECK(cudaEventRecord(end, stream));
        CHECK(cudaEventSynchronize(end));
        CHECK(cudaEventElapsedTime(&each, begin, end));
    }
    CHECK(cudaGraphExecDestroy(work));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaEventDestroy(begin));
    CHECK(cudaEventDestroy(end));
    std::nth_element(times.begin(), times.begin() + 10, times.end());
    return times[10] * 1e3 / batch;
}

// GB/s at which the card copies, both ways counted.
double memory_rate(cudaStream_t stream)
{
    constexpr std::size_t bytes = std::size_t{1} << 30;
    constexpr int copies = 20;
    on_card from(bytes);
    on_card to(bytes);
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    for (int i = 0; i <= copies; i++) {
        CHECK(cudaMemcpyAsync(to.at, from.at, bytes, cudaMemcpyDeviceToDevice,
                              stream));
        if (i == 0)
            CHECK(cudaEventRecord(begin, stream));
    }
    CHECK(cudaEventRecord(end, stream));
    CHECK(cudaEventSynchronize(end));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    CHECK(cudaEventDestroy(begin));
    CHECK(cudaEventDestroy(end));
    return 2.0 * bytes * copies / ms / 1e6;
}

void measure_shape(const char *name, const emuv_kernels_format &format,
                   std::uint64_t outputs, std::uint64_t inputs, double rate,
                   cublasHandle_t blas, cudaStream_t stream)
{
    constexpr std::uint64_t most_count = 2048;
    const std::uint64_t bytes = code_bytes(format, outputs, inputs) +
                                scale_bytes(format, outputs, inputs);
    const auto copies =
        static_cast<int>(std::max<std::uint64_t>(1, (256U << 20U) / bytes));
    std::vector<std::unique_ptr<coded_on_card>> coded;
    std::vector<std::unique_ptr<on_card>> whole;
    on_card x(most_count * inputs * 2);
    on_card y(most_count * outputs * 2);
    on_card space(outputs * inputs * 2);
    for (int i = 0; i < copies; i++) {
        coded.push_back(
            std::make_unique<coded_on_card>(format, outputs, inputs));
        whole.push_back(std::make_unique<on_card>(outputs * inputs * 2));
    }
    const auto from = plain(EMUV_KERNELS_BF16, x.at, inputs);
    const auto to = plain(EMUV_KERNELS_BF16, y.at, outputs);
    const float one = 1;
    const float zero = 0;
    for (const std::uint64_t count : {1, 2, 4, 8, 16, 64, 2048}) {
        const double four = time_of(stream, [&](int i) {
            const int status =
                emuv_kernels_multiply(&coded[i % copies]->is, &from, &to, count,
                                      space.at, space.bytes, blas, stream);
            if (status != EMUV_KERNELS_OK) {
                std::fprintf(stderr, "%s\n", emuv_kernels_text(status));
                std::exit(1);
            }
        });
        const double sixteen = time_of(stream, [&](int i) {
            CHECK(cublasGemmEx(
                blas, CUBLAS_OP_T, CUBLAS_OP_N, static_cast<int>(outputs),
                static_cast<int>(count), static_cast<int>(inputs), &one,
                whole[i % copies]->at, CUDA_R_16BF, static_cast<int>(inputs),
                x.at, CUDA_R_16BF, static_cast<int>(inputs), &zero, y.at,
                CUDA_R_16BF, static_cast<int>(outputs), CUBLAS_COMPUTE_32F,
                CUBLAS_GEMM_DEFAULT));
        });
        const double limit = static_cast<double>(bytes) / rate / 1e3;
        std::printf("%-13s %llux%-6llu %5llu %9.2f %9.2f %9.2f %6.2f %6.2f\n",
                    name, static_cast<unsigned long long>(inputs),
                    static_cast<unsigned long long>(outputs),
                    static_cast<unsigned long long>(count), four, sixteen,
                    limit, limit / four, sixteen / four);
        std::fflush(stdout);
    }
}

int measure()
{
    cublasHandle_t blas = nullptr;
    CHECK(cublasCreate(&blas));
    cudaStream_t stream = nullptr;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cublasSetStream(blas, stream));
    const double rate = memory_rate(stream);
    std::printf("memory %.0f GB/s\n", rate);
    for (const auto &[name, format] : formats)
        for (const auto &[inputs, outputs] :
             {std::pair<std::uint64_t, std::uint64_t>{4096, 4096},
              {4096, 14336},
              {8192, 8192},
              {8192, 28672}})
            measure_shape(name, format, outputs, inputs, rate, blas, stream);
    CHECK(cublasDestroy(blas));
    CHECK(cudaStreamDestroy(stream));
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    const std::string what = argc == 2 ? argv[1] : "";
    if (what == "check")
        return check_all();
    if (what == "measure")
        return measure();
    std::fprintf(stderr, "usage: %s check|measure\n", argv[0]);
    return 2;
}
