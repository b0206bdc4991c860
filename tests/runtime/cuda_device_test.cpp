// The contract of a GPU's device; device_test.cpp has the one of all devices.
#include "runtime/device/device.hpp"
#include "runtime/host/compute_pool.hpp"
#include "tests/device_under_test.hpp"
#include "tests/test.hpp"

#include <stdexcept>

using namespace ranvier;
using namespace ranvier::runtime;
using namespace ranvier::tests;

TEST_CASE("a kernel reads and writes pinned memory of any size") {
  const Bench bench;
  for (const std::size_t elements : {std::size_t{1000}, (std::size_t{70} << 20) / sizeof(float)}) {
    CAPTURE(elements);
    for (int round = 0; round < 2; ++round) {  // the second allocation may get the memory that the first returned
      const Buffer pinned = bench.device->allocate(elements * sizeof(float), MemorySpace::pinned);
      auto* const values = reinterpret_cast<float*>(pinned.data());
      REQUIRE(std::all_of(values, values + elements, [](float value) { return value == 0; }));
      float* const last = values + elements - 1000;
      for (int i = 0; i < 1000; ++i) last[i] = static_cast<float>(i);
      scale(*bench.stream, last, DType::f32, 2, 1000);
      bench.stream->synchronize();
      for (int i = 0; i < 1000; ++i) REQUIRE(last[i] == static_cast<float>(2 * i));
    }
  }
}

TEST_CASE("an allocation beyond the GPU is refused and allocates nothing") {
  const auto generous = make_cuda_device({.budget_bytes = std::size_t{1} << 50});
  CHECK(error_of([&] { (void)generous->allocate(std::size_t{1} << 45, MemorySpace::device); }).code() ==
        ErrorCode::memory);
  CHECK(generous->used_bytes() == 0);
  CHECK(generous->allocate(100, MemorySpace::device).data() != nullptr);  // the refusal leaves no pending error
}

TEST_CASE("an event that is not reached yet leaves no pending error for the next launch") {
  const Bench bench;
  const auto event = bench.device->make_event();
  const Buffer buffer = bench.device->allocate(1000 * sizeof(float), MemorySpace::device);
  scale(*bench.stream, buffer.data(), DType::f32, 2, 1000);
  event->record(*bench.stream);
  while (!event->reached()) scale(*bench.stream, buffer.data(), DType::f32, 2, 1000);
  bench.stream->synchronize();
}

TEST_CASE("host work is refused") {
  const auto device = make_cuda_device({});
  const auto stream = device->make_stream("cuda", StreamWidth::one);
  CHECK(error_of([&] { stream->launch([](ComputePool&) {}); }).code() == ErrorCode::internal);
}

TEST_CASE("a missing GPU is refused with the number of available ones") {
  const int count = cuda_device_count();
  CHECK(count >= 1);
  CHECK(error_of([&] { (void)make_cuda_device({.ordinal = count}); }).code() == ErrorCode::device);
  CHECK(error_of([] { (void)make_cuda_device({.ordinal = -1}); }).code() == ErrorCode::device);
}

TEST_CASE("repeated work is replayed without calling its function, on the memory that its key denotes") {
  const Bench bench;
  const Buffer first = bench.device->allocate(1000 * sizeof(float), MemorySpace::pinned);
  const Buffer second = bench.device->allocate(1000 * sizeof(float), MemorySpace::pinned);
  int calls = 0;
  const auto triple = [&](const Buffer& buffer) {
    auto* values = reinterpret_cast<float*>(buffer.data());
    const std::uint64_t key[] = {reinterpret_cast<std::uintptr_t>(values)};
    bench.stream->repeat(key, [&] {
      ++calls;
      scale(*bench.stream, values, DType::f32, 6, 1000);
      scale(*bench.stream, values, DType::f32, 0.5f, 1000);
    });
  };
  for (const Buffer* buffer : {&first, &second}) reinterpret_cast<float*>(buffer->data())[999] = 1;
  for (int round = 0; round < 5; ++round) triple(first);
  triple(second);
  bench.stream->synchronize();
  CHECK(reinterpret_cast<float*>(first.data())[999] == 243);
  CHECK(reinterpret_cast<float*>(second.data())[999] == 3);
  CHECK(calls == 3);  // once, once for the capture, and once for the other memory
  const GraphStats graph_stats = bench.stream->graph_stats();
  CHECK(graph_stats.kept == 1);
  CHECK(graph_stats.replayed == 4);
  CHECK(graph_stats.queued == 2);
  CHECK(graph_stats.refused == "");
}

TEST_CASE("work that cannot be captured is queued, and the stream reports the reason") {
  const Bench bench;
  const Buffer buffer = bench.device->allocate(sizeof(float), MemorySpace::pinned);
  auto* value = reinterpret_cast<float*>(buffer.data());
  *value = 1;
  int calls = 0;
  const std::uint64_t key[] = {7};
  for (int round = 0; round < 4; ++round) {
    bench.stream->repeat(key, [&] {
      if (++calls == 2) throw std::runtime_error("not while I am captured");
      scale(*bench.stream, value, DType::f32, 2, 1);
    });
  }
  bench.stream->synchronize();
  CHECK(*value == 16);
  CHECK(bench.stream->graph_stats().kept == 0);
  CHECK(bench.stream->graph_stats().refused == "not while I am captured");
}

TEST_CASE("an error that is unrelated to the capture is still reported") {
  const Bench bench;
  const std::uint64_t key[] = {7};
  bench.stream->repeat(key, [] {});
  CHECK_THROWS_WITH(bench.stream->repeat(key, [] { throw std::runtime_error("out of luck"); }), "out of luck");
}

TEST_CASE("a device without graphs calls every time") {
  const auto device = make_cuda_device({.graphs = false});
  const auto stream = device->make_stream("test", StreamWidth::whole);
  const std::uint64_t key[] = {7};
  int calls = 0;
  for (int round = 0; round < 3; ++round) stream->repeat(key, [&] { ++calls; });
  CHECK(calls == 3);
  CHECK(stream->graph_stats().queued == 0);
}
