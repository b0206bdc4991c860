#include "models/modules/self_attention.hpp"

#include "runtime/kernels/elementwise.hpp"

#include <algorithm>

namespace ranvier::models {
namespace {

NormShape head_norm(const SelfAttentionOptions& options, int heads) {
  const AttentionShape& shape = options.shape;
  const auto channels = static_cast<std::size_t>(shape.channels);
  return {.channels = channels,
          .epsilon = options.norm_epsilon,
          .kind = NormKind::rms,
          .groups = static_cast<std::size_t>(heads),
          .x_stride = static_cast<std::size_t>(shape.heads + shape.stored_key_heads()) * channels,
          .y_stride = shape.row_channels()};
}

}  // namespace

SelfAttention::SelfAttention(UnitBuilder& builder, std::size_t unit, const std::string& name,
                             const SelfAttentionOptions& options)
    : options_(options), dtype_(builder.precision().compute) {
  if (options.rotary)
    rotary_ = rotary_frequencies(options.shape.channels, options.rotary->base, options.rotary->scaling);
  if (!options.head_norms) return;
  query_norm_.emplace(builder, unit, name + ".q_norm", head_norm(options, options.shape.heads));
  key_norm_.emplace(builder, unit, name + ".k_norm", head_norm(options, options.shape.stored_key_heads()));
}

SelfAttention::Arrays SelfAttention::plan(CallMemory& memory, const MicrobatchShape& shape) const {
  const std::size_t N = rows(shape), element = size_of(dtype_);
  const auto heads = static_cast<std::size_t>(options_.shape.heads);
  Arrays at;
  at.logsumexp = memory.saved.add(N * heads, sizeof(float));
  at.qkv = memory.saved.add(N * options_.shape.row_channels(), element);
  at.out = memory.saved.add(N * query_bytes(), 1);
  if (query_norm_) {
    at.before = memory.saved.add(N * rotated_bytes(), 1);
    at.query_norm = query_norm_->plan(memory, N);
    at.key_norm = key_norm_->plan(memory, N);
  }
  at.d_qkv = memory.deferred.add(N * options_.shape.row_channels(), element);
  return at;
}

std::size_t SelfAttention::scratch_bytes(const MicrobatchShape& shape) const {
  std::size_t bytes = attention_workspace_bytes(shape_of(shape), dtype_, shape.threads);
  for (const auto* norm : {&query_norm_, &key_norm_})
    if (*norm) bytes = std::max(bytes, (*norm)->scratch_bytes(rows(shape)));
  return bytes;
}

void SelfAttention::forward(const LayerCall& call, const Arrays& at, std::byte* scratch,
                            const Dropout& dropout) const {
  std::byte* const qkv = call.saved + at.qkv;
  if (query_norm_) {
    std::byte* const before = call.saved + at.before;
    runtime::copy_runs(call.stream, before, rotated_bytes(), qkv, options_.shape.row_channels() * size_of(dtype_),
                       rotated_bytes(), rows(call));
    query_norm_->forward(call, at.query_norm, qkv, before);
    key_norm_->forward(call, at.key_norm, qkv + query_bytes(), before + query_bytes());
  }
  rotate(call, qkv, Rotation::forward, call.positions);
  attention_forward(call.stream, shape_of(call.shape), dtype_,
                    {.qkv = qkv,
                     .out = call.saved + at.out,
                     .logsumexp = floats(call.saved + at.logsumexp),
                     .dropout = dropout,
                     .workspace = scratch,
                     .bounds = bounds_of(call)});
}

void SelfAttention::backward(const LayerCall& call, const Arrays& at, const std::byte* d_out, std::byte* scratch,
                             const Dropout& dropout) const {
  std::byte* const d_qkv = call.deferred + at.d_qkv;
  attention_backward(call.stream, shape_of(call.shape), dtype_,
                     {.qkv = call.saved + at.qkv,
                      .out = call.saved + at.out,
                      .logsumexp = floats(call.saved + at.logsumexp),
                      .d_out = d_out,
                      .d_qkv = d_qkv,
                      .dropout = dropout,
                      .workspace = scratch,
                      .bounds = bounds_of(call)});
  rotate(call, d_qkv, Rotation::inverse, call.positions);
  if (!query_norm_) return;
  const std::byte* const before = call.saved + at.before;
  std::byte* const d_keys = d_qkv + query_bytes();
  query_norm_->keep(call, at.query_norm);
  key_norm_->keep(call, at.key_norm);
  query_norm_->backward(call, at.query_norm, d_qkv, d_qkv, before, nullptr, scratch);
  key_norm_->backward(call, at.key_norm, d_keys, d_keys, before + query_bytes(), nullptr, scratch);
}

void SelfAttention::decode(const LayerCall& call, const Decoding& text, std::byte* out, std::byte* qkv,
                           std::size_t logsumexp, std::byte* scratch) const {
  const CachedAttentionShape cache = cache_shape(call.shape.positions, text);
  if (query_norm_) {
    query_norm_->in_place(call, {.rstd = logsumexp}, qkv);
    key_norm_->in_place(call, {.rstd = logsumexp}, qkv + query_bytes());
  }
  rotate(call, qkv, Rotation::forward, text.past_place, text.past);
  append_to_cache(call.stream, cache, dtype_, text.keys, text.values, qkv);
  if (text.past_place == nullptr && text.past == 0 && rows(call) > 1) {
    attention_forward(call.stream, shape_of(call.shape), dtype_,
                      {.qkv = qkv, .out = out, .logsumexp = floats(call.saved + logsumexp), .workspace = scratch});
  } else {
    cached_attention(call.stream, cache, dtype_, out, text.keys, text.values, qkv, scratch);
  }
}

std::size_t SelfAttention::decode_scratch_bytes(int capacity, int threads) const {
  return std::max(attention_workspace_bytes(shape_of({1, capacity}), dtype_, threads),
                  cached_attention_workspace_bytes(cache_shape(1, {.capacity = capacity}), threads));
}

CachedAttentionShape SelfAttention::cache_shape(int queries, const Decoding& text) const {
  return {shape_of({1, queries}), text.past, text.capacity, text.past_place};
}

std::size_t SelfAttention::key_channels() const {
  return static_cast<std::size_t>(options_.shape.stored_key_heads()) *
         static_cast<std::size_t>(options_.shape.channels);
}

void SelfAttention::store_gradients(const LayerCall& call, const Arrays& at) const {
  if (!query_norm_) return;
  query_norm_->store_gradients(call, at.query_norm);
  key_norm_->store_gradients(call, at.key_norm);
}

AttentionShape SelfAttention::shape_of(const MicrobatchShape& shape) const {
  AttentionShape attention = options_.shape;
  attention.samples = shape.samples;
  attention.positions = shape.positions;
  return attention;
}

AttentionBounds SelfAttention::bounds_of(const LayerCall& call) const {
  // With a causal mask, the end of a document needs no bound.
  return {.first_key = call.document_starts, .end_key = options_.shape.causal ? nullptr : call.document_ends};
}

void SelfAttention::rotate(const LayerCall& call, std::byte* qkv, Rotation rotation, const std::int32_t* positions,
                           int first_position) const {
  if (!rotary_) return;
  const AttentionShape& shape = options_.shape;
  rotary(call.stream,
         {call.shape.samples, call.shape.positions, shape.heads + shape.stored_key_heads(), shape.row_channels()},
         dtype_, qkv, *rotary_, rotation, positions, first_position);
}

std::size_t SelfAttention::query_bytes() const {
  return static_cast<std::size_t>(options_.shape.heads) * static_cast<std::size_t>(options_.shape.channels) *
         size_of(dtype_);
}

std::size_t SelfAttention::rotated_bytes() const { return query_bytes() + key_channels() * size_of(dtype_); }

}  // namespace ranvier::models
