// Tokens per second of a decoder, beside the rate at which memory can give the weights that every token reads
// (`share`), and the weights with the keys and values of the positions before it (`share_with_cache`). One JSON line
// per case.
//
//   generate_bench [model ...]      presets, or LAYERSxHIDDENxHEADSxVOCABULARY; default: 4x256x4x256 gpt2-small
#include "models/generation/decoder_model.hpp"
#include "runtime/compute_pool.hpp"
#include "runtime/device.hpp"
#include "runtime/error.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

GptOptions sizes_of(const std::string& model) {
  if (const auto preset = gpt_preset(model)) return *preset;
  GptOptions options;
  options.sequence_length = 256;
  if (std::sscanf(model.c_str(), "%dx%dx%dx%d", &options.layers, &options.hidden, &options.heads,
                  &options.vocab_size) != 4)
    fail(ErrorCode::usage, "{}: neither a preset nor LAYERSxHIDDENxHEADSxVOCABULARY", model);
  return options;
}

/// Bytes per second at which all threads together read as much memory as the weights are: the best of several
/// times.
double read_rate(int threads, std::size_t bytes) {
  using Words [[gnu::vector_size(64)]] = std::uint64_t;
  const auto device = runtime::make_cpu_device({.threads = threads});
  const auto stream = device->make_stream("read", runtime::StreamWidth::whole);
  const std::size_t words = bytes / sizeof(Words);
  const auto memory = device->allocate(words * sizeof(Words), runtime::MemorySpace::device);
  std::memset(memory.data(), 1, memory.bytes());
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(threads));
  double best = 1e9, total = 0;
  for (int i = 0; i < 3 || (total < 0.5 && i < 1000); ++i) {
    const auto begin = Clock::now();
    stream->launch([&](runtime::ComputePool& pool) {
      pool.run([&](int thread, int count) {
        const auto share = runtime::share_of(words, thread, count, 8);
        const auto* const from = reinterpret_cast<const Words*>(memory.data());
        Words sum[8] = {};
        std::size_t at = share.begin;
        for (; at + 8 <= share.end; at += 8)
          for (std::size_t v = 0; v < 8; ++v) sum[v] ^= from[at + v];
        for (; at < share.end; ++at) sum[0] ^= from[at];
        for (std::size_t v = 1; v < 8; ++v) sum[0] ^= sum[v];
        sums[static_cast<std::size_t>(thread)] += sum[0][0];
      });
    });
    stream->synchronize();
    const double seconds = seconds_since(begin);
    best = std::min(best, seconds);
    total += seconds;
  }
  if (sums[0] == 42) std::fputs("", stderr);  // the sums are used
  return static_cast<double>(words * sizeof(Words)) / best;
}

UnitSource made_up_weights() {
  return [](const UnitSpec&, std::size_t begin, std::span<float> out) {
    auto state = static_cast<std::uint32_t>(begin);
    for (float& value : out) {
      state = state * 1664525u + 1013904223u;
      value = (static_cast<float>(state >> 8) * 0x1p-24f - 0.5f) * 0.04f;
    }
  };
}

void bench(const std::string& model, DType dtype, int threads) {
  GptOptions options = sizes_of(model);
  options.precision = {dtype, dtype};
  const auto device = runtime::make_cpu_device({.threads = threads});
  Decoder decoder(*device, decoder_model(options), made_up_weights());
  const double rate = read_rate(threads, decoder.weight_bytes());

  const std::vector<std::int32_t> prompt(static_cast<std::size_t>(decoder.context()) / 2, 1);
  static_cast<void>(decoder.read(prompt));  // makes the library's products
  decoder.forget();
  auto begin = Clock::now();
  static_cast<void>(decoder.read(prompt));
  const double prompt_seconds = seconds_since(begin);

  double best = 1e9, total = 0;
  int tokens = 0;
  const std::int32_t token = 2;
  while (decoder.positions() < decoder.context() && (tokens < 8 || total < 3)) {
    begin = Clock::now();
    static_cast<void>(decoder.read({&token, 1}));
    const double seconds = seconds_since(begin);
    best = std::min(best, seconds);
    total += seconds;
    ++tokens;
  }
  const double cache =
      static_cast<double>(decoder.cache_bytes_per_position()) * (decoder.positions() - tokens / 2.0);
  const auto weights = static_cast<double>(decoder.weight_bytes());
  const double limit = rate / weights, limit_with_cache = rate / (weights + cache);
  fmt::print(R"({{"bench":"generate","model":"{}","precision":"{}","threads":{},"tokens_per_second":{:.4g},)"
             R"("best_tokens_per_second":{:.4g},"limit_tokens_per_second":{:.4g},"share":{:.3f},)"
             R"("share_with_cache":{:.3f},"weight_bytes":{},"cache_bytes":{:.0f},)"
             R"("read_bytes_per_second":{:.4g},"prompt_tokens_per_second":{:.4g}}})"
             "\n",
             model, to_string(dtype), threads, tokens / total, 1 / best, limit, 1 / best / limit,
             1 / best / limit_with_cache, decoder.weight_bytes(), cache, rate,
             static_cast<double>(prompt.size()) / prompt_seconds);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> models(argv + 1, argv + argc);
  if (models.empty()) models = {"4x256x4x256", "gpt2-small"};
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  try {
    for (const std::string& model : models) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        bench(model, dtype, 1);
        if (cores > 1) bench(model, dtype, cores);
      }
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "generate_bench: error: {}\n", error.what());
    return EXIT_FAILURE;
  }
}
