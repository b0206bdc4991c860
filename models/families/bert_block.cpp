#include "models/families/bert_layers.hpp"
#include "models/modules/block_dropout.hpp"
#include "models/modules/layer_call.hpp"
#include "models/modules/linear.hpp"
#include "models/modules/mlp.hpp"
#include "models/modules/self_attention.hpp"
#include "models/modules/tiles.hpp"
#include "models/ops/memory_layout.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace ranvier::models {
namespace {

SelfAttentionOptions attention_options(const BertOptions& options) {
  return {.shape = {.heads = options.heads,
                    .channels = options.hidden / options.heads,
                    .kernels = options.attention,
                    .fast_backward = options.fast_attention_backward,
                    .causal = false},
          .precision = options.precision};
}

/// Linear maps of C channels, stored together. `tiles`: name of the tiles' units.
LinearOptions linear_options(const BertOptions& options, std::initializer_list<std::string> names,
                             const std::string& tiles, UnitBuilder& builder) {
  LinearOptions linear{.tensors = {},
                       .in = static_cast<std::size_t>(options.hidden),
                       .bias = true,
                       .initializer = bert_initializer(options),
                       .precision = options.precision,
                       .cut = {builder.add_tiles(tiles, static_cast<std::size_t>(options.tile))}};
  for (const std::string& name : names) linear.tensors.push_back({name, linear.in});
  return linear;
}

/// Post-norm: middle = norm(x + out(attention(qkv(x)))), then norm(middle + mlp(middle)).
class BertBlock final : public Layer {
 public:
  BertBlock(const BertOptions& options, int index, const Tuning& tuning)
      : BertBlock(options, index, fmt::format("{}encoder.layer.{}", bert_prefix(options), index),
                  UnitBuilder(tuning)) {}

  const std::string& name() const noexcept override { return name_; }
  std::span<const UnitSpec> units() const noexcept override { return units_; }

  /// 6 FLOP per parameter and position, plus attention.
  double flops_per_sample(int positions) const override {
    return 6.0 * static_cast<double>(parameters_of(units_)) * positions + attention_.flops_per_sample(positions);
  }

  std::size_t output_elements(int positions) const override {
    return static_cast<std::size_t>(positions) * channels_;
  }

  bool repeats(bool training) const noexcept override {
    return !training || (!dropout_.drops() && !qkv_.drops() && !out_.drops() && !mlp_.drops());
  }

  LayerPhases parts() const override { return parts_of(units_, {&qkv_.tiles(), &out_.tiles(), &mlp_.tiles()}); }

  LayerMemory memory(MicrobatchShape shape) const override {
    const Arrays arrays(*this, shape);
    return {arrays.saved.bytes(), arrays.deferred.bytes(), arrays.workspace.bytes()};
  }

  void forward(const LayerCall& call, const std::byte* input, std::byte* output) override {
    const Arrays at = arrays(call);
    std::byte *const saved = call.saved, *const middle = Norm::output(call, at.norm_1, call.workspace + at.narrow);
    PhaseWalk walk(call);
    walk.each(qkv_.tiles(),
              [&](std::size_t tile) { qkv_.forward(call, saved + at.attention.qkv, input, at.qkv, tile); });
    walk.once([&] {
      attention_.forward(call, at.attention, call.workspace + at.scratch,
                         dropout_.rule(call, DropoutSite::attention));
    });
    // The norm's kernel adds the branch and the residual in place.
    walk.each(out_.tiles(), [&](std::size_t tile) {
      out_.forward(call, saved + at.sum_1, saved + at.attention.out, at.out, tile);
    });
    walk.once([&] {
      dropout_.drop(call, saved + at.sum_1, DropoutSite::attention_branch);
      norm_1_.forward(call, at.norm_1, middle, input, saved + at.sum_1, saved + at.sum_1);
    });
    walk.each(mlp_.tiles(),
              [&](std::size_t tile) { mlp_.forward(call, at.mlp, saved + at.sum_2, middle, nullptr, tile); });
    walk.once([&] {
      dropout_.drop(call, saved + at.sum_2, DropoutSite::mlp_branch);
      norm_2_.forward(call, at.norm_2, output, middle, saved + at.sum_2, saved + at.sum_2);
    });
  }

  void backward_input(const LayerCall& call, const std::byte*, const std::byte* output_gradient,
                      std::byte* input_gradient) override {
    const Arrays at = arrays(call);
    std::byte *const saved = call.saved, *const kept = call.deferred, *const work = call.workspace;
    // Without dropout, a branch and its sum have the same gradient.
    std::byte* const d_sum_2 = dropout_.drops() ? work + at.d_sum : kept + at.d_mlp;
    std::byte* const d_sum_1 = dropout_.drops() ? work + at.d_sum : kept + at.d_out;
    PhaseWalk walk(call);
    walk.once([&] {
      norm_1_.keep(call, at.norm_1);
      norm_2_.keep(call, at.norm_2);
      norm_2_.backward(call, at.norm_2, d_sum_2, output_gradient, saved + at.sum_2, nullptr, work + at.scratch);
      dropout_.branch_gradient(call, kept + at.d_mlp, d_sum_2, DropoutSite::mlp_branch);
    });
    walk.each(mlp_.tiles(), [&](std::size_t tile) {
      mlp_.backward_input(call, at.mlp, work + at.narrow, kept + at.d_mlp, tile);
    });
    walk.once([&] {
      runtime::add(call.stream, work + at.narrow, d_sum_2, dtype_, rows(call) * channels_);
      norm_1_.backward(call, at.norm_1, d_sum_1, work + at.narrow, saved + at.sum_1, nullptr, work + at.scratch);
      dropout_.branch_gradient(call, kept + at.d_out, d_sum_1, DropoutSite::attention_branch);
    });
    walk.each(out_.tiles(), [&](std::size_t tile) {
      out_.backward_input(call, work + at.narrow, kept + at.d_out, at.out, tile);
    });
    walk.once([&] {
      attention_.backward(call, at.attention, work + at.narrow, work + at.scratch,
                          dropout_.rule(call, DropoutSite::attention));
    });
    walk.each(qkv_.tiles(), [&](std::size_t tile) {
      qkv_.backward_input(call, input_gradient, kept + at.attention.d_qkv, at.qkv, tile);
    });
    walk.once([&] { runtime::add(call.stream, input_gradient, d_sum_1, dtype_, rows(call) * channels_); });
  }

  void backward_weight(const LayerCall& call, const std::byte* input) override {
    const Arrays at = arrays(call);
    std::byte *const saved = call.saved, *const kept = call.deferred, *const work = call.workspace;
    std::byte* const middle = Norm::output(call, at.norm_1, work + at.narrow);
    PhaseWalk walk(call);
    walk.each_trained(
        mlp_.tiles(), [&] { norm_1_.again(call, at.norm_1, middle, saved + at.sum_1); },
        [&](std::size_t tile) { mlp_.backward_matrix(call, at.mlp, middle, kept + at.d_mlp, tile); });
    walk.each_trained(
        out_.tiles(), [] {},
        [&](std::size_t tile) { out_.backward_matrix(call, saved + at.attention.out, kept + at.d_out, tile); });
    walk.each_trained(
        qkv_.tiles(), [] {},
        [&](std::size_t tile) { qkv_.backward_matrix(call, input, kept + at.attention.d_qkv, tile); });
    walk.rest([&] {
      if (mlp_.has_adapters()) {
        norm_1_.again(call, at.norm_1, middle, saved + at.sum_1);
        mlp_.backward_adapters(call, at.mlp, middle, kept + at.d_mlp);
      }
      out_.backward_adapters(call, saved + at.attention.out, kept + at.d_out, at.out);
      qkv_.backward_adapters(call, input, kept + at.attention.d_qkv, at.qkv);
      norm_2_.store_gradients(call, at.norm_2);
      mlp_.backward_bias(call, at.mlp, kept + at.d_mlp);
      norm_1_.store_gradients(call, at.norm_1);
      out_.backward_bias(call, kept + at.d_out, work + at.scratch);
      qkv_.backward_bias(call, kept + at.attention.d_qkv, work + at.scratch);
    });
  }

 private:
  /// Parameters in the order of the checkpoint's modules.
  BertBlock(const BertOptions& options, int index, const std::string& name, UnitBuilder builder)
      : name_(name),
        dtype_(options.precision.compute),
        channels_(static_cast<std::size_t>(options.hidden)),
        dropout_(options.dropout, index, channels_, dtype_),
        unit_(builder.add_unit(name)),
        qkv_(builder, unit_,
             linear_options(
                 options,
                 {name + ".attention.self.query", name + ".attention.self.key", name + ".attention.self.value"},
                 name + ".attention.self.qkv", builder)),
        attention_(builder, unit_, name + ".attention.self", attention_options(options)),
        out_(
            builder, unit_,
            linear_options(options, {name + ".attention.output.dense"}, name + ".attention.output.dense", builder)),
        norm_1_(builder, unit_, name + ".attention.output.LayerNorm", bert_norm(options)),
        mlp_(builder, unit_,
             {.up = {name + ".intermediate.dense", bert_initializer(options)},
              .down = {name + ".output.dense", bert_initializer(options)},
              .channels = channels_,
              .inner = static_cast<std::size_t>(options.inner),
              .precision = options.precision,
              .tiles = builder.add_tiles(name + ".mlp", static_cast<std::size_t>(options.tile))}),
        norm_2_(builder, unit_, name + ".output.LayerNorm", bert_norm(options)),
        units_(std::move(builder).units()) {}

  /// Offsets of a call's arrays. Letters: N = B·T rows, C channels.
  struct Arrays {
    Arrays(const BertBlock& block, const MicrobatchShape& shape) {
      const std::size_t N = rows(shape), C = block.channels_, element = size_of(block.dtype_);
      norm_1 = block.norm_1_.plan(saved, deferred, N, shape.saved);
      norm_2 = block.norm_2_.plan(saved, deferred, N);
      attention = block.attention_.plan(saved, deferred, shape);
      scratch = workspace.add(
          1, std::max({block.attention_.scratch_bytes(shape), block.norm_1_.scratch_bytes(N),
                       block.qkv_.scratch_bytes(N), block.out_.scratch_bytes(N), block.mlp_.scratch_bytes(N)}));
      qkv = block.qkv_.plan(saved, deferred, workspace, N, scratch);
      out = block.out_.plan(saved, deferred, workspace, N, scratch);
      sum_1 = saved.add(N * C, element);
      mlp = block.mlp_.plan(saved, deferred, workspace, shape, scratch);
      sum_2 = saved.add(N * C, element);
      d_out = deferred.add(N * C, element);
      d_mlp = deferred.add(N * C, element);
      narrow = workspace.add(N * C, element);
      d_sum = workspace.add(block.dropout_.drops() ? N * C : 0, element);
    }

    MemoryLayout saved, deferred, workspace;
    Norm::Arrays norm_1, norm_2;
    SelfAttention::Arrays attention;
    Linear::Arrays qkv, out;
    Mlp::Arrays mlp;
    std::size_t sum_1, sum_2;  ///< saved [N, C]: inputs of the norms
    std::size_t d_out, d_mlp;  ///< deferred [N, C]: gradients of the branches
    std::size_t narrow;        ///< workspace [N, C]: the first norm's output, if it is not saved, or a gradient
    std::size_t d_sum;         ///< workspace [N, C]: gradient of a sum, with dropout
    std::size_t scratch;       ///< workspace: scratch memory of kernels
  };

  Arrays arrays(const LayerCall& call) const {
    expect_planned_threads(call, name_);
    return {*this, call.shape};
  }

  std::string name_;
  runtime::DType dtype_;
  std::size_t channels_;
  BlockDropout dropout_;
  std::size_t unit_;
  Linear qkv_;
  SelfAttention attention_;
  Linear out_;
  Norm norm_1_;
  Mlp mlp_;
  Norm norm_2_;
  std::vector<UnitSpec> units_;
};

}  // namespace

std::unique_ptr<Layer> make_bert_block(const BertOptions& options, int index, const Tuning& tuning) {
  return std::make_unique<BertBlock>(options, index, tuning);
}

}  // namespace ranvier::models
