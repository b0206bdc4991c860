#include "runtime/simulation/virtual_cluster.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <exception>
#include <unordered_map>
#include <utility>

namespace ranvier::runtime {

namespace {

/// Whether the host reads the content of such messages; other contents are used only by kernels.
bool is_read(Channel channel) {
  switch (channel) {
    case Channel::activation:
    case Channel::gradient:
    case Channel::collective:
    case Channel::tied:
    case Channel::piece:
      return false;
    case Channel::summary:
    case Channel::weights:
    case Channel::control:
    case Channel::pull:
    case Channel::checkpoint:
    case Channel::user:
      return true;
  }
  return true;
}

std::size_t total_bytes(const auto& ranges) {
  std::size_t bytes = 0;
  for (const auto& range : ranges) bytes += range.size();
  return bytes;
}

/// Source and tag of messages to one rank.
struct Route {
  int from = 0;
  Tag tag;

  friend bool operator==(const Route&, const Route&) = default;
};

struct RouteHash {
  std::size_t operator()(const Route& route) const noexcept {
    const std::uint64_t key = (static_cast<std::uint64_t>(route.from) << 32) ^
                              (static_cast<std::uint64_t>(route.tag.channel) << 24) ^ route.tag.index;
    return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15ull) >> 16);
  }
};

}  // namespace

struct VirtualCluster::State {
  struct Loop;
  struct Port;

  struct Send {
    Transport::Pending pending;
    bool eager = false;
    Duration arrival{};              ///< only if eager
    std::vector<ConstBytes> ranges;  ///< ranges of content, unless eager
    std::vector<std::byte> bytes;    ///< copy of content, if eager
    Handler done;                    ///< unless eager
  };
  struct Receive {
    Transport::Pending pending;
    std::vector<Bytes> ranges;  ///< ranges of content
    Handler done;
  };
  /// At least one of the queues is empty.
  struct Flow {
    std::deque<Send> sends;
    std::deque<Receive> receives;
    std::size_t under_way = 0;  ///< matched but not arrived
    Duration last_arrival{};    ///< latest arrival of a matched message
  };

  explicit State(VirtualClusterOptions given);
  ~State();

  /// Delivers a message whose send and receive were both posted.
  void deliver(int to, const Route& route, Flow& flow, Send send, Receive receive);
  bool run(const std::function<bool()>& goes_on);
  [[nodiscard]] std::string waiting() const;

  const VirtualClusterOptions options;
  const Duration handler_time;
  VirtualTime time;
  PhantomSpace space;
  VirtualNetwork network;
  std::deque<VirtualCores> cores;
  std::deque<VirtualDisk> disks;
  std::deque<Loop> loops;
  std::deque<Port> ports;
  std::size_t running = 0;  ///< loops that are not stopped
  std::uint64_t handlers = 0;
  std::exception_ptr error;
};

struct VirtualCluster::State::Loop final : EventLoop {
  explicit Loop(State& cluster) : state(&cluster) {}

  void post(Handler handler) override {
    queue.push_back(std::move(handler));
    wake();
  }
  void after(Duration delay, Handler handler) override {
    auto posts = [this, handler = std::move(handler)] { post(handler); };
    if (delay == Duration(0)) return state->time.at_the_end_of_now(std::move(posts));
    state->time.at(state->time.now() + delay, std::move(posts));
  }
  [[nodiscard]] Duration now() const override { return state->time.now(); }
  void add_source(PollSource&) override {
    fail(ErrorCode::internal, "a loop in virtual time has no poll sources: nothing happens there by itself");
  }
  void stop(std::exception_ptr failure) override {
    if (!stopped) --state->running;
    stopped = true;
    if (!state->error) state->error = std::move(failure);
  }

  void wake() {
    if (awake) return;
    awake = true;
    state->time.at(free, [this] { run_next(); });
  }
  /// Runs the next handler, which then keeps the loop busy.
  void run_next() {
    awake = false;
    if (stopped || queue.empty()) return;
    const Handler handler = std::move(queue.front());
    queue.pop_front();
    ++state->handlers;
    free = state->time.now() + state->handler_time;
    if (!queue.empty()) wake();
    handler();
  }

  State* state;
  std::deque<Handler> queue;
  Duration free{};  // time when it may run the next handler
  bool awake = false;
  bool stopped = false;
};

struct VirtualCluster::State::Port final : Transport {
  Port(State& cluster, int rank) : state(&cluster), me(rank) {}
  using Transport::count_completed;

  [[nodiscard]] int rank() const noexcept override { return me; }
  [[nodiscard]] int ranks() const noexcept override { return static_cast<int>(state->ports.size()); }

  void send(int peer, Tag tag, std::span<const ConstBytes> ranges, Handler done) override {
    check_peer(peer);
    const Duration now = state->time.now();
    Send send{.pending = {false, peer, tag, total_bytes(ranges), now}, .ranges = {}, .bytes = {}, .done = {}};
    send.eager = send.pending.bytes <= state->options.eager_bytes;
    if (send.eager) {
      if (is_read(tag.channel)) {
        send.bytes.reserve(send.pending.bytes);
        for (const ConstBytes range : ranges) send.bytes.insert(send.bytes.end(), range.begin(), range.end());
      }
      const auto passage = state->network.carry(me, peer, send.pending.bytes, now);
      send.arrival = passage.arrived;
      state->time.at(passage.left,
                     [this, tag, done = std::move(done)]() mutable { complete(tag, std::move(done)); });
    } else {
      if (is_read(tag.channel)) send.ranges.assign(ranges.begin(), ranges.end());
      send.done = std::move(done);
    }
    const Route route{me, tag};
    Port& other = state->ports[static_cast<std::size_t>(peer)];
    Flow& flow = other.flows[route];
    if (flow.receives.empty()) {
      flow.sends.push_back(std::move(send));
      return;
    }
    Receive receive = std::move(flow.receives.front());
    flow.receives.pop_front();
    state->deliver(peer, route, flow, std::move(send), std::move(receive));
  }

  void receive(int peer, Tag tag, std::span<const Bytes> ranges, Handler done) override {
    check_peer(peer);
    Receive receive{.pending = {true, peer, tag, total_bytes(ranges), state->time.now()},
                    .ranges = {},
                    .done = std::move(done)};
    if (is_read(tag.channel)) receive.ranges.assign(ranges.begin(), ranges.end());
    const Route route{peer, tag};
    Flow& flow = flows[route];
    if (flow.sends.empty()) {
      flow.receives.push_back(std::move(receive));
      return;
    }
    Send send = std::move(flow.sends.front());
    flow.sends.pop_front();
    state->deliver(me, route, flow, std::move(send), std::move(receive));
  }

  /// Operations without their counterpart.
  [[nodiscard]] std::vector<Pending> pending() const override {
    std::vector<Pending> all;
    for (const auto& [route, flow] : flows) {
      for (const Receive& receive : flow.receives) all.push_back(receive.pending);
    }
    for (const Port& other : state->ports) {
      for (const auto& [route, flow] : other.flows) {
        if (route.from != me) continue;
        for (const Send& send : flow.sends) {
          if (!send.eager) all.push_back(send.pending);
        }
      }
    }
    return all;
  }

  void complete(Tag tag, Handler done) {
    count_completed(tag);
    state->loops[static_cast<std::size_t>(me)].post(std::move(done));
  }

  void check_peer(int peer) const {
    expect(peer >= 0 && peer < ranks(), "rank {}: there is no rank {} among {}", me, peer, ranks());
  }

  State* state;
  int me;
  std::unordered_map<Route, Flow, RouteHash> flows;  // messages to this rank, by source and tag
};

VirtualCluster::State::State(VirtualClusterOptions given)
    : options(std::move(given)),
      handler_time(std::llround(options.handler_seconds * 1e9)),
      network(options.node_of, options.links, options.slow_nodes) {
  for (int node = 0; node < network.nodes(); ++node) {
    cores.emplace_back(time, options.cores);
    disks.emplace_back(time, options.files);
  }
  for (std::size_t rank = 0; rank < options.node_of.size(); ++rank) {
    loops.emplace_back(*this);
    ports.emplace_back(*this, static_cast<int>(rank));
  }
  running = loops.size();
}

VirtualCluster::State::~State() = default;

void VirtualCluster::State::deliver(int to, const Route& route, Flow& flow, Send send, Receive receive) {
  if (send.pending.bytes != receive.pending.bytes)
    fail(ErrorCode::transport, "rank {}: receive from rank {}, {}: the message has {} bytes instead of {}", to,
         route.from, to_string(route.tag), send.pending.bytes, receive.pending.bytes);
  Duration arrival = send.arrival;
  if (!send.eager) {
    // The sender first sends a request, which takes one latency.
    const Duration asked = send.pending.since + network.latency(route.from, to);
    arrival = network.carry(route.from, to, send.pending.bytes, std::max(time.now(), asked)).arrived;
  }
  flow.last_arrival = arrival = std::max({arrival, time.now(), flow.last_arrival});
  ++flow.under_way;
  time.at(arrival, [this, to, route, send = std::make_shared<Send>(std::move(send)),
                    receive = std::make_shared<Receive>(std::move(receive))] {
    Port& port = ports[static_cast<std::size_t>(to)];
    std::vector<std::byte> bytes = std::move(send->bytes);
    for (const ConstBytes range : send->ranges) bytes.insert(bytes.end(), range.begin(), range.end());
    const std::byte* next = bytes.data();
    for (const Bytes range : receive->ranges) {
      std::copy_n(next, range.size(), range.data());
      next += range.size();
    }
    const auto flow_here = port.flows.find(route);
    Flow& met = flow_here->second;
    if (--met.under_way == 0 && met.sends.empty() && met.receives.empty()) port.flows.erase(flow_here);
    if (!send->eager) ports[static_cast<std::size_t>(route.from)].complete(route.tag, std::move(send->done));
    port.complete(route.tag, std::move(receive->done));
  });
}

bool VirtualCluster::State::run(const std::function<bool()>& goes_on) {
  constexpr std::uint64_t steps_between = 4096;  // calls of goes_on() are rare, since each reads a clock
  while (running > 0 && time.step()) {
    if (error) std::rethrow_exception(std::exchange(error, nullptr));
    if (goes_on && time.steps() % steps_between == 0 && !goes_on()) return false;
  }
  if (running > 0) fail(ErrorCode::transport, "deadlock: no event is pending, but ranks wait:{}", waiting());
  for (Loop& loop : loops) loop.stopped = false;
  running = loops.size();
  return true;
}

std::string VirtualCluster::State::waiting() const {
  constexpr int most = 16;  // limit of ranks in the text, of possibly thousands
  std::string text;
  int shown = 0;
  for (const Port& port : ports) {
    if (loops[static_cast<std::size_t>(port.me)].stopped) continue;
    if (++shown > most) return text + "\n  …";
    const auto pending = port.pending();
    if (pending.empty())
      text += fmt::format("\n  rank {}: no operation is pending, and it was not stopped", port.me);
    for (const auto& operation : pending) {
      text += fmt::format("\n  rank {}: {} rank {}, {}, {} bytes, for {:.1f} ms", port.me,
                          operation.receives ? "receive from" : "send to", operation.peer, to_string(operation.tag),
                          operation.bytes, 1e3 * seconds(time.now() - operation.since));
    }
  }
  return text;
}

VirtualCluster::VirtualCluster(VirtualClusterOptions options)
    : state_(std::make_unique<State>(std::move(options))) {}
VirtualCluster::~VirtualCluster() = default;

VirtualTime& VirtualCluster::time() noexcept { return state_->time; }
PhantomSpace& VirtualCluster::space() noexcept { return state_->space; }
VirtualNetwork& VirtualCluster::network() noexcept { return state_->network; }
EventLoop& VirtualCluster::loop(int rank) { return state_->loops.at(static_cast<std::size_t>(rank)); }
Transport& VirtualCluster::transport(int rank) { return state_->ports.at(static_cast<std::size_t>(rank)); }
VirtualCores& VirtualCluster::cores(int rank) {
  return state_->cores.at(static_cast<std::size_t>(state_->network.node_of(rank)));
}
VirtualDisk& VirtualCluster::disk(int rank) {
  return state_->disks.at(static_cast<std::size_t>(state_->network.node_of(rank)));
}
bool VirtualCluster::run(const std::function<bool()>& goes_on) { return state_->run(goes_on); }
std::uint64_t VirtualCluster::handlers_run() const noexcept { return state_->handlers; }

}  // namespace ranvier::runtime
