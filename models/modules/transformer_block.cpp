#include "models/modules/transformer_block.hpp"

#include "models/modules/layer_call.hpp"
#include "models/modules/tiles.hpp"
#include "runtime/base/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace ranvier::models {
namespace {

/// norm, if `is_there`.
std::optional<Norm> norm_if(bool is_there, UnitBuilder& builder, std::size_t unit, const std::string& name,
                            const NormShape& norm) {
  if (!is_there) return std::nullopt;
  return Norm(builder, unit, name, norm);
}

LinearOptions with_matrices(LinearOptions options, std::vector<std::size_t> matrices) {
  options.matrices = std::move(matrices);
  return options;
}

/// Output channels of queries, keys and values.
std::vector<std::size_t> qkv_channels(const AttentionShape& shape) {
  const auto D = static_cast<std::size_t>(shape.channels);
  const std::size_t keys = static_cast<std::size_t>(shape.stored_key_heads()) * D;
  return {static_cast<std::size_t>(shape.heads) * D, keys, keys};
}

/// With norms before branches, the residual stream x runs past them: sum = x + branch(first_norm(x)), and the output is
/// sum + mlp(middle_norm(sum)). With norms after branches, it runs through them: sum = x + branch(x), middle =
/// middle_norm(sum), and the output is last_norm(middle + mlp(middle)).
class TransformerBlock final : public DecodingLayer {
 public:
  TransformerBlock(const TransformerBlockOptions& options, UnitBuilder&& builder)
      : DecodingLayer(options.name),
        dtype_(builder.precision().compute),
        channels_(options.norm.channels),
        dropout_(options.dropout),
        index_(options.index),
        unit_(builder.add_unit(name())),
        first_norm_(norm_if(!options.post_norm, builder, unit_, options.norm_1, options.norm)),
        qkv_(builder, unit_, with_matrices(options.qkv, qkv_channels(options.attention.shape))),
        attention_(builder, unit_, options.attention_name, options.attention),
        out_(builder, unit_, with_matrices(options.out, {options.norm.channels})),
        middle_norm_(builder, unit_, options.post_norm ? options.norm_1 : options.norm_2, options.norm),
        mlp_(builder, unit_, options.mlp),
        last_norm_(norm_if(options.post_norm, builder, unit_, options.norm_2, options.norm)) {
    set_units(std::move(builder).units());
  }

  /// 6 per parameter and position, plus attention's.
  double flops_per_sample(int positions) const override {
    return 6.0 * static_cast<double>(parameters_of(units())) * positions + attention_.flops_per_sample(positions);
  }

  std::size_t output_elements(int positions) const override {
    return static_cast<std::size_t>(positions) * channels_;
  }

  bool repeats(bool training) const noexcept override {
    return !training || (!drops() && !qkv_.drops() && !out_.drops() && !mlp_.drops());
  }

  LayerPhases parts() const override { return parts_of(units(), {&qkv_.tiles(), &out_.tiles(), &mlp_.tiles()}); }

  LayerMemory memory(MicrobatchShape shape) const override { return Arrays(*this, shape).bytes(!keeps_d_mlp()); }

  void forward(const LayerCall& call, const std::byte* input, std::byte* output) override {
    const Arrays at = arrays(call);
    std::byte *const saved = call.saved, *const work = call.workspace;
    PhaseWalk walk(call);
    std::byte* const normed = saved_or(call, at.first_norm.y, work + at.narrow);
    std::byte* const middle = saved_or(call, at.middle_norm.y, work + at.narrow);
    const std::byte* const attended = first_norm_ ? normed : input;
    walk.once([&] {
      if (first_norm_) first_norm_->forward(call, at.first_norm, normed, input);
    });
    walk.each(qkv_.tiles(),
              [&](std::size_t tile) { qkv_.forward(call, saved + at.attention.qkv, attended, at.qkv, tile); });
    walk.once(
        [&] { attention_.forward(call, at.attention, work + at.scratch, rule(call, DropoutSite::attention)); });
    walk.each(out_.tiles(),
              [&](std::size_t tile) { out_.forward(call, output, saved + at.attention.out, at.out, tile); });
    walk.once([&] {
      drop(call, output, DropoutSite::attention_branch);
      middle_norm_.forward(call, at.middle_norm, middle, input, output, saved + at.sum);
    });
    // Dropout and a last norm act on the MLP's branch before or while the residual is added.
    const bool drops = call.training && this->drops();
    std::byte* const branch = last_norm_ ? saved + at.last_sum : output;
    const std::byte* const addend = last_norm_ || drops ? nullptr : saved + at.sum;
    walk.each(mlp_.tiles(), [&](std::size_t tile) { mlp_.forward(call, at.mlp, branch, middle, addend, tile); });
    walk.once([&] {
      if (last_norm_) {
        drop(call, branch, DropoutSite::mlp_branch);
        last_norm_->forward(call, at.last_norm, output, middle, branch, branch);
      } else if (drops) {
        drop(call, output, DropoutSite::mlp_branch);
        runtime::add(call.stream, output, saved + at.sum, dtype_, rows(call) * channels_);
      }
    });
  }

  void backward_input(const LayerCall& call, const std::byte* input, const std::byte* output_gradient,
                      std::byte* input_gradient) override {
    const Arrays at = arrays(call);
    std::byte *const saved = call.saved, *const kept = call.deferred, *const work = call.workspace;
    const bool drops = this->drops();
    // Without dropout, a branch and its sum have the same gradient.
    std::byte* const d_last_sum = drops ? work + at.d_sum : kept + at.d_mlp;
    std::byte* const d_sum = drops ? work + at.d_sum : kept + at.d_out;
    const std::byte* const d_mlp = this->d_mlp(call, at, output_gradient);
    PhaseWalk walk(call);
    walk.once([&] {
      if (first_norm_) first_norm_->keep(call, at.first_norm);
      middle_norm_.keep(call, at.middle_norm);
      if (last_norm_) {
        last_norm_->keep(call, at.last_norm);
        last_norm_->backward(call, at.last_norm, d_last_sum, output_gradient, saved + at.last_sum, nullptr,
                             work + at.scratch);
        branch_gradient(call, kept + at.d_mlp, d_last_sum, DropoutSite::mlp_branch);
      } else if (drops) {
        branch_gradient(call, kept + at.d_mlp, output_gradient, DropoutSite::mlp_branch);
      }
    });
    walk.each(mlp_.tiles(),
              [&](std::size_t tile) { mlp_.backward_input(call, at.mlp, work + at.narrow, d_mlp, tile); });
    walk.once([&] {
      if (last_norm_) runtime::add(call.stream, work + at.narrow, d_last_sum, dtype_, rows(call) * channels_);
      middle_norm_.backward(call, at.middle_norm, d_sum, work + at.narrow, saved + at.sum,
                            last_norm_ ? nullptr : output_gradient, work + at.scratch);
      branch_gradient(call, kept + at.d_out, d_sum, DropoutSite::attention_branch);
    });
    walk.each(out_.tiles(), [&](std::size_t tile) {
      out_.backward_input(call, work + at.narrow, kept + at.d_out, at.out, tile);
    });
    walk.once([&] {
      attention_.backward(call, at.attention, work + at.narrow, work + at.scratch,
                          rule(call, DropoutSite::attention));
    });
    std::byte* const d_attended = first_norm_ ? work + at.narrow : input_gradient;
    walk.each(qkv_.tiles(), [&](std::size_t tile) {
      qkv_.backward_input(call, d_attended, kept + at.attention.d_qkv, at.qkv, tile);
    });
    walk.once([&] {
      if (first_norm_) {
        first_norm_->backward(call, at.first_norm, input_gradient, d_attended, input, d_sum, work + at.scratch);
      } else {
        runtime::add(call.stream, input_gradient, d_sum, dtype_, rows(call) * channels_);
      }
    });
  }

  void backward_weight(const LayerCall& call, const std::byte* input) override {
    const Arrays at = arrays(call);
    std::byte *const saved = call.saved, *const kept = call.deferred, *const work = call.workspace;
    std::byte* const normed = saved_or(call, at.first_norm.y, work + at.narrow);
    std::byte* const middle = saved_or(call, at.middle_norm.y, work + at.narrow);
    const std::byte* const attended = first_norm_ ? normed : input;
    const std::byte* const d_mlp = this->d_mlp(call, at, call.output_gradient);
    const auto attend = [&] {
      if (first_norm_) first_norm_->again(call, at.first_norm, normed, input);
    };
    PhaseWalk walk(call);
    walk.each_trained(
        mlp_.tiles(), [&] { middle_norm_.again(call, at.middle_norm, middle, saved + at.sum); },
        [&](std::size_t tile) { mlp_.backward_matrix(call, at.mlp, middle, d_mlp, tile); });
    walk.each_trained(
        out_.tiles(), [] {},
        [&](std::size_t tile) { out_.backward_matrix(call, saved + at.attention.out, kept + at.d_out, tile); });
    walk.each_trained(qkv_.tiles(), attend, [&](std::size_t tile) {
      qkv_.backward_matrix(call, attended, kept + at.attention.d_qkv, tile);
    });
    walk.rest([&] {
      if (mlp_.has_adapters()) {
        middle_norm_.again(call, at.middle_norm, middle, saved + at.sum);
        mlp_.backward_adapters(call, at.mlp, middle, d_mlp);
      }
      out_.backward_adapters(call, saved + at.attention.out, kept + at.d_out, at.out);
      if (qkv_.has_adapters()) {
        attend();
        qkv_.backward_adapters(call, attended, kept + at.attention.d_qkv, at.qkv);
      }
      if (last_norm_) last_norm_->store_gradients(call, at.last_norm);
      mlp_.backward_bias(call, at.mlp, d_mlp);
      middle_norm_.store_gradients(call, at.middle_norm);
      out_.backward_bias(call, kept + at.d_out, work + at.scratch);
      attention_.store_gradients(call, at.attention);
      qkv_.backward_bias(call, kept + at.attention.d_qkv, work + at.scratch);
      if (first_norm_) first_norm_->store_gradients(call, at.first_norm);
    });
  }

  DecodingSizes decoding_sizes(int capacity, int threads) const override {
    expect(first_norm_.has_value(), "{}: norms after branches do not decode", name());
    return {.key_channels = attention_.key_channels(),
            .narrow = std::max({channels_, out_.in(), mlp_.narrow_channels()}),
            .wide = std::max(qkv_.out(), mlp_.wide_channels()),
            .heads = static_cast<std::size_t>(attention_.heads()),
            .scratch_bytes = attention_.decode_scratch_bytes(capacity, threads)};
  }

  void decode(const LayerCall& call, const Decoding& text, DecodingArrays& at, bool first) const override {
    if (first) {
      first_norm_->forward(call, at.norm, at.narrow, at.x);
    } else {
      add_and_norm(call, at, *first_norm_);
    }
    qkv_.decode(call, at.wide, at.narrow);
    attention_.decode(call, text, at.narrow, at.wide, at.logsumexp, at.scratch);
    out_.decode(call, at.branch, at.narrow);
    add_and_norm(call, at, middle_norm_);
    mlp_.decode(call, at.branch, at.narrow, at.wide, at.narrow);
  }

 private:
  /// x = x + branch, narrow = norm(x)
  static void add_and_norm(const LayerCall& call, DecodingArrays& at, const Norm& norm) {
    norm.forward(call, at.norm, at.narrow, at.x, at.branch, at.sum);
    std::swap(at.x, at.sum);
  }

  /// Offsets of a call's arrays. Letters: N = B·T rows, C channels, H·D channels of all heads.
  struct Arrays : CallMemory {
    Arrays(const TransformerBlock& block, const MicrobatchShape& shape) {
      const std::size_t N = rows(shape), C = block.channels_, element = size_of(block.dtype_);
      if (block.first_norm_) first_norm = block.first_norm_->plan(*this, N, shape.saved);
      middle_norm = block.middle_norm_.plan(*this, N, shape.saved);
      if (block.last_norm_) last_norm = block.last_norm_->plan(*this, N);
      attention = block.attention_.plan(*this, shape);
      scratch = workspace.add(
          1, std::max({block.attention_.scratch_bytes(shape), block.middle_norm_.scratch_bytes(N),
                       block.qkv_.scratch_bytes(N), block.out_.scratch_bytes(N), block.mlp_.scratch_bytes(N)}));
      qkv = block.qkv_.plan(*this, N, scratch);
      out = block.out_.plan(*this, N, scratch);
      sum = saved.add(N * C, element);
      mlp = block.mlp_.plan(*this, shape, scratch);
      last_sum = saved.add(block.last_norm_ ? N * C : 0, element);
      d_out = deferred.add(N * C, element);
      d_mlp = deferred.add(block.keeps_d_mlp() ? N * C : 0, element);
      narrow = workspace.add(N * std::max(C, block.out_.in()), element);
      const std::size_t of_sum = block.drops() ? N * C * element : 0;
      const bool shares = !block.last_norm_ && of_sum <= mlp.workspace_bytes;
      d_sum = shares ? mlp.workspace : workspace.add(1, of_sum);
    }

    Norm::Arrays first_norm, middle_norm, last_norm;
    SelfAttention::Arrays attention;
    std::size_t sum;       ///< saved [N, C]: sum of the input and attention's branch
    std::size_t last_sum;  ///< saved [N, C], with a last norm: its input
    Mlp::Arrays mlp;
    Linear::Arrays qkv, out;
    std::size_t d_out;    ///< deferred [N, C]: gradient of attention's branch
    std::size_t d_mlp;    ///< deferred [N, C], if keeps_d_mlp(): gradient of the MLP's branch
    std::size_t narrow;   ///< workspace [N, C] or [N, H·D]: a norm's output, or a gradient
    std::size_t d_sum;    ///< workspace [N, C], with dropout: gradient of a sum; without a last norm, it shares the
                          ///< MLP's workspace if that is large enough
    std::size_t scratch;  ///< workspace: scratch of kernels
  };

  /// Whether the gradient of the MLP's branch differs from the output gradient.
  bool keeps_d_mlp() const { return last_norm_ || drops(); }
  const std::byte* d_mlp(const LayerCall& call, const Arrays& at, const std::byte* output_gradient) const {
    return keeps_d_mlp() ? call.deferred + at.d_mlp : output_gradient;
  }

  /// Whether training drops something.
  bool drops() const noexcept { return dropout_ > 0; }
  Dropout rule(const LayerCall& call, DropoutSite place) const {
    return dropout_at(call, call.training ? dropout_ : 0.0f, dropout_site(index_, place));
  }
  /// branch[N, C] = dropped branch
  void drop(const LayerCall& call, std::byte* branch, DropoutSite place) const {
    dropout(call.stream, branch, dtype_, call.shape.samples, output_elements(call.shape.positions),
            rule(call, place));
  }
  /// to[N, C] = gradient of a branch, from `d_sum`, the gradient of the residual sum. Both may be the same array if
  /// nothing is dropped.
  void branch_gradient(const LayerCall& call, std::byte* to, const std::byte* d_sum, DropoutSite place) const {
    if (to == d_sum) return;
    runtime::copy(call.stream, to, d_sum, rows(call) * channels_ * size_of(dtype_));
    drop(call, to, place);
  }

  Arrays arrays(const LayerCall& call) const { return {*this, planned_shape(call, name())}; }

  runtime::DType dtype_;
  std::size_t channels_;
  float dropout_;  ///< TransformerBlockOptions::dropout
  int index_;
  std::size_t unit_;
  // In the order of the parameters.
  std::optional<Norm> first_norm_;
  Linear qkv_;
  SelfAttention attention_;
  Linear out_;
  Norm middle_norm_;
  Mlp mlp_;
  std::optional<Norm> last_norm_;
};

}  // namespace

std::unique_ptr<DecodingLayer> make_transformer_block(const TransformerBlockOptions& options, UnitBuilder builder) {
  return std::make_unique<TransformerBlock>(options, std::move(builder));
}

}  // namespace ranvier::models
