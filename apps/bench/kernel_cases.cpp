#include "apps/bench/kernel_cases.hpp"

#include "models/ops/activation.hpp"
#include "models/ops/attention.hpp"
#include "models/ops/batch_norm.hpp"
#include "models/ops/cross_entropy.hpp"
#include "models/ops/dropout.hpp"
#include "models/ops/embedding.hpp"
#include "models/ops/matmul.hpp"
#include "models/ops/norm.hpp"
#include "models/ops/patches.hpp"
#include "models/ops/rotary.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"
#include "runtime/kernels/adamw.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>

namespace ranvier::apps {

namespace {

using runtime::DType;
using runtime::StreamView;
using runtime::WorkKind;

constexpr float dropout_rate = 0.1f;
constexpr std::size_t head_channels = 64;

/// Offsets of consecutive arrays.
class Layout {
 public:
  explicit Layout(DType dtype) : width_(runtime::size_of(dtype)) {}

  /// Appends an array (elements of the type, floats or bytes); returns its offset.
  std::size_t array(std::size_t elements) { return take(elements * width_); }
  std::size_t floats(std::size_t elements) { return take(elements * sizeof(float)); }
  std::size_t take(std::size_t bytes) {
    constexpr std::size_t alignment = 256;
    const std::size_t begin = end_;
    end_ += std::max<std::size_t>(1, runtime::ceil_divide(bytes, alignment)) * alignment;
    return begin;
  }
  [[nodiscard]] std::size_t bytes() const { return end_; }

 private:
  std::size_t width_;
  std::size_t end_ = 0;
};

float* floats(std::byte* at) { return reinterpret_cast<float*>(at); }

ProfiledWork norm(DType dtype, const KernelSize& size) {
  const models::NormShape shape{.rows = size.rows, .channels = size.channels};
  Layout layout(dtype);
  const std::size_t n = size.rows * size.channels;
  const std::size_t x = layout.array(n), y = layout.array(n), dy = layout.array(n), dx = layout.array(n);
  const std::size_t weight = layout.array(size.channels), bias = layout.array(size.channels);
  const std::size_t mean = layout.floats(size.rows), rstd = layout.floats(size.rows);
  const std::size_t sums = layout.floats(2 * size.channels);
  const std::size_t workspace = layout.take(models::norm_workspace_bytes(shape));
  return {layout.bytes(), [=](StreamView stream, std::byte* at) {
            models::norm_forward(stream, shape, dtype,
                                 {.y = at + y,
                                  .mean = floats(at + mean),
                                  .rstd = floats(at + rstd),
                                  .x = at + x,
                                  .weight = at + weight,
                                  .bias = at + bias});
            models::norm_backward(stream, shape, dtype,
                                  {.dx = at + dx,
                                   .sums = floats(at + sums),
                                   .dy = at + dy,
                                   .x = at + x,
                                   .mean = floats(at + mean),
                                   .rstd = floats(at + rstd),
                                   .weight = at + weight,
                                   .residual = at + dy,
                                   .workspace = at + workspace});
          }};
}

ProfiledWork batch_norm(DType dtype, const KernelSize& size) {
  const models::BatchNormShape shape{.rows = size.rows, .channels = size.channels};
  Layout layout(dtype);
  const std::size_t n = size.rows * size.channels;
  const std::size_t x = layout.array(n), y = layout.array(n), dy = layout.array(n), dx = layout.array(n);
  const std::size_t weight = layout.array(size.channels), bias = layout.array(size.channels);
  const std::size_t statistics = layout.floats(2 * size.channels), sums = layout.floats(2 * size.channels);
  const std::size_t workspace = layout.take(models::batch_norm_workspace_bytes(shape));
  return {layout.bytes(), [=](StreamView stream, std::byte* at) {
            const models::BatchNormValues values{.x = at + x,
                                                 .statistics = floats(at + statistics),
                                                 .weight = at + weight,
                                                 .bias = at + bias,
                                                 .relu = true};
            models::batch_norm_statistics(stream, shape, dtype, floats(at + statistics), at + x, at + workspace);
            models::batch_norm_forward(stream, shape, dtype, at + y, values);
            models::batch_norm_backward(
                stream, shape, dtype,
                {.dx = at + dx, .sums = floats(at + sums), .dy = at + dy, .workspace = at + workspace}, values);
          }};
}

ProfiledWork activation(DType dtype, const KernelSize& size) {
  Layout layout(dtype);
  const std::size_t n = size.rows * size.channels;
  const std::size_t x = layout.array(n), y = layout.array(n), d = layout.array(n);
  return {layout.bytes(), [=](StreamView stream, std::byte* at) {
            models::gelu_forward(stream, dtype, at + y, at + x, n);
            models::gelu_backward(stream, dtype, at + d, at + x, at + x, n);
          }};
}

ProfiledWork dropout(DType dtype, const KernelSize& size) {
  Layout layout(dtype);
  const std::size_t x = layout.array(size.rows * size.channels);
  return {layout.bytes(), [=](StreamView stream, std::byte* at) {
            models::dropout(stream, at + x, dtype, static_cast<int>(size.rows), size.channels,
                            models::make_dropout(dropout_rate, 1, 1, 1, 0));
          }};
}

ProfiledWork rotary(DType dtype, const KernelSize& size) {
  Layout layout(dtype);
  const std::size_t x = layout.array(size.rows * size.channels);
  const models::RotaryShape shape{.positions = static_cast<int>(size.rows),
                                  .heads = static_cast<int>(size.channels / head_channels),
                                  .row_channels = size.channels};
  const auto frequencies = models::rotary_frequencies(head_channels, 10000);
  return {layout.bytes(), [=](StreamView stream, std::byte* at) {
            models::rotary(stream, shape, dtype, at + x, frequencies, models::Rotation::forward);
            models::rotary(stream, shape, dtype, at + x, frequencies, models::Rotation::inverse);
          }};
}

ProfiledWork embedding(DType dtype, const KernelSize& size, const KernelTokens& tokens) {
  const models::EmbeddingShape shape{
      .samples = 1, .positions = size.rows, .channels = size.channels, .vocab_size = KernelTokens::vocab_size};
  Layout layout(dtype);
  const std::size_t n = size.rows * size.channels, table_elements = shape.vocab_size * size.channels;
  const std::size_t out = layout.array(n), positions = layout.array(n), table = layout.array(table_elements);
  const std::size_t table_gradient = layout.floats(table_elements), positions_gradient = layout.floats(n);
  const std::size_t order = layout.take(size.rows * sizeof(std::int32_t));
  return {layout.bytes(), [=](StreamView stream, std::byte* at) {
            models::embedding_forward(stream, shape, dtype, {at + out, tokens.data, at + table, at + positions});
            models::embedding_backward(stream, shape, dtype,
                                       {.tokens_gradient = at + table_gradient,
                                        .token_rows = shape.vocab_size,
                                        .positions_gradient = at + positions_gradient,
                                        .position_rows = size.rows,
                                        .d_out = at + out,
                                        .tokens = tokens.data,
                                        .accumulate = true,
                                        .order = reinterpret_cast<std::int32_t*>(at + order)});
          }};
}

ProfiledWork cross_entropy(DType dtype, const KernelSize& size, const KernelTokens& tokens, int threads) {
  // The number of logits equals the elements of other arrays, in longer rows, as with a vocabulary.
  const std::size_t longer = std::min<std::size_t>(size.rows, 16);
  const models::CrossEntropyShape shape{.rows = size.rows / longer,
                                        .vocab_size = std::max(longer * size.channels, KernelTokens::vocab_size),
                                        .stride = std::max(longer * size.channels, KernelTokens::vocab_size)};
  Layout layout(dtype);
  const std::size_t logits = layout.array(shape.rows * shape.stride);
  const std::size_t loss = layout.take(sizeof(double)), row_losses = layout.take(shape.rows * sizeof(double));
  const std::size_t exponentials = layout.floats(static_cast<std::size_t>(threads) * shape.stride);
  return {layout.bytes(), [=](StreamView stream, std::byte* at) {
            models::cross_entropy(stream, shape, dtype,
                                  {.logits = at + logits,
                                   .targets = tokens.data,
                                   .loss = reinterpret_cast<double*>(at + loss),
                                   .gradient = true,
                                   .row_losses = reinterpret_cast<double*>(at + row_losses),
                                   .exponentials = floats(at + exponentials)});
          }};
}

ProfiledWork patches(DType dtype, const KernelSize& size) {
  constexpr std::size_t kernel = 3;
  const std::size_t side = std::max<std::size_t>(2, size.rows / 64);  // side of images; as many per row as fit
  const models::PatchShape shape{.samples = std::max<std::size_t>(1, size.rows / (side * side)),
                                 .height = std::min(side, size.rows),
                                 .width = side,
                                 .channels = size.channels / 8,
                                 .kernel = kernel,
                                 .padding = 1};
  Layout layout(dtype);
  const std::size_t x = layout.array(shape.samples * shape.height * shape.width * shape.channels);
  const std::size_t gathered = layout.array(shape.rows() * shape.columns());
  const std::size_t gradients = layout.floats(shape.rows() * shape.columns());
  return {layout.bytes(), [=](StreamView stream, std::byte* at) {
            models::gather_patches(stream, shape, dtype, at + gathered, at + x);
            models::add_patches(stream, shape, dtype, at + x, floats(at + gradients));
          }};
}

ProfiledWork elementwise(DType dtype, const KernelSize& size) {
  Layout layout(dtype);
  const std::size_t n = size.rows * size.channels;
  const std::size_t x = layout.array(n), y = layout.array(n), wide = layout.floats(n);
  const std::size_t sums = layout.floats(n / runtime::squares_block_elements + 1);
  return {layout.bytes(), [=](StreamView stream, std::byte* at) {
            runtime::copy(stream, at + y, at + x, n * runtime::size_of(dtype));
            runtime::cast(stream, at + wide, DType::f32, at + x, dtype, n);
            runtime::add(stream, at + y, at + x, dtype, n);
            runtime::scale(stream, at + y, dtype, 0.5f, n);
            runtime::sums_of_squares(stream, floats(at + sums), at + y, dtype, n);
          }};
}

ProfiledWork attention(DType dtype, const KernelSize& size, int threads) {
  const std::size_t positions = std::min<std::size_t>(size.rows, 512);
  models::AttentionShape shape{.samples = static_cast<int>(size.rows / positions),
                               .positions = static_cast<int>(positions),
                               .heads = static_cast<int>(size.channels / head_channels),
                               .channels = head_channels,
                               .kernels = models::AttentionKernels::cudnn};
  Layout layout(dtype);
  const std::size_t n = size.rows * size.channels;
  const std::size_t qkv = layout.array(3 * n), d_qkv = layout.array(3 * n);
  const std::size_t out = layout.array(n), d_out = layout.array(n);
  const std::size_t logsumexp = layout.floats(size.rows * static_cast<std::size_t>(shape.heads));
  const std::size_t workspace = layout.take(models::attention_workspace_bytes(shape, dtype, threads));
  return {layout.bytes(), [=](StreamView stream, std::byte* at) {
            const models::AttentionArrays arrays{.qkv = at + qkv,
                                                 .out = at + out,
                                                 .logsumexp = floats(at + logsumexp),
                                                 .d_out = at + d_out,
                                                 .d_qkv = at + d_qkv,
                                                 .workspace = at + workspace};
            models::attention_forward(stream, shape, dtype, arrays);
            models::attention_backward(stream, shape, dtype, arrays);
          }};
}

ProductCase product(DType dtype, const models::MatmulShape& shape, bool weight_gradient) {
  const DType c_dtype = weight_gradient ? DType::f32 : dtype;
  Layout layout(dtype);
  const std::size_t a = layout.array(shape.m * shape.k), b = layout.array(shape.k * shape.n);
  const std::size_t c = layout.take(shape.m * shape.n * runtime::size_of(c_dtype));
  return {{shape.m, shape.n, shape.k}, {layout.bytes(), [=](StreamView stream, std::byte* at) {
                                          models::matmul(stream, shape,
                                                         {.c = at + c,
                                                          .c_dtype = c_dtype,
                                                          .a = at + a,
                                                          .b = at + b,
                                                          .dtype = dtype,
                                                          .accumulate = weight_gradient});
                                        }}};
}

/// Three matrix multiplications of a layer from `in` to `out` channels. Its weight is [in, out] or [out, in].
void add_layer(std::vector<ProductCase>& cases, DType dtype, std::size_t tokens, std::size_t in, std::size_t out,
               bool out_in) {
  cases.push_back(product(dtype, {.m = tokens, .n = out, .k = in, .transpose_b = out_in}, false));
  cases.push_back(product(dtype, {.m = tokens, .n = in, .k = out, .transpose_b = !out_in}, false));
  cases.push_back(
      product(dtype, {.m = out_in ? out : in, .n = out_in ? in : out, .k = tokens, .transpose_a = true}, true));
}

}  // namespace

ProfiledWork additions(DType dtype, const KernelSize& size) {
  Layout layout(dtype);
  const std::size_t n = size.rows * size.channels;
  const std::size_t to = layout.array(n), from = layout.array(n);
  return {layout.bytes(),
          [=](StreamView stream, std::byte* at) { runtime::add(stream, at + to, at + from, dtype, n); }};
}

ProfiledWork optimizer_step(DType dtype, const KernelSize& size, DType weights_dtype, DType moments) {
  Layout layout(dtype);
  const std::size_t n = size.rows * size.channels;
  const std::size_t weights = layout.take(runtime::bytes_of(weights_dtype, n));
  const std::size_t m = layout.take(runtime::bytes_of(moments, n)), v = layout.take(runtime::bytes_of(moments, n));
  const std::size_t gradient = layout.array(n), working = layout.array(n);
  return {layout.bytes(), [=](StreamView stream, std::byte* at) {
            runtime::adamw(stream,
                           {.weights = at + weights,
                            .m = at + m,
                            .v = at + v,
                            .gradient = at + gradient,
                            .gradient_dtype = dtype,
                            .working = dtype == weights_dtype ? nullptr : at + working,
                            .working_dtype = dtype,
                            .weights_dtype = weights_dtype,
                            .m_dtype = moments,
                            .v_dtype = moments == DType::i8 ? DType::u8 : moments},
                           {{.begin = 0, .end = n, .decays = true}}, {.learning_rate = 1e-4});
          }};
}

std::vector<KernelCase> kernel_cases(DType dtype, const KernelSize& size, const KernelTokens& tokens, int threads) {
  expect(size.rows <= tokens.count && size.channels % head_channels == 0, "kernels of {} rows and {} channels",
         size.rows, size.channels);
  return {{WorkKind::attention, attention(dtype, size, threads)},
          {WorkKind::norm, norm(dtype, size)},
          {WorkKind::batch_norm, batch_norm(dtype, size)},
          {WorkKind::activation, activation(dtype, size)},
          {WorkKind::dropout, dropout(dtype, size)},
          {WorkKind::rotary, rotary(dtype, size)},
          {WorkKind::embedding, embedding(dtype, size, tokens)},
          {WorkKind::cross_entropy, cross_entropy(dtype, size, tokens, threads)},
          {WorkKind::patches, patches(dtype, size)},
          {WorkKind::elementwise, elementwise(dtype, size)},
          {WorkKind::optimizer, optimizer_step(dtype, size, DType::f32, DType::f32)},
          {WorkKind::optimizer_int8, optimizer_step(dtype, size, DType::f32, DType::i8)}};
}

std::vector<ProductCase> product_cases(DType dtype, const ProductSizes& sizes) {
  std::vector<ProductCase> cases;
  for (const std::size_t tokens : sizes.tokens) {
    for (const std::size_t channels : sizes.channels) {
      add_layer(cases, dtype, tokens, channels, 4 * channels, false);
      add_layer(cases, dtype, tokens, 4 * channels, channels, true);
    }
  }
  const std::size_t medium = sizes.channels[sizes.channels.size() / 2];
  add_layer(cases, dtype, sizes.tokens[sizes.tokens.size() / 2], medium, sizes.vocab_size, true);
  const std::size_t square = sizes.channels.back() * 3 / 4;
  cases.push_back(product(dtype, {.m = square, .n = square, .k = square}, false));
  return cases;
}

}  // namespace ranvier::apps
