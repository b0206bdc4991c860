// The contract of a GPU's device; device_test.cpp has the one of devices whose work runs on the host.
#include "runtime/device/device.hpp"
#include "runtime/host/compute_pool.hpp"
#include "tests/device_under_test.hpp"
#include "tests/test.hpp"

#include <atomic>
#include <stdexcept>
#include <thread>

using namespace ranvier;
using namespace ranvier::runtime;
using namespace ranvier::tests;

namespace {

std::vector<std::uint8_t> read(Stream& stream, const Buffer& buffer) {
  std::vector<std::uint8_t> bytes(buffer.bytes());
  copy(stream, bytes.data(), buffer.data(), bytes.size());
  stream.synchronize();
  return bytes;
}

}  // namespace

TEST_CASE("device memory is zeroed, aligned to pages and counted against the budget until it is freed") {
  const auto device = make_cuda_device({.budget_bytes = std::size_t{8} << 20});
  const auto stream = device->make_stream("test", StreamWidth::one);
  for (int round = 0; round < 2; ++round) {  // the second allocation gets memory that was written
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{4097}, (std::size_t{5} << 20) + 3}) {
      CAPTURE(bytes);
      Buffer buffer = device->allocate(bytes, MemorySpace::device);
      CHECK(device->used_bytes() == bytes);
      CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % 4096 == 0);
      CHECK(read(*stream, buffer) == std::vector<std::uint8_t>(bytes));
      copy(*stream, buffer.data(), std::vector<std::uint8_t>(bytes, 7).data(), bytes);
      stream->synchronize();
      const Buffer moved = std::move(buffer);
      CHECK(device->used_bytes() == bytes);
    }
  }
  CHECK(device->used_bytes() == 0);
  CHECK(device->allocate(0, MemorySpace::device).data() == nullptr);
}

TEST_CASE("host and pinned memory are zeroed, not counted, and accessible to the host") {
  const auto device = make_cuda_device({});
  for (const MemorySpace space : {MemorySpace::pinned, MemorySpace::host}) {
    const Buffer buffer = device->allocate(10000, space);
    CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % 4096 == 0);
    for (std::size_t i = 0; i < buffer.bytes(); ++i) REQUIRE(buffer.data()[i] == std::byte{0});
    buffer.data()[9999] = std::byte{1};
  }
  CHECK(device->used_bytes() == 0);
}

TEST_CASE("a kernel reads and writes pinned memory of any size") {
  const auto device = make_cuda_device({});
  const auto stream = device->make_stream("test", StreamWidth::whole);
  for (const std::size_t elements : {std::size_t{1000}, (std::size_t{70} << 20) / sizeof(float)}) {
    CAPTURE(elements);
    for (int round = 0; round < 2; ++round) {  // the second allocation may get the memory that the first returned
      const Buffer pinned = device->allocate(elements * sizeof(float), MemorySpace::pinned);
      auto* const values = reinterpret_cast<float*>(pinned.data());
      REQUIRE(std::all_of(values, values + elements, [](float value) { return value == 0; }));
      float* const last = values + elements - 1000;
      for (int i = 0; i < 1000; ++i) last[i] = static_cast<float>(i);
      scale(*stream, last, DType::f32, 2, 1000);
      stream->synchronize();
      for (int i = 0; i < 1000; ++i) REQUIRE(last[i] == static_cast<float>(2 * i));
    }
  }
}

TEST_CASE("an allocation beyond the budget or the GPU names bytes, purpose and flag, and allocates nothing") {
  const auto device = make_cuda_device({.budget_bytes = 10000});
  const Buffer first = device->allocate(6000, MemorySpace::device);
  const Error error = error_of([&] { (void)device->allocate(4001, MemorySpace::device); });
  CHECK(error.code() == ErrorCode::memory);
  for (const char* part : {"4001", "5.9 KiB", "9.8 KiB", "`device_memory`"}) CHECK(says(error, part));
  CHECK(device->used_bytes() == 6000);
  CHECK(error_of([&] { (void)device->allocate(SIZE_MAX, MemorySpace::device); }).code() == ErrorCode::memory);

  const auto generous = make_cuda_device({.budget_bytes = std::size_t{1} << 50});
  CHECK(error_of([&] { (void)generous->allocate(std::size_t{1} << 45, MemorySpace::device); }).code() ==
        ErrorCode::memory);
  CHECK(generous->used_bytes() == 0);
  CHECK(generous->allocate(100, MemorySpace::device).data() != nullptr);  // the refusal leaves no pending error
}

TEST_CASE("a buffer may outlive its device") {
  auto device = make_cuda_device({});
  Buffer buffer = device->allocate(100, MemorySpace::device);
  device.reset();
  buffer = Buffer();
  CHECK(buffer.bytes() == 0);
}

TEST_CASE("callbacks run in the order of the calls, each after the work before it") {
  const auto device = make_cuda_device({});
  const auto stream = device->make_stream("ordered", StreamWidth::whole);
  const Buffer counter = device->allocate(sizeof(float), MemorySpace::pinned);
  auto* value = reinterpret_cast<volatile float*>(counter.data());
  const tests::OnDevice<float> one(*stream, {1.0f});
  std::vector<int> order;
  std::vector<float> seen;
  for (int i = 0; i < 500; ++i) {
    add(*stream, counter.data(), one.data(), DType::f32, 1);
    stream->call_back([&, i] {
      order.push_back(i);
      seen.push_back(static_cast<float>(*value));
    });
  }
  stream->synchronize();
  REQUIRE(order.size() == 500);
  for (int i = 0; i < 500; ++i) {
    CHECK(order[static_cast<std::size_t>(i)] == i);
    CHECK(seen[static_cast<std::size_t>(i)] >=
          static_cast<float>(i + 1));  // later work does not wait for callbacks
  }
}

TEST_CASE("a device has one full-width stream at a time") {
  const auto device = make_cuda_device({});
  auto whole = device->make_stream("compute", StreamWidth::whole);
  CHECK(error_of([&] { (void)device->make_stream("second", StreamWidth::whole); }).code() == ErrorCode::internal);
  whole.reset();
  whole = device->make_stream("again", StreamWidth::whole);
  whole->synchronize();
}

TEST_CASE("an event that is not reached yet leaves no pending error for the next launch") {
  const auto device = make_cuda_device({});
  const auto stream = device->make_stream("test", StreamWidth::whole);
  const auto event = device->make_event();
  const Buffer buffer = device->allocate(1000 * sizeof(float), MemorySpace::device);
  scale(*stream, buffer.data(), DType::f32, 2, 1000);
  event->record(*stream);
  while (!event->reached()) scale(*stream, buffer.data(), DType::f32, 2, 1000);
  stream->synchronize();
}

TEST_CASE("an exception in a callback is reported once and drops later callbacks") {
  const auto device = make_cuda_device({});
  std::atomic<int> handled{0}, ran{0};
  device->on_failure([&](std::exception_ptr) { ++handled; });
  const auto stream = device->make_stream("failing", StreamWidth::one);
  const auto event = device->make_event();
  stream->call_back([] { fail(ErrorCode::numeric, "has had enough"); });
  CHECK_THROWS_WITH(stream->synchronize(), "has had enough");
  stream->call_back([&] { ++ran; });
  stream->call_back([] { throw std::runtime_error("too late to matter"); });
  event->record(*stream);
  CHECK(event->reached());
  CHECK_THROWS_WITH(stream->synchronize(), "has had enough");
  CHECK(ran == 0);
  CHECK(handled == 1);
}

TEST_CASE("host work, and streams and events of other devices, are refused") {
  const auto gpu = make_cuda_device({});
  const auto immediate = make_inline_device();
  const auto of_gpu = gpu->make_stream("cuda", StreamWidth::one);
  const auto of_inline = immediate->make_stream("inline", StreamWidth::one);
  CHECK(error_of([&] { of_gpu->launch([](ComputePool&) {}); }).code() == ErrorCode::internal);
  CHECK(error_of([&] { of_gpu->wait(*immediate->make_event()); }).code() == ErrorCode::internal);
  CHECK(error_of([&] { of_inline->wait(*gpu->make_event()); }).code() == ErrorCode::internal);
  CHECK(error_of([&] { gpu->make_event()->record(*of_inline); }).code() == ErrorCode::internal);
  CHECK(error_of([&] { immediate->make_event()->record(*of_gpu); }).code() == ErrorCode::internal);
}

TEST_CASE("a missing GPU is refused with the number of available ones") {
  const int count = cuda_device_count();
  CHECK(count >= 1);
  CHECK(error_of([&] { (void)make_cuda_device({.ordinal = count}); }).code() == ErrorCode::device);
  CHECK(error_of([] { (void)make_cuda_device({.ordinal = -1}); }).code() == ErrorCode::device);
}

TEST_CASE("repeated work is replayed without calling its function, on the memory that its key denotes") {
  const auto device = make_cuda_device({});
  const auto stream = device->make_stream("test", StreamWidth::whole);
  const Buffer first = device->allocate(1000 * sizeof(float), MemorySpace::pinned);
  const Buffer second = device->allocate(1000 * sizeof(float), MemorySpace::pinned);
  int calls = 0;
  const auto triple = [&](const Buffer& buffer) {
    auto* values = reinterpret_cast<float*>(buffer.data());
    const std::uint64_t key[] = {reinterpret_cast<std::uintptr_t>(values)};
    stream->repeat(key, [&] {
      ++calls;
      scale(*stream, values, DType::f32, 6, 1000);
      scale(*stream, values, DType::f32, 0.5f, 1000);
    });
  };
  for (const Buffer* buffer : {&first, &second}) reinterpret_cast<float*>(buffer->data())[999] = 1;
  for (int round = 0; round < 5; ++round) triple(first);
  triple(second);
  stream->synchronize();
  CHECK(reinterpret_cast<float*>(first.data())[999] == 243);
  CHECK(reinterpret_cast<float*>(second.data())[999] == 3);
  CHECK(calls == 3);  // once, once for the capture, and once for the other memory
  const GraphStats graph_stats = stream->graph_stats();
  CHECK(graph_stats.kept == 1);
  CHECK(graph_stats.replayed == 4);
  CHECK(graph_stats.queued == 2);
  CHECK(graph_stats.refused == "");
}

TEST_CASE("work that cannot be captured is queued, and the stream reports the reason") {
  const auto device = make_cuda_device({});
  const auto stream = device->make_stream("test", StreamWidth::whole);
  const Buffer buffer = device->allocate(sizeof(float), MemorySpace::pinned);
  auto* value = reinterpret_cast<float*>(buffer.data());
  *value = 1;
  int calls = 0;
  const std::uint64_t key[] = {7};
  for (int round = 0; round < 4; ++round) {
    stream->repeat(key, [&] {
      if (++calls == 2) throw std::runtime_error("not while I am captured");
      scale(*stream, value, DType::f32, 2, 1);
    });
  }
  stream->synchronize();
  CHECK(*value == 16);
  CHECK(stream->graph_stats().kept == 0);
  CHECK(stream->graph_stats().refused == "not while I am captured");
}

TEST_CASE("an error that is unrelated to the capture is still reported") {
  const auto device = make_cuda_device({});
  const auto stream = device->make_stream("test", StreamWidth::whole);
  const std::uint64_t key[] = {7};
  stream->repeat(key, [] {});
  CHECK_THROWS_WITH(stream->repeat(key, [] { throw std::runtime_error("out of luck"); }), "out of luck");
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
