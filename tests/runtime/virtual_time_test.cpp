#include "runtime/base/error.hpp"
#include "runtime/simulation/simulation.hpp"
#include "tests/doubles/virtual_time.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::runtime;
using namespace std::chrono_literals;

namespace {

/// A flop takes a nanosecond, alone.
const tests::CostsOf costs([](const WorkCost& cost) { return cost.flops; });
double norms_are_crowded(const WorkCost& cost) { return cost.kind == WorkKind::norm ? 1.5 : 1; }

WorkCost work(Duration time, WorkKind kind = WorkKind::elementwise) {
  return {.kind = kind, .flops = static_cast<double>(time.count())};
}
void nothing() {}
const Stream::Work nothing_done = [](ComputePool&) {};
constexpr Tag counted{Channel::activation, 0}, spoken{Channel::user, 0};

/// Devices with streams, and the times of noted events.
struct Machines {
  explicit Machines(const ComputedDelays& options = {.node_of = {0}}) : cluster(options) {}

  PhantomDevice& add_device(int rank = 0, PhantomDeviceOptions options = {}) {
    options.costs = &costs;
    devices.push_back(make_phantom_device(cluster.time(), cluster.cores(rank), cluster.space(), options));
    return *devices.back();
  }
  Stream& add_stream(Device& device, const std::string& name, StreamWidth width = StreamWidth::whole) {
    return *streams.emplace_back(device.make_stream(name, width));
  }
  /// On its own device.
  Stream& add_stream(const std::string& name, int rank = 0, const PhantomDeviceOptions& options = {}) {
    return add_stream(add_device(rank, options), name);
  }
  void note(Stream& stream, const std::string& what) {
    stream.call_back([this, what] { times[what] = cluster.time().now(); });
  }
  /// Runs until no event is left, and notes the end of each stream by its name.
  void run() {
    for (const auto& stream : streams) note(*stream, stream->name());
    while (cluster.time().step()) {
    }
  }

  Simulation cluster;
  std::vector<std::unique_ptr<PhantomDevice>> devices;
  std::vector<std::unique_ptr<Stream>> streams;
  std::map<std::string, Duration> times;
};

constexpr Link wire{.latency_seconds = 10e-6, .bytes_per_second = 1e9, .node_bytes_per_second = 0};
const ComputedDelays one_node{.node_of = {0, 0}, .links = {.intra_node = wire, .inter_node = {}}};
constexpr std::size_t megabyte = 1000000;  // takes a millisecond on that link

/// Sends `bytes` from rank to rank; posts both ends immediately.
void exchange(Machines& machines, int from, int to, std::size_t bytes, const std::string& what) {
  static const std::vector<std::byte> memory(2 * megabyte);
  static std::vector<std::byte> target(2 * megabyte);
  const auto note = [&machines](const std::string& name) {
    return [&machines, name] { machines.times[name] = machines.cluster.time().now(); };
  };
  machines.cluster.transport(from).send(to, counted, ConstBytes(memory).first(bytes), note(what + " sent"));
  machines.cluster.transport(to).receive(from, counted, Bytes(target).first(bytes), note(what + " received"));
}

}  // namespace

TEST_CASE("streams of a phantom device take the time of their work's cost, concurrently") {
  Machines machines;
  PhantomDevice& device = machines.add_device();
  Stream& whole = machines.add_stream(device, "whole");
  Stream& narrow = machines.add_stream(device, "narrow", StreamWidth::one);
  for (int i = 0; i < 10; ++i) whole.launch(work(1ms), [](ComputePool&) { FAIL("work of a phantom device runs"); });
  narrow.launch(work(4ms), nullptr);
  CHECK(tests::says(tests::error_of([&] { narrow.launch([](ComputePool&) {}); }),
                    "stream 'narrow' of a phantom device has work without a cost"));
  machines.run();
  CHECK(machines.times["whole"] == 10ms);
  CHECK(machines.times["narrow"] == 4ms);
  CHECK(device.busy() == 10ms);
  CHECK(whole.done() == 11);
}

TEST_CASE("a stream of a phantom device waits for an event of another one") {
  Machines machines;
  PhantomDevice& device = machines.add_device();
  Stream& first = machines.add_stream(device, "first", StreamWidth::one);
  Stream& second = machines.add_stream(device, "second", StreamWidth::one);
  const auto event = device.make_event();
  CHECK(event->reached());
  first.launch(work(3ms), nullptr);
  event->record(first);
  first.launch(work(4ms), nullptr);
  second.launch(work(1ms), nullptr);
  machines.note(second, "before");
  second.wait(*event);
  machines.note(second, "released");
  second.launch(work(2ms), nullptr);
  CHECK_FALSE(event->reached());
  machines.run();
  CHECK(event->reached());
  CHECK(machines.times["before"] == 1ms);
  CHECK(machines.times["released"] == 3ms);
  CHECK(machines.times["second"] == 5ms);
}

TEST_CASE("ranks with more threads than their node has cores share the cores") {
  Machines machines({.node_of = {0, 0, 1}, .cores = {.cores = 1}});
  machines.add_stream("rank 0", 0).launch(work(4ms), nullptr);
  machines.add_stream("rank 1", 1).launch(work(10ms), nullptr);
  machines.add_stream("rank 2", 2).launch(work(10ms), nullptr);
  machines.run();
  CHECK(machines.times["rank 0"] == 8ms);   // half a core
  CHECK(machines.times["rank 1"] == 14ms);  // 4 ms of its work in 8 ms, then 6 ms without contention
  CHECK(machines.times["rank 2"] == 10ms);  // on its own node

  Machines wide({.node_of = {0, 0}, .cores = {.cores = 4}});
  for (const int rank : {0, 1})
    wide.add_stream(fmt::format("rank {}", rank), rank, {.threads = 3}).launch(work(6ms), nullptr);
  wide.run();
  CHECK(seconds(wide.times["rank 0"]) == doctest::Approx(9e-3));  // 6 threads on 4 cores
}

TEST_CASE("cores that share memory slow down with the number of busy ones") {
  const auto ends = [](int cores, int other_threads, WorkKind other = WorkKind::norm) {
    Machines machines({.node_of = {0, 0}, .cores = {.cores = cores}});
    machines.add_stream("first", 0, {.crowding = norms_are_crowded}).launch(work(6ms, WorkKind::norm), nullptr);
    machines.add_stream("second", 1, {.threads = other_threads, .crowding = norms_are_crowded})
        .launch(work(3ms, other), nullptr);
    machines.run();
    return std::pair(machines.times["first"], machines.times["second"]);
  };
  CHECK(ends(2, 1) == std::pair<Duration, Duration>(7500us, 4500us));  // the rest of the first one is alone
  CHECK(ends(3, 1) == std::pair<Duration, Duration>(6750us, 3750us));  // half the contention
  CHECK(ends(1, 1) == std::pair<Duration, Duration>(9ms, 6ms));        // one thread is all, and alone
  CHECK(ends(2, 1, WorkKind::product) == std::pair<Duration, Duration>(7ms, 3ms));  // no contention
}

TEST_CASE("several kinds of work slow down by the contention of each kind") {
  Machines machines({.node_of = {0, 0}, .cores = {.cores = 2}});
  Stream& first = machines.add_stream("first", 0, {.crowding = norms_are_crowded});
  machines.add_stream("second", 1, {.crowding = norms_are_crowded}).launch(work(20ms), nullptr);
  first.launch(work(2ms), nullptr);
  first.launch(work(4ms, WorkKind::norm), nullptr);
  machines.run();
  CHECK(machines.times["first"] == 8ms);
}

TEST_CASE("a single CPU thread may have separate rates") {
  Machines machines;
  const tests::CostsOf slow([](const WorkCost& cost) { return 3 * cost.flops; });
  PhantomDevice& device = machines.add_device(0, {.threads = 2, .narrow_costs = &slow});
  machines.add_stream(device, "whole").launch(work(2ms), nullptr);
  machines.add_stream(device, "one", StreamWidth::one).launch(work(2ms), nullptr);
  machines.run();
  CHECK(machines.times["whole"] == 2ms);
  CHECK(machines.times["one"] == 6ms);
}

TEST_CASE("work of a GPU needs no cores, and concurrent work of the host does") {
  Machines machines({.node_of = {0}, .cores = {.cores = 1}});
  PhantomDevice& gpu = machines.add_device(0, {.apart = true, .host_costs = &costs});
  const auto host = gpu.make_host_device(1);
  machines.add_stream(gpu, "gpu").launch(work(4ms), nullptr);
  for (const char* name : {"host", "more"})
    machines.add_stream(*host, name, StreamWidth::one).launch(work(4ms), nullptr);
  machines.run();
  CHECK(machines.times["gpu"] == 4ms);
  CHECK(machines.times["host"] == 8ms);
  machines.streams.clear();  // before their host device
}

TEST_CASE("copies between a phantom GPU and its host share the link, separately in each direction") {
  Machines machines;
  PhantomDevice& gpu = machines.add_device(0, {.apart = true});
  const auto copy = [](CopyDirection direction, Duration time) {
    WorkCost cost = work(time, WorkKind::host_copy);
    cost.bytes = megabyte;
    cost.direction = direction;
    return cost;
  };
  const auto stream = [&](const char* name, const std::vector<WorkCost>& costs) {
    Stream& made = machines.add_stream(gpu, name, StreamWidth::one);
    for (const WorkCost& cost : costs) made.launch(cost, nullptr);
  };
  // In turns: each stream requests the link when its own earlier copy is over.
  stream("first", {copy(CopyDirection::to_device, 1ms), copy(CopyDirection::to_device, 1ms)});
  stream("second", {copy(CopyDirection::to_device, 1ms), work(5ms), copy(CopyDirection::to_device, 1ms)});
  stream("back", {copy(CopyDirection::to_host, 2ms)});
  stream("no direction", {copy(CopyDirection::none, 2ms)});
  stream("compute", {work(3ms)});
  machines.run();
  CHECK(machines.times["first"] == 3ms);
  CHECK(machines.times["second"] == 8ms);
  CHECK(machines.times["back"] == 2ms);
  CHECK(machines.times["no direction"] == 2ms);
  CHECK(machines.times["compute"] == 3ms);
  CHECK(gpu.host_link_bytes().to_device == 4 * megabyte);
  CHECK(gpu.host_link_bytes().to_host == megabyte);
  // Replayed work uses the link again.
  const std::uint64_t key = 1;
  Stream& first = *machines.streams[0];
  for (int i = 0; i < 2; ++i)
    first.repeat({&key, 1}, [&] { first.launch(copy(CopyDirection::to_host, 1ms), nullptr); });
  machines.run();
  CHECK(gpu.host_link_bytes().to_host == 3 * megabyte);
}

TEST_CASE("memory of a phantom device is counted, and the host cannot access a phantom GPU's memory") {
  Machines machines;
  PhantomDevice& gpu = machines.add_device(0, {.apart = true, .budget_bytes = std::size_t{64} << 30});
  {
    const Buffer large = gpu.allocate(std::size_t{60} << 30, MemorySpace::device);
    CHECK(gpu.used_bytes() == large.bytes());
    CHECK_FALSE(gpu.host_reaches(large.data()));
    CHECK_FALSE(gpu.host_reaches(large.data() + large.bytes() - 1));
    const Buffer pinned = gpu.allocate(std::size_t{60} << 30, MemorySpace::pinned);
    CHECK(gpu.host_reaches(pinned.data()));
    CHECK(std::to_integer<int>(pinned.data()[pinned.bytes() / 2]) == 0);
    CHECK(tests::says(tests::error_of([&] { (void)gpu.allocate(std::size_t{5} << 30, MemorySpace::device); }),
                      ErrorCode::memory, "60.0 GiB of the budget of 64.0 GiB in use"));
  }
  CHECK(gpu.used_bytes() == 0);
}

TEST_CASE("a message takes latency plus bytes by rate, and a long one waits for its receive") {
  Machines machines(one_node);
  exchange(machines, 0, 1, 1000, "short");
  machines.run();
  CHECK(machines.times["short received"] == 11us);
  CHECK(machines.times["short sent"] == 1us);

  Machines long_one(one_node);
  exchange(long_one, 0, 1, megabyte, "long");
  long_one.run();
  CHECK(long_one.times["long received"] == 1020us);  // requested, then sent
  CHECK(long_one.times["long sent"] == 1020us);
  CHECK(long_one.cluster.network().sent(0).bytes_intra == megabyte);
  CHECK(long_one.cluster.network().sent(0).messages == 1);

  Machines late(one_node);
  const std::vector<std::byte> memory(megabyte);
  late.cluster.transport(0).send(1, counted, ConstBytes(memory), nothing);
  std::vector<std::byte> target(megabyte);
  late.cluster.loop(1).after(5ms, [&] {
    late.cluster.transport(1).receive(0, counted, Bytes(target),
                                      [&] { late.times["received"] = late.cluster.time().now(); });
  });
  late.run();
  CHECK(late.times["received"] == 6010us);
}

TEST_CASE("messages of one rank in one direction are sequential, and those in opposite directions overlap") {
  Machines machines({.node_of = {0, 0, 0}, .links = {.intra_node = wire, .inter_node = {}}});
  exchange(machines, 0, 1, megabyte, "first");
  exchange(machines, 0, 2, megabyte, "second");
  exchange(machines, 1, 0, megabyte, "back");
  machines.run();
  CHECK(machines.times["first received"] == 1020us);
  CHECK(machines.times["second received"] == 2020us);
  CHECK(machines.times["back received"] == 1020us);
}

TEST_CASE("ranks of a node share its NIC") {
  const auto second_arrives = [](double node_rate) {
    Machines machines(
        {.node_of = {0, 0, 1, 1}, .links = {.intra_node = wire, .inter_node = {10e-6, 1e9, node_rate}}});
    exchange(machines, 0, 2, megabyte, "first");
    exchange(machines, 1, 3, megabyte, "second");
    machines.run();
    CHECK(machines.times["first received"] == 1020us);
    return machines.times["second received"];
  };
  CHECK(second_arrives(1e9) == 2020us);
  CHECK(second_arrives(2e9) == 1020us);
  CHECK(second_arrives(0) == 1020us);
}

TEST_CASE("links of a slow node take longer") {
  Machines machines({.node_of = {0, 1, 2}, .links = {.intra_node = {}, .inter_node = wire}, .slow_nodes = {1, 3}});
  exchange(machines, 0, 1, megabyte, "slow");
  exchange(machines, 2, 0, megabyte, "usual");
  machines.run();
  CHECK(machines.times["slow received"] == 3020us);
  CHECK(machines.times["usual received"] == 1020us);
}

TEST_CASE("rings of a team use all of its links") {
  const Links links{.intra_node = {0, 4e9, 0}, .inter_node = {0, 1e9, 1e9}};
  VirtualNetwork network({0, 0, 1, 1}, links);
  // Each node has one outgoing link, shared by both ranks: at the NIC's rate.
  const std::array<int, 4> all{0, 1, 2, 3};
  CHECK(network.ring(all, 1e6, Duration(0)) == 1ms);
  CHECK(network.sent(0).ring_bytes_inter == doctest::Approx(5e5));
  CHECK(network.sent(0).ring_bytes_intra == doctest::Approx(5e5));
  CHECK(network.sent(0).bytes_inter + network.sent(0).bytes_intra == 0);  // no bytes of messages
  CHECK(network.sent(0).messages == 0);
  // Two teams at a time get half of it each.
  VirtualNetwork busy({0, 0, 1, 1}, links);
  const std::array<int, 2> one{0, 2}, other{1, 3};
  CHECK(busy.ring(one, 1e6, Duration(0)) == 1ms);
  CHECK(busy.ring(other, 1e6, Duration(0)) == 2ms);
  const std::array<int, 2> inside{0, 1};
  CHECK(VirtualNetwork({0, 0}, links).ring(inside, 1e6, Duration(0)) == 250us);
}

TEST_CASE("messages and rings share ports equally") {
  const Links links{.intra_node = {0, 1e9, 0}, .inter_node = {}};
  const std::array<int, 2> both{0, 1};
  VirtualNetwork network({0, 0}, links);
  CHECK(network.ring(both, 4e6, Duration(0)) == 4ms);
  CHECK(network.carry(0, 1, megabyte, Duration(0)).arrived == 2ms);
  CHECK(network.ring(both, 1e6, Duration(0)) == 6ms);  // the message took a millisecond of it

  VirtualNetwork other({0, 0}, links);
  CHECK(other.carry(0, 1, megabyte, Duration(0)).arrived == 1ms);
  CHECK(other.ring(both, 4e6, Duration(0)) == 4500us);  // the message had half of the first millisecond
  CHECK(other.carry(0, 1, megabyte, 5ms).arrived == 6ms);
}

TEST_CASE("a loop runs one handler at a time, in the order of the posts") {
  Machines machines({.node_of = {0}, .handler_seconds = 1e-6});
  EventLoop& loop = machines.cluster.loop(0);
  std::vector<std::pair<int, Duration>> ran;
  for (int i = 0; i < 3; ++i) loop.post([&, i] { ran.emplace_back(i, loop.now()); });
  loop.after(10us, [&] { loop.stop(); });
  machines.cluster.run();
  CHECK(ran == std::vector<std::pair<int, Duration>>{{0, 0us}, {1, 1us}, {2, 2us}});
  CHECK(machines.cluster.handlers_run() == 4);
}

TEST_CASE("a delay of zero ends after all events of its moment, and takes no time") {
  Machines machines({.node_of = {0, 0}});
  EventLoop& here = machines.cluster.loop(0);
  EventLoop& there = machines.cluster.loop(1);
  std::string order;
  here.post([&] {
    here.after(Duration(0), [&] {
      order += "after ";
      CHECK(here.now() == 0ns);
    });
    there.post([&] { here.post([&] { there.post([&] { order += "message "; }); }); });
    here.after(1ns, [&] { order += "later "; });
  });
  machines.run();
  CHECK(order == "message after later ");
}

TEST_CASE("files of a node are read one after another, concurrently with writes") {
  VirtualTime time;
  VirtualDisk disk(time, {.read_bytes_per_second = 1e9, .write_bytes_per_second = 5e8, .latency_seconds = 1e-4});
  std::vector<Duration> ends;
  const auto end = [&] { ends.push_back(time.now()); };
  disk.read(megabyte, end);
  disk.read(megabyte, end);
  disk.write(megabyte, end);
  while (time.step()) {
  }
  CHECK(ends == std::vector<Duration>{1100us, 2100us, 2100us});
}

TEST_CASE("messages that the host reads arrive as sent, and payloads of kernels have no content") {
  Simulation cluster(one_node);
  for (const std::size_t count : {std::size_t{4}, std::size_t{1} << 16}) {
    std::vector<int> sent(count, 7), arrived(count, 1), untouched(count, 1);
    int left = 2;
    const auto over = [&] {
      if (--left == 0) {
        cluster.loop(0).stop();
        cluster.loop(1).stop();
      }
    };
    for (const Tag tag : {spoken, counted}) {
      cluster.transport(0).send(1, tag, std::as_bytes(std::span(sent)), nothing);
      cluster.transport(1).receive(0, tag, std::as_writable_bytes(std::span(tag == spoken ? arrived : untouched)),
                                   over);
    }
    cluster.run();
    CHECK(arrived == sent);
    CHECK(untouched == std::vector<int>(count, 1));
  }
}

TEST_CASE("repeated work takes the same times again, and is queued once") {
  const auto times_of = [](bool repeats, double jitter) {
    Machines machines;
    Stream& stream = machines.add_stream("compute", 0, {.slowness = 1.5, .jitter = jitter, .seed = 7});
    int queued = 0;
    for (std::uint64_t n = 0; n < 30; ++n) {
      const std::uint64_t key[] = {5, n % 3};
      const auto queue = [&] {
        ++queued;
        for (std::uint64_t piece = 0; piece <= n % 3; ++piece) stream.launch(work(piece * 1ms + 1us), nothing_done);
      };
      if (repeats)
        stream.repeat(key, queue);
      else
        queue();
      machines.note(stream, std::to_string(n));
    }
    machines.run();
    CHECK(queued == (repeats ? 3 : 30));
    CHECK(stream.graph_stats().kept == (repeats ? 3 : 0));
    CHECK(stream.graph_stats().replayed == (repeats ? 27 : 0));
    return machines.times;
  };
  for (const double jitter : {0.0, 0.3}) CHECK(times_of(true, jitter) == times_of(false, jitter));
}

TEST_CASE("work that fails while it is queued is not kept for replay") {
  Machines machines;
  Stream& stream = machines.add_stream("compute");
  const std::uint64_t key[] = {1};
  CHECK_THROWS_AS(stream.repeat(key, [] { fail(ErrorCode::internal, "broken"); }), Error);
  stream.repeat(key, [&] { stream.launch(work(1ms), nothing_done); });
  machines.run();
  CHECK(machines.times["compute"] == 1ms);
}

TEST_CASE("jitter keeps the mean of the work, and is the same for the same seed") {
  const auto time_of = [](std::uint64_t seed, double jitter) {
    Machines machines;
    Stream& stream = machines.add_stream("compute", 0, {.jitter = jitter, .seed = seed});
    for (int i = 0; i < 1000; ++i) stream.launch(work(1ms), nullptr);
    machines.run();
    return machines.times["compute"];
  };
  CHECK(time_of(1, 0) == 1000ms);
  CHECK(time_of(1, 0.2) == time_of(1, 0.2));
  CHECK(time_of(1, 0.2) != time_of(2, 0.2));
  CHECK(seconds(time_of(1, 0.2)) == doctest::Approx(1.0).epsilon(0.03));  // 0.2 / sqrt(1000) is 0.006
  CHECK(time_of(1, 0.2) != 1000ms);
}

TEST_CASE("jitter makes no work faster than the minimum factor") {
  CHECK(min_jitter(0) == 1);
  for (const double jitter : {0.1, 1.0}) {
    Duration least = 1ms;
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      Machines machines;
      Stream& stream = machines.add_stream("compute", 0, {.jitter = jitter, .seed = seed});
      constexpr int pieces = 2000;  // about a thousandth of the pieces is below it
      for (int i = 0; i < pieces; ++i) {
        stream.launch(work(1ms), nullptr);
        machines.note(stream, "end " + std::to_string(i));
      }
      machines.run();
      Duration before{};
      for (int i = 0; i < pieces; ++i) {
        const Duration end = machines.times["end " + std::to_string(i)];
        least = std::min(least, end - std::exchange(before, end));
      }
    }
    CHECK(seconds(least) == doctest::Approx(1e-3 * min_jitter(jitter)).epsilon(1e-3));
  }
}

TEST_CASE("work of a slow rank takes longer") {
  Machines machines;
  machines.add_stream("compute", 0, {.slowness = 1.5}).launch(work(2ms), nullptr);
  machines.run();
  CHECK(machines.times["compute"] == 3ms);
}
