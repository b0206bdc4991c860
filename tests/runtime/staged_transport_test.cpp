#include "runtime/transport/staged_transport.hpp"

#include "runtime/base/error.hpp"
#include "runtime/simulation/simulation.hpp"
#include "tests/doubles/far_device.hpp"
#include "tests/doubles/forwarding.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::runtime;

namespace {

/// Over a simulated transport; counts messages, and those that touch memory which the host does not reach.
class HostOnly final : public tests::ForwardingTransport {
 public:
  HostOnly(Transport& simulated, const Device& device) : ForwardingTransport(simulated), device_(&device) {}

  void send(int peer, Tag tag, std::span<const ConstBytes> ranges, Handler done) override {
    count(ranges);
    ForwardingTransport::send(peer, tag, ranges, std::move(done));
  }
  void receive(int peer, Tag tag, std::span<const Bytes> ranges, Handler done) override {
    count(ranges);
    ForwardingTransport::receive(peer, tag, ranges, std::move(done));
  }

  int messages = 0;
  int out_of_reach = 0;

 private:
  void count(auto ranges) {
    ++messages;
    for (const auto& range : ranges) out_of_reach += !device_->host_reaches(range.data());
  }

  const Device* device_;
};

struct Rank {
  Rank(Simulation& simulation, int rank, std::size_t piece_bytes)
      : host(simulation.transport(rank), device), transport(simulation.loop(rank), host, device, piece_bytes) {}

  tests::FarDevice device{make_inline_device()};
  HostOnly host;
  StagedTransport transport;
};

std::vector<std::byte> noise(std::size_t bytes, std::mt19937_64& random) {
  std::vector<std::byte> values(bytes);
  for (std::byte& value : values) value = static_cast<std::byte>(random());
  return values;
}

using Direction = StagedMessages::Direction;
using Where = std::function<MemorySpace()>;

/// Sends messages of the given sizes concurrently from one rank to the other, under `tags` tags in turn. Each message
/// has two ranges on either side, which `where` places.
void send_at_a_time(
    Simulation& simulation, Rank& left, Rank& right, const std::vector<std::size_t>& messages, Tag tag,
    std::size_t tags = 1, const Where& where = [] { return MemorySpace::device; }) {
  std::mt19937_64 random(1);
  std::vector<std::vector<std::byte>> sent;
  std::vector<Buffer> from, to;
  std::size_t sends = 0, receives = 0;
  for (std::size_t m = 0; m < messages.size(); ++m) {
    const std::size_t bytes = messages[m];
    sent.push_back(noise(bytes, random));
    from.push_back(left.device.allocate(bytes + 1, where()));
    to.push_back(right.device.allocate(bytes + 1, where()));
    std::copy(sent.back().begin(), sent.back().end(), from.back().data());
    const auto in_two = [&]<typename Range>(Range range) {
      const std::size_t cut = bytes == 0 ? 0 : random() % bytes;
      return std::vector<Range>{range.first(cut), range.subspan(cut)};
    };
    const Tag its{tag.channel, tag.index + static_cast<std::uint32_t>(m % tags)};
    left.transport.send(1, its, in_two(ConstBytes(from.back().data(), bytes)), [&] {
      if (++sends == messages.size()) simulation.loop(0).stop();
    });
    right.transport.receive(0, its, in_two(Bytes(to.back().data(), bytes)), [&] {
      if (++receives == messages.size()) simulation.loop(1).stop();
    });
  }
  simulation.run();
  for (std::size_t m = 0; m < messages.size(); ++m) {
    CAPTURE(m);
    CHECK(std::equal(sent[m].begin(), sent[m].end(), to[m].data()));
  }
}

}  // namespace

TEST_CASE("messages between memory inaccessible to the host arrive in order through staging buffers") {
  for (const std::uint64_t seed : test::seeds(20)) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    constexpr std::size_t piece_bytes = 100;
    Simulation simulation(2, {.seed = seed});
    Rank left(simulation, 0, piece_bytes), right(simulation, 1, piece_bytes);
    std::vector<std::size_t> messages = {0, piece_bytes};
    while (messages.size() < 12) messages.push_back(random() % 450);
    // Host memory occasionally, on either side.
    send_at_a_time(simulation, left, right, messages, {}, 2,
                   [&] { return random() % 3 == 0 ? MemorySpace::host : MemorySpace::device; });
    std::size_t pieces = 0;
    for (const std::size_t bytes : messages)
      pieces += std::max<std::size_t>(1, (bytes + piece_bytes - 1) / piece_bytes);
    for (const Rank* rank : {&left, &right}) {
      CHECK(rank->host.out_of_reach == 0);
      CHECK(rank->host.messages == static_cast<int>(pieces));
    }
  }
}

TEST_CASE("staging memory is reused after messages complete") {
  Simulation simulation(2, {.seed = 1});
  Rank left(simulation, 0, 4096), right(simulation, 1, 4096);
  const Buffer from = left.device.allocate(10000, MemorySpace::device);
  const Buffer to = right.device.allocate(10000, MemorySpace::device);
  std::size_t after_first = 0;
  for (int round = 0; round < 5; ++round) {
    left.transport.send(1, {}, ConstBytes(from.data(), 10000), [&] { simulation.loop(0).stop(); });
    right.transport.receive(0, {}, Bytes(to.data(), 10000), [&] { simulation.loop(1).stop(); });
    simulation.run();
    if (round == 0) after_first = left.transport.staging_bytes();
    CHECK(left.transport.staging_bytes() == after_first);
  }
  CHECK(after_first == 3 * 4096);
  CHECK(right.transport.staging_bytes() == 3 * 4096);
}

TEST_CASE("reserved staging memory is enough for the reserved number of messages in flight, shorter ones too") {
  constexpr std::size_t piece_bytes = 8192;
  for (const std::uint64_t seed : test::seeds(20)) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    Simulation simulation(2, {.seed = seed});
    Rank left(simulation, 0, piece_bytes), right(simulation, 1, piece_bytes);
    left.transport.reserve({Channel::gradient, Direction::send, std::nullopt, 20000, 3});
    right.transport.reserve({Channel::gradient, Direction::receive, std::nullopt, 20000, 3});
    for (const Rank* rank : {&left, &right}) {
      CHECK(rank->transport.staging_bytes() == 3 * StagedTransport::pinned_bytes(20000, piece_bytes));
      CHECK(rank->transport.staging_bytes() == 3 * (8192 + 8192 + 4096));
    }
    left.device.close(MemorySpace::pinned);
    right.device.close(MemorySpace::pinned);
    for (int round = 0; round < 5; ++round) {
      std::vector<std::size_t> messages;
      for (int m = 0; m < 3; ++m) messages.push_back(1 + random() % 20000);
      send_at_a_time(simulation, left, right, messages, {Channel::gradient, 7});
    }
  }
}

TEST_CASE("sends beyond the reservation wait for a free buffer, and arrive in order") {
  for (const std::uint64_t seed : test::seeds(20)) {
    CAPTURE(seed);
    Simulation simulation(2, {.seed = seed});
    Rank left(simulation, 0, 8192), right(simulation, 1, 8192);
    left.transport.reserve({Channel::piece, Direction::send, std::nullopt, 8192, 2});
    left.device.close(MemorySpace::pinned);
    send_at_a_time(simulation, left, right, {5000, 20000, 1, 8192, 30000, 300}, {Channel::piece, 3});
    CHECK(left.transport.staging_bytes() == 2 * 8192);
  }
}

TEST_CASE(
    "a buffer reserved under a tag is used by that tag only, and after closing, unreserved ones are refused") {
  Simulation simulation(2, {.seed = 1});
  Rank left(simulation, 0, 8192), right(simulation, 1, 8192);
  right.transport.reserve({Channel::piece, Direction::receive, 1, 100, 1});
  const std::size_t reserved = right.transport.staging_bytes();
  send_at_a_time(simulation, left, right, {100}, {Channel::piece, 1});
  CHECK(right.transport.staging_bytes() == reserved);
  send_at_a_time(simulation, left, right, {100}, {Channel::piece, 2});
  CHECK(right.transport.staging_bytes() == 2 * reserved);

  right.transport.reserve({Channel::gradient, Direction::receive, std::nullopt, 100, 1});
  const Buffer to = right.device.allocate(5000, MemorySpace::device);
  right.device.close(MemorySpace::pinned);
  CHECK_THROWS_WITH_AS(
      right.transport.receive(0, {Channel::gradient, 0}, Bytes(to.data(), 5000), [] {}),
      "gradient messages to receive: 8192 bytes of pinned memory were requested after allocation was closed",
      Error);
}
