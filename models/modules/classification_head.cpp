#include "models/modules/classification_head.hpp"

#include "models/modules/layer_call.hpp"
#include "models/modules/linear.hpp"
#include "models/modules/unit_builder.hpp"
#include "models/ops/activation.hpp"
#include "models/ops/pooling.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace ranvier::models {
namespace {

class ClassificationHead final : public Layer {
 public:
  ClassificationHead(const ClassificationHeadOptions& options, UnitBuilder builder)
      : Layer("head"),
        options_(options),
        dtype_(builder.precision().compute),
        unit_(builder.add_unit(options.unit)),
        dense_(options.dense.empty() ? std::nullopt
                                     : std::optional<Linear>(std::in_place, builder, unit_,
                                                             linear(options, options.dense, options.channels))),
        out_(builder, unit_, linear(options, options.out, options.classes)) {
    set_units(std::move(builder).units());
  }

  /// The head computes one position per sample.
  double flops_per_sample(int) const override {
    const std::size_t dense = dense_ ? (dense_->in() + 1) * dense_->out() : 0;
    return 6.0 * static_cast<double>(dense + (out_.in() + 1) * out_.out());
  }

  std::size_t output_elements(int) const override { return 0; }
  bool counts_correct() const noexcept override { return true; }

  LayerMemory memory(MicrobatchShape shape) const override { return Arrays(*this, shape).bytes(); }

  void forward(const LayerCall& call, const std::byte* input, std::byte*) override {
    const Arrays at = arrays(call);
    const LayerCall rows = with_rows(call, call.shape.samples, 1);
    std::byte *const saved = call.saved, *const first = saved + at.first, *const active = saved + at.active;
    if (options_.pixels > 0) {
      mean_pool_forward(call.stream, pool(at), dtype_, first, input);
    } else {
      runtime::copy_runs(call.stream, first, row_bytes(), input, sample_bytes(call), row_bytes(), at.rows);
    }
    if (options_.drops_input) drop(call, first, 0);
    if (dense_) {
      dense_->forward(rows, active, first);
      tanh_forward(call.stream, dtype_, active, active, at.rows * options_.channels);
    }
    std::byte* const kept = saved + at.kept;
    if (kept != active) runtime::copy(call.stream, kept, active, at.rows * row_bytes());
    drop(call, kept, 1);
    out_.forward(rows, saved + at.logits, kept);
    compute_losses(call, {at.rows, options_.classes, options_.classes}, dtype_, saved + at.logits, at.row_losses,
                   at.exponentials);
  }

  void backward_input(const LayerCall& call, const std::byte*, const std::byte*,
                      std::byte* input_gradient) override {
    const Arrays at = arrays(call);
    const LayerCall rows = with_rows(call, call.shape.samples, 1);
    std::byte* const d_first = call.workspace + at.d_first;
    std::byte* const d_active = dense_ ? call.deferred + at.d_dense : d_first;
    out_.backward_input(rows, d_active, call.saved + at.logits);
    drop(call, d_active, 1);
    if (dense_) tanh_backward(call.stream, dtype_, d_active, call.saved + at.active, at.rows * options_.channels);
    if (input_gradient == nullptr) return;
    if (dense_) dense_->backward_input(rows, d_first, d_active);
    if (options_.drops_input) drop(call, d_first, 0);
    if (options_.pixels > 0) return mean_pool_backward(call.stream, pool(at), dtype_, input_gradient, d_first);
    runtime::fill_zero(call.stream, input_gradient, at.rows * sample_bytes(call));
    runtime::copy_runs(call.stream, input_gradient, sample_bytes(call), d_first, row_bytes(), row_bytes(), at.rows);
  }

  void backward_weight(const LayerCall& call, const std::byte*) override {
    const Arrays at = arrays(call);
    const LayerCall rows = with_rows(call, call.shape.samples, 1);
    out_.backward_weight(rows, call.saved + at.kept, call.saved + at.logits, call.workspace + at.scratch);
    if (dense_)
      dense_->backward_weight(rows, call.saved + at.first, call.deferred + at.d_dense, call.workspace + at.scratch);
  }

 private:
  /// Offsets of a call's arrays. Letters: B samples, C channels, K classes.
  struct Arrays : CallMemory {
    Arrays(const ClassificationHead& head, const MicrobatchShape& shape) {
      const std::size_t element = size_of(head.dtype_), C = head.options_.channels, K = head.options_.classes;
      const std::size_t B = rows = static_cast<std::size_t>(shape.samples);
      first = saved.add(B * C, element);
      active = head.dense_ ? saved.add(B * C, element) : first;
      kept = head.options_.dropout > 0 ? saved.add(B * C, element) : active;
      logits = saved.add(B * K, element);
      d_dense = deferred.add(head.dense_ ? B * C : 0, element);
      d_first = workspace.add(B * C, element);
      row_losses = workspace.add(B, sizeof(double));
      exponentials = workspace.add(static_cast<std::size_t>(shape.threads) * K, sizeof(float));
      scratch =
          workspace.add(1, std::max(head.dense_ ? head.dense_->scratch_bytes(B) : 0, head.out_.scratch_bytes(B)));
    }

    std::size_t rows;     ///< B
    std::size_t first;    ///< saved [B, C]: first position or mean of each sample, the first linear map's input
    std::size_t active;   ///< saved [B, C]: output of tanh; `first` with one linear map
    std::size_t kept;     ///< saved [B, C]: the same after dropout
    std::size_t logits;   ///< saved [B, K]; after forward in training, their gradients
    std::size_t d_dense;  ///< deferred [B, C], with two linear maps: gradient of the first one's output
    std::size_t d_first;  ///< workspace [B, C]: gradient of `first`
    std::size_t row_losses, exponentials, scratch;
  };

  static LinearOptions linear(const ClassificationHeadOptions& options, const std::string& name,
                              std::size_t outputs) {
    return {.tensors = {{name, outputs}},
            .in = options.channels,
            .bias = true,
            .adapts = false,
            .initializer = options.initializer};
  }

  Arrays arrays(const LayerCall& call) const { return {*this, planned_shape(call, name())}; }

  MeanPoolShape pool(const Arrays& at) const {
    return {.samples = at.rows, .pixels = options_.pixels, .channels = options_.channels};
  }
  std::size_t row_bytes() const { return options_.channels * size_of(dtype_); }
  std::size_t sample_bytes(const LayerCall& call) const {
    return static_cast<std::size_t>(call.shape.positions) * row_bytes();
  }

  /// Drops values [B, C], or their gradients, in training.
  void drop(const LayerCall& call, std::byte* values, std::uint32_t place) const {
    if (!call.training) return;
    dropout(call.stream, values, dtype_, call.shape.samples, options_.channels,
            dropout_at(call, options_.dropout, options_.dropout_site + place));
  }

  ClassificationHeadOptions options_;
  runtime::DType dtype_;
  std::size_t unit_;
  std::optional<Linear> dense_;
  Linear out_;
};

}  // namespace

std::unique_ptr<Layer> make_classification_head(const ClassificationHeadOptions& options, UnitBuilder builder) {
  return std::make_unique<ClassificationHead>(options, std::move(builder));
}

}  // namespace ranvier::models
