// Devices whose work runs on the host; device_test.cpp has the contract of all devices.
#include "runtime/device/device.hpp"
#include "runtime/host/compute_pool.hpp"
#include "tests/test.hpp"

#include <atomic>
#include <chrono>
#include <latch>
#include <thread>

#include <sys/mman.h>

using namespace ranvier;
using namespace ranvier::runtime;

namespace {

std::vector<std::unique_ptr<Device>> devices(const CpuDeviceOptions& options = {.threads = 2}) {
  std::vector<std::unique_ptr<Device>> all;
  all.push_back(make_cpu_device(options));
  all.push_back(make_inline_device(options));
  return all;
}

}  // namespace

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

TEST_CASE("the failure of any thread drops later work of its stream, and of streams that wait for it") {
  for (const auto& device : devices()) {
    CAPTURE(device->description());
    std::atomic<int> handled{0};
    device->on_failure([&](std::exception_ptr) { ++handled; });
    const auto failing = device->make_stream("failing", StreamWidth::whole);
    const auto other = device->make_stream("other", StreamWidth::one);
    const auto event = device->make_event();
    std::atomic<int> ran{0};
    failing->launch([&](ComputePool& pool) {
      pool.run([](int thread, int) {
        if (thread == 1) fail(ErrorCode::numeric, "thread 1 has had enough");
      });
    });
    failing->launch([&](ComputePool&) { ++ran; });
    event->record(*failing);
    other->wait(*event);
    other->launch([&](ComputePool&) { ++ran; });
    other->launch([](ComputePool&) { throw std::runtime_error("too late to matter"); });
    CHECK_THROWS_WITH(failing->synchronize(), "thread 1 has had enough");
    CHECK_THROWS_WITH(other->synchronize(), "thread 1 has had enough");
    CHECK(ran == 0);
    CHECK(handled == 1);
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
