// Attention's passes: time, and share of dense matrix multiplications at the rate of the library's best layout, 2 of
// T·T·D forward and 4 backward. One JSON line per case.
//
//   attention_bench [threads]
#include "models/ops/attention.hpp"
#include "models/ops/attention_cpu.hpp"
#include "models/ops/library_matmul.hpp"
#include "runtime/device/device.hpp"
#include "runtime/host/compute_pool.hpp"
#include "tests/bench/bench.hpp"

using namespace ranvier;
using namespace ranvier::bench;
using namespace ranvier::models;
using runtime::DType;

namespace {

struct Case {
  AttentionShape shape;
  float dropout = 0;
  int document = 0;  ///< positions per document; 0: one document per sample
};

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const auto device = runtime::make_cpu_device({.threads = threads});
  runtime::ComputePool pool(threads);
  const auto memory = [&](std::size_t bytes) { return device->allocate(bytes, runtime::MemorySpace::device); };

  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const bool native = dtype == DType::f32 || (dtype == DType::bf16 && library_has_bf16());
    const LibraryMatmul best{.m = 512, .n = 384, .k = 384, .dtype = native ? dtype : DType::f32};
    const auto operand = memory(std::size_t{512} * 512 * 4), product = memory(threads * std::size_t{512} * 512 * 4);
    fill(operand.data(), best.dtype, std::size_t{512} * 512, 4);
    const double ceiling =
        threads * 2.0 * 512 * 384 * 384 / quickest(0.5, [&] {
          pool.run([&](int thread, int) {
            library_matmul(best, product.data() + static_cast<std::size_t>(thread) * 512 * 512 * 4, operand.data(),
                           operand.data(), nullptr);
          });
        });
    const AttentionShape longer{2, 1024, 12, 64};
    AttentionShape grouped = longer, window = longer, of_all = longer;
    grouped.key_heads = 4;
    window.window = 128;
    of_all.causal = false;
    for (const auto& [shape, rate, document] : {Case{{16, 256, 6, 64}},
                                                {{16, 256, 6, 64}, 0.1f},
                                                {{1, 256, 6, 64}},
                                                {{4, 256, 12, 64}},
                                                {longer},
                                                {{4, 256, 8, 80}},
                                                {{4, 256, 8, 128}},
                                                {grouped},
                                                {window},
                                                {longer, 0, 128},
                                                {of_all},
                                                {of_all, 0, 128}}) {
      const std::size_t positions = static_cast<std::size_t>(shape.samples * shape.positions);
      const std::size_t n = positions * static_cast<std::size_t>(shape.heads * shape.channels);
      const std::size_t size = runtime::size_of(dtype), n_qkv = positions * shape.row_channels();
      std::vector<std::int32_t> first_key, end_key;
      for (int i = 0; document > 0 && i < static_cast<int>(positions); ++i) {
        first_key.push_back(i % shape.positions / document * document);
        end_key.push_back(std::min(first_key.back() + document, shape.positions));
      }
      const AttentionBounds bounds =
          document > 0 ? AttentionBounds{first_key.data(), end_key.data()} : AttentionBounds{};
      const auto qkv = memory(n_qkv * size), out = memory(n * size), d_qkv = memory(n_qkv * size),
                 d_out = memory(n * size), lse = memory(positions * static_cast<std::size_t>(shape.heads) * 4),
                 workspace = memory(attention_workspace_bytes(shape, dtype, threads));
      fill(qkv.data(), dtype, n_qkv, 4);
      fill(d_out.data(), dtype, n, 4);
      const AttentionArrays arrays{.qkv = qkv.data(),
                                   .out = out.data(),
                                   .logsumexp = reinterpret_cast<float*>(lse.data()),
                                   .d_out = d_out.data(),
                                   .d_qkv = d_qkv.data(),
                                   .dropout = {.rate = rate},
                                   .workspace = workspace.data(),
                                   .bounds = bounds};
      const double forward = quickest(0.5, [&] { attention_forward_cpu(pool, shape, dtype, arrays); });
      const double backward = quickest(0.5, [&] { attention_backward_cpu(pool, shape, dtype, arrays); });
      const double dense = 4.0 * static_cast<double>(n) * shape.positions / ceiling;
      print_case(
          R"("bench": "attention", "dtype": "{}", "threads": {}, "samples": {}, "positions": {}, "heads": {}, )"
          R"("channels": {}, "dropout": {}, "key_heads": {}, "causal": {}, "window": {}, "documents_of": {}, )"
          R"("forward_ms": {:.3f}, "backward_ms": {:.3f}, )"
          R"("forward_of_dense": {:.2f}, "backward_of_dense": {:.2f}, "of_dense": {:.2f})",
          to_string(dtype), threads, shape.samples, shape.positions, shape.heads, shape.channels, rate,
          shape.stored_key_heads(), shape.causal, shape.window, document, forward * 1e3, backward * 1e3,
          forward / dense, backward / (2 * dense), (forward + backward) / (3 * dense));
    }
  }
}
