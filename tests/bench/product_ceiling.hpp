// Time of a transformer's matrix multiplications alone: a lower bound of a training step. All multiplications of a step
// run in its order, on arrays of the same sizes, so caches hold the same data. Each is split into the tiles that the
// library multiplies fastest. Every operand is already in the layout of those tiles: no copies, conversions or
// additions. Without bf16 support in the library, the multiplications are in fp32.
//
// Letters: N = rows of a microbatch, C channels, H heads, D = C/H, P stored rows of the token table, T positions, F
// channels inside the MLP.
#pragma once

#include "models/families/model.hpp"
#include "models/modules/token_table.hpp"
#include "models/ops/library_matmul.hpp"
#include "runtime/device/device.hpp"
#include "runtime/host/compute_pool.hpp"
#include "tests/bench/bench.hpp"

namespace ranvier::bench {

class ProductCeiling {
 public:
  struct Product {
    std::string name;
    std::size_t m = 0, n = 0, k = 0;
    std::size_t instances = 1;  ///< independent multiplications of this size, shared among the threads
    runtime::DType c_dtype = runtime::DType::f32;
    bool accumulates = false;         ///< adds to the result from the second microbatch on
    models::LibraryMatmul tile;       ///< fastest tile
    std::size_t a = 0, b = 0, c = 0;  ///< indices of the arrays
    double seconds = 0;               ///< seconds of all calls in the last step
    std::size_t calls = 0;            ///< number of calls in the last step

    [[nodiscard]] double flops() const {
      return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) *
             static_cast<double>(instances);
    }
  };

  /// A step has `microbatches` of `samples` each. Searches for the best tiles, which takes seconds.
  ProductCeiling(runtime::Device& device, runtime::StreamView stream, const models::ModelSizes& sizes,
                 runtime::DType dtype, int samples, int microbatches)
      : stream_(stream),
        dtype_(dtype == runtime::DType::bf16 && !models::library_has_bf16() ? runtime::DType::f32 : dtype),
        layers_(value(sizes, models::Size::layers)),
        microbatches_(static_cast<std::size_t>(microbatches)) {
    list(sizes, static_cast<std::size_t>(samples), static_cast<std::size_t>(device.threads()));
    for (Array& array : arrays_) {
      array.memory = device.allocate(array.bytes * (array.per_layer ? layers_ : 1), runtime::MemorySpace::device);
      if (array.holds_values)
        fill(array.memory.data(), dtype_, array.bytes * (array.per_layer ? layers_ : 1) / size_of(dtype_), 0.1f);
    }
    launch([this](runtime::ComputePool& pool) {
      for (auto* products : {&forward_, &head_, &backward_}) {
        for (Product& product : *products) choose_tile(pool, product);
      }
    });
  }

  /// Seconds of the matrix multiplications of one step.
  double measure() {
    double sum = 0;
    launch([&](runtime::ComputePool& pool) {
      for (auto* products : {&forward_, &head_, &backward_}) {
        for (Product& product : *products) {
          product.seconds = 0;
          product.calls = 0;
        }
      }
      for (std::size_t microbatch = 0; microbatch < microbatches_; ++microbatch) {
        const auto all = [&](std::vector<Product>& products, std::size_t layer) {
          for (Product& product : products) {
            const double seconds = seconds_of(
                [&] { multiply(pool, product, product.tile, layer, product.accumulates && microbatch > 0); });
            product.seconds += seconds;
            ++product.calls;
            sum += seconds;
          }
        };
        for (std::size_t layer = 0; layer < layers_; ++layer) all(forward_, layer);
        all(head_, 0);
        for (std::size_t layer = layers_; layer-- > 0;) all(backward_, layer);
      }
    });
    return sum;
  }

  [[nodiscard]] std::vector<Product> products() const {
    std::vector<Product> all = forward_;
    all.insert(all.end(), head_.begin(), head_.end());
    all.insert(all.end(), backward_.begin(), backward_.end());
    return all;
  }

 private:
  struct Array {
    std::size_t bytes = 0;  // bytes per layer
    bool per_layer = false;
    bool per_thread = false;   // an instance uses its thread's share
    bool holds_values = true;  // others are written before they are read
    runtime::Buffer memory = {};
  };

  template <typename Work>
  void launch(const Work& work) {
    stream_.launch([&work](runtime::ComputePool& pool) { work(pool); });
    stream_.synchronize();
  }

  static std::size_t value(const models::ModelSizes& sizes, models::Size which) {
    return static_cast<std::size_t>(models::value_of(sizes, which));
  }

  void list(const models::ModelSizes& sizes, std::size_t samples, std::size_t threads) {
    using models::Size;
    using runtime::DType;
    const bool gated = std::holds_alternative<models::LlamaOptions>(sizes);
    const bool transforms = std::holds_alternative<models::BertOptions>(sizes);
    const auto T = value(sizes, Size::sequence_length), C = value(sizes, Size::hidden),
               H = value(sizes, Size::heads), D = C / H, N = samples * T,
               F = std::holds_alternative<models::GptOptions>(sizes) ? 4 * C : value(sizes, Size::ffn_size),
               P = models::TokenTable({.name = "", .tokens = value(sizes, Size::vocab_size), .channels = C})
                       .stored_rows();
    const std::size_t up = gated ? 2 * F : F, widest = std::max(up, 3 * C);
    const auto array = [&](Array added) {
      arrays_.push_back(std::move(added));
      return arrays_.size() - 1;
    };
    const auto shared = [&](std::size_t elements) { return array({.bytes = elements * size_of(dtype_)}); };
    const auto of_layer = [&](std::size_t elements) {
      return array({.bytes = elements * size_of(dtype_), .per_layer = true});
    };
    const auto add = [](std::vector<Product>& to, const std::string& name, std::size_t m, std::size_t n,
                        std::size_t k, std::size_t a, std::size_t b, std::size_t c, DType c_dtype,
                        bool accumulates) {
      to.push_back({.name = name,
                    .m = m,
                    .n = n,
                    .k = k,
                    .c_dtype = c_dtype,
                    .accumulates = accumulates,
                    .tile = {},
                    .a = a,
                    .b = b,
                    .c = c});
      return &to.back();
    };
    const auto normal = shared(N * C), wide = shared(N * widest), stream = of_layer(N * C),
               d_stream = shared(N * C), d_wide = shared(N * widest), d_normal = shared(N * C);
    const auto qkv = of_layer(N * 3 * C), attention = of_layer(N * C), fc = of_layer(N * up);

    struct Linear {
      const char* name;
      std::size_t in, out;
      std::size_t x, y, dx, dy;  // arrays
      std::size_t kept;          // x in the layout of the weight gradient
      std::size_t weight = 0, gradient = 0;
    };
    std::vector<Linear> linears = {{"attn.c_attn", C, 3 * C, normal, qkv, d_normal, d_wide, normal},
                                   {"attn.c_proj", C, C, attention, stream, d_normal, d_stream, attention},
                                   {"mlp.c_fc", C, up, normal, fc, d_normal, d_wide, normal},
                                   {"mlp.c_proj", F, C, wide, stream, d_wide, d_stream, fc}};
    for (Linear& linear : linears) {
      linear.weight = of_layer(linear.in * linear.out);
      linear.gradient =
          array({.bytes = linear.in * linear.out * sizeof(float), .per_layer = true, .holds_values = false});
    }
    // All of T × T, as in the usual count of operations: causality saves nothing here.
    const auto square = array({.bytes = T * T * threads * size_of(dtype_), .per_thread = true});
    const auto attend = [&](std::vector<Product>& to, const char* name, std::size_t n, std::size_t k, std::size_t a,
                            std::size_t b, std::size_t c) {
      add(to, name, T, n, k, a, b, c, dtype_, false)->instances = samples * H;
    };

    const auto forward = [&](const Linear& linear) {
      add(forward_, linear.name, N, linear.out, linear.in, linear.x, linear.weight, linear.y, dtype_, false);
    };
    forward(linears[0]);
    attend(forward_, "q kᵀ", T, D, qkv, qkv, square);
    attend(forward_, "p v", D, T, square, qkv, attention);
    for (std::size_t i = 1; i < 4; ++i) forward(linears[i]);

    const auto table = shared(P * C), logits = shared(N * P),
               d_table = array({.bytes = P * C * sizeof(float), .holds_values = false});
    if (transforms) {
      const auto weight = shared(C * C), gradient = array({.bytes = C * C * sizeof(float), .holds_values = false});
      add(head_, "head transform", N, C, C, normal, weight, d_stream, dtype_, false);
      add(head_, "head transform input gradient", N, C, C, d_stream, weight, d_normal, dtype_, false);
      add(head_, "head transform weight gradient", C, C, N, normal, d_stream, gradient, DType::f32, true);
    }
    add(head_, "head", N, P, C, normal, table, logits, dtype_, false);
    add(head_, "head input gradient", N, C, P, logits, table, d_normal, dtype_, false);
    add(head_, "head weight gradient", P, C, N, logits, normal, d_table, DType::f32, true);

    const auto backward = [&](const Linear& linear) {
      add(backward_, std::string(linear.name) + " input gradient", N, linear.in, linear.out, linear.dy,
          linear.weight, linear.dx, dtype_, false);
    };
    for (std::size_t i = 4; i-- > 1;) backward(linears[i]);
    attend(backward_, "d_out vᵀ", T, D, d_normal, qkv, square);
    attend(backward_, "pᵀ d_out", D, T, square, d_normal, d_wide);
    attend(backward_, "s k", D, T, square, qkv, d_wide);
    attend(backward_, "sᵀ q", D, T, square, qkv, d_wide);
    backward(linears[0]);
    for (std::size_t i = 4; i-- > 0;) {
      const Linear& linear = linears[i];
      add(backward_, std::string(linear.name) + " weight gradient", linear.in, linear.out, N, linear.kept,
          linear.dy, linear.gradient, DType::f32, true);
    }
  }
  /// Lengths of tiles into which `whole` can be split. A row of a tile takes an odd number of cache lines, so that
  /// rows use all sets of the caches.
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
      const auto threads = static_cast<std::size_t>(pool.threads());
      const std::size_t share = (product.m + threads - 1) / threads;
      for (const std::size_t wanted : {1024, 512, 256}) {
        const std::size_t pieces = (share + wanted - 1) / wanted,
                          rows = ((share + pieces - 1) / pieces + 15) / 16 * 16;
        if (m.empty() || rows < m.back()) m.push_back(rows);
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
      multiply(pool, product, tile, 0, false, 1);  // creates the library's cached objects
      for (int repeat = 0; repeat < 2; ++repeat) {
        double flops = 0;
        const double seconds = seconds_of([&] { flops = multiply(pool, product, tile, 0, false, 2.5e8); });
        if (flops / seconds <= best) continue;
        best = flops / seconds;
        product.tile = tile;
      }
    }
  }

  /// Multiplies all tiles, or per thread only the first `max_flops` operations. Returns the operations done.
  double multiply(runtime::ComputePool& pool, const Product& product, const models::LibraryMatmul& tile,
                  std::size_t layer, bool accumulates, double max_flops = 1e300) const {
    const std::size_t rows = (product.m + tile.m - 1) / tile.m, columns = (product.n + tile.n - 1) / tile.n;
    std::vector<double> flops(static_cast<std::size_t>(pool.threads()));
    pool.run([&](int thread, int threads) {
      const auto [begin, end] = runtime::share_of(product.instances * rows * columns, thread, threads);
      const auto address = [&](std::size_t which, std::size_t instance, std::size_t elements, std::size_t element) {
        const Array& array = arrays_[which];
        const std::size_t part = array.per_thread ? static_cast<std::size_t>(thread) : instance;
        return array.memory.data() + (array.per_layer ? layer : 0) * array.bytes + part * elements * element;
      };
      double done = 0;
      for (std::size_t i = begin; i < end && done < max_flops; ++i) {
        const std::size_t instance = i / columns / rows;
        const Operands operands{address(product.a, instance, product.m * product.k, size_of(dtype_)),
                                address(product.b, instance, product.k * product.n, size_of(dtype_)),
                                address(product.c, instance, product.m * product.n, size_of(product.c_dtype))};
        done += multiply_tile(product, operands, tile, i / columns % rows * tile.m, i % columns * tile.n,
                              accumulates, max_flops - done);
      }
      flops[static_cast<std::size_t>(thread)] = done;
    });
    return std::accumulate(flops.begin(), flops.end(), 0.0);
  }

  struct Operands {
    const std::byte* a;
    const std::byte* b;
    std::byte* c;
  };

  /// Multiplies the tile at row m, column n of the result.
  double multiply_tile(const Product& product, const Operands& at, models::LibraryMatmul tile, std::size_t m,
                       std::size_t n, bool accumulates, double max_flops) const {
    tile.m = std::min(tile.m, product.m - m);
    tile.n = std::min(tile.n, product.n - n);
    const std::size_t depth = tile.k;
    double done = 0;
    for (std::size_t k = 0; k < product.k && done < max_flops; k += depth) {
      tile.k = std::min(depth, product.k - k);
      tile.accumulate = accumulates || k > 0;
      models::library_matmul(tile, at.c + (m * product.n + tile.m * n) * size_of(product.c_dtype),
                             at.a + (m * product.k + tile.m * k) * size_of(dtype_),
                             at.b + (n * product.k + tile.n * k) * size_of(dtype_), nullptr);
      done += 2.0 * static_cast<double>(tile.m * tile.n) * static_cast<double>(tile.k);
    }
    return done;
  }

  runtime::StreamView stream_;
  runtime::DType dtype_;
  std::size_t layers_, microbatches_;
  std::vector<Array> arrays_;
  std::vector<Product> forward_, head_, backward_;  // forward of a layer, head, backward of a layer; in order
};

}  // namespace ranvier::bench
