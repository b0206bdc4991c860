#include "actors/optimizer.hpp"

#include "runtime/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::actors {

using collectives::Range;
using runtime::MemoryKind;
using runtime::MemorySpace;
using runtime::SpanKind;
using runtime::Trace;

namespace {

constexpr std::size_t gathered_bundles = 2;   // one arrives while the other one is stepped
constexpr std::size_t refreshed_bundles = 3;  // one is stepped, one gathered, one stored

std::vector<std::vector<std::size_t>> make_bundles(const UnitStates& states, const Optimizer::Options& options) {
  std::vector<std::vector<std::size_t>> bundles;
  std::size_t bytes = 0;
  for (std::size_t u = 0; u < states.all().size(); ++u) {
    const std::size_t more = states.all()[u].elements * runtime::size_of(states.precision().compute);
    if (bundles.empty() || bytes + more > options.bundle_bytes) {
      bundles.emplace_back();
      bytes = 0;
    }
    bundles.back().push_back(u);
    bytes += more;
  }
  return bundles;
}

/// A gathered gradient lies where its optimizer's range begins.
std::size_t place_bytes(const UnitState& unit, runtime::DType dtype) {
  return unit.optimizer.count * runtime::size_of(dtype);
}

}  // namespace

Optimizer::Memory Optimizer::plan(const UnitStates& states, const ColumnOptions& column,
                                  const collectives::ShardFlow& flow, const Options& options,
                                  offload::TierPlan& tiers, runtime::MemoryPlan& plan) {
  Memory memory;
  std::vector<std::vector<std::size_t>> elements;
  std::size_t bytes = 0, parameter_bytes = 0;
  for (const auto& bundle : make_bundles(states, options)) {
    auto& sizes = elements.emplace_back();
    std::size_t of_bundle = 0, parameters_of_bundle = 0;
    for (const std::size_t unit : bundle) {
      sizes.push_back(states.all()[unit].elements);
      of_bundle += place_bytes(states.all()[unit], states.precision().gradient);
      parameters_of_bundle += states.all()[unit].parameters.bytes();
    }
    bytes = std::max(bytes, of_bundle);
    parameter_bytes = std::max(parameter_bytes, parameters_of_bundle);
  }
  const bool gathers = !flow.gather_gradient.empty();
  memory.gradient_places.push_back(plan.add({MemoryKind::workspace, MemorySpace::device, "gradients for the optimizer",
                                             gathers ? bytes : 0, gathered_bundles}));
  memory.gradient = HopPipeline::plan(column, flow.gather_gradient, elements, states.precision().gradient,
                                      "gradients for the optimizer", plan);
  if (!states.parameters_on_device()) {
    memory.parameter_places = plan.add({MemoryKind::workspace, MemorySpace::device, "parameters being refreshed",
                                        parameter_bytes, std::min(refreshed_bundles, elements.size())});
  }
  memory.states = StateTier::plan(states, options.tiers, tiers, plan);
  memory.refresh =
      HopPipeline::plan(column, flow.refresh, elements, states.precision().compute, "refreshed parameters", plan);
  return memory;
}

Optimizer::Optimizer(runtime::EventLoop& loop, offload::Tiers& tiers, collectives::Executor& executor,
                     runtime::StreamView compute, const UnitStates& states, const ColumnOptions& column,
                     const collectives::ShardFlow& flow, ParameterStore& parameters, ParameterTier* parameter_tier,
                     Trace& trace, const Options& options, const Memory& memory, const runtime::Arena& arena)
    : loop_(&loop),
      compute_(compute),
      states_(&states),
      parameters_(&parameters),
      parameter_tier_(parameter_tier),
      trace_(&trace),
      gradient_(loop, executor, column, flow.gather_gradient, states.precision().gradient, 4, memory.gradient, arena),
      refresh_(loop, executor, column, flow.refresh, states.precision().compute, 5, memory.refresh, arena),
      gathers_gradients_(!flow.gather_gradient.empty()),
      refreshes_(!flow.refresh.empty()),
      bundles_(make_bundles(states, options)) {
  for (std::size_t p = 0; p < gathered_bundles; ++p) {
    free_places_.push_back(arena.slot(memory.gradient_places.front(), p));
  }
  if (memory.parameter_places) {
    for (std::size_t p = 0; p < std::min(refreshed_bundles, bundles_.size()); ++p) {
      free_parameter_places_.push_back(arena.slot(*memory.parameter_places, p));
    }
    parameter_place_.resize(bundles_.size());
  }
  if (options.tiers.optimizer == TierKind::device) return;
  tier_ = std::make_unique<StateTier>(loop, tiers, compute, states, options.tiers, memory.states, arena,
                                      [this](std::size_t unit) { unit_stepped(unit); });
  bundle_of_.resize(states.all().size());
  for (std::size_t b = 0; b < bundles_.size(); ++b) {
    for (const std::size_t unit : bundles_[b]) bundle_of_[unit] = b;
  }
  units_missing_.resize(bundles_.size());
  gathered_.resize(bundles_.size());
}

void Optimizer::load(StateTier::Source weights, runtime::Handler done) {
  if (!tier_) return loop_->post(std::move(done));
  tier_->load(std::move(weights), std::move(done));
}

void Optimizer::begin() {
  if (tier_) tier_->begin();
}

void Optimizer::read(std::size_t unit, std::size_t begin, std::span<float> out, runtime::Handler done) {
  if (tier_) return tier_->read(unit, begin, out, std::move(done));
  runtime::copy(compute_, out.data(), states_->all()[unit].master.at(begin), out.size_bytes());
  compute_.call_back([loop = loop_, done = std::move(done)] { loop->post(done); });
}

void Optimizer::step(const runtime::AdamWOptions& adamw, runtime::Handler done) {
  expect(missing_ == 0, "a step of the optimizer begins before the last one is over");
  adamw_ = adamw;
  if (tier_) {
    // Parameters are there before everything is stored.
    const auto half_done = [halves = std::make_shared<int>(2), done = std::move(done)] {
      if (--*halves == 0) done();
    };
    done_ = half_done;
    tier_->step(adamw, half_done);
  } else {
    done_ = std::move(done);
  }
  next_bundle_ = 0;
  missing_ = bundles_.size();
  parameters_->begin_refresh();
  if (missing_ == 0) return loop_->post(std::exchange(done_, nullptr));
  begin_bundles();
}

void Optimizer::skip(runtime::Handler done) {
  parameters_->begin_refresh();
  for (std::size_t u = 0; u < states_->all().size(); ++u) parameters_->refreshed(u);
  if (tier_) {
    tier_->skip(std::move(done));
  } else {
    loop_->post(std::move(done));
  }
}

void Optimizer::begin_bundles() {
  const auto place_is_free = [this] {
    return (!gathers_gradients_ || !free_places_.empty()) &&
           (parameter_tier_ == nullptr || !free_parameter_places_.empty());
  };
  while (next_bundle_ < bundles_.size() && place_is_free()) {
    const std::size_t bundle = next_bundle_++;
    if (parameter_tier_ != nullptr) {
      parameter_place_[bundle] = free_parameter_places_.back();
      free_parameter_places_.pop_back();
    }
    if (!gathers_gradients_) {
      update(bundle, nullptr);
      continue;
    }
    std::byte* place = free_places_.back();
    free_places_.pop_back();
    std::vector<HopPipeline::Part> parts;
    std::byte* to = place;
    for (const std::size_t u : bundles_[bundle]) {
      const UnitState& unit = states_->all()[u];
      const UnitPart& own = unit.gradients.front();
      parts.push_back({to, unit.optimizer.begin, unit.elements});
      runtime::copy(compute_, to + (unit.reduced.begin - unit.optimizer.begin) * runtime::size_of(own.dtype),
                    own.at(unit.reduced.begin), unit.reduced.count * runtime::size_of(own.dtype));
      to += place_bytes(unit, own.dtype);
    }
    ++updates_;
    compute_.call_back([this, bundle, place, parts = std::move(parts)] {
      loop_->post([this, bundle, place, parts] {
        --updates_;
        gradient_.submit(parts, "gather of the gradients of " + names(bundle),
                         [this, bundle, place] { update(bundle, place); });
      });
    });
  }
}

std::vector<UnitPart> Optimizer::parameters(std::size_t bundle) const {
  std::vector<UnitPart> parts;
  std::byte* place = parameter_tier_ != nullptr ? parameter_place_[bundle] : nullptr;
  for (const std::size_t u : bundles_[bundle]) {
    UnitPart& part = parts.emplace_back(states_->all()[u].parameters);
    if (parameter_tier_ == nullptr) continue;
    part.data = place;
    place += part.bytes();
  }
  return parts;
}

void Optimizer::update_in_tier(std::size_t bundle, std::byte* gathered) {
  units_missing_[bundle] = bundles_[bundle].size();
  gathered_[bundle] = gathered;
  const std::byte* from = gathered;
  const std::vector<UnitPart> to_layers = parameters(bundle);
  for (std::size_t i = 0; i < bundles_[bundle].size(); ++i) {
    const std::size_t u = bundles_[bundle][i];
    const UnitState& unit = states_->all()[u];
    tier_->ready(u, gathered != nullptr ? from : unit.gradients.front().at(unit.optimizer.begin), to_layers[i].data);
    if (gathered != nullptr) from += place_bytes(unit, states_->precision().gradient);
  }
}

void Optimizer::unit_stepped(std::size_t unit) {
  const std::size_t bundle = bundle_of_[unit];
  if (--units_missing_[bundle] == 0) leave(bundle, gathered_[bundle]);
}

/// The bundle is stepped; its gathered gradients are not needed any more.
void Optimizer::leave(std::size_t bundle, std::byte* gathered) {
  if (gathered != nullptr) {
    free_places_.push_back(gathered);
    begin_bundles();
  }
  refresh(bundle);
}

void Optimizer::update(std::size_t bundle, std::byte* gathered) {
  if (tier_) return update_in_tier(bundle, gathered);
  const models::Precision& precision = states_->precision();
  const bool half = states_->separate_master();
  const int first = static_cast<int>(states_->all()[bundles_[bundle].front()].global_index);
  ++updates_;
  trace_->begin(compute_, SpanKind::optimizer, first);
  const std::byte* from = gathered;
  const std::vector<UnitPart> parts = parameters(bundle);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const UnitState& unit = states_->all()[bundles_[bundle][i]];
    const Range& range = unit.optimizer;
    const UnitPart& to_layers = parts[i];
    const Range& layers_range = to_layers.range;
    const std::byte* gradient = gathered != nullptr ? from : unit.gradients.front().at(range.begin);
    // Layers' copies are rounded on the way where they hold all that is stepped here, and from it where they hold less.
    const bool holds_all = layers_range.begin <= range.begin &&
                           range.begin + range.count <= layers_range.begin + layers_range.count;
    runtime::adamw(compute_,
                   {.weights = reinterpret_cast<float*>(unit.master.data),
                    .m = unit.m,
                    .v = unit.v,
                    .gradient = gradient,
                    .gradient_dtype = precision.gradient,
                    .working = half && holds_all ? to_layers.at(range.begin) : nullptr,
                    .working_dtype = precision.compute},
                   unit.segments, adamw_);
    if (half && !holds_all) {
      runtime::cast(compute_, to_layers.data, precision.compute, unit.master.at(layers_range.begin),
                    runtime::DType::f32, layers_range.count);
    }
    if (gathered != nullptr) from += place_bytes(unit, precision.gradient);
  }
  trace_->end(compute_, SpanKind::optimizer, Trace::Lane::compute, first);
  // Where nobody reads parameters but the compute stream, its order is enough.
  const bool in_order = !refreshes_ && !parameters_->gathers() && gathered == nullptr;
  if (in_order) {
    for (const std::size_t u : bundles_[bundle]) parameters_->refreshed(u);
  }
  compute_.call_back([this, bundle, gathered, in_order] {
    loop_->post([this, bundle, gathered, in_order] {
      --updates_;
      if (!in_order) return leave(bundle, gathered);
      if (--missing_ == 0) std::exchange(done_, nullptr)();
    });
  });
}

void Optimizer::refresh(std::size_t bundle) {
  std::vector<HopPipeline::Part> parts;
  const std::vector<UnitPart> to_layers = parameters(bundle);
  for (std::size_t i = 0; i < to_layers.size(); ++i) {
    parts.push_back({to_layers[i].data, to_layers[i].range.begin, states_->all()[bundles_[bundle][i]].elements});
  }
  const auto begin = Trace::Clock::now();
  refresh_.submit(std::move(parts), "gather of the refreshed parameters of " + names(bundle), [this, bundle, begin] {
    if (refreshes_) {
      trace_->add(SpanKind::gather, Trace::Lane::communicate, begin, Trace::Clock::now(),
                  static_cast<int>(states_->all()[bundles_[bundle].front()].global_index));
    }
    refreshed(bundle);
  });
}

void Optimizer::refreshed(std::size_t bundle) {
  const auto over = [this, bundle] {
    for (const std::size_t u : bundles_[bundle]) parameters_->refreshed(u);
    if (--missing_ == 0) std::exchange(done_, nullptr)();
  };
  if (parameter_tier_ == nullptr) return over();
  const std::vector<UnitPart> parts = parameters(bundle);
  const auto stored = [this, bundle, over, missing = std::make_shared<std::size_t>(parts.size())] {
    if (--*missing > 0) return;
    free_parameter_places_.push_back(parameter_place_[bundle]);
    begin_bundles();
    over();
  };
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parameter_tier_->store_from({bundles_[bundle][i], false}, parts[i].data, parts[i].range.begin, stored);
  }
}

std::string Optimizer::names(std::size_t bundle) const {
  std::string names;
  for (const std::size_t u : bundles_[bundle]) names += (names.empty() ? "" : ", ") + states_->all()[u].spec->name;
  return names;
}

std::vector<std::string> Optimizer::running() const {
  std::vector<std::string> all = gradient_.running();
  for (std::string& what : refresh_.running()) all.push_back(std::move(what));
  return all;
}

}  // namespace ranvier::actors
