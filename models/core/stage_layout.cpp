#include "models/core/stage_layout.hpp"

#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/arena.hpp"

#include <algorithm>

namespace ranvier::models {

namespace {

std::size_t aligned(std::size_t bytes) { return runtime::round_up(bytes, runtime::MemoryPlan::alignment); }

/// Rounds up to pages, so that file I/O needs no copy.
std::size_t whole_pages(std::size_t bytes) { return runtime::round_up(bytes, 4096); }

}  // namespace

StageLayout::StageLayout(const Architecture& architecture, const StageOptions& options)
    : architecture_(&architecture), options_(options) {
  const auto [begin, end] = options.layers;
  expect(begin < end && end <= architecture.layers.size(), "layers of a stage are out of range: {} to {} of {}",
         begin, end, architecture.layers.size());
  add_layers();
  const std::size_t trained = architecture.first_trained_layer();
  first_backward_ = std::clamp(trained, begin, end) - begin;
  sends_gradients_ = trained < begin;
  if (writes_gradients()) deferred_slots_ = std::min(options.deferred_slots, options.slots);
  sizes_.input =
      first() ? options.sample.input : output_bytes(*architecture.layers[begin - 1], 1, options.capacity.positions);
  cut_segments();
  place_arrays();
}

void StageLayout::add_layers() {
  for (std::size_t l = options_.layers.begin; l < options_.layers.end; ++l) {
    LayerMemoryMap& map = layers_.emplace_back();
    map.layer = architecture_->layers[l].get();
    add_parts(map);
  }
}

void StageLayout::cut_segments() {
  const std::size_t segment_layers = recomputes() ? static_cast<std::size_t>(options_.recompute) : layers_.size();
  for (std::size_t l = 0; l < layers_.size(); l += segment_layers) {
    segments_.push_back({l, std::min(l + segment_layers, layers_.size())});
    layers_[segments_.back().end - 1].ends_segment = true;
  }
  while (first_checkpoint_ + 1 < segments_.size() && segments_[first_checkpoint_ + 1].end <= first_backward_)
    ++first_checkpoint_;
  const std::size_t checkpoints = segments_.size() - 1 - first_checkpoint_;
  if (!recomputes() || options_.checkpoint_places == 0 || checkpoints == 0) return;
  for (std::size_t c = 0; c < checkpoints; ++c) {
    const std::size_t s = first_checkpoint_ + c;
    layers_[segments_[s].end - 1].writes_checkpoint = c;
    layers_[segments_[s + 1].begin].reads_checkpoint = c;
    sizes_.checkpoint =
        std::max(sizes_.checkpoint, whole_pages(aligned(checkpoint_bytes(c, options_.capacity.samples))));
  }
  // At most one buffer per checkpoint of all slots.
  const std::size_t all = static_cast<std::size_t>(options_.slots) * checkpoints;
  places_ = static_cast<int>(std::min(static_cast<std::size_t>(std::max(options_.checkpoint_places, 2)), all));
}

void StageLayout::place_arrays() {
  std::vector<LayerMemory> needs;
  std::vector<std::size_t> outputs;  // bytes
  for (LayerMemoryMap& map : layers_) {
    needs.push_back(map.layer->memory(options_.capacity));
    map.reads_output_gradient = needs.back().output_gradient;
    outputs.push_back(aligned(output_bytes(*map.layer, options_.capacity.samples, options_.capacity.positions)));
  }
  // Layers without backward pass share one `saved` array. Their outputs alternate between two buffers.
  std::size_t passing_saved = 0, passing_output = 0;
  for (std::size_t l = 0; l < first_backward_; ++l) {
    if (!recomputes()) passing_saved = std::max(passing_saved, aligned(needs[l].saved));
    if (passes_by(l)) passing_output = std::max(passing_output, outputs[l]);
  }
  sizes_.slot = passing_saved + 2 * passing_output;
  std::size_t turn = 0;
  std::vector<std::size_t> areas;  // by segment
  for (const Segment& segment : segments_) {
    std::size_t in_area = 0;
    for (std::size_t l = segment.begin; l < segment.end; ++l) {
      LayerMemoryMap& map = layers_[l];
      std::size_t& kept = recomputes() ? in_area : sizes_.slot;
      if (recomputes() || l >= first_backward_) {
        map.saved_offset = kept;
        kept += aligned(needs[l].saved);
      }
      std::size_t& output = map.ends_segment ? sizes_.slot : kept;
      map.output_offset = output;
      if (passes_by(l)) {
        map.output_offset = passing_saved + turn++ % 2 * passing_output;
      } else if (!map.writes_checkpoint) {
        output += outputs[l];
      }
      if (map.ends_segment && recomputes()) {
        map.scratch_output = in_area;
        in_area += outputs[l];
      }
      sizes_.workspace = std::max(sizes_.workspace, needs[l].workspace);
      if (l + 1 < layers_.size() && !keeps_output_gradient(l))
        sizes_.between = std::max(sizes_.between, outputs[l]);
    }
    sizes_.area = std::max(sizes_.area, in_area);
    areas.push_back(in_area);
  }
  std::vector<std::size_t> deferred;
  for (const LayerMemory& need : needs) deferred.push_back(aligned(need.deferred));
  place_deferred(deferred, outputs, areas);
}

/// Whether a layer's output gradient needs its own buffer: its weight gradients read it after gradients of other layers
/// were computed. The stage's last layer always has one.
bool StageLayout::keeps_output_gradient(std::size_t layer) const {
  const bool weights_wait = defers() || (sends_gradients_ && layer < segments_.front().end);
  return layers_[layer].reads_output_gradient && weights_wait && layer >= first_backward_ &&
         layer + 1 < layers_.size();
}

/// `deferred` and `outputs` by layer, `areas` by segment: bytes.
void StageLayout::place_deferred(const std::vector<std::size_t>& deferred, const std::vector<std::size_t>& outputs,
                                 const std::vector<std::size_t>& areas) {
  const auto place_output_gradients = [&](std::size_t& offset) {
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      if (!keeps_output_gradient(l)) continue;
      layers_[l].output_gradient = offset;
      offset += outputs[l];
    }
  };
  std::size_t offset = 0;
  if (!defers()) {
    // Memory of one layer at a time. The first segment needs memory for all its layers if the previous stage waits for
    // the input gradient.
    for (std::size_t l = first_backward_; l < layers_.size(); ++l)
      sizes_.deferred = std::max(sizes_.deferred, deferred[l]);
    if (!sends_gradients_) return;
    for (std::size_t l = segments_.front().begin; l < segments_.front().end; ++l) {
      layers_[l].deferred_offset = offset;
      offset += deferred[l];
    }
    sizes_.deferred = std::max(sizes_.deferred, offset);
    place_output_gradients(sizes_.deferred);  // after the bytes that layers of other segments overwrite
    return;
  }
  for (std::size_t l = first_backward_; l < layers_.size(); ++l) {
    layers_[l].deferred_offset = offset;
    offset += deferred[l];
  }
  place_output_gradients(offset);
  for (std::size_t s = 0; recomputes() && s < segments_.size(); ++s) {
    if (segments_[s].end <= first_backward_) continue;
    for (std::size_t l = segments_[s].begin; l < segments_[s].end; ++l) layers_[l].recomputed_offset = offset;
    offset += areas[s];
    LayerMemoryMap& front = layers_[segments_[s].begin];
    if (!front.reads_checkpoint) continue;
    front.checkpoint_copy = offset;
    offset += aligned(checkpoint_bytes(*front.reads_checkpoint, options_.capacity.samples));
  }
  sizes_.deferred = offset;
}

/// Whether a step of a backward pass writes gradients.
bool StageLayout::writes_gradients() const {
  for (std::size_t l = first_backward_; l < layers_.size(); ++l) {
    const std::vector<bool>& writes = layers_[l].writes;
    if (std::find(writes.begin(), writes.end(), true) != writes.end()) return true;
  }
  return false;
}

/// Whether a layer's output is stored in the slot and read by forward passes only.
bool StageLayout::passes_by(std::size_t layer) const {
  if (layer + 1 >= first_backward_) return false;
  if (!recomputes()) return true;
  if (!layers_[layer].ends_segment) return false;
  const auto next = std::find_if(segments_.begin(), segments_.end(),
                                 [&](const Segment& segment) { return segment.begin == layer + 1; });
  return next->end <= first_backward_;
}

void StageLayout::add_parts(LayerMemoryMap& map) const {
  const LayerPhases parts = map.layer->parts();
  const std::span<const UnitSpec> all = map.layer->units();
  std::vector<int> written(all.size(), 0);
  for (const auto& [kind, units_of_parts] : {std::pair{PassStep::Kind::forward, &parts.forward},
                                             {PassStep::Kind::backward_input, &parts.backward_input},
                                             {PassStep::Kind::backward_weight, &parts.backward_weight}}) {
    expect(!units_of_parts->empty(), "a call of layer {} has no phase", map.layer->name());
    for (const std::vector<std::size_t>& units : *units_of_parts) {
      std::vector<std::size_t>& used = map.parts[index_of(kind)].emplace_back();
      for (const std::size_t unit : units) {
        expect(unit < all.size(), "layer {} has no unit {}", map.layer->name(), unit);
        const bool writes = kind == PassStep::Kind::backward_weight;
        if (!writes || all[unit].trained) used.push_back(unit);
        if (writes) ++written[unit];
      }
      // A phase without units may have other work.
      if (kind == PassStep::Kind::backward_weight) map.writes.push_back(!used.empty() || units.empty());
    }
  }
  expect(std::all_of(written.begin(), written.end(), [](int parts_of_unit) { return parts_of_unit == 1; }),
         "the gradients of each unit of layer {} must be written in one phase", map.layer->name());
}

std::size_t StageLayout::input_bytes(int samples, int positions) const {
  if (positions == 0) return sizes_.input * static_cast<std::size_t>(samples);
  return output_bytes(*architecture_->layers[options_.layers.begin - 1], samples, positions);
}

std::size_t StageLayout::output_bytes(int samples, int positions) const {
  if (last()) return 0;
  return output_bytes(*layers_.back().layer, samples, positions > 0 ? positions : options_.capacity.positions);
}

std::size_t StageLayout::checkpoint_bytes(std::size_t checkpoint, int samples) const {
  return output_bytes(*layers_[segments_[first_checkpoint_ + checkpoint].end - 1].layer, samples,
                      options_.capacity.positions);
}

std::size_t StageLayout::output_bytes(const Layer& layer, int samples, int positions) const {
  return layer.output_elements(positions) * runtime::size_of(options_.precision.compute) *
         static_cast<std::size_t>(samples);
}

std::optional<std::size_t> StageLayout::checkpoint_read(const PassStep& step) const {
  if (step.kind == PassStep::Kind::backward_weight && defers()) return std::nullopt;
  return layers_[step.layer].reads_checkpoint;
}

std::optional<std::size_t> StageLayout::checkpoint_written(const PassStep& step) const {
  if (step.kind != PassStep::Kind::forward || step.again) return std::nullopt;
  return layers_[step.layer].writes_checkpoint;
}

}  // namespace ranvier::models
