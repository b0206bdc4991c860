#include "apps/peak_flops.hpp"

#include "models/ops/matmul.hpp"
#include "models/ops/stream_workspace_cuda.hpp"
#include "runtime/device.hpp"
#include "runtime/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace ranvier::apps {

double measure_peak_flops(runtime::StreamView stream, runtime::DType dtype, const std::function<void()>& meet) {
  runtime::Device& device = stream.device();
  // A GPU fills up with larger matrices, and is asked for several before it is waited for.
  const bool gpu = device.kind() == runtime::DeviceKind::cuda;
  const std::size_t n = gpu ? 4096 : 768;
  const int at_a_time = gpu ? 20 : 1;
  const std::size_t elements = n * n, bytes = elements * runtime::size_of(dtype);
  // A GPU's scratch is part of the budget, and not of what the device has given away.
  const bool has_room =
      !gpu || device.used_bytes() + 3 * bytes + models::cuda::stream_scratch_bytes <= device.budget_bytes();
  runtime::Buffer buffer;
  try {
    if (has_room)
      buffer = device.allocate(3 * bytes, gpu ? runtime::MemorySpace::device : runtime::MemorySpace::host);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::memory) throw;  // the plan takes all: no rate is known then
  }
  if (buffer.data() != nullptr) {
    const auto numbers = device.allocate(elements * sizeof(float), runtime::MemorySpace::pinned);
    std::uint32_t state = 1;  // values like those of a model: a GPU is faster with constant ones
    for (std::size_t i = 0; i < elements; ++i) {
      state = state * 1664525u + 1013904223u;
      reinterpret_cast<float*>(numbers.data())[i] = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-36f;
    }
    for (std::byte* to : {buffer.data(), buffer.data() + bytes}) {
      runtime::cast(stream, to, dtype, numbers.data(), runtime::DType::f32, elements);
    }
    stream.synchronize();
  }
  meet();
  if (buffer.data() == nullptr) return 0;
  double best = 0;
  for (int i = 0; i < 8; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    for (int j = 0; j < at_a_time; ++j) {
      models::matmul(stream, {.m = n, .n = n, .k = n},
                     {.c = buffer.data() + 2 * bytes, .c_dtype = dtype, .a = buffer.data(), .b = buffer.data() + bytes,
                      .dtype = dtype});
    }
    stream.synchronize();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    best = std::max(best, at_a_time * 2.0 * static_cast<double>(elements) * static_cast<double>(n) / seconds);
  }
  return best;
}

}  // namespace ranvier::apps
