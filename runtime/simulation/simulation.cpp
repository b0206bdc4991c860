#include "runtime/simulation/simulation.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>
#include <deque>
#include <exception>
#include <list>
#include <optional>
#include <random>
#include <thread>
#include <unordered_map>
#include <utility>

namespace ranvier::runtime {

namespace {

/// If only timers ran for this long, nothing else will ever happen: with drawn delays, work takes no time.
constexpr Duration longest_silence = std::chrono::hours(1);

/// Content of receive buffers until their message arrives, so that early reads are visible.
constexpr std::byte unwritten{0xA5};

/// Whether the host reads the content of such messages; other contents are used only by kernels.
bool is_read(Channel channel) {
  constexpr Channel of_kernels[] = {Channel::activation, Channel::gradient, Channel::collective,
                                    Channel::tied,       Channel::matrix,   Channel::piece};
  return std::ranges::find(of_kernels, channel) == std::end(of_kernels);
}

}  // namespace

struct Simulation::State {
  struct Loop;
  struct Port;

  struct Call {
    bool made = false;
    std::size_t bytes = 0;
    Duration since{};
    Handler done;
  };

  struct Message {
    Message(int sender, int receiver, Tag its) : from(sender), to(receiver), tag(its) {}

    int from, to;
    Tag tag;
    Call send, receive;
    std::vector<ConstBytes> source;  ///< ranges of its content
    std::vector<Bytes> target;
    std::vector<std::byte> content;
    bool read = false;                ///< the source may change
    std::optional<Duration> arrival;  ///< unless it leaves only once both calls were made
  };

  /// Messages to one rank from one source under one tag.
  struct Flow {
    std::list<Message> waiting, under_way;  ///< with one call, which is the same for all; with both
    Duration last_arrival{};

    /// The message to which the next such call belongs.
    Message& next(Call Message::* call, int from, int to, Tag tag) {
      if (waiting.empty() || (waiting.front().*call).made) return waiting.emplace_back(from, to, tag);
      under_way.splice(under_way.end(), waiting, waiting.begin());
      return under_way.back();
    }
  };
  static std::uint64_t flow_key(int from, Tag tag) {
    return (static_cast<std::uint64_t>(from) << 32) | (static_cast<std::uint64_t>(tag.channel) << 24) | tag.index;
  }

  State(ComputedDelays computed_delays, const std::optional<DrawnDelays>& drawn_delays);
  ~State();

  Duration draw(Duration longest) {
    return Duration(static_cast<Duration::rep>(random() % (static_cast<std::uint64_t>(longest.count()) + 1)));
  }
  /// Drawn delay of a handler or of a receive.
  Duration reaction() { return drawn ? draw(drawn->longest_post_delay) : Duration(0); }
  [[nodiscard]] bool has_content(Tag tag) const { return drawn || is_read(tag.channel); }

  /// Lets a posted send leave, unless it waits for its receive.
  void depart(Message& message);
  /// Lets a message arrive whose calls were both made.
  void arrive(Flow& flow, Message& message);
  /// Reads the content of a send, which completes it for its rank.
  void read(Message& message);
  void deliver(Message& message);

  bool run(const std::function<bool()>& goes_on);
  [[noreturn]] void fail_deadlock() const;

  const ComputedDelays computed;
  const std::optional<DrawnDelays> drawn;
  const Duration handler_time;
  const std::thread::id thread = std::this_thread::get_id();
  std::mt19937_64 random;
  VirtualTime time;
  PhantomSpace space;
  VirtualNetwork network;
  std::deque<VirtualCores> cores;
  std::deque<VirtualDisk> disks;
  std::deque<Loop> loops;
  std::deque<Port> ports;
  std::size_t running = 0;  ///< loops that are not stopped
  Duration busy_until{};    ///< time of the last drawn handler other than timers
  std::uint64_t handlers = 0;
  std::exception_ptr error;
};

struct Simulation::State::Loop final : EventLoop {
  Loop(State& simulation, int index) : state(&simulation), rank(index) {}

  void post(Handler handler) override {
    expect(std::this_thread::get_id() == state->thread,
           "rank {}: a handler was posted from another thread; a simulation needs an inline or phantom device",
           rank);
    if (state->drawn) return run_at(last_post = std::max(last_post, now() + state->reaction()), std::move(handler));
    queue.push_back(std::move(handler));
    wake();
  }
  /// Posts the handler of a completion. Drawn completions may overtake posts.
  void complete(Handler handler) {
    if (state->drawn) return run_at(now() + state->reaction(), std::move(handler));
    post(std::move(handler));
  }
  void after(Duration delay, Handler handler) override {
    if (state->drawn) {
      return state->time.at(now() + delay + state->reaction(), [this, handler = std::move(handler)] {
        if (now() - state->busy_until > longest_silence) state->fail_deadlock();
        run(handler);
      });
    }
    auto posts = [this, handler = std::move(handler)] { post(handler); };
    if (delay == Duration(0)) return state->time.at_the_end_of_now(std::move(posts));
    state->time.at(now() + delay, std::move(posts));
  }
  [[nodiscard]] Duration now() const override { return state->time.now(); }
  void add_source(PollSource&) override {
    fail(ErrorCode::internal, "rank {}: a simulation has no poll sources: nothing happens there by itself", rank);
  }
  void stop(std::exception_ptr failure) override {
    if (!stopped) --state->running;
    stopped = true;
    if (!state->error) state->error = std::move(failure);
  }

  void run(const Handler& handler) {
    if (stopped) return;
    ++state->handlers;
    handler();
  }
  void run_at(Duration due, Handler handler) {
    state->busy_until = std::max(state->busy_until, due);
    state->time.at(due, [this, handler = std::move(handler)] { run(handler); });
  }
  void wake() {
    if (awake) return;
    awake = true;
    state->time.at(free, [this] { run_next(); });
  }
  /// Runs the first handler of the queue, which then keeps the loop busy.
  void run_next() {
    awake = false;
    if (stopped) return;  // the queue waits for the next run()
    const Handler handler = std::move(queue.front());
    queue.pop_front();
    free = now() + state->handler_time;
    if (!queue.empty()) wake();
    run(handler);
  }

  State* state;
  int rank;
  bool stopped = false;
  Duration last_post{};       // drawn
  std::deque<Handler> queue;  // computed
  Duration free{};            // time when it may run the next handler of the queue
  bool awake = false;
};

struct Simulation::State::Port final : Transport {
  Port(State& simulation, int rank)
      : Transport(rank, static_cast<int>(simulation.computed.node_of.size())), state(&simulation) {}
  using Transport::count_completed;

  void send(int peer, Tag tag, std::span<const ConstBytes> ranges, Handler done) override {
    check_peer(peer);
    Flow& flow = state->ports[static_cast<std::size_t>(peer)].flows[flow_key(rank(), tag)];
    Message& message = flow.next(&Message::send, rank(), peer, tag);
    message.send = {true, bytes_of(ranges), state->time.now(), std::move(done)};
    if (state->has_content(tag)) message.source.assign(ranges.begin(), ranges.end());
    state->depart(message);
    if (message.receive.made) state->arrive(flow, message);
  }

  void receive(int peer, Tag tag, std::span<const Bytes> ranges, Handler done) override {
    check_peer(peer);
    Flow& flow = flows[flow_key(peer, tag)];
    Message& message = flow.next(&Message::receive, peer, rank(), tag);
    message.receive = {true, bytes_of(ranges), state->time.now(), std::move(done)};
    if (state->has_content(tag)) message.target.assign(ranges.begin(), ranges.end());
    if (state->drawn) {
      for (const Bytes range : ranges) std::fill(range.begin(), range.end(), unwritten);
    }
    if (message.send.made) state->arrive(flow, message);
  }

  [[nodiscard]] std::vector<Pending> pending() const override {
    std::vector<Pending> all;
    for (const Port& port : state->ports) {
      for (const auto& [key, flow] : port.flows) {
        for (const auto* messages : {&flow.under_way, &flow.waiting}) {
          for (const Message& m : *messages) {
            if (m.from == rank() && m.send.made && !m.read)
              all.push_back({false, m.to, m.tag, m.send.bytes, m.send.since});
            if (m.to == rank() && m.receive.made)
              all.push_back({true, m.from, m.tag, m.receive.bytes, m.receive.since});
          }
        }
      }
    }
    return all;
  }

  void complete(Tag tag, Handler done) {
    count_completed(tag);
    state->loops[static_cast<std::size_t>(rank())].complete(std::move(done));
  }

  void check_peer(int peer) const {
    expect(peer >= 0 && peer < ranks(), "rank {}: there is no rank {} among {}", rank(), peer, ranks());
  }

  State* state;
  std::unordered_map<std::uint64_t, Flow> flows;  // messages to this rank, by flow_key()
};

Simulation::State::State(ComputedDelays computed_delays, const std::optional<DrawnDelays>& drawn_delays)
    : computed(std::move(computed_delays)),
      drawn(drawn_delays),
      handler_time(duration(computed.handler_seconds)),
      random(drawn ? drawn->seed : 0),
      network(computed.node_of, computed.links, computed.slow_nodes) {
  for (int node = 0; node < network.nodes(); ++node) {
    cores.emplace_back(time, computed.cores);
    disks.emplace_back(time, computed.files);
  }
  for (std::size_t rank = 0; rank < computed.node_of.size(); ++rank) {
    loops.emplace_back(*this, static_cast<int>(rank));
    ports.emplace_back(*this, static_cast<int>(rank));
  }
  running = loops.size();
}

Simulation::State::~State() = default;

void Simulation::State::depart(Message& message) {
  std::optional<Duration> left;  // time when its content is read, without waiting for the receive
  if (drawn) {
    const Duration delay = draw(drawn->longest_message_delay);
    message.arrival = time.now() + delay;
    const bool buffers = random() % 2 == 0;  // as MPI buffers short messages
    if (buffers) left = time.now() + draw(delay);
  } else if (message.send.bytes <= computed.eager_bytes) {
    const auto passage = network.carry(message.from, message.to, message.send.bytes, time.now());
    message.arrival = passage.arrived;
    left = passage.left;
  }
  // Until then the message is not delivered: it arrives later, or at the same time by a later action.
  if (left) time.at(*left, [this, &message] { read(message); });
}

void Simulation::State::arrive(Flow& flow, Message& message) {
  const Duration ready = time.now() + reaction();
  if (!message.arrival) {
    // The sender first sends a request, which takes one latency.
    const Duration asked = message.send.since + network.latency(message.from, message.to);
    message.arrival = network.carry(message.from, message.to, message.send.bytes, std::max(ready, asked)).arrived;
  }
  flow.last_arrival = std::max({*message.arrival, ready, flow.last_arrival});
  time.at(flow.last_arrival, [this, &message] { deliver(message); });
}

void Simulation::State::read(Message& message) {
  if (message.read) return;
  message.read = true;
  for (const ConstBytes range : message.source)
    message.content.insert(message.content.end(), range.begin(), range.end());
  ports[static_cast<std::size_t>(message.from)].complete(message.tag, std::move(message.send.done));
}

void Simulation::State::deliver(Message& message) {
  if (message.send.bytes != message.receive.bytes)
    fail(ErrorCode::transport, "rank {}: receive from rank {}, {}: the message has {} bytes instead of {}",
         message.to, message.from, to_string(message.tag), message.send.bytes, message.receive.bytes);
  read(message);
  const std::byte* next = message.content.data();
  for (const Bytes range : message.target) {
    std::copy_n(next, range.size(), range.data());
    next += range.size();
  }
  Port& port = ports[static_cast<std::size_t>(message.to)];
  port.complete(message.tag, std::move(message.receive.done));
  const auto flow = port.flows.find(flow_key(message.from, message.tag));
  flow->second.under_way.pop_front();  // which is this one
  if (flow->second.under_way.empty() && flow->second.waiting.empty()) port.flows.erase(flow);
}

bool Simulation::State::run(const std::function<bool()>& goes_on) {
  constexpr std::uint64_t steps_between = 4096;  // calls of goes_on() are rare, since each reads a clock
  while (running > 0 && time.step()) {
    if (error) std::rethrow_exception(std::exchange(error, nullptr));
    if (goes_on && time.steps() % steps_between == 0 && !goes_on()) return false;
  }
  if (running > 0) fail_deadlock();
  for (Loop& loop : loops) {
    loop.stopped = false;
    if (!loop.queue.empty()) loop.wake();
  }
  running = loops.size();
  return true;
}

void Simulation::State::fail_deadlock() const {
  constexpr int most = 16;  // limit of ranks in the text, of possibly thousands
  std::string text;
  int shown = 0;
  for (const Port& port : ports) {
    if (loops[static_cast<std::size_t>(port.rank())].stopped) continue;
    if (++shown > most) {
      text += "\n  …";
      break;
    }
    const auto pending = port.pending();
    if (pending.empty())
      text += fmt::format("\n  rank {}: no operation is pending, and it was not stopped", port.rank());
    for (const auto& operation : pending) {
      text += fmt::format("\n  rank {}: {} rank {}, {}, {} bytes, for {:.1f} ms", port.rank(),
                          operation.receives ? "receive from" : "send to", operation.peer, to_string(operation.tag),
                          operation.bytes, 1e3 * seconds(time.now() - operation.since));
    }
  }
  fail(ErrorCode::transport, "deadlock: no event is pending, but ranks wait:{}", text);
}

Simulation::Simulation(int ranks, const DrawnDelays& delays)
    : state_(new State({.node_of = std::vector<int>(static_cast<std::size_t>(ranks))}, delays)) {}
Simulation::Simulation(ComputedDelays delays) : state_(new State(std::move(delays), {})) {}
Simulation::~Simulation() = default;

VirtualTime& Simulation::time() noexcept { return state_->time; }
PhantomSpace& Simulation::space() noexcept { return state_->space; }
VirtualNetwork& Simulation::network() noexcept { return state_->network; }
EventLoop& Simulation::loop(int rank) { return state_->loops.at(static_cast<std::size_t>(rank)); }
Transport& Simulation::transport(int rank) { return state_->ports.at(static_cast<std::size_t>(rank)); }
VirtualCores& Simulation::cores(int rank) {
  return state_->cores.at(static_cast<std::size_t>(state_->network.node_of(rank)));
}
VirtualDisk& Simulation::disk(int rank) {
  return state_->disks.at(static_cast<std::size_t>(state_->network.node_of(rank)));
}
bool Simulation::run(const std::function<bool()>& goes_on) { return state_->run(goes_on); }
std::uint64_t Simulation::handlers_run() const noexcept { return state_->handlers; }

}  // namespace ranvier::runtime
