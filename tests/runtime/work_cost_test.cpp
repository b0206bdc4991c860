#include "runtime/device/work_cost.hpp"

#include "runtime/kernels/momentum.hpp"
#include "runtime/kernels/elementwise.hpp"
#include "tests/doubles/far_device.hpp"
#include "tests/doubles/recording_device.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::runtime;

namespace {

constexpr DType float_types[] = {DType::f32, DType::bf16, DType::f16};

double width(DType dtype) { return static_cast<double>(size_of(dtype)); }

struct Bench {
  tests::RecordingDevice device;
  std::unique_ptr<Stream> stream = device.make_stream("kernels", StreamWidth::whole);
  std::vector<float> a = std::vector<float>(4096), b = std::vector<float>(4096);

  /// Cost of the single launch that `queue` makes.
  WorkCost cost(const std::function<void(StreamView)>& queue, double flops = 0) {
    device.clear();
    queue(*stream);
    REQUIRE(device.work().size() == 1);
    CHECK(device.work()[0].stream == "kernels");
    CHECK(device.work()[0].cost.flops == flops);
    CHECK(device.work()[0].cost.shape == ProductShape{});
    return device.work()[0].cost;
  }
};

}  // namespace

TEST_CASE("every kind of work has a distinct name") {
  std::set<std::string> names;
  for (std::size_t kind = 0; kind < work_kinds; ++kind)
    names.insert(std::string(to_string(static_cast<WorkKind>(kind))));
  CHECK(names.size() == work_kinds);
  CHECK(names.count("?") == 0);
}

TEST_CASE("copies and zeros cost the bytes that they read and write") {
  Bench bench;
  const auto bytes = [&](const std::function<void(StreamView)>& queue) {
    const WorkCost cost = bench.cost(queue);
    CHECK(to_string(cost.kind) == "elementwise");
    CHECK(cost.dtype == DType::f32);
    return cost.bytes;
  };
  CHECK(bytes([&](StreamView stream) { copy(stream, bench.a.data(), bench.b.data(), 1021); }) == 2 * 1021);
  CHECK(bytes([&](StreamView stream) { fill_zero(stream, bench.a.data(), 1021); }) == 1021);
  // Gaps between runs are not copied.
  CHECK(bytes([&](StreamView stream) { copy_runs(stream, bench.a.data(), 40, bench.b.data(), 24, 20, 7); }) ==
        2 * 20 * 7);
  CHECK(bytes([&](StreamView stream) {
          copy(stream, bench.a.data(), {}, bench.b.data(), {.run = 5, .stride = 9, .first = 2}, 2, 31);
        }) == 2 * 31 * 2);
  bench.device.clear();
  copy(*bench.stream, nullptr, nullptr, 0);
  fill_zero(*bench.stream, nullptr, 0);
  CHECK(bench.device.work().empty());
}

TEST_CASE(
    "a copy between a device and its host costs the bytes on the link, one within either its memory traffic") {
  for (const bool apart : {false, true}) {
    CAPTURE(apart);
    tests::RecordingDevice device(std::make_unique<tests::FarDevice>(make_inline_device()), apart);
    const auto stream = device.make_stream("copies", StreamWidth::one);
    const Buffer near_a = device.allocate(4096, MemorySpace::pinned),
                 near_b = device.allocate(4096, MemorySpace::pinned);
    const Buffer far_a = device.allocate(4096, MemorySpace::device),
                 far_b = device.allocate(4096, MemorySpace::device);
    copy(*stream, far_a.data(), near_a.data(), 1021);
    copy(*stream, near_a.data(), far_a.data() + 7, 1021);
    copy_runs(*stream, near_a.data(), 40, far_a.data(), 20, 20, 7);
    copy(*stream, far_a.data(), far_b.data(), 1021);
    copy(*stream, near_a.data(), near_b.data(), 1021);
    const auto& work = device.work();
    REQUIRE(work.size() == 5);
    for (std::size_t i = 0; i < 5; ++i) {
      CAPTURE(i);
      const bool crosses = apart && i < 3;
      CHECK(to_string(work[i].cost.kind) == (crosses ? "host_copy" : "elementwise"));
      CHECK(work[i].cost.bytes == (i == 2 ? 140 : 1021) * (crosses ? 1 : 2));
    }
  }
}

TEST_CASE("conversions, sums and factors cost their arrays, regardless of type") {
  Bench bench;
  constexpr std::size_t n = 1021;
  for (const DType dtype : float_types) {
    for (const DType to : float_types) {
      const auto cost =
          bench.cost([&](StreamView stream) { cast(stream, bench.a.data(), to, bench.b.data(), dtype, n); });
      CHECK(cost.bytes == n * (width(dtype) + width(to)));
      CHECK(cost.dtype == dtype);
    }
    const auto scaled = bench.cost([&](StreamView stream) { scale(stream, bench.a.data(), dtype, 2, n); });
    CHECK(scaled.bytes == 2 * n * width(dtype));
    CHECK(scaled.dtype == dtype);
    const auto added =
        bench.cost([&](StreamView stream) { add(stream, bench.a.data(), bench.b.data(), dtype, n); });
    CHECK(added.bytes == 3 * n * width(dtype));
    CHECK(added.dtype == dtype);
    // A sum for each block of 512; blocks start with each run of 700.
    const auto squares =
        bench.cost([&](StreamView stream) { sums_of_squares(stream, bench.a.data(), bench.b.data(), dtype, n); });
    CHECK(squares.bytes == n * width(dtype) + 2 * 4);
    const auto of_runs = bench.cost([&](StreamView stream) {
      sums_of_squares(stream, bench.a.data(), 3, bench.b.data(), {.run = 700, .stride = 800}, dtype, 1500);
    });
    CHECK(of_runs.bytes == 1500 * width(dtype) + 5 * 4);
  }
  double total = 0;
  CHECK(bench.cost([&](StreamView stream) { sum(stream, &total, bench.a.data(), n); }).bytes == n * 4 + 8);
}

TEST_CASE("AdamW costs the elements that it updates, with weights and moments counted twice") {
  Bench bench;
  std::vector<float> m(4096), v(4096);
  const std::vector<DecaySegment> segments{{3, 100, true}, {120, 1000, false}};  // 977 elements
  for (const DType gradient : float_types)
    for (const DType working : float_types)
      for (const bool copied : {false, true}) {
        std::vector<float> copy(4096);
        const UpdateArrays arrays{.weights = bench.a.data(),
                                  .m = m.data(),
                                  .v = v.data(),
                                  .gradient = bench.b.data(),
                                  .gradient_dtype = gradient,
                                  .working = copied ? copy.data() : nullptr,
                                  .working_dtype = working};
        const auto cost = bench.cost([&](StreamView stream) { adamw(stream, arrays, segments, {}); });
        CHECK(to_string(cost.kind) == "optimizer");
        CHECK(cost.dtype == gradient);
        CHECK(cost.bytes == 977 * (24 + width(gradient) + (copied ? width(working) : 0)));
      }
}

TEST_CASE("moments in int8 cost a byte per element and a scale per block, and missing arrays nothing") {
  Bench bench;
  std::vector<float> m(4096), v(4096);
  UpdateArrays arrays{.weights = bench.a.data(),
                      .m = m.data(),
                      .v = v.data(),
                      .gradient = bench.b.data(),
                      .m_dtype = DType::i8,
                      .v_dtype = DType::u8};
  const std::vector<DecaySegment> segments{{0, 1024, true}};
  constexpr double weights = 2 * 4 * 1024, gradient = 4 * 1024, moment = 2 * 4 * 260;
  const WorkCost of_adamw = bench.cost([&](StreamView stream) { adamw(stream, arrays, segments, {}); });
  CHECK(of_adamw.bytes == weights + gradient + 2 * moment);
  CHECK(of_adamw.kind == WorkKind::optimizer_int8);
  CHECK(bench.cost([&](StreamView stream) { sgd(stream, arrays, segments, {}); }).bytes ==
        weights + gradient + moment);
  CHECK(bench.cost([&](StreamView stream) { muon_momentum(stream, arrays, v.data(), segments, {}); }).bytes ==
        gradient + moment + 4 * 1024);
  const WorkCost without_moments =
      bench.cost([&](StreamView stream) { muon_apply(stream, arrays, v.data(), segments, {}); });
  CHECK(without_moments.bytes == weights + gradient);
  CHECK(without_moments.kind == WorkKind::optimizer);
  arrays.m = nullptr;
  CHECK(bench.cost([&](StreamView stream) { sgd(stream, arrays, segments, {}); }).bytes == weights + gradient);
}

TEST_CASE("an optimizer's elements with states in bf16 count as operations, once for all of them") {
  Bench bench;
  std::vector<float> m(1024), v(1024);
  const std::vector<DecaySegment> segments{{0, 1000, true}};
  for (int in_bf16 = 0; in_bf16 < 8; ++in_bf16) {
    CAPTURE(in_bf16);
    const auto dtype = [&](int state) { return (in_bf16 >> state & 1) != 0 ? DType::bf16 : DType::f32; };
    const UpdateArrays arrays{.weights = bench.a.data(),
                              .m = m.data(),
                              .v = v.data(),
                              .gradient = bench.b.data(),
                              .weights_dtype = dtype(0),
                              .m_dtype = dtype(1),
                              .v_dtype = dtype(2)};
    const auto check = [&](int states, const auto& update) {
      static_cast<void>(bench.cost(update, (in_bf16 & states) != 0 ? 1000 : 0));
    };
    check(7, [&](StreamView stream) { adamw(stream, arrays, segments, {}); });
    check(3, [&](StreamView stream) { sgd(stream, arrays, segments, {}); });
    check(1, [&](StreamView stream) { adamw(stream, arrays, segments, {.average = 0.5}); });
    check(2, [&](StreamView stream) { muon_momentum(stream, arrays, v.data(), segments, {}); });
    check(1, [&](StreamView stream) { muon_apply(stream, arrays, v.data(), segments, {}); });
  }
}
