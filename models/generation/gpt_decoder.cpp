#include "models/generation/gpt_decoder.hpp"

#include "models/gpt_layers.hpp"
#include "models/memory_layout.hpp"
#include "models/ops/attention.hpp"
#include "models/ops/embedding.hpp"
#include "models/ops/gelu.hpp"
#include "models/ops/layer_norm.hpp"
#include "models/ops/matmul.hpp"
#include "models/ops/matrix_vector.hpp"
#include "models/ops/transpose.hpp"
#include "runtime/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <string_view>

namespace ranvier::models {
namespace {

constexpr std::size_t staged_elements = std::size_t{1} << 20;  // of a parameter, on its way from file to device

void narrow(std::byte* to, runtime::DType dtype, std::span<const float> from) {
  runtime::with_float_type(dtype, [&](auto type) {
    auto* values = reinterpret_cast<decltype(type)*>(to);
    for (std::size_t i = 0; i < from.size(); ++i) values[i] = runtime::from_float<decltype(type)>(from[i]);
  });
}

AttentionShape prompt_shape(const GptOptions& options, std::size_t positions) {
  return {1, static_cast<int>(positions), options.heads, options.hidden / options.heads};
}

CachedAttentionShape cache_shape(const GptOptions& options, std::size_t queries, int past) {
  return {static_cast<int>(queries),      past,   options.sequence_length, options.heads,
          options.hidden / options.heads, nullptr};
}

}  // namespace

/// Weights of products are stored [out, in], so that one output's are one after another.
struct GptDecoder::Block {
  std::byte *ln_1_weight, *ln_1_bias, *c_attn_weight, *c_attn_bias, *attn_proj_weight, *attn_proj_bias;
  std::byte *ln_2_weight, *ln_2_bias, *c_fc_weight, *c_fc_bias, *mlp_proj_weight, *mlp_proj_bias;
  std::byte *keys, *values;  ///< [H, T, D]
};

/// Letters: T positions at most in a call, C channels, H heads.
///
/// Between layers the activations are x + branch: whoever normalises them adds and leaves the sum in x.
struct GptDecoder::Arrays {
  Arrays(const GptOptions& options, int threads) {
    const auto T = static_cast<std::size_t>(options.sequence_length), C = static_cast<std::size_t>(options.hidden);
    const std::size_t element = size_of(options.precision.compute);
    tokens = layout.add(T, sizeof(std::int32_t));
    past = layout.add(1, sizeof(std::int32_t));
    mean = layout.add(T, sizeof(float));
    rstd = layout.add(T, sizeof(float));
    logsumexp = layout.add(T * static_cast<std::size_t>(options.heads), sizeof(float));
    x = layout.add(T * C, element);
    sum = layout.add(T * C, element);
    branch = layout.add(T * C, element);
    normal = layout.add(T * C, element);
    wide = layout.add(T * 4 * C, element);
    logits = layout.add(static_cast<std::size_t>(options.vocab_size), sizeof(float));
    scratch = layout.add(
        1, std::max(attention_workspace_bytes(prompt_shape(options, T), options.precision.compute, threads),
                    cached_attention_workspace_bytes(cache_shape(options, 1, 0), threads)));
  }

  MemoryLayout layout;
  std::size_t tokens, mean, rstd, logsumexp;
  std::size_t past;    ///< positions read before this call
  std::size_t x, sum;  ///< [T, C]: change places with every sum
  std::size_t branch;  ///< [T, C]: what the last layer adds to x
  std::size_t normal;  ///< [T, C]
  std::size_t wide;    ///< [T, 4C]: keys, queries and values, or the MLP's inner activations
  std::size_t logits;  ///< [V] float
  std::size_t scratch;
};

GptDecoder::GptDecoder(runtime::Device& device, const GptOptions& options, const UnitSource& weights)
    : options_(options),
      dtype_(options.precision.compute),
      channels_(static_cast<std::size_t>(options.hidden)),
      stream_(device.make_stream("decoder", runtime::StreamWidth::whole)) {
  options_.tile = 1;
  options_.dropout = 0;
  options_.precision.gradient = dtype_;
  load(weights);
  at_ = std::make_unique<Arrays>(options_, device.threads());
  workspace_ = device.allocate(at_->layout.bytes(), runtime::MemorySpace::device);
  logits_ = workspace_.data() + at_->logits;
  if (device.host_reaches(logits_)) return;
  near_logits_ =
      device.allocate(static_cast<std::size_t>(options_.vocab_size) * sizeof(float), runtime::MemorySpace::pinned);
  logits_ = near_logits_.data();
}

GptDecoder::~GptDecoder() = default;

std::size_t GptDecoder::cache_bytes_per_position() const noexcept {
  return static_cast<std::size_t>(options_.layers) * 2 * channels_ * size_of(dtype_);
}

void GptDecoder::load(const UnitSource& weights) {
  const Architecture gpt = make_gpt(options_);  // which checks the sizes
  const std::vector<UnitSpec> units = gpt.units();
  MemoryLayout layout;
  std::vector<std::size_t> offsets;
  for (const UnitSpec& unit : units) {
    for (const ParameterSpec& parameter : unit.parameters) {
      offsets.push_back(layout.add(parameter.elements(), size_of(dtype_)));
      if (unit.name != "wpe") read_bytes_ += parameter.elements() * size_of(dtype_);
    }
  }
  runtime::Device& device = stream_->device();
  weights_ = device.allocate(layout.bytes(), runtime::MemorySpace::device);
  const auto T = static_cast<std::size_t>(options_.sequence_length);
  cache_ = device.allocate(T * cache_bytes_per_position(), runtime::MemorySpace::device);

  auto offset = offsets.begin();
  for (const UnitSpec& unit : units) {
    const bool is_block = unit.name.starts_with("h.");
    std::vector<std::byte*> places;
    for (std::size_t p = 0; p < unit.parameters.size(); ++p) {
      places.push_back(weights_.data() + *offset++);
      load_parameter(unit, p, is_block && unit.parameters[p].shape.size() == 2, places.back(), weights);
    }
    if (unit.name == "wte") tokens_table_ = places.at(0);
    if (unit.name == "wpe") positions_table_ = places.at(0);
    if (unit.name == "ln_f") {
      final_weight_ = places.at(0);
      final_bias_ = places.at(1);
    }
    if (!is_block) continue;
    expect(places.size() == 12, "unit {} has {} parameters, but a block has 12", unit.name, places.size());
    const std::size_t half = T * channels_ * size_of(dtype_);
    std::byte* const keys = cache_.data() + blocks_.size() * 2 * half;
    blocks_.push_back({places[0], places[1], places[2], places[3], places[4], places[5], places[6], places[7],
                       places[8], places[9], places[10], places[11], keys, keys + half});
  }
  staging_ = {};
  narrow_ = {};
  whole_ = {};
}

void GptDecoder::load_parameter(const UnitSpec& unit, std::size_t parameter, bool transposed, std::byte* to,
                                const UnitSource& weights) {
  const ParameterSpec& spec = unit.parameters[parameter];
  const std::size_t element = size_of(dtype_);
  const std::size_t columns = transposed ? spec.shape[1] : 1, rows = spec.elements() / columns;
  const std::size_t rows_at_once = std::max<std::size_t>(1, staged_elements / columns);
  // What the host does not reach itself is put together in its own memory first.
  const bool near = stream_->device().host_reaches(to);
  if (!near) whole_.resize(spec.elements() * element);
  std::byte* const place = near ? to : whole_.data();
  for (std::size_t row = 0; row < rows; row += rows_at_once) {
    const std::size_t count = std::min(rows_at_once, rows - row);
    staging_.resize(count * columns);
    weights(unit, unit.offset(parameter) + row * columns, staging_);
    if (!transposed) {
      narrow(place + row * element, dtype_, staging_);
      continue;
    }
    narrow_.resize(count * columns * element);
    narrow(narrow_.data(), dtype_, staging_);
    const auto put = [&](auto word) {
      using Word = decltype(word);
      transpose(reinterpret_cast<Word*>(place) + row, rows, reinterpret_cast<const Word*>(narrow_.data()), columns,
                count, columns);
    };
    element == 4 ? put(std::uint32_t{}) : put(std::uint16_t{});
  }
  if (near) return;
  runtime::copy(*stream_, to, place, whole_.size());
  stream_->synchronize();
}

std::span<const float> GptDecoder::read(std::span<const std::int32_t> tokens) {
  expect(!tokens.empty() && tokens.size() <= static_cast<std::size_t>(context() - positions_),
         "{} tokens to read after {} of a context of {}", tokens.size(), positions_, context());
  std::byte* const work = workspace_.data();
  runtime::copy(*stream_, work + at_->tokens, tokens.data(), tokens.size_bytes());
  const std::size_t N = tokens.size();
  embedding_forward(*stream_, {1, N, channels_, static_cast<std::size_t>(options_.vocab_size)}, dtype_,
                    work + at_->x, reinterpret_cast<const std::int32_t*>(work + at_->tokens), tokens_table_,
                    positions_table_ + static_cast<std::size_t>(positions_) * channels_ * size_of(dtype_));
  if (N == 1) {
    const std::int32_t past = positions_;
    runtime::copy(*stream_, work + at_->past, &past, sizeof(past));
    constexpr std::uint64_t key[] = {0};  // nothing else is repeated on this stream
    stream_->repeat(key, [this] { compute_token(); });
    stream_->synchronize();
  } else {
    for (const Block& block : blocks_) {
      compute_block(block, cache_shape(options_, N, positions_), &block == &blocks_.front());
    }
    compute_logits(N);
    stream_->synchronize();
  }
  positions_ += static_cast<int>(N);
  return {reinterpret_cast<const float*>(logits_), static_cast<std::size_t>(options_.vocab_size)};
}

/// The same work for every position: x and sum, which change places with every sum, have done so 2 · layers times.
void GptDecoder::compute_token() {
  CachedAttentionShape shape = cache_shape(options_, 1, 0);
  shape.past_place = reinterpret_cast<const std::int32_t*>(workspace_.data() + at_->past);
  for (const Block& block : blocks_) compute_block(block, shape, &block == &blocks_.front());
  compute_logits(1);
}

void GptDecoder::compute_block(const Block& block, const CachedAttentionShape& shape, bool first) {
  std::byte* const work = workspace_.data();
  const std::size_t C = channels_;
  const auto rows = static_cast<std::size_t>(shape.queries);
  norm(work + at_->normal, block.ln_1_weight, block.ln_1_bias, 0, rows, !first);
  product(work + at_->wide, work + at_->normal, block.c_attn_weight, block.c_attn_bias, rows, 3 * C, C);
  append_to_cache(*stream_, shape, dtype_, block.keys, block.values, work + at_->wide);
  if (shape.past == 0 && rows > 1) {
    attention_forward(*stream_, prompt_shape(options_, rows), dtype_, work + at_->normal,
                      reinterpret_cast<float*>(work + at_->logsumexp), work + at_->wide, Dropout{},
                      work + at_->scratch);
  } else {
    cached_attention(*stream_, shape, dtype_, work + at_->normal, block.keys, block.values, work + at_->wide,
                     work + at_->scratch);
  }
  product(work + at_->branch, work + at_->normal, block.attn_proj_weight, block.attn_proj_bias, rows, C, C);
  norm(work + at_->normal, block.ln_2_weight, block.ln_2_bias, 0, rows, true);
  product(work + at_->wide, work + at_->normal, block.c_fc_weight, block.c_fc_bias, rows, 4 * C, C);
  gelu_forward(*stream_, dtype_, work + at_->wide, work + at_->wide, rows * 4 * C);
  product(work + at_->branch, work + at_->wide, block.mlp_proj_weight, block.mlp_proj_bias, rows, C, 4 * C);
}

void GptDecoder::compute_logits(std::size_t rows) {
  std::byte* const work = workspace_.data();
  norm(work + at_->normal, final_weight_, final_bias_, rows - 1, 1, true);
  matrix_vector(*stream_, {static_cast<std::size_t>(options_.vocab_size), channels_},
                {.y = work + at_->logits, .a = tokens_table_, .x = work + at_->normal, .dtype = dtype_});
  // At once, not number by number over the bus, as the kernel would write them.
  if (near_logits_.data() != nullptr)
    runtime::copy(*stream_, near_logits_.data(), work + at_->logits, near_logits_.bytes());
}

void GptDecoder::norm(std::byte* y, const std::byte* weight, const std::byte* bias, std::size_t row,
                      std::size_t rows, bool branch) {
  std::byte* const work = workspace_.data();
  const std::size_t skipped = row * channels_ * size_of(dtype_);
  layer_norm_forward(*stream_, {rows, channels_}, dtype_,
                     {.y = y,
                      .mean = reinterpret_cast<float*>(work + at_->mean),
                      .rstd = reinterpret_cast<float*>(work + at_->rstd),
                      .x = work + at_->x + skipped,
                      .weight = weight,
                      .bias = bias,
                      .branch = branch ? work + at_->branch + skipped : nullptr,
                      .sum = branch ? work + at_->sum + skipped : nullptr});
  if (branch) std::swap(at_->x, at_->sum);
}

void GptDecoder::product(std::byte* y, const std::byte* x, const std::byte* weight, const std::byte* bias,
                         std::size_t rows, std::size_t n, std::size_t k) {
  if (rows == 1) {
    matrix_vector(*stream_, {n, k},
                  {.y = y, .y_dtype = dtype_, .a = weight, .x = x, .dtype = dtype_, .bias = bias});
  } else {
    matmul(*stream_, {.m = rows, .n = n, .k = k, .transpose_b = true},
           {.c = y, .c_dtype = dtype_, .a = x, .b = weight, .dtype = dtype_, .bias = bias});
  }
}

}  // namespace ranvier::models
