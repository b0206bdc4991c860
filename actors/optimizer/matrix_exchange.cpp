#include "actors/optimizer/matrix_exchange.hpp"

#include "models/ops/orthogonalize.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::actors {

using collectives::Range;
using collectives::Scope;
using collectives::ShardLayout;
using runtime::Channel;
using runtime::MemoryKind;
using runtime::MemorySpace;

namespace {

constexpr std::size_t units_at_a_time = 2;  // one is computed while another one is exchanged

/// Type in which matrices are computed: fp32 with layers in fp32, else bf16, which has more range than fp16.
runtime::DType matrix_dtype(const UnitStates& states) {
  return states.precision().compute == runtime::DType::f32 ? runtime::DType::f32 : runtime::DType::bf16;
}

/// Elements of a matrix in its owner's buffer. All matrices are aligned like parameters, so that the choice of a GPU's
/// matrix multiplication does not depend on their owners.
std::size_t buffer_elements(const UnitMatrix& matrix) {
  return runtime::round_up(matrix.range.count, models::UnitSpec::alignment);
}

bool owns_any(const UnitState& unit, int owner) {
  return std::ranges::find(unit.matrices, owner, &UnitMatrix::owner) != unit.matrices.end();
}

}  // namespace

MatrixExchange::Plan MatrixExchange::plan(PlanContext& planner, std::size_t units) {
  Plan plan;
  const int ranks = planner.share.column->layout.ranks();
  const runtime::DType dtype = matrix_dtype(*planner.share.states);
  std::size_t update = 0, matrices = 0, units_with_matrices = 0, workspace = 0;
  for (const UnitState& unit : planner.share.states->all()) {
    if (unit.matrices.empty()) continue;
    ++units_with_matrices;
    update = std::max(update, unit.optimizer.count);
    std::vector<std::size_t> elements(static_cast<std::size_t>(ranks));  // by owner
    for (const UnitMatrix& matrix : unit.matrices) {
      std::size_t& of_owner = elements[static_cast<std::size_t>(matrix.owner)];
      matrices = std::max(matrices, of_owner += buffer_elements(matrix));
      for (const models::MatrixPart& part : unit.spec->parameters[matrix.parameter].matrices)
        workspace = std::max(workspace, models::orthogonalize_workspace(part.rows, part.columns, dtype));
    }
  }
  const auto slots = [&planner](const char* name, std::size_t elements, std::size_t count) {
    return runtime::SlotPool::plan(
        planner.memory, {MemoryKind::workspace, MemorySpace::device, name, elements * sizeof(float), count});
  };
  plan.updates = slots("updates of matrices", update, units);
  if (ranks > 1)
    plan.matrices = slots("matrices to orthogonalize", matrices, std::min(units_with_matrices, units_at_a_time));
  if (workspace > 0)
    plan.workspace = planner.memory.add(
        {MemoryKind::workspace, MemorySpace::device, "workspace to orthogonalize a matrix", workspace});
  return plan;
}

std::vector<runtime::StagedMessages> MatrixExchange::staged_messages(const ModelShare& share) {
  using Direction = runtime::StagedMessages::Direction;
  const ShardLayout& layout = share.column->layout;
  std::size_t bytes = 0;
  for (const UnitState& unit : share.states->all()) {
    for (int owner = 0; owner < layout.ranks(); ++owner) {
      for (int other = 0; other < layout.ranks(); ++other) {
        const Range held = layout.range(share.column->sharding.trained.optimizer, unit.elements, other);
        std::size_t elements = 0;
        for (const Part& part : parts(unit, owner, held)) elements += part.range.count;
        if (other != owner) bytes = std::max(bytes, elements * sizeof(float));
      }
    }
  }
  if (bytes == 0) return {};
  const std::size_t count = units_at_a_time * static_cast<std::size_t>(layout.ranks() - 1);
  return {{.channel = Channel::matrix, .direction = Direction::send, .bytes = bytes, .count = count},
          {.channel = Channel::matrix, .direction = Direction::receive, .bytes = bytes, .count = count}};
}

std::size_t MatrixExchange::messages(const ModelShare& share) {
  std::size_t messages = 0;
  for (const Peer& peer : peers_of(share)) {
    const auto has_any = [](const std::vector<Part>& parts) { return !parts.empty(); };
    if (peer.shares) messages += static_cast<std::size_t>(std::ranges::count_if(peer.of_peer, has_any));
    messages += static_cast<std::size_t>(std::ranges::count_if(peer.of_mine, has_any));
  }
  return messages;
}

/// Elements of an owner's matrices that are in `held`.
std::vector<MatrixExchange::Part> MatrixExchange::parts(const UnitState& unit, int owner, const Range& held) {
  std::vector<Part> all;
  std::size_t offset = 0;
  for (const UnitMatrix& matrix : unit.matrices) {
    if (matrix.owner != owner) continue;
    const Range range = matrix.range.common(held);
    if (range.count > 0) all.push_back({range, offset + range.begin - matrix.range.begin});
    offset += buffer_elements(matrix);
  }
  return all;
}

std::vector<MatrixExchange::Peer> MatrixExchange::peers_of(const ModelShare& share) {
  const ColumnOptions& column = *share.column;
  const Scope scope = column.sharding.trained.optimizer;
  std::vector<Peer> peers;
  const int me = column.layout.rank();
  for (int row = 0; row < column.layout.ranks(); ++row) {
    if (row == me) continue;
    Peer& peer = peers.emplace_back();
    peer.rank = column.ranks.at(static_cast<std::size_t>(row));
    peer.shares = column.layout.share_copy(scope, me, row);
    for (const UnitState& unit : share.states->all()) {
      peer.of_peer.push_back(parts(unit, row, unit.optimizer));
      peer.of_mine.push_back(parts(unit, me, column.layout.range(scope, unit.elements, row)));
    }
  }
  return peers;
}

MatrixExchange::MatrixExchange(const RankContext& context, const ModelShare& share, const Plan& plan)
    : context_(&context),
      states_(share.states.get()),
      me_(share.column->layout.rank()),
      peers_(peers_of(share)),
      workspace_(plan.workspace ? context.arena.slot(*plan.workspace) : nullptr),
      updates_(context.arena, plan.updates),
      matrices_(context.arena, plan.matrices) {}

void MatrixExchange::orthogonalize(std::size_t unit, float* update, runtime::Handler done) {
  work_.push_back({.unit = unit, .update = update, .since = context_->loop.now(), .done = std::move(done)});
  if (work_.size() <= units_at_a_time) start(std::prev(work_.end()));
}

void MatrixExchange::start(WorkPosition work) {
  if (!peers_.empty() && owns_any(states_->all()[work->unit], me_)) {
    work->matrices = matrices_.take();
    copy_own(*work, Phase::to_owners);
  }
  exchange(work, Phase::to_owners, [this, work] { compute(work); });
}

void MatrixExchange::exchange(WorkPosition work, Phase phase, const runtime::Handler& done) {
  const UnitState& unit = states_->all()[work->unit];
  struct Message {
    int rank = 0;
    std::vector<runtime::Bytes> ranges;
  };
  std::vector<Message> sends, receives;
  for (const Peer& peer : peers_) {
    if (phase == Phase::to_owners && !peer.shares) continue;
    Message in_update{.rank = peer.rank, .ranges = {}}, in_matrices{.rank = peer.rank, .ranges = {}};
    for (const Part& part : peer.of_peer[work->unit])
      in_update.ranges.push_back(std::as_writable_bytes(
          std::span(work->update + (part.range.begin - unit.optimizer.begin), part.range.count)));
    for (const Part& part : peer.of_mine[work->unit])
      in_matrices.ranges.emplace_back(work->matrices.data(part.offset * sizeof(float)),
                                      part.range.count * sizeof(float));
    const bool back = phase == Phase::to_all;
    if (!in_update.ranges.empty()) (back ? receives : sends).push_back(std::move(in_update));
    if (!in_matrices.ranges.empty()) (back ? sends : receives).push_back(std::move(in_matrices));
  }
  if (sends.empty() && receives.empty()) return context_->loop.post(done);
  work->waits = true;
  const runtime::Handler one_passed = runtime::last_of(sends.size() + receives.size(), [work, done] {
    work->waits = false;
    done();
  });
  const runtime::Tag tag{Channel::matrix, static_cast<std::uint32_t>(unit.global_index)};
  for (const Message& message : receives)
    context_->transport.receive(message.rank, tag, message.ranges, one_passed);
  for (const Message& message : sends)
    context_->transport.send(message.rank, tag,
                             std::vector<runtime::ConstBytes>(message.ranges.begin(), message.ranges.end()),
                             one_passed);
}

void MatrixExchange::copy_own(const Work& work, Phase phase) {
  const UnitState& unit = states_->all()[work.unit];
  for (const Part& part : parts(unit, me_, unit.optimizer)) {
    auto* const update = reinterpret_cast<std::byte*>(work.update + (part.range.begin - unit.optimizer.begin));
    std::byte* const matrix = work.matrices.data(part.offset * sizeof(float));
    const bool back = phase == Phase::to_all;
    runtime::copy(context_->compute, back ? update : matrix, back ? matrix : update,
                  part.range.count * sizeof(float));
  }
}

void MatrixExchange::compute(WorkPosition work) {
  const UnitState& unit = states_->all()[work->unit];
  const auto go_on = [this, work] { exchange(work, Phase::to_all, [this, work] { finish(work); }); };
  if (!owns_any(unit, me_)) return go_on();
  const bool alone = peers_.empty();
  auto* matrices = reinterpret_cast<float*>(work->matrices.data());
  for (const UnitMatrix& matrix : unit.matrices) {
    if (matrix.owner != me_) continue;
    const models::ParameterSpec& parameter = unit.spec->parameters[matrix.parameter];
    float* const values = alone ? work->update + matrix.range.begin : matrices;
    const std::size_t stride = parameter.elements() / parameter.shape.front();
    for (const models::MatrixPart& part : parameter.matrices) {
      models::orthogonalize(context_->compute, values + part.first_row * stride + part.first_column, part.rows,
                            part.columns, stride, models::muon_scale(part.rows, part.columns),
                            matrix_dtype(*states_), workspace_);
    }
    if (!alone) matrices += buffer_elements(matrix);
  }
  if (!alone) copy_own(*work, Phase::to_all);
  context_->loop.after_work(context_->compute, {"optimizer", "the orthogonal update of", unit.spec->name}, go_on);
}

void MatrixExchange::finish(WorkPosition work) {
  work->matrices.release();
  const runtime::Handler done = std::move(work->done);
  work_.erase(work);
  if (work_.size() >= units_at_a_time) start(std::next(work_.begin(), units_at_a_time - 1));
  done();
}

std::vector<Wait> MatrixExchange::waits() const {
  std::vector<Wait> all;
  for (const Work& work : work_) {
    if (work.waits)
      all.push_back({fmt::format("the updates of the matrices of {}", states_->all()[work.unit].spec->name),
                     std::nullopt, work.since});
  }
  return all;
}

std::vector<int> MatrixExchange::peers() const {
  std::vector<int> all;
  for (const Peer& peer : peers_) {
    const auto has_any = [](const std::vector<Part>& parts) { return !parts.empty(); };
    if (std::ranges::any_of(peer.of_peer, has_any) || std::ranges::any_of(peer.of_mine, has_any))
      all.push_back(peer.rank);
  }
  return all;
}

}  // namespace ranvier::actors
