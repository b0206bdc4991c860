#include "actors/states/hop_pipeline.hpp"

#include "actors/base/rank_context.hpp"
#include "actors/states/model_share.hpp"
#include "collectives/communicators/quantized_communicator.hpp"
#include "runtime/base/error.hpp"

#include <algorithm>

namespace ranvier::actors {

using collectives::Communicator;
using collectives::Hop;
using collectives::PlanCommunicator;
using collectives::QuantizedCommunicator;
using collectives::WireType;
using collectives::WireTypes;
using runtime::MemoryKind;
using runtime::MemorySpace;

namespace {

constexpr std::size_t operations_at_a_time = 2;  // per hop: one sends while the other one adds
constexpr int families = 8;
constexpr int max_hops = 3;  // maximum number of hops in a flow
constexpr std::uint32_t indices_per_hop = (1u << 20) / (families * max_hops);

/// Data of a hop: elements, and run and stride of a communicator's part (0: contiguous).
struct HopPart {
  std::size_t elements = 0;
  std::size_t run = 0, stride = 0;
};

/// Maximum bytes of the strided parts of one operation, when packed.
std::size_t packed_bytes(const std::vector<collectives::OperationShape>& shapes) {
  std::size_t most = 0;
  for (const collectives::OperationShape& shape : shapes) {
    std::size_t bytes = 0;
    for (std::size_t part = 0; part < shape.parts.size(); ++part) {
      if (shape.runs[part] > 0)
        bytes += shape.parts[part] * runtime::size_of(shape.dtype) + runtime::MemoryPlan::alignment;
    }
    most = std::max(most, bytes);
  }
  return most;
}

HopPart part_of(const collectives::ShardLayout& layout, const Hop& hop, std::size_t unit_elements,
                std::size_t slice) {
  const std::size_t whole = unit_elements / static_cast<std::size_t>(layout.pieces(hop.whole));
  const std::size_t piece = unit_elements / static_cast<std::size_t>(layout.ranks());
  expect(slice <= piece, "a slice of {} elements of pieces that have {}", slice, piece);
  if (slice == 0 || slice == piece) return {whole};
  return {whole / piece * slice, slice, piece};
}

}  // namespace

std::optional<runtime::BlockCode> HopPipeline::code_of(const ColumnOptions& column, collectives::TeamKind team,
                                                       WireTypes::Links WireTypes::* wire) {
  const WireType type = column.layout.wire_type(team, column.wire.*wire);
  if (type == WireType::int4 && wire == &WireTypes::gather)
    fail(ErrorCode::usage, "`gather_dtype` int4 is for gradients only; use `gather_dtype` int8");
  return collectives::block_code(type);
}

HopPipeline::Plan HopPipeline::plan(PlanContext& planner, const Options& options,
                                    const std::vector<std::vector<ItemShape>>& bundles) {
  const ColumnOptions& column = *planner.share.column;
  Plan plan{options, {}, {}, {}};
  for (const Hop& hop : options.hops) {
    const collectives::Team& team = column.layout.team(hop.team);
    std::vector<collectives::OperationShape> shapes;
    for (const auto& bundle : bundles) {
      collectives::OperationShape shape{hop.collective, {}, options.dtype};
      for (const auto& [elements, slice] : bundle) {
        const HopPart part = part_of(column.layout, hop, elements, slice);
        shape.parts.push_back(part.elements);
        shape.runs.push_back(part.run);
      }
      shapes.push_back(std::move(shape));
    }
    const auto add = [&](const char* what, std::size_t bytes) {
      return runtime::SlotPool::plan(
          planner.memory,
          {MemoryKind::messages, MemorySpace::device,
           fmt::format("{} {} {}", options.name, what, to_string(hop.team)), bytes, operations_at_a_time});
    };
    const auto code = plan.codes.emplace_back(code_of(column, hop.team, options.wire));
    std::size_t bytes = 0;
    if (!code) {
      bytes = PlanCommunicator::staging_bytes(team, team.index_of(column.layout.rank()),
                                              column.choices[static_cast<std::size_t>(hop.team)], shapes);
      if (column.packs) bytes = std::max(bytes, packed_bytes(shapes));
    }
    plan.staging.push_back(add("arriving from the", bytes));
    plan.packed.push_back(code ? add("packed for the", QuantizedCommunicator::packed_bytes(shapes, *code))
                               : runtime::SlotPool::Plan{});
  }
  return plan;
}

HopPipeline::HopPipeline(const RankContext& context, const ColumnOptions& column, const Plan& plan)
    : loop_(&context.loop), column_(&column), hops_(plan.hops), dtype_(plan.dtype), starts_(hops_.size()) {
  expect(hops_.size() <= max_hops && plan.family >= 0 && plan.family < families, "{} hops of family {}",
         hops_.size(), plan.family);
  for (std::size_t h = 0; h < hops_.size(); ++h) {
    const collectives::Team& team = column.layout.team(hops_[h].team);
    std::vector<int> ranks;
    for (const int member : team.members) ranks.push_back(column.ranks.at(static_cast<std::size_t>(member)));
    std::vector<std::byte*> staging;
    for (std::size_t s = 0; s < operations_at_a_time; ++s)
      staging.push_back(context.arena.slot(plan.staging[h].memory, s));
    const int number = plan.family * max_hops + static_cast<int>(h);
    PlanCommunicator::Options options{.team = team,
                                      .me = team.index_of(column.layout.rank()),
                                      .ranks = std::move(ranks),
                                      .choice = column.choices[static_cast<std::size_t>(hops_[h].team)],
                                      .first_index = static_cast<std::uint32_t>(number) * indices_per_hop,
                                      .indices = indices_per_hop,
                                      .staging = std::move(staging),
                                      .staging_bytes = plan.staging[h].bytes};
    std::unique_ptr<Communicator>& communicator = communicators_.emplace_back(
        column.source != nullptr
            ? column.source->communicator(hops_[h].team, number, std::move(options))
            : std::make_unique<PlanCommunicator>(context.loop, context.executor, std::move(options)));
    if (!plan.codes[h]) continue;
    QuantizedCommunicator::Options packed{
        .code = *plan.codes[h], .packed = {}, .packed_bytes = plan.packed[h].bytes};
    for (std::size_t s = 0; s < operations_at_a_time; ++s)
      packed.packed.push_back(context.arena.slot(plan.packed[h].memory, s));
    communicator = std::make_unique<QuantizedCommunicator>(
        context.loop, plan.wire == &WireTypes::gather ? context.gather : context.reduce, std::move(communicator),
        std::move(packed));
  }
}

void HopPipeline::submit(std::vector<Item> items, std::string what, runtime::Handler done) {
  if (hops_.empty()) return loop_->post(std::move(done));
  start(std::make_shared<Bundle>(Bundle{submitted_++, std::move(items), std::move(what), std::move(done)}), 0);
}

void HopPipeline::start(const std::shared_ptr<Bundle>& bundle, std::size_t h) {
  starts_[h].run(bundle->number, [this, bundle, h] {
    std::vector<Communicator::Operand> parts;
    for (const Item& item : bundle->items) {
      // Offset from the start of the item, in elements of the unit.
      const std::size_t begin = column_->layout.range(hops_[h].whole, item.elements).begin - item.begin;
      const auto [elements, run, stride] = part_of(column_->layout, hops_[h], item.elements, item.slice.count);
      if (item.compact && run > 0) {
        parts.push_back({item.data + begin / stride * run * runtime::size_of(dtype_), elements});
      } else {
        parts.push_back({item.data + (begin + item.slice.begin) * runtime::size_of(dtype_), elements, run, stride});
      }
    }
    communicators_[h]->run(hops_[h].collective, parts, dtype_, bundle->what, [this, bundle, h] {
      if (h + 1 == hops_.size()) return bundle->done();
      start(bundle, h + 1);
    });
  });
}

std::vector<Wait> HopPipeline::waits() const {
  std::vector<Wait> all;
  for (const auto& communicator : communicators_) {
    for (auto& [what, since] : communicator->running()) all.push_back({std::move(what), std::nullopt, since});
  }
  return all;
}

std::vector<int> HopPipeline::peers() const {
  std::vector<int> all;
  for (const auto& communicator : communicators_) {
    const collectives::Team& team = communicator->team();
    for (const int member : team.members) {
      if (member != team.members[static_cast<std::size_t>(communicator->me())]) {
        all.push_back(column_->ranks.at(static_cast<std::size_t>(member)));
      }
    }
  }
  return all;
}

}  // namespace ranvier::actors
