// The time that a GPT's matrix products alone take: what a training step cannot beat on this machine while all
// its arithmetic goes through the library. Every product of a step is cut into tiles whose operands lie ready
// without gaps, in the layout and size that the library multiplies fastest; nothing is copied, converted or
// added between them.
//
// Letters: N = rows of a microbatch, C channels, H heads, D = C/H, P stored rows of the token table, T positions.
#pragma once

#include "models/gpt.hpp"
#include "models/gpt_layers.hpp"
#include "models/ops/library_matmul.hpp"
#include "runtime/compute_pool.hpp"
#include "runtime/device.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

namespace ranvier::bench {

class ProductCeiling {
 public:
  struct Product {
    std::string name;
    std::size_t m = 0, n = 0, k = 0;
    std::size_t count = 1;      ///< in a step, of which one is measured at a time
    std::size_t instances = 1;  ///< independent products of this size, shared among the threads
    runtime::DType c_dtype = runtime::DType::f32;
    models::LibraryMatmul tile;  ///< the fastest
    double seconds = 0;          ///< of one, as last measured

    [[nodiscard]] double flops() const {
      return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) *
             static_cast<double>(instances);
    }
  };

  /// For `microbatches` of `samples` each. Looks for the best tiles, which takes seconds.
  ProductCeiling(runtime::Device& device, runtime::StreamView stream, const models::GptOptions& options, int samples,
                 int microbatches)
      : stream_(stream), dtype_(options.precision.compute) {
    list(options, static_cast<std::size_t>(samples), static_cast<std::size_t>(microbatches));
    std::size_t a = 0, b = 0, c = 0;
    for (const Product& product : products_) {
      a = std::max(a, product.m * product.k * product.instances);
      b = std::max(b, product.n * product.k * product.instances);
      c = std::max(c, product.m * product.n * product.instances);
    }
    a_ = values(device, a, dtype_);
    b_ = values(device, b, dtype_);
    c_ = device.allocate(c * sizeof(float), runtime::MemorySpace::device);
    launch([this](runtime::ComputePool& pool) {
      for (Product& product : products_) choose_tile(pool, product);
    });
  }

  /// Seconds that all products of a step take now: means over as many rounds as fit into `seconds`, one at least.
  double measure(double seconds) {
    double all_rounds = 0;
    launch([&](runtime::ComputePool& pool) {
      for (Product& product : products_) product.seconds = 0;
      const auto begin = Clock::now();
      int rounds = 0;
      do {
        for (Product& product : products_) product.seconds += seconds_of([&] { multiply(pool, product, product.tile); });
        ++rounds;
      } while (std::chrono::duration<double>(Clock::now() - begin).count() < seconds);
      for (Product& product : products_) {
        product.seconds /= rounds;
        all_rounds += product.seconds * static_cast<double>(product.count);
      }
    });
    return all_rounds;
  }

  [[nodiscard]] const std::vector<Product>& products() const { return products_; }

 private:
  using Clock = std::chrono::steady_clock;

  template <typename Work>
  static double seconds_of(const Work& work) {
    const auto begin = Clock::now();
    work();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  template <typename Work>
  void launch(const Work& work) {
    stream_.launch([&work](runtime::ComputePool& pool) { work(pool); });
    stream_.synchronize();
  }

  static runtime::Buffer values(runtime::Device& device, std::size_t elements, runtime::DType dtype) {
    runtime::Buffer buffer = device.allocate(elements * size_of(dtype), runtime::MemorySpace::device);
    runtime::with_float_type(dtype, [&](auto type) {
      auto* to = reinterpret_cast<decltype(type)*>(buffer.data());
      std::uint32_t state = 1;
      for (std::size_t i = 0; i < elements; ++i) {
        state = state * 1664525u + 1013904223u;
        to[i] = runtime::from_float<decltype(type)>(static_cast<float>(state >> 8) * 0x1p-24f - 0.5f);
      }
    });
    return buffer;
  }

  void list(const models::GptOptions& options, std::size_t samples, std::size_t microbatches) {
    const auto T = static_cast<std::size_t>(options.sequence_length), C = static_cast<std::size_t>(options.hidden),
               H = static_cast<std::size_t>(options.heads), D = C / H, N = samples * T,
               P = models::gpt_stored_rows(options);
    const auto add = [&](const std::string& name, std::size_t m, std::size_t n, std::size_t k, std::size_t layers,
                         std::size_t instances, runtime::DType c_dtype) {
      products_.push_back({name, m, n, k, layers * microbatches, instances, c_dtype, {}, 0});
    };
    const auto linear = [&](const std::string& name, std::size_t in, std::size_t out, std::size_t layers) {
      add(name, N, out, in, layers, 1, dtype_);
      add(name + " input gradient", N, in, out, layers, 1, dtype_);
      add(name + " weight gradient", in, out, N, layers, 1, runtime::DType::f32);
    };
    const auto layers = static_cast<std::size_t>(options.layers);
    linear("attn.c_attn", C, 3 * C, layers);
    linear("attn.c_proj", C, C, layers);
    linear("mlp.c_fc", C, 4 * C, layers);
    linear("mlp.c_proj", 4 * C, C, layers);
    linear("head", C, P, 1);
    // Whole T × T products, as the customary count of operations has them: causality spares nothing here.
    add("q kᵀ, d_out vᵀ", T, T, D, 2 * layers, samples * H, dtype_);
    add("p v, pᵀ d_out, s k, sᵀ q", T, D, T, 4 * layers, samples * H, dtype_);
  }

  /// Lengths of pieces that whole may be cut into. A row of a piece takes an odd number of cache lines, so that
  /// rows spread over the sets of the caches.
  [[nodiscard]] std::vector<std::size_t> lengths(std::size_t whole) const {
    const std::size_t line = 64 / size_of(dtype_);
    std::vector<std::size_t> found;
    if (whole <= 4096) found.push_back(whole);
    for (const std::size_t wanted : {1024, 512}) {
      const std::size_t pieces = (whole + wanted - 1) / wanted;
      const std::size_t length = (((whole + pieces - 1) / pieces + line - 1) / line | 1) * line;
      if (pieces > 1 && length < whole) found.push_back(length);
    }
    return found;
  }

  void choose_tile(runtime::ComputePool& pool, Product& product) const {
    std::vector<std::size_t> m, n{product.n}, k{product.k};
    if (product.instances > 1) {
      m = {product.m};
    } else {
      const std::size_t share = (product.m + static_cast<std::size_t>(pool.threads()) - 1) / static_cast<std::size_t>(pool.threads());
      for (const std::size_t parts : {1, 2, 4, 8}) {
        const std::size_t rows = (share + parts - 1) / parts;
        if (rows <= 1024 && rows >= 128) m.push_back((rows + 15) / 16 * 16);
      }
      n = lengths(product.n);
      k = lengths(product.k);
    }
    double best = 0;
    for (std::size_t i = 0; i < m.size() * n.size() * k.size() * 2; ++i) {
      const models::LibraryMatmul tile{.m = m[i / 2 % m.size()],
                                       .n = n[i / 2 / m.size() % n.size()],
                                       .k = k[i / 2 / m.size() / n.size()],
                                       .transpose_b = i % 2 == 1,
                                       .dtype = dtype_,
                                       .c_dtype = product.c_dtype};
      multiply(pool, product, tile, 1);  // makes what the library keeps
      for (int repeat = 0; repeat < 2; ++repeat) {
        double flops = 0;
        const double seconds = seconds_of([&] { flops = multiply(pool, product, tile, 2.5e8); });
        if (flops / seconds <= best) continue;
        best = flops / seconds;
        product.tile = tile;
      }
    }
  }

  /// All tiles, or of each thread's share those of the first `most_flops` operations. Returns the operations done.
  double multiply(runtime::ComputePool& pool, const Product& product, const models::LibraryMatmul& tile,
                  double most_flops = 1e300) const {
    const std::size_t rows = (product.m + tile.m - 1) / tile.m, columns = (product.n + tile.n - 1) / tile.n;
    std::vector<double> flops(static_cast<std::size_t>(pool.threads()));
    pool.run([&](int thread, int threads) {
      const auto [begin, end] = runtime::share_of(product.instances * rows * columns, thread, threads);
      double done = 0;
      for (std::size_t i = begin; i < end && done < most_flops; ++i) {
        done += multiply_tile(product, tile, i / columns / rows, i / columns % rows * tile.m, i % columns * tile.n,
                              most_flops - done);
      }
      flops[static_cast<std::size_t>(thread)] = done;
    });
    return std::accumulate(flops.begin(), flops.end(), 0.0);
  }

  /// The tile that begins at row m, column n of a product's result.
  double multiply_tile(const Product& product, models::LibraryMatmul tile, std::size_t instance, std::size_t m,
                       std::size_t n, double most_flops) const {
    tile.m = std::min(tile.m, product.m - m);
    tile.n = std::min(tile.n, product.n - n);
    const std::size_t depth = tile.k;
    double done = 0;
    for (std::size_t k = 0; k < product.k && done < most_flops; k += depth) {
      tile.k = std::min(depth, product.k - k);
      tile.accumulate = k > 0;
      models::library_matmul(
          tile, c_.data() + ((instance * product.m + m) * product.n + tile.m * n) * size_of(product.c_dtype),
          a_.data() + ((instance * product.m + m) * product.k + tile.m * k) * size_of(dtype_),
          b_.data() + ((instance * product.n + n) * product.k + tile.n * k) * size_of(dtype_), nullptr);
      done += 2.0 * static_cast<double>(tile.m * tile.n) * static_cast<double>(tile.k);
    }
    return done;
  }

  runtime::StreamView stream_;
  runtime::DType dtype_;
  std::vector<Product> products_;
  runtime::Buffer a_, b_, c_;
};

}  // namespace ranvier::bench
