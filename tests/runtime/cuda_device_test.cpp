// The contract of a device, for a GPU: what device_test.cpp says of those that run work of the host's.
#include "runtime/compute_pool.hpp"
#include "runtime/device.hpp"
#include "tests/device_under_test.hpp"
#include "tests/errors.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace ranvier;
using namespace ranvier::runtime;
using ranvier::tests::error_of;
using ranvier::tests::says;

namespace {

constexpr std::size_t large = std::size_t{64} << 20;  // elements: a pass over them outlasts the calls that follow

std::vector<std::uint8_t> read(Stream& stream, const Buffer& buffer) {
  std::vector<std::uint8_t> bytes(buffer.bytes());
  copy(stream, bytes.data(), buffer.data(), bytes.size());
  stream.synchronize();
  return bytes;
}

}  // namespace

TEST_CASE("device memory is zeroed, aligned to pages and counted against the budget until it goes") {
  const auto device = make_cuda_device({.budget_bytes = std::size_t{8} << 20});
  const auto stream = device->make_stream("test", StreamWidth::one);
  for (int round = 0; round < 2; ++round) {  // the second gets memory that was written
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

TEST_CASE("host and pinned memory are zeroed, not counted, and the host's to read and write") {
  const auto device = make_cuda_device({});
  for (const MemorySpace space : {MemorySpace::pinned, MemorySpace::host}) {
    const Buffer buffer = device->allocate(10000, space);
    CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % 4096 == 0);
    for (std::size_t i = 0; i < buffer.bytes(); ++i) REQUIRE(buffer.data()[i] == std::byte{0});
    buffer.data()[9999] = std::byte{1};
  }
  CHECK(device->used_bytes() == 0);
}

TEST_CASE("a kernel reads and writes pinned memory") {
  const auto device = make_cuda_device({});
  const auto stream = device->make_stream("test", StreamWidth::whole);
  const Buffer pinned = device->allocate(1000 * sizeof(float), MemorySpace::pinned);
  auto* values = reinterpret_cast<float*>(pinned.data());
  for (int i = 0; i < 1000; ++i) values[i] = static_cast<float>(i);
  scale(*stream, values, DType::f32, 2, 1000);
  stream->synchronize();
  for (int i = 0; i < 1000; ++i) REQUIRE(values[i] == static_cast<float>(2 * i));
}

TEST_CASE("an allocation beyond the budget or the GPU names bytes, use and flag, and takes nothing") {
  const auto device = make_cuda_device({.budget_bytes = 10000});
  const Buffer first = device->allocate(6000, MemorySpace::device);
  const Error error = error_of([&] { (void)device->allocate(4001, MemorySpace::device); });
  CHECK(error.code() == ErrorCode::memory);
  for (const char* part : {"4001", "5.9 KiB", "9.8 KiB", "--device-memory"}) CHECK(says(error, part));
  CHECK(device->used_bytes() == 6000);
  CHECK(error_of([&] { (void)device->allocate(SIZE_MAX, MemorySpace::device); }).code() == ErrorCode::memory);

  const auto generous = make_cuda_device({.budget_bytes = std::size_t{1} << 50});
  CHECK(error_of([&] { (void)generous->allocate(std::size_t{1} << 45, MemorySpace::device); }).code() ==
        ErrorCode::memory);
  CHECK(generous->used_bytes() == 0);
  CHECK(generous->allocate(100, MemorySpace::device).data() != nullptr);  // the refusal leaves no error behind
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
    CHECK(seen[static_cast<std::size_t>(i)] >= static_cast<float>(i + 1));  // later work does not wait for callbacks
  }
}

TEST_CASE("a stream that waits for an event starts after the recorded work") {
  const auto device = make_cuda_device({});
  const auto first = device->make_stream("first", StreamWidth::whole);
  const auto second = device->make_stream("second", StreamWidth::one);
  const auto event = device->make_event();
  CHECK(event->reached());
  second->wait(*event);  // nothing recorded: no wait
  second->synchronize();
  const Buffer numbers = device->allocate(large * sizeof(float), MemorySpace::device);
  const Buffer last = device->allocate(sizeof(float), MemorySpace::pinned);
  auto* values = reinterpret_cast<float*>(numbers.data());
  const tests::OnDevice<float> one(*first, {1.0f});
  for (int round = 1; round <= 20; ++round) {
    scale(*first, values, DType::f32, 1, large);  // takes its time
    add(*first, values + large - 1, one.data(), DType::f32, 1);
    event->record(*first);
    second->wait(*event);
    copy(*second, last.data(), values + large - 1, sizeof(float));
    event->record(*second);
    first->wait(*event);
    second->synchronize();
    CHECK(event->reached());
    CHECK(*reinterpret_cast<float*>(last.data()) == static_cast<float>(round));
  }
}

TEST_CASE("an event is not reached before its work is done, and calls do not wait for it") {
  const auto device = make_cuda_device({});
  const auto stream = device->make_stream("busy", StreamWidth::whole);
  const auto event = device->make_event();
  const Buffer numbers = device->allocate(large * sizeof(float), MemorySpace::device);
  for (int i = 0; i < 200; ++i) scale(*stream, numbers.data(), DType::f32, 1, large);
  event->record(*stream);
  CHECK_FALSE(event->reached());
  while (!event->reached()) std::this_thread::yield();
  stream->synchronize();
}

TEST_CASE("a device has one whole stream at a time") {
  const auto device = make_cuda_device({});
  auto whole = device->make_stream("compute", StreamWidth::whole);
  CHECK(error_of([&] { (void)device->make_stream("second", StreamWidth::whole); }).code() == ErrorCode::internal);
  whole.reset();
  whole = device->make_stream("again", StreamWidth::whole);
  whole->synchronize();
}

TEST_CASE("an exception in a callback is handed over once and drops later callbacks") {
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

TEST_CASE("work of the host's, and streams and events of other devices, are refused") {
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

TEST_CASE("a GPU that is not there is refused with the number of those that are") {
  const int count = cuda_device_count();
  CHECK(count >= 1);
  CHECK(error_of([&] { (void)make_cuda_device({.ordinal = count}); }).code() == ErrorCode::device);
  CHECK(error_of([] { (void)make_cuda_device({.ordinal = -1}); }).code() == ErrorCode::device);
}
