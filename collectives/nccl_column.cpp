#include "collectives/nccl_column.hpp"

#include "runtime/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <exception>
#include <iterator>
#include <list>
#include <map>
#include <set>
#include <utility>

namespace ranvier::collectives {

using runtime::Channel;
using runtime::Duration;
using runtime::Handler;
using runtime::Tag;
using runtime::Transport;

namespace {

constexpr Duration ask_again = std::chrono::microseconds(100);       // what NCCL's threads are about to finish
constexpr Duration look_for_errors = std::chrono::milliseconds(50);  // while operations are under way

// Channel::control; 0 and 1 are the watchdog's.
constexpr std::uint32_t order_index = 2;
constexpr std::uint32_t first_id_index = 3;

}  // namespace

std::string nccl_version_text(int version) {
  // From 2.9 on NCCL counts a minor version as 100.
  const int major = version < 10000 ? version / 1000 : version / 10000;
  const int minor = version < 10000 ? version % 1000 / 100 : version % 10000 / 100;
  return fmt::format("{}.{}.{}", major, minor, version % 100);
}

struct NcclColumn::State : std::enable_shared_from_this<State> {
  /// One communicator of NCCL's.
  struct Connection {
    TeamKind team = TeamKind::column;
    NcclSpan span = NcclSpan::team;
    std::vector<int> ranks;  ///< MPI ranks, in NCCL's order
    int me = 0;
    NcclLibrary::Id id = {};
    NcclLibrary::Handle handle = nullptr;
  };

  struct Operation {
    int number = 0;  ///< of its communicator
    TeamKind team = TeamKind::column;
    std::string what;
    std::vector<NcclStage> stages;
    runtime::DType dtype = runtime::DType::f32;
    Handler done;
    Duration since{};
    std::size_t next_stage = 0;
  };

  State(runtime::EventLoop& of_loop, Transport& of_transport, std::unique_ptr<runtime::Stream> of_stream,
        NcclLibrary& of_library, Options given)
      : loop(of_loop),
        transport(of_transport),
        stream(std::move(of_stream)),
        library(of_library),
        options(std::move(given)),
        leads(options.ranks.at(0) == transport.rank()) {}

  [[nodiscard]] std::string device() const { return stream->device().description(); }
  [[nodiscard]] std::string ranks_text(const Connection& connection) const {
    return fmt::format("ranks {}", fmt::join(connection.ranks, ", "));
  }
  [[nodiscard]] std::string text_of(const Operation& operation) const {
    return fmt::format("{}, by NCCL with {} on {}", operation.what,
                       ranks_text(connection(operation.team, NcclSpan::team)), device());
  }

  [[nodiscard]] const Connection& connection(TeamKind team, NcclSpan span) const {
    return const_cast<State*>(this)->connection(team, span);
  }
  [[nodiscard]] Connection& connection(TeamKind team, NcclSpan span) {
    const auto found = connections.find({static_cast<int>(team), static_cast<int>(span)});
    expect(found != connections.end(), "the {} has no communicator of NCCL's", to_string(team));
    return found->second;
  }

  void add_connections(TeamKind team, const PlanCommunicator::Options& given);
  void connect_next();
  void await_connected(Connection& connection, Duration since);
  /// Otherwise this rank's own order is everybody's.
  [[nodiscard]] bool has_several_flows() const noexcept { return numbers.size() > 1; }
  void listen_for_order();
  void announce(int number);
  void submit(Operation operation);
  void advance();
  [[nodiscard]] bool begin_next();
  [[nodiscard]] bool issue(Operation& operation);
  void launch(const Connection& connection, const std::vector<NcclCall>& calls, const Operation& operation);
  void finish(std::list<Operation>::iterator operation);
  void watch();
  void close() noexcept;
  [[noreturn]] void fail_with(NcclLibrary::Result result, const Connection& connection, const std::string& doing);

  /// Calls `function` later unless this is gone or closed by then.
  template <typename Function>
  void later(Duration delay, Function function) {
    loop.after(delay, [weak = weak_from_this(), function = std::move(function)] {
      const auto state = weak.lock();
      if (state && !state->closed) function(*state);
    });
  }

  runtime::EventLoop& loop;
  Transport& transport;
  std::unique_ptr<runtime::Stream> stream;
  NcclLibrary& library;
  Options options;
  bool leads;
  bool connected = false;
  bool closed = false;
  bool watching = false;
  bool asks_again = false;
  bool advancing = false;

  std::map<std::pair<int, int>, Connection> connections;  ///< by team and span, which is the order they are made in
  std::map<std::pair<int, int>, Connection>::iterator next_connection;
  Handler when_connected;

  std::set<int> numbers;                           ///< of communicators
  std::deque<int> order;                           ///< numbers of operations that come next
  std::map<int, std::deque<Operation>> submitted;  ///< by number
  std::list<Operation> running;                    ///< the last one may not be on the stream as a whole
  bool issuing = false;                            ///< it is not
  std::uint32_t announced = 0;                     ///< what the next message of the first rank is received into
};

/// A communicator of one flow of actors.
class NcclColumn::Member final : public Communicator {
 public:
  Member(std::shared_ptr<State> state, TeamKind kind, int number, PlanCommunicator::Options options)
      : state_(std::move(state)), kind_(kind), number_(number), options_(std::move(options)) {}

  [[nodiscard]] const Team& team() const noexcept override { return options_.team; }
  [[nodiscard]] int me() const noexcept override { return options_.me; }

  void run(Collective collective, std::span<const Part> parts, runtime::DType dtype, std::string what,
           Handler done) override {
    const Topology& topology = options_.team.topology;
    std::vector<NcclStage> stages;
    try {
      switch (state_->options.ways[static_cast<std::size_t>(collective)]) {
        case NcclWay::own:
          stages = own_stages(collective, topology, options_.me, parts, dtype);
          break;
        case NcclWay::hierarchical:
          stages = hierarchical_stages(collective, topology, options_.me, parts, dtype);
          break;
        case NcclWay::plan:
          stages = stages_by_plan(collective, parts, dtype);
          break;
      }
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}: {}", what, error.what()));
    }
    // Where a rank has nothing to do, none has.
    if (stages.empty()) return state_->loop.post(std::move(done));
    state_->submit({.number = number_,
                    .team = kind_,
                    .what = std::move(what),
                    .stages = std::move(stages),
                    .dtype = dtype,
                    .done = std::move(done),
                    .since = state_->loop.now()});
  }

  [[nodiscard]] std::vector<std::string> running() const override {
    std::vector<std::string> names;
    for (const auto& operation : state_->running) {
      if (operation.number == number_) names.push_back(state_->text_of(operation));
    }
    const auto waiting = state_->submitted.find(number_);
    if (waiting == state_->submitted.end()) return names;
    for (const auto& operation : waiting->second) names.push_back(state_->text_of(operation));
    return names;
  }

 private:
  std::vector<NcclStage> stages_by_plan(Collective collective, std::span<const Part> parts, runtime::DType dtype) {
    const auto operands = plans_.of(collective, parts, dtype, to_string(collective));
    if (!operands) return {};
    std::vector<Part> used;
    std::copy_if(parts.begin(), parts.end(), std::back_inserter(used),
                 [](const Part& part) { return part.elements > 0; });
    PartScripts scripts;
    for (const Executor::Part& part : operands->parts) scripts.push_back(part.scripts);
    // Operations follow each other on the stream, so that one place is enough for all.
    return plan_stages(options_.team.topology, used, scripts, operands->depth,
                       options_.staging.empty() ? nullptr : options_.staging.front(), dtype);
  }

  std::shared_ptr<State> state_;
  TeamKind kind_;
  int number_;
  PlanCommunicator::Options options_;
  PlanOperands plans_{options_};
};

void NcclColumn::State::fail_with(NcclLibrary::Result result, const Connection& connection,
                                  const std::string& doing) {
  // What ranks see of each other goes by ErrorCode::transport, so that one of them speaks for all.
  const bool about_peers = result == NcclLibrary::remote_error || result == NcclLibrary::system_error;
  const std::string text = fmt::format("{} on {}: NCCL, with {}: {}", doing, device(), ranks_text(connection),
                                       library.describe(result, connection.handle));
  if (!about_peers) fail(ErrorCode::device, "{}; NCCL_DEBUG=WARN says more", text);
  fail(ErrorCode::transport, "rank {}: {}; one of them has ended or its network fails, NCCL_DEBUG=WARN says more",
       transport.rank(), text);
}

void NcclColumn::State::add_connections(TeamKind team, const PlanCommunicator::Options& given) {
  const Topology& topology = given.team.topology;
  const auto add = [&](NcclSpan span) {
    Connection made{.team = team, .span = span, .ranks = {}};
    const std::vector<int> members = nccl_members(topology, given.me, span);
    for (std::size_t place = 0; place < members.size(); ++place) {
      made.ranks.push_back(given.ranks.at(static_cast<std::size_t>(members[place])));
      if (members[place] == given.me) made.me = static_cast<int>(place);
    }
    connections.try_emplace({static_cast<int>(team), static_cast<int>(span)}, std::move(made));
  };
  add(NcclSpan::team);
  const auto& ways = options.ways;
  if (topology.inner == 1 || topology.outer == 1 ||
      std::find(ways.begin(), ways.end(), NcclWay::hierarchical) == ways.end()) {
    return;
  }
  add(NcclSpan::row);
  add(NcclSpan::column);
}

/// One after another and in one order on all ranks: ranks that make one share the rows of a grid with those that
/// make the others, and none waits for one that waits for it.
void NcclColumn::State::connect_next() {
  if (next_connection == connections.end()) {
    connected = true;
    if (!leads && has_several_flows()) listen_for_order();
    return std::exchange(when_connected, nullptr)();
  }
  Connection& connection = next_connection->second;
  const auto [team, span] = next_connection->first;
  const Tag tag{Channel::control, first_id_index + static_cast<std::uint32_t>(team * nccl_spans + span)};
  const auto begin = [this, &connection, since = loop.now()] {
    const NcclLibrary::Result result = library.connect(
        connection.handle, connection.id, static_cast<int>(connection.ranks.size()), connection.me, *stream);
    if (result != NcclLibrary::success && result != NcclLibrary::in_progress) {
      fail_with(result, connection, fmt::format("connecting the {}", to_string(connection.team)));
    }
    await_connected(connection, since);
  };
  if (connection.me != 0) {
    later(options.timeout, [&connection](State& state) {
      if (connection.handle != nullptr) return;
      fail(ErrorCode::transport,
           "rank {} has not said how to reach it by NCCL: rank {} has waited for that for {:g} s, to connect the "
           "{} (--timeout)",
           connection.ranks.front(), state.transport.rank(),
           std::chrono::duration<double>(state.options.timeout).count(), to_string(connection.team));
    });
    transport.receive(connection.ranks.front(), tag, connection.id.bytes, [state = shared_from_this(), begin] {
      if (!state->closed) begin();
    });
    return;
  }
  const NcclLibrary::Result result = library.make_id(connection.id);
  if (result != NcclLibrary::success) {
    fail_with(result, connection, fmt::format("connecting the {}", to_string(connection.team)));
  }
  for (std::size_t other = 1; other < connection.ranks.size(); ++other) {
    transport.send(connection.ranks[other], tag, connection.id.bytes, [state = shared_from_this()] {});
  }
  begin();
}

void NcclColumn::State::await_connected(Connection& connection, Duration since) {
  const NcclLibrary::Result result = library.status(connection.handle);
  if (result == NcclLibrary::success) {
    ++next_connection;
    // Not from within the caller's call of connect().
    return loop.post([weak = weak_from_this()] {
      const auto state = weak.lock();
      if (state && !state->closed) state->connect_next();
    });
  }
  if (result != NcclLibrary::in_progress) {
    fail_with(result, connection, fmt::format("connecting the {}", to_string(connection.team)));
  }
  if (loop.now() - since > options.timeout) {
    fail(ErrorCode::transport,
         "rank {} on {}: NCCL has tried to connect the {}, {}, for {:g} s: one of them is silent or cannot be "
         "reached (--timeout); NCCL_DEBUG=INFO says which ways it tries",
         transport.rank(), device(), to_string(connection.team), ranks_text(connection),
         std::chrono::duration<double>(options.timeout).count());
  }
  later(ask_again, [&connection, since](State& state) { state.await_connected(connection, since); });
}

void NcclColumn::State::listen_for_order() {
  transport.receive(options.ranks.front(), {Channel::control, order_index},
                    std::as_writable_bytes(std::span(&announced, 1)), [state = shared_from_this()] {
                      if (state->closed) return;
                      state->order.push_back(static_cast<int>(state->announced));
                      state->listen_for_order();
                      state->advance();
                    });
}

void NcclColumn::State::announce(int number) {
  const auto message = std::make_shared<std::uint32_t>(number);
  for (std::size_t row = 1; row < options.ranks.size(); ++row) {
    transport.send(options.ranks[row], {Channel::control, order_index}, std::as_bytes(std::span(message.get(), 1)),
                   [message] {});
  }
}

void NcclColumn::State::submit(Operation operation) {
  expect(connected && !closed, "{}: NCCL's communicators are not connected", operation.what);
  const int number = operation.number;
  submitted[number].push_back(std::move(operation));
  if (leads || !has_several_flows()) order.push_back(number);
  if (leads && has_several_flows()) announce(number);
  advance();
}

/// The next operation of the order, if it was submitted here.
bool NcclColumn::State::begin_next() {
  if (order.empty()) return false;
  auto& waiting = submitted[order.front()];
  if (waiting.empty()) return false;
  order.pop_front();
  running.push_back(std::move(waiting.front()));
  waiting.pop_front();
  issuing = true;
  return true;
}

void NcclColumn::State::advance() {
  if (advancing) return;
  advancing = true;
  while (!closed && (issuing || begin_next())) {
    const auto operation = std::prev(running.end());
    if (!issue(*operation)) {
      if (!std::exchange(asks_again, true)) {
        later(ask_again, [](State& state) {
          state.asks_again = false;
          state.advance();
        });
      }
      break;
    }
    issuing = false;
    stream->call_back([weak = weak_from_this(), &to = loop, operation] {
      to.post([weak, operation] {
        const auto state = weak.lock();
        if (state && !state->closed) state->finish(operation);
      });
    });
  }
  advancing = false;
  if (!running.empty() && !watching) watch();
}

/// Puts stage after stage on the stream; false while NCCL's threads are about it.
bool NcclColumn::State::issue(Operation& operation) {
  for (;;) {
    // The sums of a stage, and the next stage, come behind what its calls put on the stream.
    if (operation.next_stage > 0) {
      const NcclStage& before = operation.stages[operation.next_stage - 1];
      const Connection& used = connection(operation.team, before.span);
      const NcclLibrary::Result result = before.calls.empty() ? NcclLibrary::success : library.status(used.handle);
      if (result == NcclLibrary::in_progress) return false;
      if (result != NcclLibrary::success) fail_with(result, used, operation.what);
      for (const NcclStage::Sum& sum : before.sums) {
        add(*stream, sum.to, sum.from, operation.dtype, sum.count);
      }
    }
    if (operation.next_stage == operation.stages.size()) return true;
    const NcclStage& stage = operation.stages[operation.next_stage++];
    if (!stage.calls.empty()) launch(connection(operation.team, stage.span), stage.calls, operation);
  }
}

void NcclColumn::State::launch(const Connection& connection, const std::vector<NcclCall>& calls,
                               const Operation& operation) {
  const auto checked = [&](NcclLibrary::Result result) {
    if (result != NcclLibrary::success && result != NcclLibrary::in_progress) {
      fail_with(result, connection, operation.what);
    }
  };
  const NcclLibrary::Handle handle = connection.handle;
  checked(library.group_start());
  for (const NcclCall& call : calls) {
    switch (call.kind) {
      case NcclCall::Kind::all_gather:
        checked(library.all_gather(call.from, call.to, call.count, operation.dtype, handle, *stream));
        break;
      case NcclCall::Kind::reduce_scatter:
        checked(library.reduce_scatter(call.from, call.to, call.count, operation.dtype, handle, *stream));
        break;
      case NcclCall::Kind::all_reduce:
        checked(library.all_reduce(call.from, call.to, call.count, operation.dtype, handle, *stream));
        break;
      case NcclCall::Kind::broadcast:
        checked(library.broadcast(call.from, call.to, call.count, operation.dtype, call.peer, handle, *stream));
        break;
      case NcclCall::Kind::reduce:
        checked(library.reduce(call.from, call.to, call.count, operation.dtype, call.peer, handle, *stream));
        break;
      case NcclCall::Kind::send:
        checked(library.send(call.from, call.count, operation.dtype, call.peer, handle, *stream));
        break;
      case NcclCall::Kind::receive:
        checked(library.receive(call.to, call.count, operation.dtype, call.peer, handle, *stream));
        break;
    }
  }
  checked(library.group_end());
}

void NcclColumn::State::finish(std::list<Operation>::iterator operation) {
  const Handler done = std::move(operation->done);
  running.erase(operation);
  done();
}

/// An error that NCCL meets while an operation waits on the GPU: nobody else would say so.
void NcclColumn::State::watch() {
  watching = true;
  later(look_for_errors, [](State& state) {
    state.watching = false;
    if (state.running.empty()) return;
    for (const auto& [key, connection] : state.connections) {
      const NcclLibrary::Result result = state.library.status(connection.handle);
      if (result == NcclLibrary::success || result == NcclLibrary::in_progress) continue;
      state.fail_with(result, connection, state.running.front().what);
    }
    state.watch();
  });
}

void NcclColumn::State::close() noexcept {
  if (std::exchange(closed, true)) return;
  // An exception ends the job: peers may be gone.
  const bool orderly = connected && running.empty() && std::uncaught_exceptions() == 0;
  for (auto& [key, connection] : connections) {
    const NcclLibrary::Handle handle = std::exchange(connection.handle, nullptr);
    if (handle == nullptr) continue;
    if (orderly) {
      library.close(handle);
    } else {
      library.abort(handle);
    }
  }
}

NcclColumn::NcclColumn(runtime::EventLoop& loop, Transport& transport, runtime::Device& device,
                       NcclLibrary& library, Options options)
    : NcclColumn(loop, transport, device.make_stream("nccl", runtime::StreamWidth::one), library,
                 std::move(options)) {}

NcclColumn::NcclColumn(runtime::EventLoop& loop, Transport& transport, std::unique_ptr<runtime::Stream> stream,
                       NcclLibrary& library, Options options)
    : state_(std::make_shared<State>(loop, transport, std::move(stream), library, std::move(options))) {}

NcclColumn::~NcclColumn() {
  close();
  state_->stream.reset();  // handlers that the transport still holds keep the rest, which receives were posted into
}

std::unique_ptr<Communicator> NcclColumn::communicator(TeamKind team, int number,
                                                       PlanCommunicator::Options options) {
  expect(!state_->connected, "a communicator of the {} is asked for after NCCL was connected", to_string(team));
  state_->numbers.insert(number);
  state_->add_connections(team, options);
  return std::make_unique<Member>(state_, team, number, std::move(options));
}

void NcclColumn::connect(Handler done) {
  state_->when_connected = std::move(done);
  state_->next_connection = state_->connections.begin();
  state_->loop.post([weak = std::weak_ptr(state_)] {
    const auto state = weak.lock();
    if (state && !state->closed) state->connect_next();
  });
}

std::vector<Transport::Pending> NcclColumn::waited_for() const {
  const State& state = *state_;
  std::vector<Transport::Pending> all;
  const auto from = [&](int rank, Duration since) {
    if (rank == state.transport.rank()) return;
    all.push_back({true, rank, {Channel::collective, 0}, 0, since});
  };
  for (const auto& operation : state.running) {
    for (const int rank : state.connection(operation.team, NcclSpan::team).ranks) from(rank, operation.since);
  }
  // Or else for the first rank to say that these come next.
  for (const auto& [number, waiting] : state.submitted) {
    if (!waiting.empty()) from(state.options.ranks.front(), waiting.front().since);
  }
  return all;
}

void NcclColumn::close() noexcept { state_->close(); }

}  // namespace ranvier::collectives
