#include "collectives/executor.hpp"

#include "runtime/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <exception>
#include <list>
#include <utility>

namespace ranvier::collectives {

namespace {

constexpr std::size_t staging_alignment = 64;

std::size_t align(std::size_t bytes) {
  return (bytes + staging_alignment - 1) / staging_alignment * staging_alignment;
}

/// Where the receive_adds of one step arrive, each aligned.
std::size_t arrival_bytes(std::span<const Operation> step, runtime::DType dtype) {
  std::size_t bytes = 0;
  for (const Operation& operation : step) {
    if (operation.action == Action::receive_add) bytes += align(operation.range.count * size_of(dtype));
  }
  return bytes;
}

/// One of the two places of a chunk in flight: steps use them in turn, as the receives of the next step are posted
/// while this one runs.
std::size_t place_bytes(std::span<const Plan> plans, int me, runtime::DType dtype) {
  std::size_t bytes = 0;
  for (const Plan& plan : plans) {
    for (const Step& step : plan.ranks.at(me)) bytes = std::max(bytes, arrival_bytes(step, dtype));
  }
  return bytes;
}

bool overlap(const Range& left, const Range& right) {
  return left.begin < right.begin + right.count && right.begin < left.begin + left.count;
}

/// Whether the receives of `next` may write while `current` runs.
bool can_arrive_early(const Step& next, const Step& current) {
  for (const Operation& arriving : next) {
    if (arriving.action != Action::receive) continue;  // to staging, or nothing arrives
    for (const Operation& running : current) {
      if (overlap(arriving.range, running.range)) return false;
    }
  }
  return true;
}

}  // namespace

struct Executor::State {
  struct Running;

  /// Runs one chunk after another; several lanes run side by side.
  struct Lane {
    Running* running = nullptr;
    std::byte* staging = nullptr;  ///< two places
    const std::vector<Step>* steps = nullptr;
    runtime::Tag tag;
    std::size_t step = 0;
    std::size_t left = 0;              ///< operations of this step that are not complete
    std::size_t place = 0;             ///< where the receive_adds of this step arrive, 0 or 1
    bool next_posted = false;          ///< the receives of the following step were posted
    std::vector<std::uint32_t> early;  ///< those of them that have completed
  };

  struct Running {
    State* state = nullptr;
    Operands operands;
    runtime::Handler done;
    std::size_t place_bytes = 0;
    std::size_t next_chunk = 0;
    std::size_t busy_lanes = 0;
    std::vector<Lane> lanes;
    std::list<Running>::iterator self;
  };

  void start(Operands operands, runtime::Handler done);
  void start_chunk(Lane& lane);
  void start_step(Lane& lane);
  void post_receives(Lane& lane, std::size_t step, std::size_t place);
  void use(Lane& lane, std::uint32_t index);
  void complete_one(Lane& lane);
  void finish(Running& operation);

  /// The first step at or behind `step` in which this rank does something.
  static std::size_t next_busy(const Lane& lane, std::size_t step) {
    while (step < lane.steps->size() && (*lane.steps)[step].empty()) ++step;
    return step;
  }

  static std::byte* address(const Lane& lane, const Range& range) {
    return lane.running->operands.data + range.begin * size_of(lane.running->operands.dtype);
  }

  static std::size_t bytes(const Lane& lane, const Range& range) {
    return range.count * size_of(lane.running->operands.dtype);
  }

  /// Where operation `index` of a step arrives before it is added.
  static std::byte* arrival(const Lane& lane, const Step& step, std::size_t place, std::uint32_t index) {
    const std::span before(step.data(), index);
    return lane.staging + place * lane.running->place_bytes + arrival_bytes(before, lane.running->operands.dtype);
  }

  runtime::EventLoop& loop;
  runtime::Transport& transport;
  runtime::StreamView stream;
  std::list<Running> running = {};
};

void Executor::State::start(Operands operands, runtime::Handler done) {
  const auto& plans = *operands.plans;
  for (const Plan& plan : plans) {
    expect(plan.ranks.size() == operands.members.size(), "{}: {} members were given", plan.name,
           operands.members.size());
  }
  expect(operands.members.at(operands.me) == transport.rank(),
         "member {} of a collective is rank {}, not this rank, {}", operands.me, operands.members[operands.me],
         transport.rank());
  expect(operands.depth > 0, "a collective needs a chunk in flight, not {}", operands.depth);

  Running& operation = running.emplace_back();
  operation.state = this;
  operation.self = std::prev(running.end());
  operation.place_bytes = place_bytes(plans, operands.me, operands.dtype);
  operation.lanes.resize(std::min<std::size_t>(operands.depth, plans.size()));
  operation.operands = std::move(operands);
  operation.done = std::move(done);
  operation.busy_lanes = operation.lanes.size() + 1;  // one more until all have started
  for (std::size_t i = 0; i < operation.lanes.size(); ++i) {
    operation.lanes[i].running = &operation;
    operation.lanes[i].staging = operation.operands.staging + i * 2 * operation.place_bytes;
    start_chunk(operation.lanes[i]);
  }
  if (--operation.busy_lanes == 0) loop.post([this, &operation] { finish(operation); });
}

void Executor::State::start_chunk(Lane& lane) {
  Running& operation = *lane.running;
  const auto& plans = *operation.operands.plans;
  while (operation.next_chunk < plans.size()) {
    const std::size_t chunk = operation.next_chunk++;
    lane.steps = &plans[chunk].ranks[operation.operands.me];
    lane.tag = {operation.operands.channel, operation.operands.index + static_cast<std::uint32_t>(chunk)};
    lane.step = next_busy(lane, 0);
    if (lane.step < lane.steps->size()) return start_step(lane);
  }
  if (--operation.busy_lanes == 0) finish(operation);
}

void Executor::State::start_step(Lane& lane) {
  const Step& step = (*lane.steps)[lane.step];
  lane.left = step.size() + 1;  // one more until everything has started
  if (!std::exchange(lane.next_posted, false)) post_receives(lane, lane.step, lane.place);
  for (const Operation& operation : step) {
    if (operation.action != Action::send) continue;
    transport.send(lane.running->operands.members[operation.peer], lane.tag,
                   runtime::ConstBytes(address(lane, operation.range), bytes(lane, operation.range)),
                   [this, &lane] { complete_one(lane); });
  }
  for (const std::uint32_t index : lane.early) use(lane, index);
  lane.early.clear();
  const std::size_t next = next_busy(lane, lane.step + 1);
  if (next < lane.steps->size() && can_arrive_early((*lane.steps)[next], step)) {
    lane.next_posted = true;
    post_receives(lane, next, 1 - lane.place);
  }
  complete_one(lane);
}

void Executor::State::post_receives(Lane& lane, std::size_t step_number, std::size_t place) {
  const Step& step = (*lane.steps)[step_number];
  for (std::uint32_t index = 0; index < step.size(); ++index) {
    const Operation& operation = step[index];
    if (operation.action == Action::send) continue;
    std::byte* const to =
        operation.action == Action::receive ? address(lane, operation.range) : arrival(lane, step, place, index);
    // Captures of 16 bytes, so that the handler needs no memory of its own.
    transport.receive(lane.running->operands.members[operation.peer], lane.tag,
                      runtime::Bytes(to, bytes(lane, operation.range)),
                      [&lane, number = static_cast<std::uint32_t>(step_number), index] {
                        if (number != lane.step) return lane.early.push_back(index);
                        lane.running->state->use(lane, index);
                      });
  }
}

/// Does with what operation `index` of the current step received what its action says.
void Executor::State::use(Lane& lane, std::uint32_t index) {
  const Step& step = (*lane.steps)[lane.step];
  const auto& [action, peer, range] = step[index];
  if (action == Action::receive) return complete_one(lane);
  add(stream, address(lane, range), arrival(lane, step, lane.place, index), lane.running->operands.dtype,
      range.count);
  stream.call_back([this, &lane] { loop.post([this, &lane] { complete_one(lane); }); });
}

void Executor::State::complete_one(Lane& lane) {
  if (--lane.left > 0) return;
  lane.place = 1 - lane.place;
  lane.step = next_busy(lane, lane.step + 1);
  if (lane.step < lane.steps->size()) return start_step(lane);
  start_chunk(lane);
}

void Executor::State::finish(Running& operation) {
  const runtime::Handler done = std::move(operation.done);
  running.erase(operation.self);
  done();
}

Executor::Executor(runtime::EventLoop& loop, runtime::Transport& transport, runtime::StreamView stream)
    : state_(new State{loop, transport, stream}) {}

Executor::~Executor() {
  if (state_->running.empty()) return;
  try {
    state_->stream.synchronize();  // what it was given refers to this executor
  } catch (const std::exception&) {
    // Reported through Device::on_failure.
  }
}

void Executor::run(Operands operands, runtime::Handler done) {
  state_->start(std::move(operands), std::move(done));
}

std::size_t Executor::staging_bytes(std::span<const Plan> plans, int me, runtime::DType dtype, int depth) {
  return std::min<std::size_t>(depth, plans.size()) * 2 * place_bytes(plans, me, dtype);
}

}  // namespace ranvier::collectives
