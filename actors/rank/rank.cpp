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
  GradientRecords* gradient_records = nullptr;
  if (options.tiers.gradients != TierKind::device)
    gradient_records = &add<GradientRecords>(context, plan_, plan_.gradient_records);
  auto& gradients = add<GradientSync>(context, plan_, plan_.gradients, gradient_records);
  optimizer_ = &add<Optimizer>(context, plan_, plan_.optimizer, *parameters_, parameter_records_, gradient_records);
  auto& checkpoints = add<ActivationCheckpoints>(context, plan_, plan_.checkpoints);
  auto& consensus = add<Consensus>(loop, transport);

  auto& gradient_places = gradient_places_.emplace(gradients);
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
                           Trainer::Parts{stage, gradients, *optimizer_, consensus, evaluation, writer});
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
  }
  weights_ = weights;
}

void Rank::start(TrainerHooks hooks) {
  const auto load_states = [this, hooks = std::move(hooks)] {
    parameters_->start();
    const auto begin = [this, hooks] { trainer_->start(hooks); };
    const WeightSource weights = std::exchange(weights_, nullptr);
    if (!plan_.states->separate_master()) return context().loop.post(begin);  // layers' own are the only ones
    fill_state(context().loop, *optimizer_, "weights", *plan_.states, weights, begin);
  };
  if (parameter_records_ == nullptr) return load_states();
  parameter_records_->load(weights_, load_states);
}

void Rank::read_weights(std::size_t unit, std::size_t begin, std::span<float> out, runtime::Handler done) {
  const StateArray weights{unit, "weights", plan_.states->all()[unit].optimizer, runtime::DType::f32};
  optimizer_->read_state(weights, begin, std::as_writable_bytes(out), std::move(done));
}

std::vector<Wait> Rank::waits() const {
  std::vector<Wait> all;
  for (const auto& part : parts_) {
    for (Wait& wait : part->waits()) all.push_back(std::move(wait));
  }
  oldest_first(all);
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
  std::set<int> peers;
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
