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
#include <optional>
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

// Channel::control; 0 and 1 are the watchdog's, 64 is that of apps/train/stop_signals.cpp.
constexpr std::uint32_t order_index = 2;
constexpr std::uint32_t first_id_index = 3;

/// Where what stays inside nodes does not wait for what crosses them.
enum Lane : std::size_t { inside, across, lanes };

constexpr std::size_t most_ahead = 2;  // phases on a lane: one that runs, one to follow it

void copy(runtime::StreamView stream, const NcclStage::Move& move, runtime::DType dtype) {
  runtime::copy(stream, move.to, move.to_runs, move.from, move.from_runs, size_of(dtype), move.count);
}

/// Where each phase of an operation ends, in stages: a phase is of one communicator.
std::vector<std::size_t> phase_ends(const std::vector<NcclStage>& stages) {
  std::vector<std::size_t> ends;
  for (std::size_t s = 1; s <= stages.size(); ++s) {
    if (s == stages.size() || stages[s].span != stages[s - 1].span) ends.push_back(s);
  }
  return ends;
}

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
    Lane lane = inside;
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
    std::uint32_t place = 0;               ///< among those of its communicator
    std::vector<std::size_t> phases = {};  ///< the stage behind each of them
    std::size_t named = 0;                 ///< phases; on the first rank
    std::size_t begun = 0;                 ///< phases, of which the last one may not be on its stream as a whole
    std::size_t over = 0;                  ///< phases
    std::size_t next_stage = 0;
    std::unique_ptr<runtime::Event> left;  ///< the last phase that is on its stream, where another one follows
  };
  using Operations = std::list<Operation>;

  /// Which phase comes next, as it travels: the next one of that operation.
  struct Word {
    std::uint32_t number = 0;  ///< of the communicator
    std::uint32_t place = 0;   ///< of the operation, among those of the communicator
  };

  State(runtime::EventLoop& of_loop, Transport& of_transport, runtime::Device& of_device, NcclLibrary& of_library,
        Options given)
      : loop(of_loop),
        transport(of_transport),
        gpu(of_device),
        library(of_library),
        options(std::move(given)),
        leads(options.ranks.at(0) == transport.rank()) {
    const bool overlap = library.keeps_launch_order();
    streams.push_back(gpu.make_stream(overlap ? "nccl inside" : "nccl", runtime::StreamWidth::one));
    if (overlap) streams.push_back(gpu.make_stream("nccl across", runtime::StreamWidth::one));
  }

  [[nodiscard]] std::string device() const { return gpu.description(); }
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
  [[nodiscard]] const Connection& connection_of_phase(const Operation& operation, std::size_t phase) const {
    return connection(operation.team, operation.stages[operation.phases[phase] - 1].span);
  }
  [[nodiscard]] Lane lane_of_phase(const Operation& operation, std::size_t phase) const {
    return streams.size() == 1 ? inside : connection_of_phase(operation, phase).lane;
  }
  [[nodiscard]] runtime::Stream& stream_of(Lane lane) const {
    return *streams[std::min<std::size_t>(lane, streams.size() - 1)];
  }

  /// Otherwise this rank's own order is everybody's. The same on all ranks.
  [[nodiscard]] bool needs_words() const noexcept {
    return numbers.size() > 1 || std::any_of(connections.begin(), connections.end(), [](const auto& connection) {
             return connection.second.span != NcclSpan::team;
           });
  }
  /// Whether this rank has communicators on both lanes.
  [[nodiscard]] bool overlaps() const noexcept {
    const auto uses = [this](Lane lane) {
      return std::any_of(connections.begin(), connections.end(),
                         [lane](const auto& connection) { return connection.second.lane == lane; });
    };
    return streams.size() > 1 && uses(inside) && uses(across);
  }
  void listen_for_order();
  void name_phases();
  [[nodiscard]] bool may_be_named(const Operation& operation) const;
  void submit(Operation operation);
  void advance();
  [[nodiscard]] bool begin_next();
  [[nodiscard]] bool issue(Operation& operation);
  void launch(const Connection& connection, const std::vector<NcclCall>& calls, const Operation& operation,
              runtime::StreamView stream);
  void phase_over(Operations::iterator operation);
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
  runtime::Device& gpu;
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

  std::vector<std::unique_ptr<runtime::Stream>> streams;  ///< by lane, or one for both
  std::vector<std::unique_ptr<runtime::Event>> spare_events;
  std::set<int> numbers;                        ///< of communicators
  std::map<int, std::uint32_t> places;          ///< of the next operation, by number
  Operations operations;                        ///< that are not over, in the order in which they were submitted
  std::deque<Word> order;                       ///< of the phases that come next
  std::optional<Operations::iterator> issuing;  ///< its last begun phase is not on the stream as a whole
  Word word;                                    ///< what the next message of the first rank is received into
  /// On the first rank, by lane: phases that were named and are not over.
  std::array<std::deque<const Operation*>, lanes> ahead;
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
          stages = own_stages(collective, topology, options_.me, parts, dtype, packing());
          break;
        case NcclWay::hierarchical:
          stages = hierarchical_stages(collective, topology, options_.me, parts, dtype, packing());
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

  [[nodiscard]] std::vector<UnderWay> running() const override {
    std::vector<UnderWay> all;
    for (const auto& operation : state_->operations) {
      if (operation.number == number_) all.push_back({state_->text_of(operation), operation.since});
    }
    return all;
  }

 private:
  /// Stages of one span follow each other on a stream, so a place is enough for all of them.
  [[nodiscard]] NcclPacking packing() const {
    if (options_.staging.size() < 2) return {};
    return {options_.staging[0], options_.staging[1], options_.staging_bytes};
  }
  std::vector<NcclStage> stages_by_plan(Collective collective, std::span<const Part> parts, runtime::DType dtype) {
    const auto operands = plans_.of(collective, parts, dtype, to_string(collective));
    if (!operands) return {};
    std::vector<Part> used;
    std::copy_if(parts.begin(), parts.end(), std::back_inserter(used),
                 [](const Part& part) { return part.elements > 0; });
    PartScripts scripts;
    for (const Executor::Part& part : operands->parts) scripts.push_back(part.scripts);
    // They are one phase each, so that those of a team follow each other on a stream: one place is enough for all.
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
      if (!topology.same_node(members[place], given.me)) made.lane = across;
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
    if (!leads && needs_words()) listen_for_order();
    return std::exchange(when_connected, nullptr)();
  }
  Connection& connection = next_connection->second;
  const auto [team, span] = next_connection->first;
  const Tag tag{Channel::control, first_id_index + static_cast<std::uint32_t>(team * nccl_spans + span)};
  const auto begin = [this, &connection, since = loop.now()] {
    const NcclLibrary::Result result =
        library.connect(connection.handle, connection.id, static_cast<int>(connection.ranks.size()), connection.me,
                        stream_of(connection.lane));
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
                    std::as_writable_bytes(std::span(&word, 1)), [state = shared_from_this()] {
                      if (state->closed) return;
                      state->order.push_back(state->word);
                      state->listen_for_order();
                      state->advance();
                    });
}

/// On the first rank: says what comes next, as far as it is of use.
void NcclColumn::State::name_phases() {
  for (;;) {
    const auto operation = std::find_if(operations.begin(), operations.end(),
                                        [this](const Operation& each) { return may_be_named(each); });
    if (operation == operations.end()) break;
    ahead[lane_of_phase(*operation, operation->named)].push_back(&*operation);
    ++operation->named;
    const auto message =
        std::make_shared<Word>(Word{static_cast<std::uint32_t>(operation->number), operation->place});
    order.push_back(*message);
    for (std::size_t row = 1; row < options.ranks.size() && needs_words(); ++row) {
      transport.send(options.ranks[row], {Channel::control, order_index},
                     std::as_bytes(std::span(message.get(), 1)), [message] {});
    }
  }
  advance();
}

bool NcclColumn::State::may_be_named(const Operation& operation) const {
  if (operation.named == operation.phases.size()) return false;
  if (!overlaps()) return true;
  if (ahead[lane_of_phase(operation, operation.named)].size() >= most_ahead) return false;
  if (operation.named == 0) return true;
  // The phase before has begun.
  const std::size_t before = operation.named - 1;
  return operation.over > before ||
         (operation.over == before && ahead[lane_of_phase(operation, before)].front() == &operation);
}

void NcclColumn::State::submit(Operation operation) {
  expect(connected && !closed, "{}: NCCL's communicators are not connected", operation.what);
  operation.place = places[operation.number]++;
  operation.phases = phase_ends(operation.stages);
  const Word own{static_cast<std::uint32_t>(operation.number), operation.place};
  operations.push_back(std::move(operation));
  if (leads) return name_phases();
  if (!needs_words()) order.push_back(own);
  advance();
}

/// The next phase of the order, if its operation was submitted here.
bool NcclColumn::State::begin_next() {
  if (order.empty()) return false;
  const Word next = order.front();
  const auto operation = std::find_if(operations.begin(), operations.end(), [&](const Operation& each) {
    return static_cast<std::uint32_t>(each.number) == next.number && each.place == next.place;
  });
  if (operation == operations.end()) return false;
  order.pop_front();
  const std::size_t phase = operation->begun++;
  if (operation->left) {
    stream_of(lane_of_phase(*operation, phase)).wait(*operation->left);
    spare_events.push_back(std::move(operation->left));
  }
  issuing = operation;
  return true;
}

void NcclColumn::State::advance() {
  if (advancing) return;
  advancing = true;
  while (!closed && (issuing || begin_next())) {
    const auto operation = *issuing;
    if (!issue(*operation)) {
      if (!std::exchange(asks_again, true)) {
        later(ask_again, [](State& state) {
          state.asks_again = false;
          state.advance();
        });
      }
      break;
    }
    issuing.reset();
    runtime::Stream& stream = stream_of(lane_of_phase(*operation, operation->begun - 1));
    if (operation->begun < operation->phases.size()) {
      if (spare_events.empty()) spare_events.push_back(gpu.make_event());
      operation->left = std::move(spare_events.back());
      spare_events.pop_back();
      operation->left->record(stream);
    }
    stream.call_back([weak = weak_from_this(), &to = loop, operation] {
      to.post([weak, operation] {
        const auto state = weak.lock();
        if (state && !state->closed) state->phase_over(operation);
      });
    });
  }
  advancing = false;
  if (!watching &&
      std::any_of(operations.begin(), operations.end(), [](const auto& each) { return each.begun > 0; })) {
    watch();
  }
}

/// Puts stage after stage of the phase on its stream; false while NCCL's threads are about it.
bool NcclColumn::State::issue(Operation& operation) {
  const std::size_t phase = operation.begun - 1;
  const Connection& used = connection_of_phase(operation, phase);
  const runtime::StreamView stream = stream_of(lane_of_phase(operation, phase));
  const std::size_t first = phase == 0 ? 0 : operation.phases[phase - 1];
  for (;;) {
    // The sums of a stage, and the next stage, come behind what its calls put on the stream.
    if (operation.next_stage > first) {
      const NcclStage& before = operation.stages[operation.next_stage - 1];
      const NcclLibrary::Result result = before.calls.empty() ? NcclLibrary::success : library.status(used.handle);
      if (result == NcclLibrary::in_progress) return false;
      if (result != NcclLibrary::success) fail_with(result, used, operation.what);
      for (const NcclStage::Move& unpack : before.unpacks) copy(stream, unpack, operation.dtype);
      for (const auto& [to, to_runs, from, from_runs, count] : before.sums) {
        add(stream, to, from, operation.dtype, count, to_runs, from_runs);
      }
    }
    if (operation.next_stage == operation.phases[phase]) return true;
    const NcclStage& stage = operation.stages[operation.next_stage++];
    for (const NcclStage::Move& pack : stage.packs) copy(stream, pack, operation.dtype);
    if (!stage.calls.empty()) launch(used, stage.calls, operation, stream);
  }
}

void NcclColumn::State::launch(const Connection& connection, const std::vector<NcclCall>& calls,
                               const Operation& operation, runtime::StreamView stream) {
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
        checked(library.all_gather(call.from, call.to, call.count, operation.dtype, handle, stream));
        break;
      case NcclCall::Kind::reduce_scatter:
        checked(library.reduce_scatter(call.from, call.to, call.count, operation.dtype, handle, stream));
        break;
      case NcclCall::Kind::all_reduce:
        checked(library.all_reduce(call.from, call.to, call.count, operation.dtype, handle, stream));
        break;
      case NcclCall::Kind::broadcast:
        checked(library.broadcast(call.from, call.to, call.count, operation.dtype, call.peer, handle, stream));
        break;
      case NcclCall::Kind::reduce:
        checked(library.reduce(call.from, call.to, call.count, operation.dtype, call.peer, handle, stream));
        break;
      case NcclCall::Kind::send:
        checked(library.send(call.from, call.count, operation.dtype, call.peer, handle, stream));
        break;
      case NcclCall::Kind::receive:
        checked(library.receive(call.to, call.count, operation.dtype, call.peer, handle, stream));
        break;
    }
  }
  checked(library.group_end());
}

/// The first one of the operation that was not.
void NcclColumn::State::phase_over(Operations::iterator operation) {
  const Lane lane = lane_of_phase(*operation, operation->over);
  Operations ended;
  if (++operation->over == operation->phases.size()) {
    ended.splice(ended.end(), operations, operation);
    // What it submits is the next hop of something old. It is named before anything takes this one's place ahead.
    std::exchange(operation->done, nullptr)();
  }
  if (!leads || closed) return;
  ahead[lane].erase(std::find(ahead[lane].begin(), ahead[lane].end(), &*operation));
  name_phases();
}

/// An error that NCCL meets while an operation waits on the GPU: nobody else would say so.
void NcclColumn::State::watch() {
  watching = true;
  later(look_for_errors, [](State& state) {
    state.watching = false;
    const auto runs = [](const Operation& operation) { return operation.begun > 0; };
    const auto first = std::find_if(state.operations.begin(), state.operations.end(), runs);
    if (first == state.operations.end()) return;
    for (const auto& [key, connection] : state.connections) {
      const NcclLibrary::Result result = state.library.status(connection.handle);
      if (result == NcclLibrary::success || result == NcclLibrary::in_progress) continue;
      // The one that is on it; errors of peers are seen by all communicators.
      const auto on_it =
          std::find_if(state.operations.begin(), state.operations.end(), [&](const Operation& operation) {
            return operation.begun > operation.over &&
                   &state.connection_of_phase(operation, operation.over) == &connection;
          });
      state.fail_with(result, connection, (on_it == state.operations.end() ? first : on_it)->what);
    }
    state.watch();
  });
}

void NcclColumn::State::close() noexcept {
  if (std::exchange(closed, true)) return;
  // An exception ends the job: peers may be gone.
  const bool runs =
      std::any_of(operations.begin(), operations.end(), [](const Operation& each) { return each.begun > 0; });
  const bool orderly = connected && !runs && std::uncaught_exceptions() == 0;
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
    : state_(std::make_shared<State>(loop, transport, device, library, std::move(options))) {}

NcclColumn::~NcclColumn() {
  close();
  for (auto& operation : state_->operations) operation.left.reset();
  state_->spare_events.clear();
  state_->streams
      .clear();  // handlers that the transport still holds keep the rest, which receives were posted into
}

std::unique_ptr<Communicator> NcclColumn::communicator(TeamKind team, int number,
                                                       PlanCommunicator::Options options) {
  expect(!state_->connected, "a communicator of the {} is asked for after NCCL was connected", to_string(team));
  state_->numbers.insert(number);
  state_->add_connections(team, options);
  return std::make_unique<Member>(state_, team, number, std::move(options));
}

bool NcclColumn::sums_alike() const noexcept {
  const auto& ways = state_->options.ways;
  return ways[static_cast<std::size_t>(Collective::reduce_scatter)] == NcclWay::plan &&
         ways[static_cast<std::size_t>(Collective::all_reduce)] == NcclWay::plan;
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
  std::set<int> waiting;
  for (const auto& operation : state.operations) {
    if (operation.begun > 0) {
      for (const int rank : state.connection(operation.team, NcclSpan::team).ranks) from(rank, operation.since);
    } else if (waiting.insert(operation.number).second) {
      from(state.options.ranks.front(), operation.since);  // to say that it comes next
    }
  }
  return all;
}

void NcclColumn::close() noexcept { state_->close(); }

}  // namespace ranvier::collectives
