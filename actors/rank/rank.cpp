#include "actors/rank/rank.hpp"

#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace ranvier::actors {

Rank::Rank(runtime::EventLoop& loop, runtime::Transport& transport, runtime::Device& device, const Samples& samples,
           RankPlan plan)
    : plan_(std::move(plan)),
      resources_(loop, transport, device, plan_.memory, plan_.tiers, plan_.options.tiers.files),
      load_places_(device, plan_.samples) {
  const RankContext& context = resources_.context();
  const TrainerOptions& options = plan_.options;
  plan_.stage->bind(context.arena);
  plan_.states->bind(context.arena);

  if (options.tiers.parameters != TierKind::device)
    parameter_records_ = &add<ParameterRecords>(context, plan_, plan_.parameter_records);
  parameters_ = &add<ParameterStore>(context, plan_, plan_.parameters, parameter_records_);
  if (plan_.sync_options.in_tier) {
    gradients_ = std::make_unique<GradientTier>(loop, context.tiers, context.reduce, *plan_.states,
                                                plan_.gradient_memory, context.arena);
  }
  sync_ = std::make_unique<GradientSync>(loop, transport, context.executor, context.compute, context.reduce,
                                         *plan_.stage, *plan_.states, *plan_.column, plan_.flow, plan_.chunks,
                                         context.trace, plan_.sync_options, gradients_.get(), plan_.sync_memory,
                                         context.arena);
  optimizer_ = std::make_unique<Optimizer>(loop, context.tiers, context.executor, context.compute, *plan_.states,
                                           *plan_.column, plan_.flow, plan_.chunks, *parameters_, parameter_records_,
                                           gradients_.get(), context.trace, plan_.optimizer_options,
                                           plan_.optimizer_memory, context.arena);
  auto& checkpoints = add<ActivationCheckpoints>(context, plan_, plan_.checkpoints);
  auto& consensus = add<Consensus>(loop, transport);

  auto& gradient_places = gradient_places_.emplace(*sync_);
  const std::vector<PassResource*> resources{&checkpoints, parameters_, &gradient_places};
  auto& loader = add<Loader>(context, load_places_, samples.training, options.batch_size);
  auto& stage = add<StageActor>(context, plan_, plan_.passes, loader, resources);
  const GridPass::Parts forward{.context = &context,
                                .share = &plan_,
                                .passes = &plan_.passes,
                                .resources = resources,
                                .places = &load_places_,
                                .consensus = &consensus,
                                .wishes_to_stop = [this] { return trainer_->wishes_to_stop(); }};
  Evaluation* evaluation = nullptr;
  if (samples.validation != nullptr || options.choices)
    evaluation = &add<Evaluation>(context, plan_, forward, samples.validation);
  SampleWriter* writer = nullptr;
  if (options.sample.every > 0) {
    const bool last = plan_.stage->last();
    writer = &add<SampleWriter>(
        forward, options.sample,
        SampleWriter::Stage{.positions = plan_.architecture->positions,
                            .draws = last && plan_.position.row == 0,
                            .logits = last ? context.arena.slot_as<float>(plan_.sample_logits) : nullptr,
                            .vocabulary = plan_.stage->vocabulary()});
  }
  trainer_ = &add<Trainer>(context, plan_, samples.training,
                           Trainer::Parts{stage, *sync_, *optimizer_, consensus, evaluation, writer});
}

Rank::~Rank() {
  resources_.finish();
  while (!parts_.empty()) parts_.pop_back();
}

void Rank::load_weights(const WeightSource& weights) {
  constexpr std::size_t piece = std::size_t{1} << 20;
  const runtime::StreamView compute = context().compute;
  runtime::Buffer host = context().device.allocate(piece * sizeof(float), runtime::MemorySpace::pinned);
  auto* values = reinterpret_cast<float*>(host.data());
  // A rank asks for its parts only: the whole model is nowhere (ZeRO-Infinity §7.2).
  const auto fill = [&](const UnitState& unit, const UnitPart& part) {
    const std::size_t end = std::min(part.range.begin + part.range.count, unit.spec->elements());
    for (std::size_t begin = part.range.begin; begin < end; begin += piece) {
      const std::size_t count = std::min(piece, end - begin);
      weights(*unit.spec, begin, {values, count});
      runtime::cast(compute, part.at(begin), part.dtype, values, runtime::DType::f32, count);
      compute.synchronize();
    }
  };
  for (const UnitState& unit : plan_.states->all()) {
    if (unit.parameters.data != nullptr) fill(unit, unit.parameters);
    if (plan_.states->separate_master() && unit.master.data != nullptr) fill(unit, unit.master);
  }
  weights_ = weights;
}

void Rank::start(TrainerHooks hooks) {
  const auto load_states = [this, hooks = std::move(hooks)] {
    parameters_->start();
    optimizer_->load(std::exchange(weights_, nullptr), [this, hooks] { trainer_->start(hooks); });
  };
  if (parameter_records_ == nullptr) return load_states();
  parameter_records_->load(weights_, load_states);
}

void Rank::read_weights(std::size_t unit, std::size_t begin, std::span<float> out, runtime::Handler done) {
  optimizer_->read(unit, begin, out, std::move(done));
}

std::vector<Wait> Rank::waits() const {
  std::vector<Wait> all;
  for (const auto& part : parts_) {
    for (Wait& wait : part->waits()) all.push_back(std::move(wait));
  }
  for (const auto& running : {sync_->running(), optimizer_->running()}) {
    for (const std::string& what : running) all.push_back({.what = what, .rank = {}, .since = context().loop.now()});
  }
  return all;
}

std::string Rank::details(std::string_view part) const {
  std::string text;
  for (const auto& each : parts_) {
    // Several parts have passes of their own, of which one runs at a time.
    if (each->name() != part && part != StageActor::part_name) continue;
    if (const std::string more = each->details(); !more.empty()) text += (text.empty() ? "" : ", ") + more;
  }
  return text;
}

std::vector<int> Rank::peers() const {
  const runtime::Transport& transport = context().transport;
  std::set<int> peers(plan_.column->ranks.begin(), plan_.column->ranks.end());
  for (const auto& partner : plan_.sync_options.partners) {
    if (partner) peers.insert(*partner);
  }
  for (const auto& part : parts_) {
    for (const int peer : part->peers()) peers.insert(peer);
  }
  if (plan_.rank == 0) {
    for (int rank = 1; rank < transport.ranks(); ++rank) peers.insert(rank);
  } else {
    peers.insert(0);
  }
  peers.erase(plan_.rank);
  return {peers.begin(), peers.end()};
}

}  // namespace ranvier::actors
