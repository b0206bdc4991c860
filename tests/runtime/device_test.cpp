// The contract of a device, for every kind.
#include "runtime/base/error.hpp"
#include "runtime/device/device.hpp"
#include "tests/device_under_test.hpp"
#include "tests/test.hpp"

#include <atomic>
#include <stdexcept>

using namespace ranvier;
using namespace ranvier::runtime;
using namespace ranvier::tests;

namespace {

/// A GPU, or each of the devices whose work runs on the host.
std::vector<std::unique_ptr<Device>> devices(const CpuDeviceOptions& options = {}) {
  std::vector<std::unique_ptr<Device>> all;
  all.push_back(make_device(options));
  if (all[0]->kind() == DeviceKind::inline_) all.push_back(make_cpu_device(options));
  return all;
}

std::vector<std::uint8_t> read(Stream& stream, const Buffer& buffer) {
  std::vector<std::uint8_t> bytes(buffer.bytes());
  copy(stream, bytes.data(), buffer.data(), bytes.size());
  stream.synchronize();
  return bytes;
}

}  // namespace

TEST_CASE("device memory is zeroed, aligned to pages and counted against the budget until it is freed") {
  constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;
  for (const auto& device : devices({.budget_bytes = std::size_t{8} << 20})) {
    CAPTURE(device->description());
    const auto stream = device->make_stream("test", StreamWidth::one);
    for (int round = 0; round < 2; ++round) {  // the second allocation may get memory that was written
      for (const std::size_t bytes : {std::size_t{1}, std::size_t{4097}, (std::size_t{5} << 20) + 3}) {
        CAPTURE(bytes);
        Buffer buffer = device->allocate(bytes, MemorySpace::device);
        CHECK(device->used_bytes() == bytes);
        CHECK(buffer.bytes() == bytes);
        const std::size_t alignment = bytes >= huge_page_bytes && !device->apart() ? huge_page_bytes : 4096;
        CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % alignment == 0);
        CHECK(read(*stream, buffer) == std::vector<std::uint8_t>(bytes));
        const std::vector<std::uint8_t> written(bytes, 7);
        copy(*stream, buffer.data(), written.data(), bytes);
        stream->synchronize();
        const Buffer moved = std::move(buffer);
        CHECK(buffer.data() == nullptr);  // NOLINT(bugprone-use-after-move): that it is empty
        CHECK(device->used_bytes() == bytes);
      }
    }
    CHECK(device->used_bytes() == 0);
    CHECK(device->allocate(0, MemorySpace::device).data() == nullptr);
  }
}

TEST_CASE("host and pinned memory are zeroed, not counted, and accessible to the host") {
  for (const auto& device : devices())
    for (const MemorySpace space : {MemorySpace::pinned, MemorySpace::host})
      for (const std::size_t bytes : {std::size_t{10000}, std::size_t{32} << 20}) {
        const Buffer buffer = device->allocate(bytes, space);
        CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % 4096 == 0);
        CHECK(std::all_of(buffer.data(), buffer.data() + bytes, [](std::byte b) { return b == std::byte{0}; }));
        buffer.data()[bytes - 1] = std::byte{1};
        CHECK(device->used_bytes() == 0);
      }
}

TEST_CASE("a buffer may outlive its device") {
  for (auto& device : devices()) {
    Buffer buffer = device->allocate(100, MemorySpace::device);
    const bool reached = device->host_reaches(buffer.data());
    device.reset();
    if (reached) buffer.data()[99] = std::byte{1};
    buffer = Buffer();
    CHECK(buffer.bytes() == 0);
  }
}

TEST_CASE("an allocation beyond the budget names bytes, purpose, budget and flag, and allocates nothing") {
  for (const auto& device : devices({.budget_bytes = 10000})) {
    const Buffer first = device->allocate(6000, MemorySpace::device);
    const Error error = error_of([&] { (void)device->allocate(4001, MemorySpace::device); });
    CHECK(error.code() == ErrorCode::memory);
    for (const char* part : {"4001", "5.9 KiB", "9.8 KiB", "`device_memory`"}) CHECK(says(error, part));
    CHECK(device->used_bytes() == 6000);
    const Buffer rest = device->allocate(4000, MemorySpace::device);
    CHECK(device->used_bytes() == 10000);
    for (const MemorySpace space : {MemorySpace::device, MemorySpace::host})
      CHECK(error_of([&] { (void)device->allocate(SIZE_MAX, space); }).code() == ErrorCode::memory);
  }
}

TEST_CASE("callbacks run in the order of the calls, each after the work before it") {
  for (const auto& device : devices()) {
    const auto stream = device->make_stream("ordered", StreamWidth::whole);
    const Buffer counter = device->allocate(sizeof(float), MemorySpace::pinned);
    const auto* const value = reinterpret_cast<const volatile float*>(counter.data());
    const OnDevice<float> one(*stream, {1.0f});
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
      const float now = seen[static_cast<std::size_t>(i)], then = static_cast<float>(i + 1);
      CHECK(order[static_cast<std::size_t>(i)] == i);
      CHECK((device->apart() ? now >= then : now == then));  // later work of a GPU does not wait for callbacks
    }
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

TEST_CASE("the first failure is reported once, drops later callbacks and leaves no waiter blocked") {
  for (const auto& device : devices()) {
    CAPTURE(device->description());
    std::atomic<int> handled{0}, ran{0};
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
    failing->call_back([] { fail(ErrorCode::numeric, "has had enough"); });
    failing->call_back([&] { ++ran; });
    event->record(*failing);
    other->wait(*event);
    CHECK_THROWS_WITH(failing->synchronize(), "has had enough");
    other->call_back([&] { ++ran; });
    other->call_back([] { throw std::runtime_error("too late to matter"); });
    CHECK_THROWS_WITH(other->synchronize(), "has had enough");
    CHECK(event->reached());
    CHECK(ran == 0);
    CHECK(handled == 1);
    CHECK(message == "has had enough");
    event->record(*failing);
    other->wait(*event);
    other.reset();
    failing.reset();
  }
}

TEST_CASE("streams and events of another kind of device are refused") {
  for (const auto& device : devices()) {
    const bool is_inline = device->kind() == DeviceKind::inline_;
    const auto foreign = is_inline ? make_cpu_device({}) : make_inline_device();
    const auto here = device->make_stream("here", StreamWidth::one);
    const auto there = foreign->make_stream("there", StreamWidth::one);
    CHECK(error_of([&] { here->wait(*foreign->make_event()); }).code() == ErrorCode::internal);
    CHECK(error_of([&] { there->wait(*device->make_event()); }).code() == ErrorCode::internal);
    CHECK(error_of([&] { device->make_event()->record(*there); }).code() == ErrorCode::internal);
    CHECK(error_of([&] { foreign->make_event()->record(*here); }).code() == ErrorCode::internal);
  }
}
