#include "apps/kernels/peak_flops.hpp"

#include "apps/program/data_sheet.hpp"
#include "models/ops/matmul.hpp"
#include "models/ops/stream_workspace_cuda.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/cuda_build.hpp"
#include "runtime/device/device.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

namespace ranvier::apps {
namespace {

constexpr int turns = 3;

/// c[n, n] = a[n, n] · b[n, n], all in one buffer. Throws ErrorCode::memory if device memory is short.
class LargeProduct {
 public:
  LargeProduct(runtime::StreamView stream, runtime::DType dtype)
      : stream_(stream), dtype_(dtype), gpu_(stream.device().kind() == runtime::DeviceKind::cuda) {
    runtime::Device& device = stream.device();
    const std::size_t elements = n() * n(), bytes = elements * runtime::size_of(dtype);
    // The stream's scratch memory is part of the budget, but not of used_bytes().
    if (gpu_ && device.used_bytes() + 3 * bytes + models::cuda::stream_scratch_bytes > device.budget_bytes())
      fail(ErrorCode::memory, "not enough device memory for a product of {} rows", n());
    buffer_ = device.allocate(3 * bytes, gpu_ ? runtime::MemorySpace::device : runtime::MemorySpace::host);
    const auto numbers = device.allocate(elements * sizeof(float), runtime::MemorySpace::pinned);
    std::uint32_t state = 1;  // random values, since a GPU is faster with constant ones
    for (std::size_t i = 0; i < elements; ++i) {
      state = state * 1664525u + 1013904223u;
      reinterpret_cast<float*>(numbers.data())[i] = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-36f;
    }
    for (std::byte* to : {buffer_.data(), buffer_.data() + bytes}) {
      runtime::cast(stream, to, dtype, numbers.data(), runtime::DType::f32, elements);
    }
    stream.synchronize();
  }

  /// FLOP per second of one measurement.
  [[nodiscard]] double rate() const {
    const int at_a_time = gpu_ ? 20 : 1;  // launches per synchronization
    const std::size_t bytes = n() * n() * runtime::size_of(dtype_);
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < at_a_time; ++i) {
      models::matmul(stream_, {.m = n(), .n = n(), .k = n()},
                     {.c = buffer_.data() + 2 * bytes,
                      .c_dtype = dtype_,
                      .a = buffer_.data(),
                      .b = buffer_.data() + bytes,
                      .dtype = dtype_});
    }
    stream_.synchronize();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return at_a_time * 2.0 * static_cast<double>(n() * n() * n()) / seconds;
  }

 private:
  /// Rows of a matrix; a GPU needs larger ones to be fully used.
  [[nodiscard]] std::size_t n() const { return gpu_ ? 4096 : 768; }

  runtime::StreamView stream_;
  runtime::DType dtype_;
  bool gpu_;
  runtime::Buffer buffer_;
};

/// Result of `compute`; none if memory is short.
template <typename Compute>
auto if_there_is_room(const Compute& compute) -> std::optional<decltype(compute())> {
  try {
    return compute();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::memory) throw;
    return std::nullopt;
  }
}

}  // namespace

void PeakFlops::measure(runtime::MpiSession& session, runtime::StreamView stream, runtime::DType dtype) {
  const auto product = if_there_is_room([&] { return std::make_unique<LargeProduct>(stream, dtype); });
  session.barrier();
  for (int turn = 0; turn < turns; ++turn) {
    const auto rate = product ? if_there_is_room([&] { return (*product)->rate(); }) : std::nullopt;
    // The exchange also synchronizes the start of the next measurement.
    const std::vector<long long> rates = session.all(static_cast<long long>(rate.value_or(0)));
    if (std::ranges::find(rates, 0) != rates.end()) return;
    best_ = std::max(best_, static_cast<double>(std::accumulate(rates.begin(), rates.end(), 0LL)));
  }
}

std::optional<double> data_sheet_flops(runtime::MpiSession& session, DeviceFlag device, std::optional<int> gpu,
                                       runtime::DType dtype) {
  if (device != DeviceFlag::cuda) return {};
  long long rate = 0, place = 0;  // number of this rank's GPU among all nodes
  if constexpr (runtime::with_cuda) {
    constexpr long long max_gpus = 1 << 16;  // per node
    const int ordinal = gpu_of_rank(session, gpu).ordinal;
    place = session.nodes()[static_cast<std::size_t>(session.rank())] * max_gpus + ordinal;
    const auto rates = data_sheet_rates(runtime::cuda_gpu(ordinal).name);
    if (const auto found = rates.find(dtype); found != rates.end()) rate = static_cast<long long>(found->second);
  }
  const std::vector<long long> all_rates = session.all(rate), places = session.all(place);
  double sum = 0;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    if (all_rates[rank] == 0) return 0.0;
    const auto first = std::ranges::find(places, places[rank]);
    if (first == places.begin() + static_cast<std::ptrdiff_t>(rank)) sum += static_cast<double>(all_rates[rank]);
  }
  return sum;
}

}  // namespace ranvier::apps
