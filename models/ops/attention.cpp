#include "models/ops/attention.hpp"

#include "models/ops/attention_cpu.hpp"
#include "runtime/device.hpp"
#include "runtime/error.hpp"

namespace ranvier::models {
namespace {

void check(runtime::StreamView stream, const AttentionShape& shape) {
  expect(stream.device().kind() != runtime::DeviceKind::cuda, "attention has no kernel for this device");
  expect(shape.samples >= 0 && shape.positions >= 1 && shape.heads >= 1 && shape.channels >= 1,
         "attention over {} samples, {} positions, {} heads of {} channels", shape.samples, shape.positions,
         shape.heads, shape.channels);
}

}  // namespace

std::size_t attention_workspace_bytes(const AttentionShape& shape, runtime::DType dtype, int threads) {
  return attention_cpu_workspace_bytes(shape, dtype, threads);
}

void attention_forward(runtime::StreamView stream, const AttentionShape& shape, runtime::DType dtype, void* out,
                       float* logsumexp, const void* qkv, const Dropout& dropout, std::byte* workspace) {
  check(stream, shape);
  stream.launch([=](runtime::ComputePool& pool) {
    attention_forward_cpu(pool, shape, dtype, out, logsumexp, qkv, dropout, workspace);
  });
}

void attention_backward(runtime::StreamView stream, const AttentionShape& shape, runtime::DType dtype, void* d_qkv,
                        const void* d_out, const void* qkv, const void* out, const float* logsumexp,
                        const Dropout& dropout, std::byte* workspace) {
  check(stream, shape);
  stream.launch([=](runtime::ComputePool& pool) {
    attention_backward_cpu(pool, shape, dtype, d_qkv, d_out, qkv, out, logsumexp, dropout, workspace);
  });
}

}  // namespace ranvier::models
