// Tokens per second of a decoder as shares of memory bandwidth, which must read the weights for every token
// (`share`), and the keys and values of earlier positions, too (`share_with_cache`). Shares for the median token,
// the mean and the fastest. One JSON line per case.
//
//   generate_bench [--prompt N] [--tokens N] [model ...]
//       presets, or [FAMILY:]LAYERSxHIDDENxHEADSxVOCABULARY of any family that writes text (gpt, llama, mistral, qwen2,
//       qwen3); default: 4x256x4x256 gpt2-small
#include "apps/program/options.hpp"
#include "models/families/model.hpp"
#include "models/generation/decoder.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/device/device.hpp"
#include "runtime/host/compute_pool.hpp"
#include "runtime/host/cores.hpp"
#include "tests/bench/bench.hpp"

#include <cstring>

using namespace ranvier;
using namespace ranvier::bench;
using namespace ranvier::models;
using runtime::DType;

namespace {

struct Options {
  int prompt = 0;
  int tokens = 0;
  double seconds = 3;
  std::vector<std::string> models;
};

ModelSizes sizes_of(const std::string& model) {
  if (is_preset(model)) return *named_model(model);
  const std::size_t colon = model.find(':');
  auto sizes = named_model(colon == std::string::npos ? "gpt" : model.substr(0, colon));
  const std::string numbers = colon == std::string::npos ? model : model.substr(colon + 1);
  int layers = 0, hidden = 0, heads = 0, vocabulary = 0;
  if (!sizes || std::sscanf(numbers.c_str(), "%dx%dx%dx%d", &layers, &hidden, &heads, &vocabulary) != 4)
    fail(ErrorCode::usage, "{}: neither a preset nor [FAMILY:]LAYERSxHIDDENxHEADSxVOCABULARY", model);
  for (const auto& [size, value] : {std::pair{Size::layers, layers},
                                    {Size::hidden, hidden},
                                    {Size::heads, heads},
                                    {Size::vocab_size, vocabulary},
                                    {Size::sequence_length, 256}}) {
    if (int* const place = find_size(*sizes, size)) *place = value;
  }
  derive_sizes(*sizes, true, false);
  return *sizes;
}

/// Bytes per second at which all threads together read as much memory as the weights: best of several rounds.
double read_rate(int threads, std::size_t bytes) {
  using Words [[gnu::vector_size(64)]] = std::uint64_t;
  const auto device = runtime::make_cpu_device({.threads = threads});
  const auto stream = device->make_stream("read", runtime::StreamWidth::whole);
  const std::size_t words = bytes / sizeof(Words);
  const auto memory = device->allocate(words * sizeof(Words), runtime::MemorySpace::device);
  std::memset(memory.data(), 1, memory.bytes());
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(threads));
  const double seconds = quickest(0.5, [&] {
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
  });
  if (sums[0] == 42) std::fputs("", stderr);  // the sums are used
  return static_cast<double>(words * sizeof(Words)) / seconds;
}

void bench_model(const std::string& model, DType dtype, int threads, const Options& options) {
  ModelSizes sizes = sizes_of(model);
  if (fills_masks(sizes) || tells_classes(sizes) || reads_images(sizes))
    fail(ErrorCode::usage, "{}: a model of {} writes no text", model, family_name(sizes));
  set_precision(sizes, {dtype, dtype});
  const auto device = runtime::make_cpu_device({.threads = threads});
  Decoder decoder(*device, decoder_model(sizes), [](const UnitSpec&, std::size_t, std::span<float> out) {
    fill(reinterpret_cast<std::byte*>(out.data()), DType::f32, out.size(), 0.04f);
  });
  const double rate = read_rate(threads, decoder.weight_bytes());

  const int positions =
      options.prompt > 0 ? std::min(options.prompt, decoder.context() - 1) : decoder.context() / 2;
  const std::vector<std::int32_t> prompt(static_cast<std::size_t>(positions), 1);
  static_cast<void>(decoder.read(prompt));  // creates the library's matrix multiplications
  decoder.forget();
  const double prompt_seconds = seconds_of([&] { static_cast<void>(decoder.read(prompt)); });

  std::vector<double> seconds;
  const std::int32_t token = 2;
  double positions_read = 0;
  for (double total = 0; seconds.size() < 8 || total < options.seconds;) {
    const bool at_end = decoder.positions() >= decoder.context() ||
                        (options.tokens > 0 && decoder.positions() >= positions + options.tokens);
    if (at_end) {
      decoder.forget();
      static_cast<void>(decoder.read(prompt));
    }
    seconds.push_back(seconds_of([&] { static_cast<void>(decoder.read({&token, 1})); }));
    total += seconds.back();
    positions_read += decoder.positions();
  }
  const auto count = static_cast<double>(seconds.size());
  const double cache = static_cast<double>(decoder.cache_bytes_per_position()) * positions_read / count;
  const auto weights = static_cast<double>(decoder.weight_bytes());
  const double limit = rate / weights, limit_with_cache = rate / (weights + cache);
  const double usual = 1 / runtime::median(seconds),
               mean = count / std::accumulate(seconds.begin(), seconds.end(), 0.0),
               best = 1 / *std::min_element(seconds.begin(), seconds.end());
  print_case(R"("bench":"generate","model":"{}","precision":"{}","threads":{},"prompt":{},"tokens":{},)"
             R"("tokens_per_second":{:.4g},"mean_tokens_per_second":{:.4g},"best_tokens_per_second":{:.4g},)"
             R"("limit_tokens_per_second":{:.4g},"share":{:.3f},"mean_share":{:.3f},"best_share":{:.3f},)"
             R"("share_with_cache":{:.3f},"weight_bytes":{},"cache_bytes":{:.0f},)"
             R"("read_bytes_per_second":{:.4g},"prompt_tokens_per_second":{:.4g})",
             model, to_string(dtype), threads, positions, seconds.size(), usual, mean, best, limit, usual / limit,
             mean / limit, best / limit, usual / limit_with_cache, decoder.weight_bytes(), cache, rate,
             static_cast<double>(prompt.size()) / prompt_seconds);
}

void bench_main(int argc, char** argv) {
  Options options;
  apps::OptionTable table;
  table.add({"prompt", "N", "positions before the first token that is measured", apps::whole(options.prompt, 0),
             "half of the context"});
  table.add({"tokens", "N", "measured after a prompt before it is read again", apps::whole(options.tokens, 0),
             "to the end of the context"});
  table.add({"seconds", "S", "of measuring, for each case", apps::real(options.seconds, 0)});
  table.rest(options.models);
  table.parse(argc, argv);
  if (options.models.empty()) options.models = {"4x256x4x256", "gpt2-small"};
  const int cores = runtime::available_cores();
  for (const std::string& model : options.models) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      bench_model(model, dtype, 1, options);
      if (cores > 1) bench_model(model, dtype, cores, options);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return status_of("generate_bench", [&] { bench_main(argc, argv); });
}
