#include "models/llama_layers.hpp"
#include "models/memory_layout.hpp"
#include "models/parts/gated_mlp.hpp"
#include "models/parts/layer_call.hpp"
#include "models/parts/linear.hpp"
#include "models/parts/self_attention.hpp"
#include "models/parts/tiles.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace ranvier::models {
namespace {

SelfAttentionOptions attention_options(const LlamaOptions& options) {
  return {.shape = {.heads = options.heads,
                    .channels = options.stored_head_size(),
                    .kernels = options.attention,
                    .fast_backward = options.fast_attention_backward,
                    .key_heads = options.key_heads,
                    .window = options.window},
          .rotary = rotary_frequencies(options.stored_head_size(), options.rope_base, options.rope_scaling),
          .head_norms = options.qk_norm,
          .norm_epsilon = options.norm_epsilon,
          .precision = options.precision};
}

LinearOptions qkv_options(const LlamaOptions& options, const std::string& name, UnitBuilder& builder) {
  const auto D = static_cast<std::size_t>(options.stored_head_size());
  const std::size_t queries = static_cast<std::size_t>(options.heads) * D;
  const std::size_t keys = static_cast<std::size_t>(options.stored_key_heads()) * D;
  return {.tensors = {{name + ".q_proj", queries}, {name + ".k_proj", keys}, {name + ".v_proj", keys}},
          .in = static_cast<std::size_t>(options.hidden),
          .bias = options.qkv_bias,
          .initializer = llama_initializer(options),
          .precision = options.precision,
          .cut = {builder.add_tiles(name + ".qkv_proj", static_cast<std::size_t>(options.tile))}};
}

LinearOptions out_options(const LlamaOptions& options, const std::string& name, UnitBuilder& builder) {
  return {.tensors = {{name + ".o_proj", static_cast<std::size_t>(options.hidden)}},
          .in = static_cast<std::size_t>(options.heads) * static_cast<std::size_t>(options.stored_head_size()),
          .bias = options.out_bias,
          .initializer = llama_initializer(options),
          .precision = options.precision,
          .cut = {builder.add_tiles(name + ".o_proj", static_cast<std::size_t>(options.tile))}};
}

/// Pre-norm: x + out(attention(qkv(norm(x)))), then x + mlp(norm(x)).
class LlamaBlock final : public Layer {
 public:
  LlamaBlock(const LlamaOptions& options, int index, const Tuning& tuning)
      : LlamaBlock(options, fmt::format("model.layers.{}", index), UnitBuilder(tuning)) {}

  const std::string& name() const noexcept override { return name_; }
  std::span<const UnitSpec> units() const noexcept override { return units_; }

  /// 6 per parameter and position, and attention's two T × T products of H·D channels, forward once and backward twice,
  /// at 2 each (the part that causality and a window spare is customarily counted).
  double flops_per_sample(int positions) const override {
    double parameters = 0;
    for (const UnitSpec& unit : units_)
      for (const ParameterSpec& parameter : unit.parameters)
        parameters += static_cast<double>(parameter.elements());
    return 6.0 * parameters * positions + 12.0 * static_cast<double>(out_.in()) * positions * positions;
  }

  std::size_t output_elements(int positions) const override {
    return static_cast<std::size_t>(positions) * channels_;
  }

  bool repeats(bool training) const noexcept override {
    return !training || (!qkv_.drops() && !out_.drops() && !mlp_.drops());
  }

  LayerParts parts() const override { return parts_of(units_, {&qkv_.tiles(), &out_.tiles(), &mlp_.tiles()}); }

  LayerMemory memory(MicrobatchShape shape) const override {
    const Arrays arrays(*this, shape);
    return {arrays.saved.bytes(), arrays.deferred.bytes(), arrays.workspace.bytes()};
  }

  void forward(const LayerCall& call, const std::byte* input, std::byte* output) override {
    const Arrays at = arrays(call);
    std::byte *const saved = call.saved, *const work = call.workspace;
    PartWalk walk(call);
    walk.once([&] { norm_1_.forward(call, at.norm_1, work + at.narrow, input); });
    walk.each(qkv_.tiles(), [&](std::size_t tile) {
      qkv_.forward(call, saved + at.attention.qkv, work + at.narrow, at.qkv, tile);
    });
    walk.once([&] { attention_.forward(call, at.attention, work + at.scratch); });
    walk.each(out_.tiles(),
              [&](std::size_t tile) { out_.forward(call, output, saved + at.attention.out, at.out, tile); });
    walk.once([&] { norm_2_.forward(call, at.norm_2, work + at.narrow, input, output, saved + at.middle); });
    walk.each(mlp_.tiles(), [&](std::size_t tile) {
      mlp_.forward(call, at.mlp, output, work + at.narrow, saved + at.middle, tile);
    });
  }

  void backward_input(const LayerCall& call, const std::byte* input, const std::byte* output_gradient,
                      std::byte* input_gradient) override {
    const Arrays at = arrays(call);
    std::byte *const saved = call.saved, *const kept = call.deferred, *const work = call.workspace;
    PartWalk walk(call);
    walk.once([&] {
      norm_1_.keep(call, at.norm_1);
      norm_2_.keep(call, at.norm_2);
      runtime::copy(call.stream, kept + at.d_output, output_gradient, rows(call) * channels_ * size_of(dtype_));
    });
    walk.each(mlp_.tiles(), [&](std::size_t tile) {
      mlp_.backward_input(call, at.mlp, work + at.narrow, kept + at.d_output, tile);
    });
    walk.once([&] {
      norm_2_.backward(call, at.norm_2, kept + at.d_middle, work + at.narrow, saved + at.middle, output_gradient,
                       work + at.scratch);
    });
    walk.each(out_.tiles(), [&](std::size_t tile) {
      out_.backward_input(call, work + at.narrow, kept + at.d_middle, at.out, tile);
    });
    walk.once([&] { attention_.backward(call, at.attention, work + at.narrow, work + at.scratch); });
    walk.each(qkv_.tiles(), [&](std::size_t tile) {
      qkv_.backward_input(call, work + at.narrow, kept + at.attention.d_qkv, at.qkv, tile);
    });
    walk.once([&] {
      norm_1_.backward(call, at.norm_1, input_gradient, work + at.narrow, input, kept + at.d_middle,
                       work + at.scratch);
    });
  }

  void backward_weight(const LayerCall& call, const std::byte* input) override {
    const Arrays at = arrays(call);
    std::byte *const saved = call.saved, *const kept = call.deferred, *const work = call.workspace;
    PartWalk walk(call);
    walk.each_trained(
        mlp_.tiles(), [&] { norm_2_.again(call, at.norm_2, work + at.narrow, saved + at.middle); },
        [&](std::size_t tile) { mlp_.backward_matrix(call, at.mlp, work + at.narrow, kept + at.d_output, tile); });
    walk.each_trained(
        out_.tiles(), [] {},
        [&](std::size_t tile) {
          out_.backward_matrix(call, saved + at.attention.out, kept + at.d_middle, at.out, tile);
        });
    walk.each_trained(
        qkv_.tiles(), [&] { norm_1_.again(call, at.norm_1, work + at.narrow, input); },
        [&](std::size_t tile) {
          qkv_.backward_matrix(call, work + at.narrow, kept + at.attention.d_qkv, at.qkv, tile);
        });
    walk.rest([&] {
      norm_2_.store_gradients(call, at.norm_2);
      out_.backward_bias(call, kept + at.d_middle, work + at.scratch);
      attention_.store_gradients(call, at.attention);
      qkv_.backward_bias(call, kept + at.attention.d_qkv, work + at.scratch);
      norm_1_.store_gradients(call, at.norm_1);
    });
  }

 private:
  /// Parameters in the order of the checkpoint's modules.
  LlamaBlock(const LlamaOptions& options, const std::string& name, UnitBuilder builder)
      : name_(name),
        dtype_(options.precision.compute),
        channels_(static_cast<std::size_t>(options.hidden)),
        unit_(builder.add_unit(name)),
        norm_1_(builder, unit_, name + ".input_layernorm", llama_norm(options)),
        qkv_(builder, unit_, qkv_options(options, name + ".self_attn", builder)),
        attention_(builder, unit_, name + ".self_attn", attention_options(options)),
        out_(builder, unit_, out_options(options, name + ".self_attn", builder)),
        norm_2_(builder, unit_, name + ".post_attention_layernorm", llama_norm(options)),
        mlp_(builder, unit_, name + ".mlp",
             {.channels = channels_,
              .inner = static_cast<std::size_t>(options.inner),
              .initializer = llama_initializer(options),
              .precision = options.precision,
              .tiles = builder.add_tiles(name + ".mlp", static_cast<std::size_t>(options.tile))}),
        units_(std::move(builder).units()) {}

  /// Where a call's arrays lie. Letters: N = B·T rows, C channels, H·D channels of all heads.
  struct Arrays {
    Arrays(const LlamaBlock& block, const MicrobatchShape& shape) {
      const std::size_t N = rows(shape), C = block.channels_, element = size_of(block.dtype_);
      norm_1 = block.norm_1_.plan(saved, deferred, N);
      norm_2 = block.norm_2_.plan(saved, deferred, N);
      attention = block.attention_.plan(saved, deferred, shape);
      scratch = workspace.add(
          1, std::max({block.attention_.scratch_bytes(shape), block.norm_1_.scratch_bytes(N),
                       block.qkv_.scratch_bytes(N), block.out_.scratch_bytes(N), block.mlp_.scratch_bytes(N)}));
      qkv = block.qkv_.plan(saved, deferred, workspace, N, scratch);
      out = block.out_.plan(saved, deferred, workspace, N, scratch);
      middle = saved.add(N * C, element);
      mlp = block.mlp_.plan(saved, deferred, workspace, N, scratch);
      d_middle = deferred.add(N * C, element);
      d_output = deferred.add(N * C, element);
      narrow = workspace.add(N * std::max(C, block.out_.in()), element);
    }

    MemoryLayout saved, deferred, workspace;
    Norm::Arrays norm_1, norm_2;
    SelfAttention::Arrays attention;
    std::size_t middle;  ///< saved [N, C]: the residual stream between attention and MLP
    GatedMlp::Arrays mlp;
    Linear::Arrays qkv, out;
    std::size_t d_middle, d_output;  ///< deferred [N, C]: gradients of that stream, and of the output
    std::size_t narrow;              ///< workspace [N, C] or [N, H·D]: a norm's output, or a gradient
    std::size_t scratch;             ///< workspace: whatever a kernel needs
  };

  Arrays arrays(const LayerCall& call) const {
    expect_planned_threads(call, name_);
    return {*this, call.shape};
  }

  std::string name_;
  runtime::DType dtype_;
  std::size_t channels_, unit_;
  Norm norm_1_;
  Linear qkv_;
  SelfAttention attention_;
  Linear out_;
  Norm norm_2_;
  GatedMlp mlp_;
  std::vector<UnitSpec> units_;
};

}  // namespace

std::unique_ptr<Layer> make_llama_block(const LlamaOptions& options, int index, const Tuning& tuning) {
  return std::make_unique<LlamaBlock>(options, index, tuning);
}

}  // namespace ranvier::models
