#include "runtime/base/error.hpp"
#include "runtime/simulation/simulation.hpp"
#include "tests/test.hpp"
#include "tests/words.hpp"

#include <stdexcept>
#include <thread>

using namespace ranvier::runtime;
using ranvier::tests::check_has;
using ranvier::tests::check_lacks;
using ranvier::tests::error_of;
using namespace std::chrono_literals;

namespace {

template <typename T>
Bytes bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

constexpr Tag tag(std::uint32_t index) { return {Channel::user, index}; }

void nothing() {}

/// Sends `messages` numbers from rank 0 to rank 1 under one tag, and as many under separate tags.
std::vector<int> order_of_arrival(std::uint64_t seed) {
  constexpr int messages = 8;
  Simulation simulation(2, {.seed = seed});
  std::array<int, messages> numbers{}, same_tag{}, own_tag{};
  std::iota(numbers.begin(), numbers.end(), 0);
  std::vector<int> arrived;
  int left = 2 * messages;
  for (int i = 0; i < messages; ++i) {
    simulation.transport(0).send(1, tag(100), bytes_of(numbers[i]), nothing);
    simulation.transport(0).send(1, tag(i), bytes_of(numbers[i]), nothing);
    const auto done = [&, i] {
      arrived.push_back(own_tag[i]);
      if (--left == 0) simulation.loop(1).stop();
    };
    simulation.transport(1).receive(0, tag(100), bytes_of(same_tag[i]), [&] {
      if (--left == 0) simulation.loop(1).stop();
    });
    simulation.transport(1).receive(0, tag(i), bytes_of(own_tag[i]), done);
  }
  simulation.loop(0).stop();
  simulation.run();
  CHECK(same_tag == numbers);
  CHECK(own_tag == numbers);
  return arrived;
}

}  // namespace

TEST_CASE("messages of one tag stay in order, others overtake, and a seed repeats its order") {
  std::set<std::vector<int>> orders;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const auto order = order_of_arrival(seed);
    CHECK(order == order_of_arrival(seed));
    orders.insert(order);
  }
  CHECK(orders.size() > 40);
}

TEST_CASE("simulated handlers of one loop run in the order of their posts while virtual time passes") {
  Simulation simulation(1, {.seed = 3});
  std::vector<int> seen;
  for (int i = 0; i < 20; ++i) simulation.loop(0).post([&, i] { seen.push_back(i); });
  simulation.loop(0).after(5ms, [&] {
    CHECK(simulation.loop(0).now() >= 5ms);
    simulation.loop(0).stop();
  });
  simulation.run();
  std::vector<int> expected(20);
  std::iota(expected.begin(), expected.end(), 0);
  CHECK(seen == expected);
  CHECK(simulation.handlers_run() == 21);
}

TEST_CASE("several ranges make one message, of any length and also to the sender itself") {
  for (const std::size_t length : {0, 1, 1000}) {
    Simulation simulation(1, {.seed = length});
    std::vector<std::byte> from(3 * length), to(3 * length);
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7);
    const std::array<ConstBytes, 2> out = {ConstBytes(from).first(length), ConstBytes(from).subspan(length)};
    const std::array<Bytes, 3> in = {Bytes(to).first(2 * length), Bytes(to).subspan(2 * length), Bytes()};
    int done = 0;
    simulation.transport(0).send(0, tag(1), out, [&] { ++done; });
    simulation.transport(0).receive(0, tag(1), in, [&] {
      ++done;
      simulation.loop(0).after(1s, [&] { simulation.loop(0).stop(); });
    });
    CHECK(done == 0);
    simulation.run();
    CHECK(done == 2);
    CHECK(to == from);
  }
}

TEST_CASE("reusing a send buffer before its completion is detected") {
  int wrong = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Simulation simulation(2, {.seed = seed});
    int sent = 1, received = 0;
    simulation.transport(0).send(1, tag(0), bytes_of(sent), nothing);
    simulation.loop(0).post([&] { sent = 2; });
    simulation.transport(1).receive(0, tag(0), bytes_of(received), [&] { simulation.loop(1).stop(); });
    simulation.loop(0).after(1ms, [&] { simulation.loop(0).stop(); });
    simulation.run();
    wrong += received != 1;
  }
  CHECK(wrong > 0);
}

TEST_CASE("a receive buffer holds noise until its completion") {
  Simulation simulation(1, {});
  int received = 5;
  simulation.transport(0).receive(0, tag(0), bytes_of(received), nothing);
  CHECK(received != 5);
}

TEST_CASE("sends complete before their receive with some seeds and after it with others") {
  int before = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Simulation simulation(2, {.seed = seed});
    int sent = 1, received = 0;
    bool complete = false;
    simulation.transport(0).send(1, tag(0), bytes_of(sent), [&] {
      complete = true;
      simulation.loop(0).stop();
    });
    simulation.loop(1).after(10ms, [&] {
      before += complete;
      simulation.transport(1).receive(0, tag(0), bytes_of(received), [&] { simulation.loop(1).stop(); });
    });
    simulation.run();
    CHECK(received == 1);
  }
  CHECK(before > 5);
  CHECK(before < 45);
}

TEST_CASE("a message whose length differs from its receive's names both lengths, peer and tag") {
  Simulation simulation(2, {});
  std::array<std::byte, 8> from{}, to{};
  simulation.transport(0).send(1, tag(9), from, nothing);
  simulation.transport(1).receive(0, tag(9), Bytes(to).first(4), nothing);
  const std::string message = error_of([&] { simulation.run(); }).what();
  check_has(message, {"rank 1", "from rank 0", "user 9", "8 bytes instead of 4"});
}

TEST_CASE("a deadlock lists which rank waits for which, even if timers continue") {
  for (const bool timers : {false, true}) {
    Simulation simulation(3, {});
    int value = 0;
    simulation.transport(0).receive(1, tag(4), bytes_of(value), nothing);
    CHECK(simulation.transport(0).pending().size() == 1);
    simulation.loop(2).stop();
    std::function<void()> tick = [&] { simulation.loop(1).after(1s, tick); };
    if (timers) tick();
    const std::string message = error_of([&] { simulation.run(); }).what();
    check_has(message, {"rank 0: receive from rank 1, user 4, 4 bytes", "rank 1: no operation is pending"});
    check_lacks(message, {"rank 2:"});
  }
}

TEST_CASE("exceptions of handlers and the error passed to stop propagate out of run") {
  Simulation simulation(2, {});
  simulation.loop(0).post([] { throw std::runtime_error("thrown"); });
  CHECK_THROWS_WITH(simulation.run(), "thrown");
  simulation.loop(1).post([&] { simulation.loop(1).stop(std::make_exception_ptr(std::runtime_error("stopped"))); });
  CHECK_THROWS_WITH(simulation.run(), "stopped");
}

TEST_CASE("a simulation refuses other threads and poll sources") {
  Simulation simulation(1, {});
  std::jthread([&] {
    CHECK_THROWS_WITH_AS(simulation.loop(0).post(nothing), doctest::Contains("another thread"), ranvier::Error);
  }).join();
  struct : PollSource {
    bool poll() override { return false; }
    [[nodiscard]] bool active() const noexcept override { return false; }
  } source;
  CHECK_THROWS_AS(simulation.loop(0).add_source(source), ranvier::Error);
}
