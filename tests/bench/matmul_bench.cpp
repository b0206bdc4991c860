// Rates of every matrix multiplication of a GPT's training step, as a share of the library's best layout on this
// machine. Then copies that transpose gradients' operands, and sums for biases, both from memory, as shares of plain
// copying and reading. One JSON line per case.
//
//   matmul_bench [threads] [hidden] [tokens] [vocabulary]
#include "models/ops/library_matmul.hpp"
#include "models/ops/matmul_cpu.hpp"
#include "models/ops/transpose.hpp"
#include "runtime/device/device.hpp"
#include "runtime/host/compute_pool.hpp"
#include "tests/bench/bench.hpp"

#include <cstring>

using namespace ranvier;
using namespace ranvier::bench;
using namespace ranvier::models;
using runtime::DType;

namespace {

struct Case {
  const char* name;
  MatmulShape shape;
  bool accumulate = false;
  bool half_result = false;  ///< written in the operands' type
};

double flops(const MatmulShape& s) {
  return 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
}

/// Copies blocks like matmul_cpu, one after the other, from more memory than caches hold.
template <typename T>
void time_transposed_copies(runtime::ComputePool& pool, DType dtype) {
  constexpr std::size_t rows = 1024, columns = 512, stride = 3 * columns, arrays = 16;
  const auto threads = static_cast<std::size_t>(pool.threads());
  const std::vector<T> from(threads * arrays * rows * stride, T{1});
  std::vector<T> to(threads * rows * columns);
  const auto seconds = [&](auto copy) {
    return quickest(0.3, [&] {
      pool.run([&](int thread, int) {
        const auto number = static_cast<std::size_t>(thread);
        T* const place = to.data() + number * rows * columns;
        for (std::size_t array = 0; array < arrays; ++array)
          for (std::size_t column = 0; column < stride; column += columns)
            copy(place, from.data() + (number * arrays + array) * rows * stride + column);
      });
    });
  };
  const double transposed =
      seconds([&](T* place, const T* block) { transpose(place, rows, block, stride, rows, columns); });
  const double plain = seconds([&](T* place, const T* block) {
    for (std::size_t row = 0; row < rows; ++row)
      std::memcpy(place + row * columns, block + row * stride, columns * sizeof(T));
  });
  const double bytes = static_cast<double>(from.size() * sizeof(T));
  print_case(
      R"("bench": "matmul", "case": "transposed copy", "dtype": "{}", "threads": {}, "gb_per_second": {:.1f}, )"
      R"("of_plain_copy": {:.3f})",
      to_string(dtype), threads, bytes / transposed * 1e-9, plain / transposed);
}

/// Bias gradients from more memory than caches hold, compared with a search for the largest word in it.
template <typename T>
void time_column_sums(runtime::ComputePool& pool, DType dtype) {
  constexpr std::size_t rows = 1024, columns = 384, arrays = 64, words = rows * columns * sizeof(T) / 8;
  const std::vector<std::uint64_t> from(arrays * words, 1);
  std::vector<float> sums(columns);
  std::vector<std::uint64_t> largest(static_cast<std::size_t>(pool.threads()));
  const double summed = quickest(0.3, [&] {
    for (std::size_t array = 0; array < arrays; ++array)
      column_sums_cpu(pool, sums.data(), DType::f32, from.data() + array * words, dtype, rows, columns, true);
  });
  const double read = quickest(0.3, [&] {
    for (std::size_t array = 0; array < arrays; ++array)
      pool.run([&](int thread, int threads) {
        const auto share = runtime::share_of(words, thread, threads);
        const auto first = from.begin() + static_cast<std::ptrdiff_t>(array * words);
        largest[static_cast<std::size_t>(thread)] = *std::max_element(
            first + static_cast<std::ptrdiff_t>(share.begin), first + static_cast<std::ptrdiff_t>(share.end));
      });
  });
  print_case(R"("bench": "matmul", "case": "column sums", "dtype": "{}", "threads": {}, "gb_per_second": {:.1f}, )"
             R"("of_reading": {:.3f})",
             to_string(dtype), pool.threads(), static_cast<double>(from.size() * 8) / summed * 1e-9, read / summed);
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, std::size_t otherwise) {
    return argc > i ? static_cast<std::size_t>(std::atoll(argv[i])) : otherwise;
  };
  const int threads = static_cast<int>(argument(1, 2));
  const std::size_t c = argument(2, 384), t = argument(3, 4096), v = argument(4, 256);

  std::vector<Case> cases;
  const auto linear = [&](const char* forward, const char* dx, const char* dw, std::size_t in, std::size_t out) {
    cases.push_back({forward, {.m = t, .n = out, .k = in}, false, true});
    cases.push_back({dx, {.m = t, .n = in, .k = out, .transpose_b = true}, false, true});
    cases.push_back({dw, {.m = in, .n = out, .k = t, .transpose_a = true}, true});
  };
  linear("attn", "attn dx", "attn dw", c, 3 * c);
  linear("proj", "proj dx", "proj dw", c, c);
  linear("fc", "fc dx", "fc dw", c, 4 * c);
  linear("fc2", "fc2 dx", "fc2 dw", 4 * c, c);
  cases.push_back({"head", {.m = t, .n = v, .k = c, .transpose_b = true}, false, true});
  cases.push_back({"head dx", {.m = t, .n = c, .k = v}, false, true});
  cases.push_back({"head dw", {.m = v, .n = c, .k = t, .transpose_a = true}, true});

  const auto device = runtime::make_cpu_device({.threads = threads});
  runtime::ComputePool pool(threads);
  constexpr LibraryMatmul ceiling_product{.m = 512, .n = 384, .k = 384};
  const std::size_t largest = std::max({t * std::max(4 * c, v), 4 * c * c, v * c,
                                        static_cast<std::size_t>(threads) * ceiling_product.m * ceiling_product.n});
  const auto a = device->allocate(largest * 4, runtime::MemorySpace::device);
  const auto b = device->allocate(largest * 4, runtime::MemorySpace::device);
  const auto result = device->allocate(largest * 4, runtime::MemorySpace::device);

  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    fill(a.data(), dtype, largest);
    fill(b.data(), dtype, largest);
    const bool native = dtype != DType::f16 && (dtype == DType::f32 || library_has_bf16());
    LibraryMatmul best = ceiling_product;
    best.dtype = native ? dtype : DType::f32;
    const double ceiling = threads * flops({.m = best.m, .n = best.n, .k = best.k}) / quickest(0.3, [&] {
                             pool.run([&](int thread, int) {
                               const auto i = static_cast<std::size_t>(thread);
                               library_matmul(best, result.data() + i * best.m * best.n * 4,
                                              a.data() + i * best.m * best.k * 4, b.data(), nullptr);
                             });
                           });
    double total_seconds = 0, total_flops = 0;
    for (const Case& one : cases) {
      const MatmulArrays arrays{.c = result.data(),
                                .c_dtype = one.half_result ? dtype : DType::f32,
                                .a = a.data(),
                                .b = b.data(),
                                .dtype = dtype,
                                .accumulate = one.accumulate};
      const double seconds = quickest(0.3, [&] { matmul_cpu(pool, one.shape, arrays); });
      total_seconds += seconds;
      total_flops += flops(one.shape);
      print_case(R"("bench": "matmul", "case": "{}", "dtype": "{}", "threads": {}, "m": {}, "n": {}, "k": {}, )"
                 R"("gflops": {:.1f}, "of_ceiling": {:.3f})",
                 one.name, to_string(dtype), threads, one.shape.m, one.shape.n, one.shape.k,
                 flops(one.shape) / seconds * 1e-9, flops(one.shape) / seconds / ceiling);
    }
    print_case(R"("bench": "matmul", "case": "all", "dtype": "{}", "threads": {}, "gflops": {:.1f}, )"
               R"("of_ceiling": {:.3f}, "ceiling_gflops": {:.1f})",
               to_string(dtype), threads, total_flops / total_seconds * 1e-9, total_flops / total_seconds / ceiling,
               ceiling * 1e-9);
  }
  time_transposed_copies<std::uint32_t>(pool, DType::f32);
  time_transposed_copies<std::uint16_t>(pool, DType::bf16);
  time_column_sums<float>(pool, DType::f32);
  time_column_sums<runtime::Bf16>(pool, DType::bf16);
}
