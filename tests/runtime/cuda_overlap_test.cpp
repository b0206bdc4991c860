// Behavior that only a real GPU has, whose work continues after calls return.
#include "runtime/device/device.hpp"
#include "runtime/kernels/elementwise.hpp"
#include "tests/device_under_test.hpp"
#include "tests/test.hpp"

#include <thread>

using namespace ranvier;
using namespace ranvier::runtime;

namespace {

constexpr std::size_t large = std::size_t{64} << 20;  // elements: a pass over them outlasts the calls that follow

}  // namespace

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
    scale(*first, values, DType::f32, 1, large);  // takes a while
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
