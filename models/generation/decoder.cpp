#include "models/generation/decoder.hpp"

#include "models/ops/embedding.hpp"
#include "models/ops/matmul.hpp"
#include "models/ops/memory_layout.hpp"
#include "models/ops/transpose.hpp"
#include "runtime/base/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace ranvier::models {
namespace {

constexpr std::size_t staged_elements = std::size_t{1} << 20;  // elements copied from file to device at a time

void narrow(std::byte* to, runtime::DType dtype, std::span<const float> from) {
  runtime::with_float_type(dtype, [&](auto type) {
    auto* values = reinterpret_cast<decltype(type)*>(to);
    for (std::size_t i = 0; i < from.size(); ++i) values[i] = runtime::from_float<decltype(type)>(from[i]);
  });
}

/// Block with weights stored [out, in], so that the weights of an output are contiguous. Adds the names of parameters
/// that need a transpose to `transposed`.
TransformerBlockOptions stored_out_in(TransformerBlockOptions block, std::set<std::string>& transposed) {
  using Layout = LinearOptions::Layout;
  for (LinearOptions* const linear : {&block.qkv, &block.out}) {
    if (std::exchange(linear->layout, Layout::out_in) == Layout::out_in) continue;
    for (const LinearOptions::Tensor& tensor : linear->tensors) transposed.insert(tensor.name + ".weight");
  }
  if (std::exchange(block.mlp.layout, Layout::out_in) == Layout::in_out)
    for (const std::string& name : {block.mlp.up.name, block.mlp.down.name}) transposed.insert(name + ".weight");
  return block;
}

}  // namespace

Decoder::Decoder(runtime::Device& device, const LanguageModel& model, const UnitSource& weights)
    : dtype_(model.precision.compute),
      context_(model.positions),
      vocabulary_(model.embedding.table.tokens),
      channels_(model.embedding.table.channels),
      stream_(device.make_stream("decoder", runtime::StreamWidth::whole)) {
  load(model, weights);
  plan();
}

void Decoder::load(const LanguageModel& model, const UnitSource& weights) {
  const TokenEmbeddingOptions& embedding = model.embedding;
  const auto& last = std::get<LanguageHeadOptions>(model.head);
  expect(!embedding.types && embedding.norm_name.empty() && embedding.first_position == 0,
         "{}: a decoder adds only tokens and positions", model.name);
  const std::size_t element = size_of(dtype_);
  MemoryLayout layout;
  std::map<std::string, std::size_t> places;  // by name of the parameter
  const auto add_unit = [&](const UnitSpec& unit) {
    const std::size_t begin = layout.add(unit.elements(), element);
    for (std::size_t p = 0; p < unit.parameters.size(); ++p)
      places.emplace(unit.parameters[p].name, begin + unit.offset(p) * element);
  };
  std::set<std::string> transposed;
  UnitBuilder builder(model.precision);
  for (int i = 0; i < model.blocks; ++i) {
    const TransformerBlockOptions block = stored_out_in(model.block(i, builder), transposed);
    blocks_.push_back({make_transformer_block(block, UnitBuilder(model.precision)), {}});
    for (const UnitSpec& unit : blocks_.back().layer->units()) add_unit(unit);
  }
  last_norm_.emplace(builder, builder.add_unit(last.norm_name), last.norm_name, last.norm);
  const std::vector<UnitSpec> last_units = std::move(builder).units();
  for (const UnitSpec& unit : last_units) add_unit(unit);
  const auto name_of = [](const TokenTable& table) { return table.units.front().parameters.front().name; };
  const std::string words = name_of(embedding.table), head = name_of(last.table);
  const std::string positions = embedding.positions ? embedding.positions->name : std::string();
  const std::vector<UnitSpec> units = make_language_model(model).units();
  for (const UnitSpec& unit : units)
    for (const ParameterSpec& parameter : unit.parameters)
      if (parameter.name == words || parameter.name == positions || parameter.name == head)
        places.emplace(parameter.name, layout.add(parameter.elements(), element));

  weights_ = stream_->device().allocate(layout.bytes(), runtime::MemorySpace::device);
  const auto place_of = [&](const std::string& parameter) {
    const auto place = places.find(parameter);
    expect(place != places.end(), "a decoder has no place for {}", parameter);
    return weights_.data() + place->second;
  };
  for (const UnitSpec& unit : units) {
    for (std::size_t p = 0; p < unit.parameters.size(); ++p) {
      const std::string& name = unit.parameters[p].name;
      load_parameter(unit, p, transposed.contains(name), place_of(name), weights);
      const bool read = name == head || (name != words && name != positions);
      if (read) read_bytes_ += unit.parameters[p].elements() * element;
    }
  }
  staging_ = {};
  narrow_ = {};
  whole_ = {};

  const auto units_at = [&](std::span<const UnitSpec> some) {
    std::vector<const std::byte*> at;
    for (const UnitSpec& unit : some) at.push_back(place_of(unit.parameters.front().name));
    return at;
  };
  for (Block& block : blocks_) block.units = units_at(block.layer->units());
  last_norm_units_ = units_at(last_units);
  words_ = place_of(words);
  head_ = place_of(head);
  if (embedding.positions) position_rows_ = place_of(positions);
}

void Decoder::load_parameter(const UnitSpec& unit, std::size_t parameter, bool transposed, std::byte* to,
                             const UnitSource& weights) {
  const ParameterSpec& spec = unit.parameters[parameter];
  const std::size_t element = size_of(dtype_);
  const std::size_t columns = transposed ? spec.shape[1] : 1, rows = spec.elements() / columns;
  const std::size_t rows_at_once = std::max<std::size_t>(1, staged_elements / columns);
  // If the host cannot access `to`, the parameter is assembled in host memory first.
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

void Decoder::plan() {
  runtime::Device& device = stream_->device();
  sizes_ = blocks_.front().layer->decoding_sizes(context_, device.threads());
  const auto T = static_cast<std::size_t>(context_);
  const std::size_t element = size_of(dtype_);
  CallMemory memory;
  MemoryLayout& layout = memory.saved;
  tokens_ = layout.add(T, sizeof(std::int32_t));
  past_ = layout.add(1, sizeof(std::int32_t));
  arrays_.norm = last_norm_->plan(memory, T);
  arrays_.logsumexp = layout.add(T * sizes_.heads, sizeof(float));
  const std::size_t x = layout.add(T * channels_, element), sum = layout.add(T * channels_, element);
  const std::size_t branch = layout.add(T * channels_, element);
  const std::size_t narrow = layout.add(T * sizes_.narrow, element), wide = layout.add(T * sizes_.wide, element);
  logits_ = layout.add(vocabulary_, sizeof(float));
  const std::size_t scratch = layout.add(1, sizes_.scratch_bytes);

  cache_ = device.allocate(T * cache_bytes_per_position(), runtime::MemorySpace::device);
  workspace_ = device.allocate(layout.bytes(), runtime::MemorySpace::device);
  std::byte* const work = workspace_.data();
  arrays_.x = work + x;
  arrays_.sum = work + sum;
  arrays_.branch = work + branch;
  arrays_.narrow = work + narrow;
  arrays_.wide = work + wide;
  arrays_.scratch = work + scratch;
  host_logits_ = work + logits_;
  if (device.host_reaches(host_logits_)) return;
  near_logits_ = device.allocate(vocabulary_ * sizeof(float), runtime::MemorySpace::pinned);
  host_logits_ = near_logits_.data();
}

std::span<const float> Decoder::read(std::span<const std::int32_t> tokens) {
  expect(!tokens.empty() && tokens.size() <= static_cast<std::size_t>(context_ - positions_),
         "{} tokens to read after {} of a context of {}", tokens.size(), positions_, context_);
  std::byte* const work = workspace_.data();
  runtime::copy(*stream_, work + tokens_, tokens.data(), tokens.size_bytes());
  const std::size_t N = tokens.size();
  const std::int32_t past = positions_;  // until the stream has read it
  embed(reinterpret_cast<const std::int32_t*>(work + tokens_), N, past);
  Decoding text{.past = past, .capacity = context_};
  if (N == 1) {
    runtime::copy(*stream_, work + past_, &past, sizeof(past));
    text.past = 0;
    text.past_place = reinterpret_cast<const std::int32_t*>(work + past_);
    constexpr std::uint64_t key[] = {0};  // nothing else is repeated on this stream
    // The work is the same for every position: the buffers x and sum are swapped an even number of times.
    stream_->repeat(key, [this, text] { compute(1, text); });
  } else {
    compute(N, text);
  }
  stream_->synchronize();
  positions_ += static_cast<int>(N);
  return {reinterpret_cast<const float*>(host_logits_), vocabulary_};
}

void Decoder::embed(const std::int32_t* tokens, std::size_t rows, int past) {
  const std::byte* places = position_rows_;
  if (places != nullptr) places += static_cast<std::size_t>(past) * channels_ * size_of(dtype_);
  embedding_forward(*stream_, {1, rows, channels_, vocabulary_}, dtype_,
                    {.out = arrays_.x, .tokens = tokens, .tokens_table = words_, .positions_table = places});
}

void Decoder::compute(std::size_t rows, Decoding text) {
  const std::size_t half = static_cast<std::size_t>(context_) * sizes_.key_channels * size_of(dtype_);
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    text.keys = cache_.data() + b * 2 * half;
    text.values = text.keys + half;
    blocks_[b].layer->decode(call_of(rows, blocks_[b].units), text, arrays_, b == 0);
  }
  const std::size_t skipped = (rows - 1) * channels_ * size_of(dtype_);
  last_norm_->forward(call_of(1, last_norm_units_), arrays_.norm, arrays_.narrow, arrays_.x + skipped,
                      arrays_.branch + skipped, arrays_.sum + skipped);
  std::swap(arrays_.x, arrays_.sum);
  std::byte* const logits = workspace_.data() + logits_;
  matrix_vector(*stream_, {.m = 1, .n = vocabulary_, .k = channels_, .transpose_b = true},
                {.c = logits, .a = arrays_.narrow, .b = head_, .dtype = dtype_});
  // One copy: the kernel would write each number over the bus separately.
  if (near_logits_.data() != nullptr) runtime::copy(*stream_, near_logits_.data(), logits, near_logits_.bytes());
}

LayerCall Decoder::call_of(std::size_t rows, std::span<const std::byte* const> units) const {
  return {.stream = *stream_,
          .shape = {1, static_cast<int>(rows), stream_->device().threads()},
          .key = {},
          .training = false,
          .parameters = units,
          .gradients = {},
          .saved = workspace_.data(),
          .details = {}};
}

}  // namespace ranvier::models
