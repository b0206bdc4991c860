#include "actors/rank/rank.hpp"

#include "runtime/base/error.hpp"
#include "runtime/kernels/block_codec.hpp"
#include "runtime/kernels/elementwise.hpp"
#include "runtime/kernels/int8_block.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace ranvier::actors {

namespace {

/// Ranges of the units whose parameters are on the device, or of the others.
std::vector<StateRange> parameters_to_read(const UnitStates& units, bool on_device) {
  std::vector<StateRange> reads;
  for (const UnitState& unit : units.all()) {
    if ((unit.parameters.data != nullptr) == on_device)
      reads.push_back({unit.spec, to_string(StateKind::weights), unit.parameters.range});
  }
  return reads;
}

// Elements per call of a source.
constexpr std::size_t max_values = std::size_t{1} << 20, max_in_place = std::size_t{1} << 24;
static_assert(max_values % runtime::int8_block_elements == 0);

/// Rounds values to a type of states; `to` gets their bytes.
void round_values(std::vector<std::byte>& to, runtime::DType dtype, std::span<const float> values) {
  to.resize(runtime::bytes_of(dtype, values.size()));
  if (runtime::is_in_blocks(dtype))
    return runtime::blocks_of_floats(reinterpret_cast<runtime::Int8Block*>(to.data()), values.data(), dtype,
                                     values.size());
  runtime::with_float_type(dtype, [&](auto type) {
    using Element = decltype(type);
    std::ranges::transform(values, reinterpret_cast<Element*>(to.data()), runtime::from_float<Element>);
  });
}

}  // namespace

Rank::Rank(runtime::EventLoop& loop, runtime::Transport& transport, runtime::Device& device, const Samples& samples,
           RankPlan plan, std::unique_ptr<Consensus> agreement)
    : plan_(std::move(plan)),
      samples_(samples.training),
      resources_(loop, transport, device, plan_.memory, plan_.tiers, plan_.options.tiers.files),
      load_places_(device, plan_.samples) {
  const RankContext& context = resources_.context();
  const TrainerOptions& options = plan_.options;
  plan_.stage->bind(context.arena);
  plan_.states->bind(context.arena);
  if (reads_through_staging(*plan_.states))
    weight_staging_ = device.allocate(WeightStaging::bytes, runtime::MemorySpace::pinned);

  if (!plan_.offloaded_parameters.parameters.empty())
    offloaded_parameters_ = &add<OffloadedParameters>(context, plan_, plan_.offloaded_parameters);
  parameters_ = &add<ParameterStore>(context, plan_, plan_.parameters, offloaded_parameters_);
  OffloadedGradients* offloaded_gradients = nullptr;
  if (options.tiers.gradients != TierKind::device)
    offloaded_gradients = &add<OffloadedGradients>(context, plan_, plan_.offloaded_gradients);
  auto& gradients = add<GradientSync>(context, plan_, plan_.gradients, offloaded_gradients);
  optimizer_ =
      &add<Optimizer>(context, plan_, plan_.optimizer, *parameters_, offloaded_parameters_, offloaded_gradients);
  std::vector<StageActor::Resources> resources;  // by slice
  for (std::size_t s = 0; s < plan_.checkpoints.size(); ++s)
    resources.push_back({&add<ActivationCheckpoints>(context, plan_.stage->slice(s), plan_.checkpoints[s])});
  auto& consensus = take(agreement ? std::move(agreement) : std::make_unique<Consensus>(loop, transport));

  for (StageActor::Resources& of_slice : resources)
    of_slice.insert(of_slice.end(), {parameters_, &gradients.microbatches()});
  auto& loader = add<Loader>(context, load_places_, samples_, options.batch_size);
  auto& stage = add<StageActor>(context, plan_, plan_.passes, loader, resources);
  const GridPass::Parts forward{.context = &context,
                                .plan = &plan_,
                                .resources = resources,
                                .places = &load_places_,
                                .consensus = &consensus,
                                .stop_pending = [this] { return trainer_->stop_pending(); }};
  Evaluation* evaluation = nullptr;
  if (samples.validation != nullptr || options.questions)
    evaluation = &add<Evaluation>(forward, samples.validation);
  SampleWriter* writer = nullptr;
  if (options.sample.every > 0) writer = &add<SampleWriter>(forward);
  ReplicaCheck* replicas = nullptr;
  if (options.check_every > 0 && options.steps > 0)
    replicas = &add<ReplicaCheck>(context, plan_, plan_.replicas, *optimizer_, consensus);
  if (options.checkpoint_staging > 0 && options.steps > 0) {
    snapshot_ = &add<Snapshot>(context, plan_, plan_.snapshot, *optimizer_);
    checkpointer_ = &add<Checkpointer>(context, *snapshot_, *optimizer_, [this] { return scalars(); });
  }
  trainer_ = &add<Trainer>(
      context, plan_, samples_,
      Trainer::Parts{stage, gradients, *optimizer_, consensus, evaluation, writer, replicas, checkpointer_});
}

Rank::~Rank() {
  resources_.finish();
  while (!parts_.empty()) parts_.pop_back();
}

void Rank::load_weights(const models::UnitSource& weights) {
  source_ = nullptr;
  fill_parameters(weights);
}

void Rank::fill_parameters(models::UnitSource weights) {
  // Layers get the values that master weights store, like in later steps.
  if (plan_.options.tiers.master != runtime::DType::f32 && plan_.options.steps > 0)
    weights = [values = std::move(weights)](const models::UnitSpec& unit, std::size_t begin, std::span<float> out) {
      values(unit, begin, out);
      if (!unit.trained) return;
      for (float& value : out) value = runtime::to_float(runtime::from_float<runtime::Bf16>(value));
    };
  const runtime::StreamView compute = context().compute;
  runtime::Device& device = context().device;
  runtime::Buffer host = device.allocate(max_values * sizeof(float), runtime::MemorySpace::pinned);
  auto* values = reinterpret_cast<float*>(host.data());
  compute.synchronize();  // initialization of the memory
  // A rank reads only its shards, so the complete model is never in one place (ZeRO-Infinity §7.2).
  const auto fill = [&](const UnitState& unit, const UnitView& part) {
    const std::size_t end = std::min(part.range.begin + part.range.count, unit.spec->elements());
    const bool in_place = part.dtype == runtime::DType::f32 && device.host_reaches(part.data);
    // A checkpoint's threads divide long reads among them; weights files need memory in proportion to a read.
    const std::size_t most = in_place && source_ != nullptr ? max_in_place : max_values;
    for (std::size_t begin = part.range.begin; begin < end; begin += most) {
      const std::size_t count = std::min(most, end - begin);
      if (in_place) {
        weights(*unit.spec, begin, {reinterpret_cast<float*>(part.at(begin)), count});
        continue;
      }
      weights(*unit.spec, begin, {values, count});
      runtime::cast(compute, part.at(begin), part.dtype, values, runtime::DType::f32, count);
      compute.synchronize();
    }
  };
  const auto& units = plan_.states->all();
  if (source_ != nullptr) source_->will_read(parameters_to_read(*plan_.states, true));
  for (const UnitState& unit : units) {
    if (unit.parameters.data == nullptr) continue;
    fill(unit, unit.parameters);
    if (plan_.refresh_code && unit.trained()) {
      runtime::round_to_blocks(compute, *plan_.refresh_code, unit.parameters.data, unit.parameters.dtype,
                               unit.parameters.range.count);
      compute.synchronize();
    }
  }
  weights_ = weights;
}

void Rank::resume(StateSource& source) {
  source_ = &source;
  was_resumed_ = true;
  fill_parameters([&source](const models::UnitSpec& unit, std::size_t begin, std::span<float> out) {
    source.read(unit, to_string(StateKind::weights), begin, out);
  });
}

void Rank::start(TrainerHooks hooks) {
  const auto begin = [this, hooks = std::move(hooks)] {
    parameters_->start();  // only now: ranks that have loaded may request parameters from this one
    for (const auto& part : parts_) part->restore_scalars(scalars_);
    trainer_->start(hooks);
  };
  if (!weights_) return begin();
  load(begin);
}

void Rank::load(runtime::Handler done) {
  const auto load_states = [this, done = std::move(done)] {
    context().compute.synchronize();
    fill_states(0, [this, done] {
      // Actors get scalars at the start of training: another rank may find damage, and then all load another source.
      const auto scalars = source_ != nullptr ? source_->scalars() : decltype(source_->scalars())();
      scalars_.assign(scalars.begin(), scalars.end());
      weights_ = nullptr;
      source_ = nullptr;
      done();
    });
  };
  if (!plan_.options.tiers.parameters_leave()) return load_states();
  if (source_ != nullptr) source_->will_read(parameters_to_read(*plan_.states, false));
  offloaded_parameters_->load(weights_, load_states);
}

/// State arrays that are filled from a source.
struct Rank::Filling {
  std::vector<StateArray> arrays;
  models::UnitSource source;
  runtime::Handler done;
  std::vector<float> values = {};
  std::vector<std::byte> rounded = {};
  std::size_t at = 0;      // array
  std::size_t filled = 0;  // elements of array `at`
};

/// Fills a bounded range at a time, so that the complete model is never in memory (ZeRO-Infinity §7.2). Padding after
/// a unit's last parameter stays. Values are read directly into host-accessible memory if possible.
void Rank::fill_next(const std::shared_ptr<Filling>& filling) {
  Filling& f = *filling;
  while (f.at < f.arrays.size()) {
    const StateArray& array = f.arrays[f.at];
    const models::UnitSpec& unit = *plan_.states->all()[array.unit].spec;
    const std::size_t end = std::min(array.range.begin + array.range.count, unit.elements());
    const std::size_t begin = array.range.begin + f.filled;
    if (begin >= end) {
      ++f.at;
      f.filled = 0;
      continue;
    }
    const auto go_on = [this, filling] { fill_next(filling); };
    if (const std::span<float> memory = optimizer_->records().memory(array, begin); !memory.empty()) {
      const std::size_t count = std::min({memory.size(), max_in_place, end - begin});
      f.source(unit, begin, memory.first(count));
      f.filled += count;
      return context().loop.post(go_on);
    }
    f.values.resize(std::min(max_values, end - begin));
    f.source(unit, begin, f.values);
    f.filled += f.values.size();
    round_values(f.rounded, plan_.states->all()[array.unit].view(array.kind).dtype, f.values);
    return optimizer_->access_state({offload::IoKind::write, array.unit, array.kind, begin, f.rounded, go_on});
  }
  f.done();
}

void Rank::fill_states(std::size_t which, runtime::Handler done) {
  if (which == optimizer_states.size()) return context().loop.post(std::move(done));
  const StateKind kind = optimizer_states[which];
  const bool is_weights = kind == StateKind::weights;
  // There may be no separate master weights, and moments are allocated as zeros.
  const bool fills = is_weights ? plan_.states->separate_master() : was_resumed_;
  if (!fills) return fill_states(which + 1, std::move(done));
  std::vector<StateArray> arrays = optimizer_->records().arrays();
  std::erase_if(arrays, [&](const StateArray& each) { return each.kind != kind; });
  if (source_ != nullptr) {
    std::vector<StateRange> reads;
    for (const StateArray& array : arrays)
      reads.push_back({plan_.states->all()[array.unit].spec, to_string(kind), array.range});
    source_->will_read(reads);
  }
  const models::UnitSource moments = [source = source_, kind](const models::UnitSpec& unit, std::size_t begin,
                                                              std::span<float> out) {
    if (source == nullptr) return std::fill(out.begin(), out.end(), 0.0f);
    source->read(unit, to_string(kind), begin, out);
  };
  const auto filling = std::make_shared<Filling>(
      Filling{.arrays = std::move(arrays),
              .source = is_weights ? weights_ : moments,
              .done = [this, which, done = std::move(done)] { fill_states(which + 1, done); }});
  context().loop.post([this, filling] { fill_next(filling); });
}

std::vector<StateScalar> Rank::scalars() const {
  std::vector<StateScalar> all;
  for (const auto& part : parts_) append(all, part->scalars());
  return all;
}

void Rank::add_checkpoints(CheckpointSeries series) {
  expect(checkpointer_ != nullptr, "checkpoints need TrainerOptions::checkpoint_staging in the rank's plan");
  checkpointer_->add(std::move(series));
}

void Rank::read_weights(std::size_t unit, std::size_t begin, std::span<float> out, runtime::Handler done) {
  using offload::IoKind;
  const UnitState& state = plan_.states->all()[unit];
  const StateKind kind = kind_of(state.trained(), 0);
  const runtime::DType dtype = state.view(kind).dtype;
  if (state.trained() && dtype == runtime::DType::f32)
    return optimizer_->access_state(
        {IoKind::read, unit, kind, begin, std::as_writable_bytes(out), std::move(done)});
  const std::span<float> now = out.first(std::min(out.size(), WeightStaging::value_bytes / size_of(dtype)));
  const auto widen = [=, this, done = std::move(done)] {
    runtime::with_float_type(dtype, [&](auto type) {
      const auto* const elements = reinterpret_cast<const decltype(type)*>(weight_staging_.data());
      for (std::size_t i = 0; i < now.size(); ++i) now[i] = runtime::to_float(elements[i]);
    });
    if (now.size() == out.size()) return done();
    read_weights(unit, begin + now.size(), out.subspan(now.size()), done);
  };
  optimizer_->access_state({IoKind::read,
                            unit,
                            kind,
                            begin,
                            {weight_staging_.data(), now.size() * runtime::size_of(dtype)},
                            widen,
                            {weight_staging_.data() + WeightStaging::value_bytes, WeightStaging::block_bytes}});
}

std::vector<Wait> Rank::waits() const {
  std::vector<Wait> all;
  for (const auto& part : parts_) append(all, part->waits());
  oldest_first(all);
  return all;
}

std::string Rank::details(std::string_view part) const {
  std::string text;
  for (const auto& each : parts_) {
    // Several actors have passes; only one runs at a time.
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
