#include "models/generation/decoder.hpp"

#include "models/ops/matmul.hpp"
#include "models/ops/matrix_vector.hpp"
#include "models/ops/transpose.hpp"
#include "runtime/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::models {
namespace {

constexpr std::size_t staged_elements = std::size_t{1} << 20;  // of a parameter, on its way from file to device

void narrow(std::byte* to, runtime::DType dtype, std::span<const float> from) {
  runtime::with_float_type(dtype, [&](auto type) {
    auto* values = reinterpret_cast<decltype(type)*>(to);
    for (std::size_t i = 0; i < from.size(); ++i) values[i] = runtime::from_float<decltype(type)>(from[i]);
  });
}

}  // namespace

Decoder::Decoder(runtime::Device& device, runtime::DType dtype)
    : dtype_(dtype), stream_(device.make_stream("decoder", runtime::StreamWidth::whole)) {}

void Decoder::plan(const Sizes& sizes) {
  sizes_ = sizes;
  staging_ = {};
  narrow_ = {};
  whole_ = {};
  const auto T = static_cast<std::size_t>(sizes.context);
  const std::size_t element = size_of(dtype_);
  MemoryLayout layout;
  tokens_ = layout.add(T, sizeof(std::int32_t));
  past_ = layout.add(1, sizeof(std::int32_t));
  moments_ = layout.add(2 * T, sizeof(float));
  logsumexp_ = layout.add(T * sizes.heads, sizeof(float));
  x_ = layout.add(T * sizes.channels, element);
  sum_ = layout.add(T * sizes.channels, element);
  branch_ = layout.add(T * sizes.channels, element);
  normal_ = layout.add(T * sizes.normal, element);
  wide_ = layout.add(T * sizes.wide, element);
  logits_ = layout.add(sizes.vocabulary, sizeof(float));
  scratch_ = layout.add(1, sizes.scratch_bytes);

  runtime::Device& device = stream_->device();
  cache_ = device.allocate(T * cache_bytes_per_position(), runtime::MemorySpace::device);
  workspace_ = device.allocate(layout.bytes(), runtime::MemorySpace::device);
  host_logits_ = workspace_.data() + logits_;
  if (device.host_reaches(host_logits_)) return;
  near_logits_ = device.allocate(sizes.vocabulary * sizeof(float), runtime::MemorySpace::pinned);
  host_logits_ = near_logits_.data();
}

void Decoder::load_parameter(const UnitSpec& unit, std::size_t parameter, bool transposed, std::byte* to,
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

std::span<const float> Decoder::read(std::span<const std::int32_t> tokens) {
  expect(!tokens.empty() && tokens.size() <= static_cast<std::size_t>(context() - positions_),
         "{} tokens to read after {} of a context of {}", tokens.size(), positions_, context());
  std::byte* const work = workspace_.data();
  runtime::copy(*stream_, work + tokens_, tokens.data(), tokens.size_bytes());
  const std::size_t N = tokens.size();
  const std::int32_t past = positions_;  // until the stream has read it
  embed(reinterpret_cast<const std::int32_t*>(work + tokens_), N, past);
  if (N == 1) {
    runtime::copy(*stream_, work + past_, &past, sizeof(past));
    constexpr std::uint64_t key[] = {0};  // nothing else is repeated on this stream
    // The same work for every position: x and sum, which change places with every sum, do so an even number of times.
    stream_->repeat(key,
                    [this, work] { compute({.past_place = reinterpret_cast<const std::int32_t*>(work + past_)}); });
  } else {
    compute({.rows = N, .past = past});
  }
  stream_->synchronize();
  positions_ += static_cast<int>(N);
  return {reinterpret_cast<const float*>(host_logits_), vocabulary()};
}

void Decoder::compute(const Tokens& tokens) {
  for (std::size_t block = 0; block < sizes_.blocks; ++block) compute_block(block, tokens);
  const std::size_t skipped = (tokens.rows - 1) * sizes_.channels * size_of(dtype_);
  std::byte* const work = workspace_.data();
  normalise(normal(), final_weight_, final_bias_, x() + skipped, 1, branch() + skipped, work + sum_ + skipped);
  std::swap(x_, sum_);
  matrix_vector(*stream_, {vocabulary(), sizes_.channels},
                {.y = work + logits_, .a = logit_table_, .x = normal(), .dtype = dtype_});
  // At once, not number by number over the bus, as the kernel would write them.
  if (near_logits_.data() != nullptr)
    runtime::copy(*stream_, near_logits_.data(), work + logits_, near_logits_.bytes());
}

void Decoder::norm(const std::byte* weight, const std::byte* bias, std::size_t rows, bool first) {
  normalise(normal(), weight, bias, x(), rows, first ? nullptr : branch(),
            first ? nullptr : workspace_.data() + sum_);
  if (!first) std::swap(x_, sum_);
}

void Decoder::product(std::byte* y, const std::byte* x, const std::byte* weight, const std::byte* bias,
                      std::size_t rows, std::size_t n, std::size_t k) {
  if (rows == 1) {
    matrix_vector(*stream_, {n, k},
                  {.y = y, .y_dtype = dtype_, .a = weight, .x = x, .dtype = dtype_, .bias = bias});
  } else {
    matmul(*stream_, {.m = rows, .n = n, .k = k, .transpose_b = true},
           {.c = y, .c_dtype = dtype_, .a = x, .b = weight, .dtype = dtype_, .bias = bias});
  }
}

std::byte* Decoder::keys(std::size_t block) const {
  const std::size_t half = static_cast<std::size_t>(sizes_.context) * sizes_.key_channels * size_of(dtype_);
  return cache_.data() + block * 2 * half;
}

std::byte* Decoder::values(std::size_t block) const {
  return keys(block) + static_cast<std::size_t>(sizes_.context) * sizes_.key_channels * size_of(dtype_);
}

float* Decoder::moments(std::size_t which) const {
  return reinterpret_cast<float*>(workspace_.data() + moments_) + which * static_cast<std::size_t>(sizes_.context);
}

}  // namespace ranvier::models
