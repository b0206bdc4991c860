#include "collectives/communicators/executor.hpp"

#include "runtime/base/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <list>
#include <utility>

namespace ranvier::collectives {

namespace {

/// Ranges of at least this size are separate messages: Open MPI sends large scattered ranges several times slower than
/// contiguous ones.
constexpr std::size_t own_message_bytes = 8 << 10;

/// Size of one of the two staging buffers of a chunk in flight. Steps alternate between them, since the receives of the
/// next step are posted while this one runs. Ranges that are added, packed or unpacked are aligned there.
std::size_t place_bytes(const Executor::Operands& operands) {
  std::size_t largest = 0;
  for (std::size_t chunk = 0; chunk < operands.chunks(); ++chunk) {
    for (std::size_t number = 0; number < operands.steps(chunk); ++number) {
      std::size_t bytes = 0;
      for (const Executor::Operand& part : operands.parts) {
        const RankSchedule::Step* const step = part.step(chunk, number);
        if (step == nullptr) continue;
        for (const auto& [action, peer, range] : step->operations) {
          const std::size_t width = size_of(operands.dtype);
          if (action == Action::receive_add || part.extent(range, width).packed())
            bytes += Executor::staged_bytes(range.count * width);
        }
      }
      largest = std::max(largest, bytes);
    }
  }
  return largest;
}

}  // namespace

Executor::Extent Executor::Operand::extent(const Range& range, std::size_t element_bytes) const {
  const runtime::StridedLayout runs{.run = run, .stride = stride, .first = range.begin};
  if (range.count <= runs.together(0)) return {data + runs.at(0) * element_bytes, {}, range.count};
  return {data, runs, range.count};
}

const RankSchedule::Step* Executor::Operand::step(std::size_t chunk, std::size_t number) const {
  const auto& steps = (*schedules)[chunk].steps;
  return number < steps.size() ? &steps[number] : nullptr;
}

std::size_t Executor::Operands::steps(std::size_t chunk) const {
  std::size_t most = 0;
  for (const Operand& part : parts) most = std::max(most, (*part.schedules)[chunk].steps.size());
  return most;
}

void Executor::Operands::check() const {
  for (const Operand& part : parts) {
    expect(part.schedules->size() == chunks(),
           "the parts of a collective have different numbers of chunks: {} and {}", chunks(),
           part.schedules->size());
    expect(part.run == 0 ? part.stride == 0 : part.stride >= part.run,
           "a part of a collective has invalid runs: {} elements, stride {}", part.run, part.stride);
    for (const RankSchedule& schedule : *part.schedules) {
      expect(schedule.ranks == static_cast<int>(members.size()), "a plan of {} ranks has {} members",
             schedule.ranks, members.size());
    }
  }
  expect(depth > 0, "a collective needs at least one chunk in flight, not {}", depth);
}

struct Executor::State {
  struct Running;

  /// One message: a long range, or all short ranges of a step between two ranks in one direction.
  struct Transfer {
    Action action = Action::send;
    int peer = 0;
    bool is_long = false;
    std::vector<runtime::ConstBytes> sent;
    std::vector<runtime::Bytes> received;
    std::vector<Extent> extents;  ///< the ranges in the buffers, in the order of `sent` or `received`
    bool packs = false;           ///< at least one range is packed

    [[nodiscard]] bool uses_stream() const noexcept { return packs || action == Action::receive_add; }
  };

  /// Messages of a step. Entries are reused by later steps, which then allocate nothing.
  struct Transfers {
    std::vector<Transfer> entries;
    std::size_t used = 0;
  };

  /// Runs chunks one after another; an operation has `depth` lanes.
  struct Lane {
    Running* running = nullptr;
    std::byte* staging = nullptr;  ///< two staging buffers
    std::size_t chunk = 0;
    std::size_t steps = 0;
    runtime::Tag tag;
    std::size_t step = 0;
    std::size_t left = 0;      ///< transfers of this step that are not complete
    std::size_t place = 0;     ///< staging buffer of the current step, 0 or 1; the next step uses the other one
    bool next_posted = false;  ///< the receives of the following step were posted
    std::vector<std::uint32_t> early;  ///< completed receives of the next step
    std::array<Transfers, 2> transfers;
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
  void send(Lane& lane);
  void use(Lane& lane, std::uint32_t index);
  void complete_one(Lane& lane);
  void finish(Running& operation);

  /// First step from `step` on in which this rank sends or receives.
  static std::size_t next_busy(const Lane& lane, std::size_t step) {
    const auto& parts = lane.running->operands.parts;
    for (; step < lane.steps; ++step) {
      for (const Operand& part : parts) {
        const RankSchedule::Step* const schedule = part.step(lane.chunk, step);
        if (schedule != nullptr && !schedule->operations.empty()) return step;
      }
    }
    return step;
  }

  /// Returns whether the receives of `step` may write while the previous busy step runs.
  static bool may_arrive_early(const Lane& lane, std::size_t step) {
    const auto& parts = lane.running->operands.parts;
    return std::all_of(parts.begin(), parts.end(), [&](const Operand& part) {
      const RankSchedule::Step* const schedule = part.step(lane.chunk, step);
      return schedule == nullptr || schedule->may_arrive_early;
    });
  }

  static Transfer& transfer_for(Transfers& transfers, Action action, int peer, bool is_long);

  runtime::EventLoop& loop;
  runtime::Transport& transport;
  runtime::StreamView stream;
  std::list<Running> running = {};
};

void Executor::State::start(Operands operands, runtime::Handler done) {
  operands.check();
  expect(operands.members.at(operands.me) == transport.rank(),
         "member {} of a collective is rank {}, not this rank, {}", operands.me, operands.members[operands.me],
         transport.rank());

  Running& operation = running.emplace_back();
  operation.state = this;
  operation.self = std::prev(running.end());
  operation.place_bytes = place_bytes(operands);
  operation.lanes.resize(std::min<std::size_t>(operands.depth, operands.chunks()));
  operation.operands = std::move(operands);
  operation.done = std::move(done);
  operation.busy_lanes = operation.lanes.size() + 1;  // one extra until all lanes have started
  for (std::size_t i = 0; i < operation.lanes.size(); ++i) {
    operation.lanes[i].running = &operation;
    operation.lanes[i].staging = operation.operands.staging + i * 2 * operation.place_bytes;
    start_chunk(operation.lanes[i]);
  }
  if (--operation.busy_lanes == 0) loop.post([this, &operation] { finish(operation); });
}

void Executor::State::start_chunk(Lane& lane) {
  Running& operation = *lane.running;
  while (operation.next_chunk < operation.operands.chunks()) {
    lane.chunk = operation.next_chunk++;
    lane.steps = operation.operands.steps(lane.chunk);
    lane.tag = {operation.operands.channel, operation.operands.index + static_cast<std::uint32_t>(lane.chunk)};
    lane.step = next_busy(lane, 0);
    if (lane.step < lane.steps) return start_step(lane);
  }
  if (--operation.busy_lanes == 0) finish(operation);
}

void Executor::State::start_step(Lane& lane) {
  if (!std::exchange(lane.next_posted, false)) post_receives(lane, lane.step, lane.place);
  Transfers& transfers = lane.transfers[lane.place];
  lane.left = transfers.used + 1;  // one extra until all sends and receives have started
  send(lane);
  for (const std::uint32_t index : lane.early) use(lane, index);
  lane.early.clear();
  const std::size_t next = next_busy(lane, lane.step + 1);
  if (next < lane.steps && may_arrive_early(lane, next)) {
    lane.next_posted = true;
    post_receives(lane, next, 1 - lane.place);
  }
  complete_one(lane);
}

/// Starts all sends of the step in the order of the peer's receives; after packing, if any range is packed.
void Executor::State::send(Lane& lane) {
  const auto for_sends = [&lane](auto use) {
    const Transfers& transfers = lane.transfers[lane.place];
    for (std::size_t index = 0; index < transfers.used; ++index) {
      if (transfers.entries[index].action == Action::send) use(transfers.entries[index]);
    }
  };
  const auto send_all = [this, &lane, for_sends] {
    for_sends([&](const Transfer& transfer) {
      transport.send(lane.running->operands.members[transfer.peer], lane.tag, transfer.sent,
                     [this, &lane] { complete_one(lane); });
    });
  };
  bool packs = false;
  const std::size_t width = size_of(lane.running->operands.dtype);
  for_sends([&](const Transfer& transfer) {
    packs |= transfer.packs;
    for (std::size_t i = 0; i < transfer.extents.size(); ++i) {
      const Extent& extent = transfer.extents[i];
      if (!extent.packed()) continue;
      runtime::copy(stream, const_cast<std::byte*>(transfer.sent[i].data()), {}, extent.data, extent.runs, width,
                    extent.count);
    }
  });
  if (!packs) return send_all();
  loop.after_work(stream, {"collectives", "packing data to send"}, send_all);
}

/// Message for a range. Both ends process the ranges in the same order, so they build the same messages.
Executor::State::Transfer& Executor::State::transfer_for(Transfers& transfers, Action action, int peer,
                                                         bool is_long) {
  for (std::size_t index = 0; index < transfers.used && !is_long; ++index) {
    Transfer& transfer = transfers.entries[index];
    if (!transfer.is_long && transfer.peer == peer && transfer.action == action) return transfer;
  }
  if (transfers.used == transfers.entries.size()) transfers.entries.emplace_back();
  Transfer& transfer = transfers.entries[transfers.used++];
  transfer.action = action;
  transfer.peer = peer;
  transfer.is_long = is_long;
  transfer.sent.clear();
  transfer.received.clear();
  transfer.extents.clear();
  transfer.packs = false;
  return transfer;
}

/// Builds the messages of `step` from the ranges of all parts, and posts its receives.
void Executor::State::post_receives(Lane& lane, std::size_t step, std::size_t place) {
  const Operands& operands = lane.running->operands;
  const std::size_t element_bytes = size_of(operands.dtype);
  std::byte* arrival = lane.staging + place * lane.running->place_bytes;
  Transfers& transfers = lane.transfers[place];
  transfers.used = 0;
  for (const Operand& part : operands.parts) {
    const RankSchedule::Step* const schedule = part.step(lane.chunk, step);
    if (schedule == nullptr) continue;
    for (const auto& [action, peer, range] : schedule->operations) {
      const Extent extent = part.extent(range, element_bytes);
      const std::size_t bytes = extent.count * element_bytes;
      Transfer& transfer = transfer_for(transfers, action, peer, bytes >= own_message_bytes);
      std::byte* data = extent.data;
      if (extent.packed() || action == Action::receive_add) {
        data = arrival;
        arrival += staged_bytes(bytes);
      }
      if (action == Action::send) {
        transfer.sent.emplace_back(data, bytes);
      } else {
        transfer.received.emplace_back(data, bytes);
      }
      transfer.packs |= extent.packed();
      transfer.extents.push_back(extent);
    }
  }
  for (std::uint32_t index = 0; index < transfers.used; ++index) {
    const Transfer& transfer = transfers.entries[index];
    if (transfer.action == Action::send) continue;
    // Captures of at most 16 bytes need no allocation.
    transport.receive(lane.running->operands.members[transfer.peer], lane.tag, transfer.received,
                      [&lane, number = static_cast<std::uint32_t>(step), index] {
                        if (number != lane.step) return lane.early.push_back(index);
                        lane.running->state->use(lane, index);
                      });
  }
}

/// Adds or unpacks the data received by transfer `index` of the current step.
void Executor::State::use(Lane& lane, std::uint32_t index) {
  const Transfer& transfer = lane.transfers[lane.place].entries[index];
  if (!transfer.uses_stream()) return complete_one(lane);
  const runtime::DType dtype = lane.running->operands.dtype;
  for (std::size_t i = 0; i < transfer.extents.size(); ++i) {
    const Extent& extent = transfer.extents[i];
    const std::byte* const arrived = transfer.received[i].data();
    if (transfer.action == Action::receive_add) {
      add(stream, extent.data, arrived, dtype, extent.count, extent.runs, {});
    } else if (extent.packed()) {
      runtime::copy(stream, extent.data, extent.runs, arrived, {}, size_of(dtype), extent.count);
    }
  }
  loop.after_work(stream, {"collectives", "adding received data"}, [this, &lane] { complete_one(lane); });
}

void Executor::State::complete_one(Lane& lane) {
  if (--lane.left > 0) return;
  lane.place = 1 - lane.place;
  lane.step = next_busy(lane, lane.step + 1);
  if (lane.step < lane.steps) return start_step(lane);
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
    state_->stream.synchronize();  // queued work refers to this executor
  } catch (const std::exception&) {
    // Reported through Device::on_failure.
  }
}

void Executor::run(Operands operands, runtime::Handler done) {
  state_->start(std::move(operands), std::move(done));
}

std::size_t Executor::staging_bytes(const Operands& operands) {
  return std::min<std::size_t>(operands.depth, operands.chunks()) * 2 * place_bytes(operands);
}

}  // namespace ranvier::collectives
