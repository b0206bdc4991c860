// The contract of a device, for every kind that needs no GPU.
#include "runtime/device/device.hpp"
#include "runtime/host/compute_pool.hpp"
#include "runtime/kernels/elementwise.hpp"
#include "tests/test.hpp"

#include <atomic>
#include <chrono>
#include <latch>
#include <thread>

#include <sys/mman.h>

using namespace ranvier;
using namespace ranvier::runtime;
using namespace ranvier::tests;

namespace {

std::vector<std::unique_ptr<Device>> devices(const CpuDeviceOptions& options = {.threads = 2}) {
  std::vector<std::unique_ptr<Device>> all;
  all.push_back(make_cpu_device(options));
  all.push_back(make_inline_device(options));
  return all;
}

}  // namespace

TEST_CASE("memory is zeroed, aligned to pages and counted against the budget until it is freed") {
  for (const auto& device : devices({.threads = 1, .budget_bytes = std::size_t{8} << 20})) {
    CAPTURE(device->description());
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{4097}, (std::size_t{5} << 20) + 3}) {
      CAPTURE(bytes);
      Buffer buffer = device->allocate(bytes, MemorySpace::device);
      CHECK(device->used_bytes() == bytes);
      CHECK(buffer.bytes() == bytes);
      const std::size_t alignment = bytes >= (std::size_t{2} << 20) ? std::size_t{2} << 20 : 4096;
      CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % alignment == 0);
      std::size_t nonzero = 0;
      for (std::size_t i = 0; i < bytes; ++i) nonzero += buffer.data()[i] != std::byte{0};
      CHECK(nonzero == 0);
      std::memset(buffer.data(), 1, bytes);
      Buffer moved = std::move(buffer);
      CHECK(buffer.data() == nullptr);
      CHECK(device->used_bytes() == bytes);
    }
    CHECK(device->used_bytes() == 0);
    CHECK(device->allocate(0, MemorySpace::device).data() == nullptr);
    const Buffer host = device->allocate(std::size_t{32} << 20, MemorySpace::host);
    const Buffer pinned = device->allocate(100, MemorySpace::pinned);
    CHECK(device->used_bytes() == 0);
  }
}

TEST_CASE("all pages of large pinned memory are allocated and zeroed by the allocation") {
  constexpr std::size_t page_bytes = 4096;
  for (const auto& device : devices()) {
    const Buffer buffer = device->allocate((std::size_t{130} << 20) + 5, MemorySpace::pinned);
    std::vector<unsigned char> in_memory((buffer.bytes() + page_bytes - 1) / page_bytes);
    REQUIRE(mincore(buffer.data(), buffer.bytes(), in_memory.data()) == 0);
    CHECK(std::all_of(in_memory.begin(), in_memory.end(), [](unsigned char page) { return (page & 1) != 0; }));
    CHECK(
        std::all_of(buffer.data(), buffer.data() + buffer.bytes(), [](std::byte b) { return b == std::byte{0}; }));
  }
}

TEST_CASE("a buffer may outlive its device") {
  for (auto& device : devices()) {
    Buffer buffer = device->allocate(100, MemorySpace::device);
    device.reset();
    buffer.data()[99] = std::byte{1};
    buffer = Buffer();
    CHECK(buffer.bytes() == 0);
  }
}

TEST_CASE("an allocation beyond the budget names bytes, purpose, budget and flag, and allocates nothing") {
  for (const auto& device : devices({.threads = 1, .budget_bytes = 10000})) {
    const Buffer first = device->allocate(6000, MemorySpace::device);
    const Error error = error_of([&] { (void)device->allocate(4001, MemorySpace::device); });
    CHECK(error.code() == ErrorCode::memory);
    for (const char* part : {"4001", "5.9 KiB", "9.8 KiB", "`device_memory`"}) CHECK(says(error, part));
    CHECK(device->used_bytes() == 6000);
    const Buffer rest = device->allocate(4000, MemorySpace::device);
    CHECK(device->used_bytes() == 10000);
    CHECK(error_of([&] { (void)device->allocate(SIZE_MAX, MemorySpace::device); }).code() == ErrorCode::memory);
    CHECK(error_of([&] { (void)device->allocate(SIZE_MAX, MemorySpace::host); }).code() == ErrorCode::memory);
  }
}

TEST_CASE("work and callbacks of a stream run in the order of the calls") {
  for (const auto& device : devices()) {
    const auto stream = device->make_stream("ordered", StreamWidth::one);
    std::vector<int> order;
    for (int i = 0; i < 1000; ++i) {
      if (i % 3 == 0)
        stream->call_back([&order, i] { order.push_back(i); });
      else
        stream->launch([&order, i](ComputePool&) { order.push_back(i); });
    }
    stream->synchronize();
    REQUIRE(order.size() == 1000);
    for (int i = 0; i < 1000; ++i) CHECK(order[static_cast<std::size_t>(i)] == i);
  }
}

TEST_CASE("the full-width stream computes with all threads of the device, a narrow one with one") {
  for (const auto& device : devices({.threads = 2})) {
    const auto whole = device->make_stream("whole", StreamWidth::whole);
    const auto narrow = device->make_stream("narrow", StreamWidth::one);
    std::atomic<int> of_whole{0}, of_narrow{0};
    whole->launch([&](ComputePool& pool) { pool.run([&](int, int) { ++of_whole; }); });
    narrow->launch([&](ComputePool& pool) { pool.run([&](int, int) { ++of_narrow; }); });
    whole->synchronize();
    narrow->synchronize();
    CHECK(of_whole == 2);
    CHECK(of_narrow == 1);
    CHECK(device->threads() == 2);
  }
}

TEST_CASE("a device has one full-width stream at a time") {
  for (const auto& device : devices()) {
    auto whole = device->make_stream("compute", StreamWidth::whole);
    CHECK(error_of([&] { (void)device->make_stream("second", StreamWidth::whole); }).code() == ErrorCode::internal);
    whole.reset();
    whole = device->make_stream("again", StreamWidth::whole);
    whole->synchronize();
  }
}

TEST_CASE("a stream that waits for an event starts after the recorded work") {
  for (const auto& device : devices()) {
    const auto first = device->make_stream("first", StreamWidth::one);
    const auto second = device->make_stream("second", StreamWidth::one);
    const auto event = device->make_event();
    CHECK(event->reached());
    second->wait(*event);  // nothing recorded: no wait
    second->synchronize();
    int value = 0;
    std::vector<int> seen;
    for (int round = 0; round < 100; ++round) {
      first->launch([&value](ComputePool&) {
        if (value % 10 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
        ++value;
      });
      event->record(*first);
      second->wait(*event);
      second->launch([&](ComputePool&) { seen.push_back(value); });
      event->record(*second);
      first->wait(*event);
    }
    second->synchronize();
    CHECK(event->reached());
    REQUIRE(seen.size() == 100);
    for (int round = 0; round < 100; ++round) CHECK(seen[static_cast<std::size_t>(round)] == round + 1);
  }
}

TEST_CASE("a wait is for the record before it, regardless of later records elsewhere") {
  const auto device = make_cpu_device({});
  const auto slow = device->make_stream("slow", StreamWidth::one);
  const auto quick = device->make_stream("quick", StreamWidth::one);
  const auto waiter = device->make_stream("waiter", StreamWidth::one);
  const auto event = device->make_event();
  std::latch gate(1);
  std::atomic<bool> slow_done{false};
  bool seen = false;
  slow->launch([&](ComputePool&) {
    gate.wait();
    slow_done = true;
  });
  event->record(*slow);
  CHECK_FALSE(event->reached());
  waiter->wait(*event);
  waiter->launch([&](ComputePool&) { seen = slow_done; });
  event->record(*quick);
  quick->synchronize();
  CHECK(event->reached());
  gate.count_down();
  waiter->synchronize();
  CHECK(seen);
}

TEST_CASE("the streams of the cpu device run concurrently with each other and with their caller") {
  const auto device = make_cpu_device({});
  const auto left = device->make_stream("left", StreamWidth::one);
  const auto right = device->make_stream("right", StreamWidth::one);
  std::latch meeting(3);  // a queue that ran sequentially, or inside the call, would block here
  left->launch([&](ComputePool&) { meeting.arrive_and_wait(); });
  right->launch([&](ComputePool&) { meeting.arrive_and_wait(); });
  meeting.arrive_and_wait();
  left->synchronize();
  right->synchronize();
}

TEST_CASE("the first failure is reported once, drops later work and leaves no waiter blocked") {
  for (const auto& device : devices()) {
    CAPTURE(device->description());
    std::atomic<int> handled{0};
    std::string message;
    device->on_failure([&](std::exception_ptr error) {
      ++handled;
      try {
        std::rethrow_exception(error);
      } catch (const std::exception& exception) {
        message = exception.what();
      }
    });
    auto failing = device->make_stream("failing", StreamWidth::whole);
    auto other = device->make_stream("other", StreamWidth::one);
    const auto event = device->make_event();
    std::atomic<int> ran{0};
    failing->launch([&](ComputePool& pool) {
      pool.run([](int thread, int) {
        if (thread == 1) fail(ErrorCode::numeric, "thread 1 has had enough");
      });
    });
    failing->launch([&](ComputePool&) { ++ran; });
    failing->call_back([&] { ++ran; });
    event->record(*failing);
    other->wait(*event);
    other->launch([&](ComputePool&) { ++ran; });
    other->launch([](ComputePool&) { throw std::runtime_error("too late to matter"); });
    CHECK_THROWS_WITH(failing->synchronize(), "thread 1 has had enough");
    CHECK_THROWS_WITH(other->synchronize(), "thread 1 has had enough");
    CHECK(event->reached());
    CHECK(ran == 0);
    CHECK(handled == 1);
    CHECK(message == "thread 1 has had enough");
    other->wait(*event);
    other.reset();
    failing.reset();
  }
}

TEST_CASE("a failure before a handler is set is reported when the handler is set") {
  for (const auto& device : devices()) {
    const auto stream = device->make_stream("early", StreamWidth::one);
    stream->launch([](ComputePool&) { fail(ErrorCode::device, "at once"); });
    CHECK_THROWS_AS(stream->synchronize(), Error);
    int handled = 0;
    device->on_failure([&](std::exception_ptr) { ++handled; });
    CHECK(handled == 1);
  }
}

TEST_CASE("a destroyed stream first completes its queued work, waits for other streams included") {
  for (const auto& device : devices()) {
    int ran = 0;
    {
      const auto event = device->make_event();
      const auto late = device->make_stream("late", StreamWidth::one);
      const auto early = device->make_stream("early", StreamWidth::one);
      late->launch([&](ComputePool&) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
      for (int i = 0; i < 100; ++i) late->launch([&](ComputePool&) { ++ran; });
      event->record(*late);
      early->wait(*event);
      early->launch([&](ComputePool&) { ran *= 2; });
    }
    CHECK(ran == 200);
  }
}

TEST_CASE("streams and events of another kind of device are refused") {
  const auto cpu = make_cpu_device({});
  const auto immediate = make_inline_device();
  const auto of_cpu = cpu->make_stream("cpu", StreamWidth::one);
  const auto of_inline = immediate->make_stream("inline", StreamWidth::one);
  CHECK(error_of([&] { of_cpu->wait(*immediate->make_event()); }).code() == ErrorCode::internal);
  CHECK(error_of([&] { of_inline->wait(*cpu->make_event()); }).code() == ErrorCode::internal);
  CHECK(error_of([&] { cpu->make_event()->record(*of_inline); }).code() == ErrorCode::internal);
  CHECK(error_of([&] { immediate->make_event()->record(*of_cpu); }).code() == ErrorCode::internal);
}
