#include "models/stage.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <atomic>
#include <initializer_list>
#include <string>
#include <unordered_map>

namespace ranvier::models {

using runtime::MemoryKind;
using runtime::MemorySpace;
using runtime::StreamView;

namespace {

std::size_t aligned(std::size_t bytes) {
  constexpr std::size_t alignment = runtime::MemoryPlan::alignment;
  return (bytes + alignment - 1) / alignment * alignment;
}

/// What files take from memory as it is.
std::size_t whole_pages(std::size_t bytes) {
  constexpr std::size_t page = 4096;
  return (bytes + page - 1) / page * page;
}

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> next = 0;
  return next++;
}

std::uint64_t address(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

/// What a call of a layer that repeats is known by, but for which layer it is.
std::vector<std::uint64_t> key_of(const LayerCall& call, std::initializer_list<const void*> arrays) {
  std::vector<std::uint64_t> key{static_cast<std::uint64_t>(call.shape.samples),
                                 static_cast<std::uint64_t>(call.shape.positions),
                                 static_cast<std::uint64_t>(call.training),
                                 static_cast<std::uint64_t>(call.accumulate),
                                 static_cast<std::uint64_t>(call.part),
                                 address(call.saved),
                                 address(call.deferred),
                                 address(call.workspace),
                                 address(call.targets),
                                 address(call.loss),
                                 address(call.details.losses),
                                 address(call.details.logits),
                                 static_cast<std::uint64_t>(call.details.position)};
  for (const std::byte* parameters : call.parameters) key.push_back(address(parameters));
  for (const std::byte* gradients : call.gradients) key.push_back(address(gradients));
  for (const void* array : arrays) key.push_back(address(array));
  return key;
}

}  // namespace

Stage::Stage(const Architecture& architecture, const StageOptions& options, runtime::MemoryPlan& plan)
    : architecture_(&architecture), options_(options), number_(next_number()) {
  const auto [begin, end] = options.layers;
  expect(begin < end && end <= architecture.layers.size(), "a stage of layers {} to {} of {}", begin, end,
         architecture.layers.size());
  const std::size_t element = runtime::size_of(options.precision.compute);
  const int samples = options.capacity.samples;
  const int positions = options.capacity.positions;

  std::unordered_map<std::string, std::size_t> places;  // of units, by name
  for (std::size_t l = begin; l < end; ++l) {
    Layer& layer = *architecture.layers[l];
    LayerPlace place;
    place.layer = &layer;
    place.memory = layer.memory(options.capacity);
    place.output_bytes = aligned(layer.output_elements(positions) * element * static_cast<std::size_t>(samples));
    const auto layer_units = layer.units();
    for (std::size_t u = 0; u < layer_units.size(); ++u) {
      const auto [known, is_new] = places.try_emplace(layer_units[u].name, units_.size());
      if (is_new) units_.push_back(layer_units[u]);
      place.uses.push_back(uses_.size());
      uses_.push_back({l - begin, u, known->second});
    }
    add_parts(place);
    layers_.push_back(std::move(place));
  }
  input_sample_bytes_ = first() ? options.sample.input
                                : architecture.layers[begin - 1]->output_elements(positions) * element;

  const std::size_t segment_layers = recomputes() ? static_cast<std::size_t>(options.recompute) : layers_.size();
  for (std::size_t l = 0; l < layers_.size(); l += segment_layers) {
    segments_.push_back({l, std::min(l + segment_layers, layers_.size())});
    layers_[segments_.back().end - 1].ends_segment = true;
  }
  if (recomputes() && options.checkpoint_places > 0 && segments_.size() > 1) {
    for (std::size_t c = 0; c + 1 < segments_.size(); ++c) {
      layers_[segments_[c].end - 1].writes_checkpoint = c;
      layers_[segments_[c + 1].begin].reads_checkpoint = c;
      place_bytes_ = std::max(place_bytes_, whole_pages(layers_[segments_[c].end - 1].output_bytes));
    }
    // More than there are checkpoints would never be used.
    const std::size_t all = static_cast<std::size_t>(options.slots) * (segments_.size() - 1);
    places_ = static_cast<int>(std::min(static_cast<std::size_t>(std::max(options.checkpoint_places, 2)), all));
  }

  std::size_t slot_bytes = 0, area_bytes = 0, workspace_bytes = 0, between_bytes = 0;
  for (const Segment& segment : segments_) {
    std::size_t in_area = 0;
    for (std::size_t l = segment.begin; l < segment.end; ++l) {
      LayerPlace& place = layers_[l];
      std::size_t& kept = recomputes() ? in_area : slot_bytes;
      place.saved_offset = kept;
      kept += aligned(place.memory.saved);
      std::size_t& output = place.ends_segment ? slot_bytes : kept;
      place.output_offset = output;
      if (!place.writes_checkpoint) output += place.output_bytes;
      if (place.ends_segment && recomputes()) {
        place.scratch_output = in_area;
        in_area += place.output_bytes;
      }
      workspace_bytes = std::max(workspace_bytes, place.memory.workspace);
      if (l + 1 < layers_.size()) between_bytes = std::max(between_bytes, place.output_bytes);
    }
    area_bytes = std::max(area_bytes, in_area);
  }
  // Deferred memory: of one layer at a time, but for the frontmost segment of a stage whose left neighbour
  // waits for the input gradient.
  std::size_t deferred_bytes = 0;
  for (const LayerPlace& place : layers_) deferred_bytes = std::max(deferred_bytes, aligned(place.memory.deferred));
  if (!first()) {
    std::size_t offset = 0;
    for (std::size_t l = segments_.front().begin; l < segments_.front().end; ++l) {
      layers_[l].deferred_offset = offset;
      offset += aligned(layers_[l].memory.deferred);
    }
    deferred_bytes = std::max(deferred_bytes, offset);
  }

  const auto slots = static_cast<std::size_t>(options.slots);
  const auto all_samples = static_cast<std::size_t>(samples);
  const auto add = [&](MemoryKind kind, MemorySpace space, const char* name, std::size_t bytes, std::size_t count) {
    return plan.add({kind, space, name, bytes, count});
  };
  inputs_ = add(MemoryKind::activations, MemorySpace::device, "stage input", input_sample_bytes_ * all_samples, slots);
  slot_memory_ = add(MemoryKind::activations, MemorySpace::device,
                     places_ > 0    ? "output"
                     : recomputes() ? "segment inputs and output"
                                    : "saved activations and output",
                     slot_bytes, slots);
  checkpoints_ = add(MemoryKind::activations, MemorySpace::device, "checkpoints in use", place_bytes_,
                     static_cast<std::size_t>(places_));
  recompute_ = add(MemoryKind::activations, MemorySpace::device, "recomputed segment", area_bytes, 1);
  deferred_ = add(MemoryKind::activations, MemorySpace::device, "kept for weight gradients", deferred_bytes, 1);
  between_ = add(MemoryKind::activations, MemorySpace::device, "gradients between layers", between_bytes, 2);
  workspace_ = add(MemoryKind::workspace, MemorySpace::device, "layer scratch", workspace_bytes, 1);
  to_left_ = add(MemoryKind::messages, MemorySpace::device, "input gradients to the left",
                 first() ? 0 : input_sample_bytes_ * all_samples, static_cast<std::size_t>(options.gradient_buffers));
  targets_ = add(MemoryKind::activations, MemorySpace::device, "targets",
                 last() ? options.sample.target * all_samples : 0, slots);
  losses_ = add(MemoryKind::workspace, MemorySpace::pinned, "losses", last() ? sizeof(double) : 0, slots);
}

void Stage::add_parts(LayerPlace& place) const {
  const LayerParts parts = place.layer->parts();
  std::vector<int> written(place.uses.size(), 0);
  for (const auto& [kind, units_of_parts] : {std::pair{Step::Kind::forward, &parts.forward},
                                             {Step::Kind::backward_input, &parts.backward_input},
                                             {Step::Kind::backward_weight, &parts.backward_weight}}) {
    expect(!units_of_parts->empty(), "a call of layer {} has no part", place.layer->name());
    for (const std::vector<std::size_t>& units : *units_of_parts) {
      std::vector<std::size_t>& uses = place.parts[index_of(kind)].emplace_back();
      for (const std::size_t unit : units) {
        expect(unit < place.uses.size(), "layer {} has no unit {}", place.layer->name(), unit);
        uses.push_back(place.uses[unit]);
        if (kind == Step::Kind::backward_weight) ++written[unit];
      }
    }
  }
  expect(std::all_of(written.begin(), written.end(), [](int parts_of_unit) { return parts_of_unit == 1; }),
         "the gradients of every unit of layer {} must be written in one part", place.layer->name());
}

std::vector<std::vector<std::size_t>> Stage::units_of_parts(Step::Kind kind) const {
  std::vector<std::vector<std::size_t>> units;
  for (const LayerPlace& place : layers_) {
    for (const auto& uses : place.parts[index_of(kind)]) {
      auto& of_part = units.emplace_back();
      for (const std::size_t use : uses) of_part.push_back(uses_[use].unit);
    }
  }
  return units;
}

void Stage::bind(const runtime::Arena& arena) {
  for (int s = 0; s < options_.slots; ++s) {
    const auto slot = static_cast<std::size_t>(s);
    input_.push_back(arena.slot(inputs_, slot));
    slot_.push_back(arena.slot(slot_memory_, slot));
    target_.push_back(arena.slot(targets_, slot));
    loss_.push_back(arena.slot_as<double>(losses_, slot));
  }
  for (int p = 0; p < places_; ++p) place_.push_back(arena.slot(checkpoints_, static_cast<std::size_t>(p)));
  for (int b = 0; b < options_.gradient_buffers; ++b) {
    to_left_buffer_.push_back(arena.slot(to_left_, static_cast<std::size_t>(b)));
  }
  area_ = arena.slot(recompute_);
  deferred_base_ = arena.slot(deferred_);
  workspace_base_ = arena.slot(workspace_);
  between_base_[0] = arena.slot(between_, 0);
  between_base_[1] = arena.slot(between_, 1);
}

std::byte* Stage::input(int slot) const { return input_[static_cast<std::size_t>(slot)]; }
std::size_t Stage::input_bytes(int samples, int positions) const {
  if (positions == 0) return input_sample_bytes_ * static_cast<std::size_t>(samples);
  const Layer& before = *architecture_->layers[options_.layers.begin - 1];
  return before.output_elements(positions) * runtime::size_of(options_.precision.compute) *
         static_cast<std::size_t>(samples);
}
std::byte* Stage::output(int slot) const { return last() ? nullptr : layer_output(layers_.size() - 1, slot); }
std::size_t Stage::output_bytes(int samples, int positions) const {
  if (last()) return 0;
  return layers_.back().layer->output_elements(positions_of(positions)) *
         runtime::size_of(options_.precision.compute) * static_cast<std::size_t>(samples);
}
std::byte* Stage::input_gradient(int buffer) const { return to_left_buffer_[static_cast<std::size_t>(buffer)]; }
std::byte* Stage::targets(int slot) const { return target_[static_cast<std::size_t>(slot)]; }
const double& Stage::loss(int slot) const { return *loss_[static_cast<std::size_t>(slot)]; }

std::size_t Stage::checkpoint_bytes(std::size_t checkpoint, int samples) const {
  const Layer& layer = *layers_[segments_[checkpoint].end - 1].layer;
  return layer.output_elements(options_.capacity.positions) * runtime::size_of(options_.precision.compute) *
         static_cast<std::size_t>(samples);
}

std::span<std::byte> Stage::checkpoint_place(int place) const {
  return {place_[static_cast<std::size_t>(place)], place_bytes_};
}

std::optional<std::size_t> Stage::checkpoint_read(const Step& step) const {
  return layers_[step.layer].reads_checkpoint;
}

std::optional<std::size_t> Stage::checkpoint_written(const Step& step) const {
  if (step.kind != Step::Kind::forward || step.again) return std::nullopt;
  return layers_[step.layer].writes_checkpoint;
}

std::byte* Stage::layer_output(std::size_t layer, int slot) const {
  const LayerPlace& place = layers_[layer];
  std::byte* base = recomputes() && !place.ends_segment ? area_ : slot_[static_cast<std::size_t>(slot)];
  return base + place.output_offset;
}

const std::byte* Stage::layer_input(std::size_t layer, int slot) const {
  return layer == 0 ? input(slot) : layer_output(layer - 1, slot);
}

const std::byte* Stage::output_gradient(std::size_t layer, int slot) const {
  return layer + 1 == layers_.size() ? output(slot) : between_base_[(layer + 1) % 2];
}

std::byte* Stage::input_gradient_of(std::size_t layer, int gradient_buffer) const {
  if (layer > 0) return between_base_[layer % 2];
  return first() ? nullptr : input_gradient(gradient_buffer);
}

/// All parts of a step's call.
void Stage::append(Pass& pass, const Step& step) const {
  const std::size_t parts = layers_[step.layer].parts[index_of(step.kind)].size();
  for (std::size_t part = 0; part < parts; ++part) {
    pass.push_back(step);
    pass.back().part = part;
    pass.back().completes_input_gradient = step.completes_input_gradient && part + 1 == parts;
  }
}

void Stage::append_forward(Pass& pass, int slot, std::size_t segment, bool again) {
  const auto [begin, end] = segments_[segment];
  for (std::size_t l = begin; l < end; ++l) append(pass, {.kind = Step::Kind::forward, .again = again, .layer = l});
  holder_ = {slot, segment};
}

Stage::Pass Stage::forward_pass(int slot) {
  Pass pass;
  for (std::size_t segment = 0; segment < segments_.size(); ++segment) append_forward(pass, slot, segment, false);
  return pass;
}

Stage::Pass Stage::backward_pass(int slot) {
  Pass pass;
  for (std::size_t segment = segments_.size(); segment-- > 0;) {
    const bool held = holder_.slot == slot && holder_.segment == segment;
    if (recomputes() && !held) append_forward(pass, slot, segment, true);
    const auto [begin, end] = segments_[segment];
    const bool neighbour_waits = segment == 0 && !first();
    const auto weight_gradients = [&](std::size_t l) {
      append(pass, {.kind = Step::Kind::backward_weight, .layer = l});
    };
    for (std::size_t l = end; l-- > begin;) {
      append(pass, {.kind = Step::Kind::backward_input,
                    .completes_input_gradient = neighbour_waits && l == begin,
                    .layer = l});
      if (!neighbour_waits) weight_gradients(l);
    }
    if (neighbour_waits) {
      for (std::size_t l = end; l-- > begin;) weight_gradients(l);
    }
  }
  holder_ = {};
  return pass;
}

void Stage::run(StreamView stream, const Step& step, const Microbatch& microbatch, int gradient_buffer,
                std::span<const std::byte* const> parameters, std::span<std::byte* const> gradients,
                const CheckpointPlaces& checkpoints) {
  const LayerPlace& place = layers_[step.layer];
  // Where everything is whole, a part could read what it did not name, and only there.
  std::vector<const std::byte*> part_parameters(parameters.size());
  std::vector<std::byte*> part_gradients(gradients.size());
  for (const std::size_t use : uses_of(step)) {
    const std::size_t index = uses_[use].index_in_layer;
    if (step.needs_parameters()) {
      part_parameters[index] = parameters[index];
    } else {
      part_gradients[index] = gradients[index];
    }
  }
  const auto slot = static_cast<std::size_t>(microbatch.slot);
  LayerCall call{.stream = stream,
                 .shape = {microbatch.samples, positions_of(microbatch.positions), options_.capacity.threads},
                 .key = microbatch.key,
                 .training = microbatch.training,
                 .part = step.part,
                 .parameters = part_parameters,
                 .gradients = part_gradients,
                 .accumulate = microbatch.accumulate,
                 .saved = (recomputes() ? area_ : slot_[slot]) + place.saved_offset,
                 .deferred = deferred_base_ + place.deferred_offset,
                 .workspace = workspace_base_,
                 .loss_factor = microbatch.loss_factor,
                 .loss_scale = microbatch.loss_scale};
  if (last() && step.layer + 1 == layers_.size()) {
    call.targets = target_[slot];
    call.loss = loss_[slot];
    call.details = microbatch.details;
  }
  const std::byte* input = place.reads_checkpoint ? checkpoints.read : layer_input(step.layer, microbatch.slot);
  const std::byte* output_gradient = nullptr;
  std::byte* written = nullptr;
  if (step.kind == Step::Kind::forward) {
    // The second time the slot's last output holds the gradient that arrived for it.
    written = step.again && place.ends_segment ? area_ + place.scratch_output
              : place.writes_checkpoint        ? checkpoints.written
                                               : layer_output(step.layer, microbatch.slot);
  } else if (step.kind == Step::Kind::backward_input) {
    output_gradient = this->output_gradient(step.layer, microbatch.slot);
    written = input_gradient_of(step.layer, gradient_buffer);
  }
  const auto queue = [&] {
    switch (step.kind) {
      case Step::Kind::forward:
        return place.layer->forward(call, input, written);
      case Step::Kind::backward_input:
        return place.layer->backward_input(call, input, output_gradient, written);
      case Step::Kind::backward_weight:
        return place.layer->backward_weight(call, input);
    }
  };
  if (!place.layer->repeats(call.training)) return queue();
  std::vector<std::uint64_t> key = key_of(call, {input, output_gradient, written});
  key.insert(key.end(), {number_, step.layer, static_cast<std::uint64_t>(step.kind)});
  stream.repeat(key, queue);
}

int choose_recompute(const Architecture& architecture, StageOptions options) {
  const auto layers = static_cast<int>(options.layers.end - options.layers.begin);
  int best = 1;
  std::size_t least = 0;
  for (int interval = 1; interval <= layers; ++interval) {
    if (layers % interval != 0) continue;
    options.recompute = interval;
    runtime::MemoryPlan plan;
    const Stage stage(architecture, options, plan);
    const std::size_t bytes = plan.bytes(MemorySpace::device);
    if (least == 0 || bytes < least) {
      least = bytes;
      best = interval;
    }
  }
  return best;
}

}  // namespace ranvier::models
