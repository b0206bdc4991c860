#include "models/modules/pre_norm_block.hpp"

#include "models/modules/block_dropout.hpp"
#include "models/modules/layer_call.hpp"
#include "models/modules/tiles.hpp"
#include "models/ops/memory_layout.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace ranvier::models {
namespace {

/// MlpPart: Mlp or GatedMlp.
template <typename MlpPart>
class PreNormBlock final : public DecodingLayer {
 public:
  PreNormBlock(const PreNormBlockOptions& options, const typename MlpPart::Options& mlp, UnitBuilder&& builder)
      : name_(options.name),
        dtype_(options.norm.precision.compute),
        channels_(options.norm.channels),
        dropout_(options.dropout, options.index, channels_, dtype_),
        unit_(builder.add_unit(name_)),
        norm_1_(builder, unit_, options.norm_1, options.norm),
        qkv_(builder, unit_, options.qkv),
        attention_(builder, unit_, options.attention_name, options.attention),
        out_(builder, unit_, options.out),
        norm_2_(builder, unit_, options.norm_2, options.norm),
        mlp_(builder, unit_, mlp),
        units_(std::move(builder).units()) {}

  const std::string& name() const noexcept override { return name_; }
  std::span<const UnitSpec> units() const noexcept override { return units_; }

  /// 6 per parameter and position, plus attention's.
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
    return {arrays.saved.bytes(), arrays.deferred.bytes(), arrays.workspace.bytes(), !dropout_.drops()};
  }

  void forward(const LayerCall& call, const std::byte* input, std::byte* output) override {
    const Arrays at = arrays(call);
    std::byte *const saved = call.saved, *const work = call.workspace;
    // Dropout acts on a branch before the residual addition.
    const bool drops = dropout_.drops(call);
    PhaseWalk walk(call);
    std::byte* const normed_1 = Norm::output(call, at.norm_1, work + at.narrow);
    std::byte* const normed_2 = Norm::output(call, at.norm_2, work + at.narrow);
    walk.once([&] { norm_1_.forward(call, at.norm_1, normed_1, input); });
    walk.each(qkv_.tiles(),
              [&](std::size_t tile) { qkv_.forward(call, saved + at.attention.qkv, normed_1, at.qkv, tile); });
    walk.once([&] {
      attention_.forward(call, at.attention, work + at.scratch, dropout_.rule(call, DropoutSite::attention));
    });
    walk.each(out_.tiles(),
              [&](std::size_t tile) { out_.forward(call, output, saved + at.attention.out, at.out, tile); });
    walk.once([&] {
      dropout_.drop(call, output, DropoutSite::attention_branch);
      norm_2_.forward(call, at.norm_2, normed_2, input, output, saved + at.middle);
    });
    walk.each(mlp_.tiles(), [&](std::size_t tile) {
      mlp_.forward(call, at.mlp, output, normed_2, drops ? nullptr : saved + at.middle, tile);
    });
    walk.once([&] {
      if (drops) dropout_.drop_and_add(call, output, DropoutSite::mlp_branch, saved + at.middle);
    });
  }

  void backward_input(const LayerCall& call, const std::byte* input, const std::byte* output_gradient,
                      std::byte* input_gradient) override {
    const Arrays at = arrays(call);
    std::byte *const saved = call.saved, *const kept = call.deferred, *const work = call.workspace;
    // Without dropout, the gradients of residual stream and branch are identical.
    std::byte* const d_middle = dropout_.drops() ? work + at.d_middle : kept + at.d_out;
    const std::byte* const d_mlp = this->d_mlp(call, at, output_gradient);
    PhaseWalk walk(call);
    walk.once([&] {
      norm_1_.keep(call, at.norm_1);
      norm_2_.keep(call, at.norm_2);
      if (dropout_.drops())
        dropout_.branch_gradient(call, kept + at.d_mlp, output_gradient, DropoutSite::mlp_branch);
    });
    walk.each(mlp_.tiles(),
              [&](std::size_t tile) { mlp_.backward_input(call, at.mlp, work + at.narrow, d_mlp, tile); });
    walk.once([&] {
      norm_2_.backward(call, at.norm_2, d_middle, work + at.narrow, saved + at.middle, output_gradient,
                       work + at.scratch);
      dropout_.branch_gradient(call, kept + at.d_out, d_middle, DropoutSite::attention_branch);
    });
    walk.each(out_.tiles(), [&](std::size_t tile) {
      out_.backward_input(call, work + at.narrow, kept + at.d_out, at.out, tile);
    });
    walk.once([&] {
      attention_.backward(call, at.attention, work + at.narrow, work + at.scratch,
                          dropout_.rule(call, DropoutSite::attention));
    });
    walk.each(qkv_.tiles(), [&](std::size_t tile) {
      qkv_.backward_input(call, work + at.narrow, kept + at.attention.d_qkv, at.qkv, tile);
    });
    walk.once([&] {
      norm_1_.backward(call, at.norm_1, input_gradient, work + at.narrow, input, d_middle, work + at.scratch);
    });
  }

  void backward_weight(const LayerCall& call, const std::byte* input) override {
    const Arrays at = arrays(call);
    std::byte *const saved = call.saved, *const kept = call.deferred, *const work = call.workspace;
    std::byte* const normed_1 = Norm::output(call, at.norm_1, work + at.narrow);
    std::byte* const normed_2 = Norm::output(call, at.norm_2, work + at.narrow);
    const std::byte* const d_mlp = this->d_mlp(call, at, call.output_gradient);
    PhaseWalk walk(call);
    walk.each_trained(
        mlp_.tiles(), [&] { norm_2_.again(call, at.norm_2, normed_2, saved + at.middle); },
        [&](std::size_t tile) { mlp_.backward_matrix(call, at.mlp, normed_2, d_mlp, tile); });
    walk.each_trained(
        out_.tiles(), [] {},
        [&](std::size_t tile) { out_.backward_matrix(call, saved + at.attention.out, kept + at.d_out, tile); });
    walk.each_trained(
        qkv_.tiles(), [&] { norm_1_.again(call, at.norm_1, normed_1, input); },
        [&](std::size_t tile) { qkv_.backward_matrix(call, normed_1, kept + at.attention.d_qkv, tile); });
    walk.rest([&] {
      if (mlp_.has_adapters()) {
        norm_2_.again(call, at.norm_2, normed_2, saved + at.middle);
        mlp_.backward_adapters(call, at.mlp, normed_2, d_mlp);
      }
      out_.backward_adapters(call, saved + at.attention.out, kept + at.d_out, at.out);
      if (qkv_.has_adapters()) {
        norm_1_.again(call, at.norm_1, normed_1, input);
        qkv_.backward_adapters(call, normed_1, kept + at.attention.d_qkv, at.qkv);
      }
      if constexpr (requires { &MlpPart::backward_bias; }) mlp_.backward_bias(call, at.mlp, d_mlp);
      norm_2_.store_gradients(call, at.norm_2);
      out_.backward_bias(call, kept + at.d_out, work + at.scratch);
      attention_.store_gradients(call, at.attention);
      qkv_.backward_bias(call, kept + at.attention.d_qkv, work + at.scratch);
      norm_1_.store_gradients(call, at.norm_1);
    });
  }

  DecodingSizes decoding_sizes(int capacity, int threads) const override {
    return {.key_channels = attention_.key_channels(),
            .narrow = std::max({channels_, out_.in(), mlp_.narrow_channels()}),
            .wide = std::max(qkv_.out(), mlp_.wide_channels()),
            .heads = static_cast<std::size_t>(attention_.heads()),
            .scratch_bytes = attention_.decode_scratch_bytes(capacity, threads)};
  }

  void decode(const LayerCall& call, const Decoding& text, DecodingArrays& at, bool first) const override {
    if (first) {
      norm_1_.forward(call, at.norm, at.narrow, at.x);
    } else {
      add_and_norm(call, at, norm_1_);
    }
    qkv_.decode(call, at.wide, at.narrow);
    attention_.decode(call, text, at.narrow, at.wide, at.logsumexp, at.scratch);
    out_.decode(call, at.branch, at.narrow);
    add_and_norm(call, at, norm_2_);
    mlp_.decode(call, at.branch, at.narrow, at.wide, at.narrow);
  }

 private:
  /// x = x + branch, narrow = norm(x)
  static void add_and_norm(const LayerCall& call, DecodingArrays& at, const Norm& norm) {
    norm.forward(call, at.norm, at.narrow, at.x, at.branch, at.sum);
    std::swap(at.x, at.sum);
  }

  /// Offsets of a call's arrays. Letters: N = B·T rows, C channels, H·D channels of all heads.
  struct Arrays {
    Arrays(const PreNormBlock& block, const MicrobatchShape& shape) {
      const std::size_t N = rows(shape), C = block.channels_, element = size_of(block.dtype_);
      norm_1 = block.norm_1_.plan(saved, deferred, N, shape.saved);
      norm_2 = block.norm_2_.plan(saved, deferred, N, shape.saved);
      attention = block.attention_.plan(saved, deferred, shape);
      scratch = workspace.add(
          1, std::max({block.attention_.scratch_bytes(shape), block.norm_1_.scratch_bytes(N),
                       block.qkv_.scratch_bytes(N), block.out_.scratch_bytes(N), block.mlp_.scratch_bytes(N)}));
      qkv = block.qkv_.plan(saved, deferred, workspace, N, scratch);
      out = block.out_.plan(saved, deferred, workspace, N, scratch);
      middle = saved.add(N * C, element);
      mlp = block.mlp_.plan(saved, deferred, workspace, shape, scratch);
      d_out = deferred.add(N * C, element);
      d_mlp = deferred.add(block.dropout_.drops() ? N * C : 0, element);
      narrow = workspace.add(N * std::max(C, block.out_.in()), element);
      const std::size_t of_stream = block.dropout_.drops() ? N * C * element : 0;
      d_middle = of_stream <= mlp.workspace_bytes ? mlp.workspace : workspace.add(1, of_stream);
    }

    MemoryLayout saved, deferred, workspace;
    Norm::Arrays norm_1, norm_2;
    SelfAttention::Arrays attention;
    std::size_t middle;  ///< saved [N, C]: the residual stream between attention and MLP
    typename MlpPart::Arrays mlp;
    Linear::Arrays qkv, out;
    std::size_t d_out;     ///< deferred [N, C]: gradient of attention's branch
    std::size_t d_mlp;     ///< deferred [N, C], with dropout: gradient of the MLP's branch
    std::size_t narrow;    ///< workspace [N, C] or [N, H·D]: a norm's output, or a gradient
    std::size_t d_middle;  ///< workspace [N, C], with dropout: gradient of the residual stream; shares the MLP's
                           ///< workspace if that is large enough
    std::size_t scratch;   ///< workspace: scratch of kernels
  };

  /// Gradient of the MLP's branch; the output gradient if nothing is dropped.
  const std::byte* d_mlp(const LayerCall& call, const Arrays& at, const std::byte* output_gradient) const {
    return dropout_.drops() ? call.deferred + at.d_mlp : output_gradient;
  }

  Arrays arrays(const LayerCall& call) const {
    expect_planned_threads(call, name_);
    return {*this, call.shape};
  }

  std::string name_;
  runtime::DType dtype_;
  std::size_t channels_;
  BlockDropout dropout_;
  std::size_t unit_;
  Norm norm_1_;
  Linear qkv_;
  SelfAttention attention_;
  Linear out_;
  Norm norm_2_;
  MlpPart mlp_;
  std::vector<UnitSpec> units_;
};

}  // namespace

std::unique_ptr<DecodingLayer> make_pre_norm_block(const PreNormBlockOptions& options, UnitBuilder builder) {
  if (const auto* const gated = std::get_if<GatedMlpOptions>(&options.mlp))
    return std::make_unique<PreNormBlock<GatedMlp>>(options, *gated, std::move(builder));
  return std::make_unique<PreNormBlock<Mlp>>(options, std::get<MlpOptions>(options.mlp), std::move(builder));
}

}  // namespace ranvier::models
