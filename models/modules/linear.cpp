#include "models/modules/linear.hpp"

#include "models/ops/fused_matmul.hpp"
#include "runtime/base/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>

namespace ranvier::models {
namespace {

/// Blocks of the options' matrices in a weight of outputs begin … end-1 and `inputs` inputs.
std::vector<MatrixPart> matrices_of(const LinearOptions& options, std::size_t begin, std::size_t end,
                                    std::size_t inputs) {
  std::vector<MatrixPart> parts;
  std::size_t first = 0;
  for (const std::size_t channels : options.matrices) {
    const std::size_t from = std::max(begin, first), to = std::min(end, first + channels);
    first += channels;
    if (from >= to) continue;
    const bool out_in = options.layout == LinearOptions::Layout::out_in;
    parts.push_back(out_in ? MatrixPart{from - begin, to - from, 0, inputs}
                           : MatrixPart{0, inputs, from - begin, to - from});
  }
  return parts;
}

}  // namespace

Linear::Linear(UnitBuilder& builder, std::size_t unit, const LinearOptions& options)
    : in_(options.in),
      layout_(options.layout),
      along_(options.cut.along),
      dtype_(builder.precision().compute),
      gradient_dtype_(builder.precision().gradient) {
  expect(layout_ == LinearOptions::Layout::out_in || options.tensors.size() == 1,
         "{} matrices side by side that are stored [in, out]", options.tensors.size());
  for (const LinearOptions::Tensor& tensor : options.tensors) out_ += tensor.channels;
  tiles_.resize(std::max<std::size_t>(options.cut.groups.size(), 1));
  tile_in_ = sums_outputs() ? in_ / tiles_.size() : in_;
  row_ = tiles_.size() > 1 && along_ == LinearOptions::Cut::Along::outputs_apart ? out_ / tiles_.size() : out_;
  add_weights(builder, unit, options);
  if (options.bias) add_biases(builder, unit, options);
  add_adapters(builder, unit, options);
}

void Linear::add_weights(UnitBuilder& builder, std::size_t unit, const LinearOptions& options) {
  const std::size_t tiles = tiles_.size();
  expect((sums_outputs() ? in_ : out_) % tiles == 0, "{} tiles of [{}, {}]", tiles, out_, in_);
  for (std::size_t t = 0; t < tiles; ++t) {
    std::size_t first = 0, column = 0;  // the part's first output, and the next column of the tile's y
    for (const auto& [tensor, part, channels] : tensor_parts(options.tensors)) {
      const auto [begin, end] = outputs_of(t, first, channels);
      if (begin < end) {
        ParameterSpec weight{tensor->name + ".weight", {end - begin, tile_in_}, options.initializer, true};
        Tile tile{{tensor->channels, in_}, part * channels + begin, sums_outputs() ? t * tile_in_ : 0};
        if (layout_ == LinearOptions::Layout::in_out) {
          std::swap(weight.shape[0], weight.shape[1]);
          std::swap(tile.tensor_shape[0], tile.tensor_shape[1]);
          std::swap(tile.first_row, tile.first_column);
        }
        if (tiles > 1) weight.tile = std::move(tile);
        weight.matrices = matrices_of(options, first + begin, first + end, tile_in_);
        tiles_[t].trained = tiles_[t].trained || builder.tuning().trains(weight.name);
        const ParameterRef place = builder.add(tiles > 1 ? options.cut.groups[t] : unit, std::move(weight));
        append(weights_, {first + begin, end - begin, place, t, row_ < out_ ? column : first + begin}, tile_in_);
        auto& units = tiles_[t].units;
        if (std::find(units.begin(), units.end(), place.unit) == units.end()) units.push_back(place.unit);
      }
      column += end - begin;
      first += channels;
    }
  }
}

std::vector<Linear::TensorPart> Linear::tensor_parts(const std::vector<LinearOptions::Tensor>& tensors) const {
  std::vector<TensorPart> parts;
  for (const LinearOptions::Tensor& tensor : tensors) {
    const std::size_t count = outputs_apart() ? tensor.parts : 1;
    for (std::size_t part = 0; part < count; ++part) parts.push_back({&tensor, part, tensor.channels / count});
  }
  return parts;
}

std::pair<std::size_t, std::size_t> Linear::outputs_of(std::size_t tile, std::size_t first,
                                                       std::size_t channels) const {
  const std::size_t tiles = tiles_.size();
  if (sums_outputs()) return {0, channels};
  if (row_ < out_) {
    expect(channels % tiles == 0, "{} tiles of {} outputs", tiles, channels);
    return {tile * channels / tiles, (tile + 1) * channels / tiles};
  }
  const auto within = [&](std::size_t output) { return std::clamp(output, first, first + channels) - first; };
  return {within(tile * out_ / tiles), within((tile + 1) * out_ / tiles)};
}

void Linear::add_biases(UnitBuilder& builder, std::size_t unit, const LinearOptions& options) {
  expect(row_ == out_ || options.tensors.size() == 1, "biases of {} tensors whose outputs are apart",
         options.tensors.size());
  std::size_t first = 0;
  for (const auto& [name, channels, parts] : options.tensors) {
    append(biases_, {first, channels, builder.add(unit, {name + ".bias", {channels}, {Initializer::Kind::zeros}})},
           1);
    first += channels;
  }
  if (biases_.size() == 1) return;
  // A multiplication has one bias, so it is split where biases have gaps and weights do not.
  std::vector<Run> apart;
  for (const Run& weight : weights_) {
    for (const Run& bias : biases_) {
      const std::size_t begin = std::max(bias.first, weight.first);
      const std::size_t end = std::min(bias.first + bias.channels, weight.first + weight.channels);
      if (begin >= end) continue;
      apart.push_back({begin,
                       end - begin,
                       {weight.place.unit, weight.place.offset + (begin - weight.first) * tile_in_},
                       weight.tile,
                       weight.column + (begin - weight.first)});
    }
  }
  weights_ = std::move(apart);
}

void Linear::append(std::vector<Run>& runs, const Run& next, std::size_t elements) {
  if (!runs.empty()) {
    Run& last = runs.back();
    if (last.place.unit == next.place.unit && last.place.offset + last.channels * elements == next.place.offset) {
      last.channels += next.channels;
      return;
    }
  }
  runs.push_back(next);
}

const std::byte* Linear::bias_of(const LayerCall& call, const Run& weight) const {
  for (const Run& bias : biases_) {
    if (weight.first < bias.first || weight.first >= bias.first + bias.channels) continue;
    return parameter(call, {bias.place.unit, bias.place.offset + weight.first - bias.first}, dtype_);
  }
  return nullptr;
}

/// For the biases' gradients, or a sum over tiles.
std::size_t Linear::scratch_bytes(std::size_t rows) const {
  const std::size_t sums = tiles_.size() == 1 || dtype_ == runtime::DType::f32 ? 0
                           : sums_outputs()                                    ? rows * out_
                                                                               : rows * in_;
  return std::max(sums, biases_.size() > 1 ? out_ : 0) * sizeof(float);
}

void Linear::forward(const LayerCall& call, std::byte* y, const std::byte* x, const Arrays& at,
                     std::size_t tile) const {
  expect(adapters_.empty() || at.bytes > 0, "the layer has planned nothing for its adapters");
  const Sum sum = sum_of(call, y, sums_outputs(), at);
  for (const Run& run : weights_) {
    if (run.tile != tile) continue;
    MatmulArrays arrays = forward_arrays(call, run, sum, x);
    arrays.accumulate = sums_outputs() && tile > 0;
    if (arrays.accumulate) arrays.bias = nullptr;
    matmul(call.stream, forward_shape(call, run), arrays);
  }
  if (is_last(tile)) round(call, y, sum, rows(call) * out_);
  adapt(call, y, x, at, tile);
}

void Linear::forward_add(const LayerCall& call, std::byte* y, const std::byte* x, const std::byte* addend,
                         const Arrays& at, std::size_t tile) const {
  if (addend == nullptr || weights_.size() > 1 || has_adapters()) {
    forward(call, y, x, at, tile);
    if (addend != nullptr && is_last(tile)) runtime::add(call.stream, y, addend, dtype_, rows(call) * out_);
    return;
  }
  matmul_add(call.stream, forward_shape(call, weights_[0]), forward_arrays(call, weights_[0], {y, dtype_}, x),
             addend);
}

void Linear::forward_gelu(const LayerCall& call, std::byte* y, std::byte* active, const std::byte* x, GeluForm form,
                          const Arrays& at, std::size_t tile) const {
  expect(tiles_.size() == 1 || row_ < out_, "GELU of a tile that is a part of rows or of a sum");
  if (const Run* const run = plain_run(tile)) {
    return matmul_gelu(call.stream, forward_shape(call, *run), forward_arrays(call, *run, {y, dtype_}, x), active,
                       form);
  }
  forward(call, y, x, at, tile);
  gelu_forward(call.stream, dtype_, active, y, rows(call) * row_, form);
}

const Linear::Run* Linear::plain_run(std::size_t tile) const {
  const auto in_tile = [&](const Run& run) { return run.tile == tile; };
  const auto run = std::find_if(weights_.begin(), weights_.end(), in_tile);
  const bool plain =
      run != weights_.end() && std::none_of(run + 1, weights_.end(), in_tile) && stride_of(*run) == 0;
  return plain && !has_adapters() ? &*run : nullptr;
}

MatmulShape Linear::forward_shape(const LayerCall& call, const Run& run) const {
  return {.m = rows(call),
          .n = run.channels,
          .k = tile_in_,
          .transpose_b = layout_ == LinearOptions::Layout::out_in,
          .c_stride = stride_of(run)};
}

MatmulArrays Linear::forward_arrays(const LayerCall& call, const Run& run, const Sum& y, const std::byte* x) const {
  return {.c = y.to + run.column * size_of(y.dtype),
          .c_dtype = y.dtype,
          .a = x,
          .b = parameter(call, run.place, dtype_),
          .dtype = dtype_,
          .bias = bias_of(call, run)};
}

MatmulShape Linear::backward_shape(const LayerCall& call, const Run& run) const {
  return {.m = rows(call),
          .n = tile_in_,
          .k = run.channels,
          .transpose_b = layout_ == LinearOptions::Layout::in_out,
          .a_stride = stride_of(run)};
}

void Linear::decode(const LayerCall& call, std::byte* y, const std::byte* x) const {
  expect(tiles_.size() == 1 && layout_ == LinearOptions::Layout::out_in && !has_adapters(),
         "decoding takes whole weights that are stored [out, in], without adapters");
  if (rows(call) > 1) return forward(call, y, x);
  for (const Run& run : weights_)
    matrix_vector(call.stream, forward_shape(call, run), forward_arrays(call, run, {y, dtype_}, x));
}

void Linear::backward_input(const LayerCall& call, std::byte* dx, const std::byte* dy, const Arrays& at,
                            std::size_t tile) const {
  const Sum sum = sum_of(call, dx, sums_inputs(), at);
  bool adds = sums_inputs() && tile > 0;
  for (const Run& run : weights_) {
    if (run.tile != tile) continue;
    matmul(call.stream, backward_shape(call, run),
           {.c = sum.to,
            .c_dtype = sum.dtype,
            .a = dy + run.column * size_of(dtype_),
            .b = parameter(call, run.place, dtype_),
            .dtype = dtype_,
            .accumulate = std::exchange(adds, true)});
  }
  if (is_last(tile)) round(call, dx, sum, rows(call) * in_);
  adapt_backward(call, dx, dy, at, tile);
}

void Linear::backward_gelu(const LayerCall& call, std::byte* d_inner, const std::byte* inner, std::byte* x,
                           const std::byte* dy, GeluForm form, const Arrays& at, std::size_t tile) const {
  expect(!sums_inputs(), "the gradient of GELU of a tile that is a part of a sum");
  if (const Run* const run = plain_run(tile)) {
    return matmul_gelu_backward(
        call.stream, backward_shape(call, *run),
        {.c = d_inner, .c_dtype = dtype_, .a = dy, .b = parameter(call, run->place, dtype_), .dtype = dtype_},
        inner, x, form);
  }
  backward_input(call, d_inner, dy, at, tile);
  gelu_backward(call.stream, dtype_, d_inner, inner, x, rows(call) * tile_in_, form);
}

Linear::Sum Linear::sum_of(const LayerCall& call, std::byte* result, bool sums, const Arrays& at) const {
  if (!sums || dtype_ == runtime::DType::f32) return {result, dtype_};
  return {call.workspace + at.scratch, runtime::DType::f32};
}

void Linear::round(const LayerCall& call, std::byte* result, const Sum& sum, std::size_t elements) const {
  if (sum.to != result) runtime::cast(call.stream, result, dtype_, sum.to, sum.dtype, elements);
}

void Linear::backward_weight(const LayerCall& call, const std::byte* x, const std::byte* dy, std::byte* scratch,
                             const Arrays& at) const {
  expect(tiles_.size() == 1, "gradients of {} tiles at once", tiles_.size());
  backward_adapters(call, x, dy, at);
  backward_matrix(call, x, dy);
  backward_bias(call, dy, scratch);
}

bool Linear::takes_bias_along(const LayerCall& call) const {
  return layout_ == LinearOptions::Layout::in_out && tiles_.size() == 1 && !biases_.empty() &&
         is_trained(call, weights_[0].place) && is_trained(call, biases_[0].place);
}

void Linear::backward_matrix(const LayerCall& call, const std::byte* x, const std::byte* dy,
                             std::size_t tile) const {
  const std::size_t N = rows(call);
  for (const Run& run : weights_) {
    if (run.tile != tile || !is_trained(call, run.place)) continue;
    const std::byte* const d_run = dy + run.column * size_of(dtype_);
    const std::size_t stride = stride_of(run);
    const bool out_in = layout_ == LinearOptions::Layout::out_in;
    const MatmulShape shape{.m = out_in ? run.channels : tile_in_,
                            .n = out_in ? tile_in_ : run.channels,
                            .k = N,
                            .transpose_a = true,
                            .a_stride = out_in ? stride : 0,
                            .b_stride = out_in ? 0 : stride};
    const MatmulArrays arrays{.c = gradient(call, run.place, gradient_dtype_),
                              .c_dtype = gradient_dtype_,
                              .a = out_in ? d_run : x,
                              .b = out_in ? x : d_run,
                              .dtype = dtype_,
                              .accumulate = call.accumulate};
    if (takes_bias_along(call)) {
      matmul_column_sums(call.stream, shape, arrays,
                         {gradient(call, biases_[0].place, gradient_dtype_), gradient_dtype_, call.accumulate});
    } else {
      matmul(call.stream, shape, arrays);
    }
  }
}

void Linear::backward_bias(const LayerCall& call, const std::byte* dy, std::byte* scratch, std::size_t tile) const {
  if (takes_bias_along(call) ||
      std::none_of(biases_.begin(), biases_.end(), [&](const Run& run) { return is_trained(call, run.place); }))
    return;
  if (biases_.size() == 1) {
    const ParameterRef place{biases_[0].place.unit, biases_[0].place.offset + (row_ < out_ ? tile * row_ : 0)};
    return column_sums(call.stream, gradient(call, place, gradient_dtype_), gradient_dtype_, dy, dtype_, rows(call),
                       row_, call.accumulate);
  }
  column_sums(call.stream, scratch, runtime::DType::f32, dy, dtype_, rows(call), out_, false);
  for (const Run& run : biases_)
    store_gradient(call, run.place, gradient_dtype_, floats(scratch) + run.first, run.channels);
}

}  // namespace ranvier::models
