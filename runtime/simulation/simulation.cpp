#include "runtime/simulation/simulation.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace ranvier::runtime {

namespace {

/// If only timers ran for this long, nothing else will ever happen.
constexpr Duration longest_silence = std::chrono::hours(1);

/// Content of receive buffers until their message arrives, so that early reads are visible.
constexpr int unwritten = 0xA5;

/// SplitMix64 (Steele, Lea and Flood 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  Duration up_to(Duration longest) {
    return Duration(static_cast<Duration::rep>(next() % (static_cast<std::uint64_t>(longest.count()) + 1)));
  }

 private:
  std::uint64_t state_;
};

/// Key of the ordered messages of one tag between two ranks.
struct Route {
  int from = 0;
  int to = 0;
  Tag tag;

  friend bool operator<(const Route& left, const Route& right) {
    return std::tuple(left.from, left.to, left.tag.channel, left.tag.index) <
           std::tuple(right.from, right.to, right.tag.channel, right.tag.index);
  }
};

std::size_t total_bytes(const auto& ranges) {
  std::size_t bytes = 0;
  for (const auto& range : ranges) bytes += range.size();
  return bytes;
}

}  // namespace

struct Simulation::State {
  enum class EventKind {
    handler,
    timer,
    message,  ///< event of the network; it happens even if the rank's loop was stopped
  };

  struct Event {
    Duration time{};
    std::uint64_t number = 0;  ///< order of creation, for events of equal time
    EventKind kind = EventKind::handler;
    int rank = 0;
    Handler handler;

    /// Whether this one comes after `other`: std heaps have the greatest element first.
    bool operator<(const Event& other) const { return std::tie(time, number) > std::tie(other.time, other.number); }
  };

  struct Loop;
  struct Port;

  struct Send {
    std::vector<ConstBytes> ranges;
    Transport::Pending pending;
    Handler done;
    bool read = false;  ///< its ranges may change
    bool arrived = false;
    std::vector<std::byte> bytes;
  };

  struct Receive {
    std::vector<Bytes> ranges;
    Transport::Pending pending;
    Handler done;
  };

  struct Flow {
    std::deque<std::shared_ptr<Send>> sends;  ///< not yet delivered
    std::deque<Receive> receives;
    Duration last_arrival{};
  };

  State(int ranks, const SimulationOptions& simulation_options);
  ~State();

  Duration post_delay() { return random.up_to(options.longest_post_delay); }

  void add(Duration at, EventKind kind, int rank, Handler handler) {
    events.push_back({at, made++, kind, rank, std::move(handler)});
    std::push_heap(events.begin(), events.end());
  }

  /// Reads the ranges of a send, which completes it for its rank.
  void read_bytes(Send& send, int rank);
  /// Delivers arrived messages whose receives are posted.
  void match(const Route& route);
  void run();
  [[nodiscard]] std::string waiting() const;

  const SimulationOptions options;
  const std::thread::id thread = std::this_thread::get_id();
  Random random;
  Duration time{};
  Duration last_activity{};  ///< time of the last event other than a timer
  std::vector<Event> events;
  std::uint64_t made = 0;
  std::uint64_t handlers = 0;
  std::map<Route, Flow> flows;
  std::vector<Loop> loops;
  std::vector<Port> ports;
  std::exception_ptr error;
};

struct Simulation::State::Loop final : EventLoop {
  Loop(State& simulation, int index) : state(&simulation), rank(index) {}

  void post(Handler handler) override {
    expect(std::this_thread::get_id() == state->thread,
           "rank {}: a handler was posted from another thread; a simulation needs the inline device", rank);
    last_post = std::max(last_post, state->time + state->post_delay());
    state->add(last_post, EventKind::handler, rank, std::move(handler));
  }

  void after(Duration delay, Handler handler) override {
    state->add(state->time + delay + state->post_delay(), EventKind::timer, rank, std::move(handler));
  }

  [[nodiscard]] Duration now() const override { return state->time; }

  void add_source(PollSource&) override {
    fail(ErrorCode::internal,
         "rank {}: a simulation has no poll sources: what they say does not follow from its seed", rank);
  }

  void stop(std::exception_ptr failure) override {
    stopped = true;
    if (!state->error) state->error = std::move(failure);
  }

  State* state;
  int rank;
  bool stopped = false;
  Duration last_post{};
};

struct Simulation::State::Port final : Transport {
  Port(State& simulation, int index) : state(&simulation), me(index) {}
  using Transport::count_completed;

  [[nodiscard]] int rank() const noexcept override { return me; }
  [[nodiscard]] int ranks() const noexcept override { return static_cast<int>(state->ports.size()); }

  void send(int peer, Tag tag, std::span<const ConstBytes> ranges, Handler done) override {
    check_peer(peer);
    auto send = std::make_shared<Send>();
    send->ranges.assign(ranges.begin(), ranges.end());
    send->pending = {false, peer, tag, total_bytes(ranges), state->time};
    send->done = std::move(done);

    const Route route{me, peer, tag};
    Flow& flow = state->flows[route];
    flow.sends.push_back(send);
    const Duration delay = state->random.up_to(state->options.longest_message_delay);
    // As MPI buffers short messages: complete without a receive.
    const bool buffers = state->random.next() % 2 == 0;
    if (buffers) {
      state->add(state->time + state->random.up_to(delay), EventKind::message, me,
                 [simulation = state, send, rank = me] { simulation->read_bytes(*send, rank); });
    }
    flow.last_arrival = std::max(flow.last_arrival, state->time + delay);
    state->add(flow.last_arrival, EventKind::message, me, [simulation = state, send, route] {
      send->arrived = true;
      simulation->match(route);
    });
  }

  void receive(int peer, Tag tag, std::span<const Bytes> ranges, Handler done) override {
    check_peer(peer);
    for (const Bytes range : ranges) {
      if (!range.empty()) std::memset(range.data(), unwritten, range.size());
    }
    const Route route{peer, me, tag};
    state->flows[route].receives.push_back(
        {{ranges.begin(), ranges.end()}, {true, peer, tag, total_bytes(ranges), state->time}, std::move(done)});
    state->add(state->time + state->post_delay(), EventKind::message, me,
               [simulation = state, route] { simulation->match(route); });
  }

  [[nodiscard]] std::vector<Pending> pending() const override {
    std::vector<Pending> all;
    for (const auto& [route, flow] : state->flows) {
      if (route.from == me) {
        for (const auto& send : flow.sends) {
          if (!send->read) all.push_back(send->pending);
        }
      }
      if (route.to == me) {
        for (const auto& receive : flow.receives) all.push_back(receive.pending);
      }
    }
    return all;
  }

  void check_peer(int peer) const {
    expect(peer >= 0 && peer < ranks(), "rank {}: there is no rank {} among {}", me, peer, ranks());
  }

  State* state;
  int me;
};

Simulation::State::State(int ranks, const SimulationOptions& simulation_options)
    : options(simulation_options), random(simulation_options.seed) {
  loops.reserve(ranks);
  ports.reserve(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    loops.emplace_back(*this, rank);
    ports.emplace_back(*this, rank);
  }
}

Simulation::State::~State() = default;

void Simulation::State::read_bytes(Send& send, int rank) {
  if (send.read) return;
  send.read = true;
  send.bytes.reserve(send.pending.bytes);
  for (const ConstBytes range : send.ranges) send.bytes.insert(send.bytes.end(), range.begin(), range.end());
  ports[static_cast<std::size_t>(rank)].count_completed(send.pending.tag);
  add(time + post_delay(), EventKind::handler, rank, std::move(send.done));
}

void Simulation::State::match(const Route& route) {
  Flow& flow = flows[route];
  while (!flow.sends.empty() && flow.sends.front()->arrived && !flow.receives.empty()) {
    const std::shared_ptr<Send> send = std::move(flow.sends.front());
    flow.sends.pop_front();
    Receive receive = std::move(flow.receives.front());
    flow.receives.pop_front();
    if (send->pending.bytes != receive.pending.bytes) {
      fail(ErrorCode::transport, "rank {}: receive from rank {}, {}: the message has {} bytes instead of {}",
           route.to, route.from, to_string(route.tag), send->pending.bytes, receive.pending.bytes);
    }
    read_bytes(*send, route.from);
    const std::byte* next = send->bytes.data();
    for (const Bytes range : receive.ranges) {
      std::copy_n(next, range.size(), range.data());
      next += range.size();
    }
    ports[static_cast<std::size_t>(route.to)].count_completed(route.tag);
    add(time + post_delay(), EventKind::handler, route.to, std::move(receive.done));
  }
}

void Simulation::State::run() {
  const auto running = [this] {
    return std::any_of(loops.begin(), loops.end(), [](const Loop& loop) { return !loop.stopped; });
  };
  while (running() && !events.empty()) {
    std::pop_heap(events.begin(), events.end());
    const Event event = std::move(events.back());
    events.pop_back();
    time = event.time;
    if (event.kind != EventKind::timer) last_activity = time;
    if (time - last_activity > longest_silence) break;
    if (event.kind == EventKind::message) {
      event.handler();
    } else if (!loops[event.rank].stopped) {
      ++handlers;
      event.handler();
    }
    if (error) std::rethrow_exception(std::exchange(error, nullptr));
  }
  if (running()) fail(ErrorCode::transport, "deadlock: no event is pending, but ranks wait:{}", waiting());
  for (Loop& loop : loops) loop.stopped = false;
}

std::string Simulation::State::waiting() const {
  std::string text;
  for (const Port& port : ports) {
    if (loops[port.me].stopped) continue;
    const auto pending = port.pending();
    if (pending.empty())
      text += fmt::format("\n  rank {}: no operation is pending, and it was not stopped", port.me);
    for (const auto& operation : pending) {
      text +=
          fmt::format("\n  rank {}: {} rank {}, {}, {} bytes, for {:.1f} ms", port.me,
                      operation.receives ? "receive from" : "send to", operation.peer, to_string(operation.tag),
                      operation.bytes, std::chrono::duration<double, std::milli>(time - operation.since).count());
    }
  }
  return text;
}

Simulation::Simulation(int ranks, const SimulationOptions& options)
    : state_(std::make_unique<State>(ranks, options)) {}
Simulation::~Simulation() = default;

EventLoop& Simulation::loop(int rank) { return state_->loops.at(rank); }
Transport& Simulation::transport(int rank) { return state_->ports.at(rank); }
void Simulation::run() { state_->run(); }
std::uint64_t Simulation::handlers_run() const noexcept { return state_->handlers; }

}  // namespace ranvier::runtime
