#include "models/core/stage.hpp"

#include "runtime/kernels/elementwise.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <initializer_list>
#include <string>

namespace ranvier::models {

using runtime::MemoryKind;
using runtime::MemorySpace;
using runtime::StreamView;

namespace {

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> next = 0;
  return next++;
}

std::uint64_t address(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

/// Key of a call for Stream::repeat(), without the layer.
std::vector<std::uint64_t> key_of(const LayerCall& call, std::initializer_list<const void*> arrays) {
  std::vector<std::uint64_t> key{static_cast<std::uint64_t>(call.shape.samples),
                                 static_cast<std::uint64_t>(call.shape.positions),
                                 static_cast<std::uint64_t>(call.training),
                                 static_cast<std::uint64_t>(call.accumulate),
                                 static_cast<std::uint64_t>(call.part),
                                 address(call.saved),
                                 address(call.deferred),
                                 address(call.workspace),
                                 address(call.output_gradient),
                                 address(call.targets),
                                 address(call.document_starts),
                                 address(call.positions),
                                 address(call.document_ends),
                                 address(call.loss),
                                 address(call.correct),
                                 address(call.details.losses),
                                 address(call.details.logits),
                                 static_cast<std::uint64_t>(call.details.position)};
  for (const std::byte* parameters : call.parameters) key.push_back(address(parameters));
  for (const std::byte* gradients : call.gradients) key.push_back(address(gradients));
  for (const void* array : arrays) key.push_back(address(array));
  return key;
}

}  // namespace

Stage::Stage(const Architecture& architecture, const StageOptions& options, runtime::MemoryPlan& plan,
             const Stage* shares)
    : StageLayout(architecture, options),
      number_(next_number()),
      counts_correct_(last() && architecture.layers.back()->counts_correct()) {
  const auto slots = static_cast<std::size_t>(this->slots());
  const auto sample_slots = static_cast<std::size_t>(this->sample_slots());
  const auto samples = static_cast<std::size_t>(capacity().samples);
  const auto add = [&](MemoryKind kind, MemorySpace space, const char* name, std::size_t bytes, std::size_t count) {
    return plan.add({kind, space,
                     options.slices > 1 ? fmt::format("{}, chunk {}", name, options.slice) : std::string(name),
                     bytes, count});
  };
  const auto add_scratch = [&](runtime::MemoryId Stage::* array, MemoryKind kind, const char* name,
                               std::size_t bytes, std::size_t least, std::size_t count) {
    this->*array = shares != nullptr ? shares->*array
                                     : plan.add({kind, MemorySpace::device, name, std::max(bytes, least), count});
  };
  const StageOptions::Scratch& least = options.scratch;
  inputs_ = add(MemoryKind::activations, MemorySpace::device, "stage input", sizes().input * samples, sample_slots);
  slot_memory_ = add(MemoryKind::activations, MemorySpace::device,
                     checkpoint_places() > 0 ? "output"
                     : recomputes()          ? "segment inputs and output"
                                             : "saved activations and output",
                     sizes().slot, slots);
  checkpoints_ = add(MemoryKind::activations, MemorySpace::device, "checkpoints in use", sizes().checkpoint,
                     static_cast<std::size_t>(checkpoint_places()));
  add_scratch(&Stage::recompute_, MemoryKind::activations, "recomputed segment", sizes().area, least.area, 1);
  // Planned even if this slice does not use it: its rank's other slices may have no deferred slots.
  add_scratch(&Stage::shared_deferred_, MemoryKind::activations, "kept for weight gradients", scratch().deferred,
              least.deferred, 1);
  deferred_ = defers() ? add(MemoryKind::activations, MemorySpace::device, "deferred weight gradients",
                             sizes().deferred, static_cast<std::size_t>(deferred_slots()))
                       : shared_deferred_;
  add_scratch(&Stage::between_, MemoryKind::activations, "gradients between layers", sizes().between, least.between,
              2);
  add_scratch(&Stage::workspace_, MemoryKind::workspace, "layer scratch", sizes().workspace, least.workspace, 1);
  to_left_ = add(MemoryKind::messages, MemorySpace::device, "input gradients to the left",
                 writes_input_gradient() ? sizes().input * samples : 0,
                 sends_gradients() ? static_cast<std::size_t>(gradient_buffers()) : 1);
  targets_ = add(MemoryKind::activations, MemorySpace::device, "targets", last() ? sample().target * samples : 0,
                 sample_slots);
  documents_ = add(MemoryKind::activations, MemorySpace::device, "documents of samples",
                   sample().documents * samples, sample_slots);
  losses_ =
      add(MemoryKind::workspace, MemorySpace::pinned, counts_correct_ ? "losses, correct predictions" : "losses",
          last() ? sizeof(double) * (counts_correct_ ? 2 : 1) : 0, sample_slots);
}

std::byte* Stage::output(int slot) const { return last() ? nullptr : layer_output(layers() - 1, slot, nullptr); }

bool Stage::in_deferred_place(const PassStep& step, const Microbatch& microbatch) const {
  if (!recomputes() || !defers()) return false;
  if (step.kind != PassStep::Kind::forward || step.again) return true;
  return microbatch.keeps_segment && step.layer >= segments().back().begin;
}

std::byte* Stage::kept(const PassStep& step, const Microbatch& microbatch) const {
  if (!recomputes()) return array(slot_memory_, microbatch.slot);
  if (!in_deferred_place(step, microbatch)) return array(recompute_);
  return array(deferred_, microbatch.deferred_slot) + layer(step.layer).recomputed_offset;
}

std::byte* Stage::layer_output(std::size_t layer, int slot, std::byte* kept) const {
  const LayerMemoryMap& map = this->layer(layer);
  return (recomputes() && !map.ends_segment ? kept : array(slot_memory_, slot)) + map.output_offset;
}

/// Deferred weight gradients read the copy of a checkpoint that earlier steps stored.
const std::byte* Stage::input_of(StreamView stream, const PassStep& step, const Microbatch& microbatch,
                                 const std::byte* checkpoint) const {
  const LayerMemoryMap& map = layer(step.layer);
  if (!map.reads_checkpoint) {
    if (step.layer == 0) return input(microbatch.sample_slot);
    return layer_output(step.layer - 1, microbatch.slot, kept(step, microbatch));
  }
  if (!in_deferred_place(step, microbatch)) return checkpoint;
  std::byte* const copy = array(deferred_, microbatch.deferred_slot) + map.checkpoint_copy;
  if (step.kind == PassStep::Kind::backward_weight) return copy;
  if (step.kind == PassStep::Kind::forward && step.part == 0)
    runtime::copy(stream, copy, checkpoint, checkpoint_bytes(*map.reads_checkpoint, microbatch.samples));
  return checkpoint;
}

std::byte* Stage::output_gradient(std::size_t layer, const Microbatch& microbatch) const {
  if (layer + 1 == layers()) return output(microbatch.slot);
  if (const auto& kept = this->layer(layer).output_gradient)
    return array(deferred_, microbatch.deferred_slot) + *kept;
  return array(between_, static_cast<int>((layer + 1) % 2));
}

std::byte* Stage::input_gradient_of(std::size_t layer, const Microbatch& microbatch, int gradient_buffer) const {
  if (layer > 0) return output_gradient(layer - 1, microbatch);
  return writes_input_gradient() ? input_gradient(gradient_buffer) : nullptr;
}

void Stage::run(StreamView stream, const PassStep& step, const Microbatch& microbatch, int gradient_buffer,
                const StepArrays& arrays) {
  const LayerMemoryMap& map = layer(step.layer);
  // Passes declared units only: if parameters are not sharded, a phase could read others unnoticed.
  std::vector<const std::byte*> part_parameters(arrays.parameters.size());
  std::vector<std::byte*> part_gradients(arrays.gradients.size());
  for (const std::size_t index : units_of(step)) {
    if (step.needs_parameters()) {
      part_parameters[index] = arrays.parameters[index];
    } else {
      part_gradients[index] = arrays.gradients[index];
    }
  }
  const int deferred_slot = step.kind == PassStep::Kind::forward ? 0 : microbatch.deferred_slot;
  const int positions = microbatch.positions > 0 ? microbatch.positions : capacity().positions;
  LayerCall call{.stream = stream,
                 .shape = {microbatch.samples, positions, capacity().threads, capacity().saved},
                 .key = microbatch.key,
                 .training = microbatch.training,
                 .part = step.part,
                 .parameters = part_parameters,
                 .gradients = part_gradients,
                 .accumulate = arrays.accumulate,
                 .saved = kept(step, microbatch) + map.saved_offset,
                 .deferred = array(deferred_, deferred_slot) + map.deferred_offset,
                 .workspace = array(workspace_),
                 .loss_factor = microbatch.loss_factor,
                 .loss_scale = microbatch.loss_scale};
  if (microbatch.documents) {
    call.document_starts = reinterpret_cast<const std::int32_t*>(documents(microbatch.sample_slot));
    call.positions = call.document_starts + std::ptrdiff_t{microbatch.samples} * positions;
    call.document_ends = call.positions + std::ptrdiff_t{microbatch.samples} * positions;
  }
  if (last() && step.layer + 1 == layers()) {
    call.targets = targets(microbatch.sample_slot);
    call.loss = losses(microbatch.sample_slot);
    call.details = microbatch.details;
    if (counts_correct_ && !call.training) call.correct = losses(microbatch.sample_slot) + 1;
  }
  const std::byte* input = input_of(stream, step, microbatch, arrays.checkpoint_read);
  const std::byte* output_gradient = nullptr;
  std::byte* written = nullptr;
  if (step.kind == PassStep::Kind::forward) {
    // In a recomputation, the slot's last output holds the received output gradient.
    std::byte* const kept = this->kept(step, microbatch);
    written = step.again && map.ends_segment ? kept + map.scratch_output
              : map.writes_checkpoint        ? arrays.checkpoint_written
                                             : layer_output(step.layer, microbatch.slot, kept);
  } else if (step.kind == PassStep::Kind::backward_input) {
    output_gradient = this->output_gradient(step.layer, microbatch);
    written = input_gradient_of(step.layer, microbatch, gradient_buffer);
  } else if (map.reads_output_gradient) {
    call.output_gradient = this->output_gradient(step.layer, microbatch);
  }
  const auto queue = [&] {
    switch (step.kind) {
      case PassStep::Kind::forward:
        return map.layer->forward(call, input, written);
      case PassStep::Kind::backward_input:
        return map.layer->backward_input(call, input, output_gradient, written);
      case PassStep::Kind::backward_weight:
        return map.layer->backward_weight(call, input);
    }
  };
  if (!map.layer->repeats(call.training)) return queue();
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
