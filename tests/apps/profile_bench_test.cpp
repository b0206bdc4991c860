// Parts of ranvier-bench profile: rates, costs and cases. Times are not asserted.
#include "apps/bench/kernel_cases.hpp"

#include "runtime/base/error.hpp"
#include "runtime/kernels/elementwise.hpp"
#include "runtime/simulation/phantom_device.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::apps;
using runtime::DType;
using runtime::WorkCost;
using runtime::WorkKind;
using runtime::WorkRate;

namespace {

/// Time of work at a rate.
TimedWork timed(const WorkRate& rate, std::vector<WorkCost> costs) {
  TimedWork work{.costs = std::move(costs)};
  for (const WorkCost& cost : work.costs) {
    work.seconds += rate.launch_seconds;
    work.seconds += cost.flops > 0 ? cost.flops / rate.flops_per_second : cost.bytes / rate.bytes_per_second;
  }
  return work;
}

WorkCost bytes(double count) { return {.kind = WorkKind::norm, .bytes = count}; }

}  // namespace

TEST_CASE("the rate of timed work is recovered") {
  const WorkRate memory{.launch_seconds = 3e-6, .bytes_per_second = 2e10};
  const WorkRate found =
      fit_rate(timed(memory, {bytes(1000), bytes(3000)}), timed(memory, {bytes(1e7), bytes(4e7)}));
  CHECK(found.launch_seconds == doctest::Approx(3e-6));
  CHECK(found.bytes_per_second == doctest::Approx(2e10));
  CHECK(found.flops_per_second == 0);

  const WorkRate arithmetic{.launch_seconds = 1e-5, .flops_per_second = 1e11};
  const auto product = [](double flops) { return WorkCost{.flops = flops, .bytes = 1}; };
  const WorkRate of_products = fit_rate(timed(arithmetic, {product(1e4)}), timed(arithmetic, {product(1e9)}));
  CHECK(of_products.launch_seconds == doctest::Approx(1e-5));
  CHECK(of_products.flops_per_second == doctest::Approx(1e11));
  CHECK(of_products.bytes_per_second == 0);
}

TEST_CASE("rates stay positive if the machine was disturbed") {
  for (const double small_seconds : {0.0, 1e-9, 1e-3, 1.0}) {
    const WorkRate rate =
        fit_rate({.costs = {bytes(1000)}, .seconds = small_seconds}, {.costs = {bytes(1e6)}, .seconds = 1e-3});
    CHECK(rate.launch_seconds >= 0);
    CHECK(rate.launch_seconds <= 1e-3);
    CHECK(rate.bytes_per_second >= 1e6 / 1e-3 * 0.999);
    CHECK(rate.bytes_per_second <= 2.001 * 1e6 / 1e-3);
  }
}

TEST_CASE("measured values have four digits") {
  CHECK(rounded(123456.0) == doctest::Approx(123500).epsilon(1e-12));
  CHECK(rounded(1.23456e-6) == doctest::Approx(1.235e-6).epsilon(1e-12));
  CHECK(rounded(0) == 0);
}

TEST_CASE("costs are the declared ones of the work, and nothing is computed") {
  std::vector<float> x(1000, 1), y(1000, 2);
  const auto costs = runtime::costs_of({}, [&](runtime::StreamView stream) {
    runtime::add(stream, y.data(), x.data(), DType::f32, x.size());
    runtime::copy(stream, y.data(), x.data(), 4 * x.size());
  });
  REQUIRE(costs.size() == 2);
  CHECK(costs[0].kind == WorkKind::elementwise);
  CHECK(costs[0].bytes == 3 * 4 * 1000);
  CHECK(costs[1].bytes == 2 * 4 * 1000);
  CHECK(y == std::vector<float>(1000, 2));
  const auto error = tests::error_of([&] {
    static_cast<void>(
        runtime::costs_of({}, [](runtime::StreamView stream) { stream.launch([](runtime::ComputePool&) {}); }));
  });
  CHECK(error.code() == ErrorCode::internal);
}

TEST_CASE("each kind of work on a device has a case, and large cases cost more than small ones") {
  const auto device = runtime::make_cpu_device({.threads = 2});
  const auto stream = device->make_stream("test", runtime::StreamWidth::whole);
  const std::vector<std::int32_t> numbers(64, 5);
  const KernelTokens tokens{numbers.data(), numbers.size()};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto small = kernel_cases(dtype, {4, 64}, tokens, 2), large = kernel_cases(dtype, {48, 128}, tokens, 2);
    REQUIRE(small.size() == large.size());
    std::set<WorkKind> kinds;
    for (std::size_t i = 0; i < small.size(); ++i) {
      kinds.insert(small[i].kind);
      CAPTURE(to_string(small[i].kind));
      CHECK(small[i].work.bytes < large[i].work.bytes);
      std::vector<std::byte> memory(large[i].work.bytes + 64);
      std::byte* const arrays = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64);
      double cost[2] = {};
      for (const KernelCase* each : {&small[i], &large[i]}) {
        const auto costs = runtime::costs_of(
            {.threads = 2}, [&](runtime::StreamView recorder) { each->work.queue(recorder, arrays); });
        CHECK_FALSE(costs.empty());
        for (const WorkCost& one : costs) {
          CHECK(one.kind == each->kind);
          cost[each == &large[i]] += one.bytes;
          CHECK(one.bytes <= 3.0 * static_cast<double>(each->work.bytes));
        }
        each->work.queue(*stream, arrays);
        stream->synchronize();
      }
      CHECK(cost[0] < cost[1]);
    }
    CHECK(kinds.size() == runtime::work_kinds - 3);  // without products, copies to the host, samples
    for (const WorkKind kind : {WorkKind::product, WorkKind::host_copy, WorkKind::samples})
      CHECK(!kinds.contains(kind));
  }
}

TEST_CASE("steps with other types of states are work of their kinds, and rounded elements count as operations") {
  const auto device = runtime::make_cpu_device({});
  const auto stream = device->make_stream("test", runtime::StreamWidth::whole);
  constexpr std::size_t n = 48 * 128;
  for (const DType weights : {DType::f32, DType::bf16}) {
    for (const DType moments : {DType::f32, DType::bf16, DType::i8}) {
      CAPTURE(to_string(weights));
      CAPTURE(to_string(moments));
      const ProfiledWork work = optimizer_step(DType::bf16, {48, 128}, weights, moments);
      std::vector<std::byte> memory(work.bytes + 64);
      std::byte* const arrays = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64);
      const auto costs = runtime::costs_of({}, [&](runtime::StreamView recorder) { work.queue(recorder, arrays); });
      REQUIRE(costs.size() == 1);
      CHECK(costs[0].kind == (moments == DType::i8 ? WorkKind::optimizer_int8 : WorkKind::optimizer));
      CHECK(costs[0].flops == (weights == DType::bf16 || moments == DType::bf16 ? n : 0));
      const std::size_t gradient = bytes_of(DType::bf16, n), working = weights == DType::bf16 ? 0 : gradient;
      CHECK(costs[0].bytes ==
            static_cast<double>(2 * bytes_of(weights, n) + 4 * bytes_of(moments, n) + gradient + working));
      work.queue(*stream, arrays);
      stream->synchronize();  // before its memory is freed
    }
  }
}

TEST_CASE("products are those in layers, and their costs have their shapes") {
  const auto device = runtime::make_cpu_device({});
  const auto stream = device->make_stream("test", runtime::StreamWidth::whole);
  const auto cases = product_cases(DType::bf16, {.tokens = {8, 32}, .channels = {16, 64}, .vocab_size = 128});
  CHECK(cases.size() == 2 * 2 * 6 + 3 + 1);
  CHECK(cases.front().shape == runtime::ProductShape{8, 64, 16});
  CHECK(cases.back().shape == runtime::ProductShape{48, 48, 48});
  for (const ProductCase& each : cases) {
    std::vector<std::byte> memory(each.work.bytes + 64);
    std::byte* const arrays = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64);
    const auto costs =
        runtime::costs_of({}, [&](runtime::StreamView recorder) { each.work.queue(recorder, arrays); });
    REQUIRE(costs.size() == 1);
    CHECK(costs[0].kind == WorkKind::product);
    CHECK(costs[0].dtype == DType::bf16);
    CHECK(costs[0].shape == each.shape);
    each.work.queue(*stream, arrays);
    stream->synchronize();  // before its memory is freed
  }
  // The forward product, the input gradient and the weight gradient have the same flops.
  for (std::size_t i = 0; i + 2 < cases.size(); i += 3) {
    const auto size = [&](std::size_t at) { return cases[at].shape.m * cases[at].shape.n * cases[at].shape.k; };
    CHECK(size(i) == size(i + 1));
    CHECK(size(i) == size(i + 2));
  }
}
