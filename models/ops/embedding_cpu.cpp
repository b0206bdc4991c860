#include "models/ops/embedding.hpp"

#include "models/ops/bad_token.hpp"
#include "models/ops/dispatch.hpp"
#include "models/ops/vector_math.hpp"
#include "runtime/host/compute_pool.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace ranvier::models {
namespace {

using simd::Floats;

/// to[begin … end) of a row (+)= Σ of d_out's rows listed in `rows`, in that order.
template <typename G, typename T, typename Rows>
void sum_rows(G* to, const T* d_out, std::size_t channels, std::size_t begin, std::size_t end, const Rows& rows,
              bool accumulate) {
  simd::for_lanes(begin, end, [&](std::size_t c, auto count) {
    Floats total{};
    rows([&](std::size_t row) { total += simd::load(d_out + row * channels + c, count); });
    simd::store(to + c, accumulate ? simd::load(to + c, count) + total : total, count);
  });
}

/// Work of one thread: a range of channels of every row, so that each row element has one writer.
template <typename G, typename T>
void backward(const EmbeddingShape& shape, const EmbeddingBackward& arrays, const runtime::Share& channels) {
  const std::size_t C = shape.channels;
  const T* const d_out = static_cast<const T*>(arrays.d_out);
  G* const tokens_gradient = static_cast<G*>(arrays.tokens_gradient);
  G* const positions_gradient = static_cast<G*>(arrays.positions_gradient);

  const std::size_t count = tokens_gradient == nullptr ? 0 : shape.samples * shape.positions;
  const std::int32_t* const begin = arrays.order;
  const auto at_least = [&](std::size_t row) {
    return static_cast<std::size_t>(
        std::partition_point(begin, begin + count,
                             [&](std::int32_t i) { return static_cast<std::size_t>(arrays.tokens[i]) < row; }) -
        begin);
  };
  const std::size_t end = at_least(arrays.first_row + arrays.token_rows);
  for (std::size_t first = at_least(arrays.first_row); first < end;) {
    const std::int32_t token = arrays.tokens[arrays.order[first]];
    std::size_t last = first + 1;
    while (last < end && arrays.tokens[arrays.order[last]] == token) ++last;
    sum_rows(
        tokens_gradient + (static_cast<std::size_t>(token) - arrays.first_row) * C, d_out, C, channels.begin,
        channels.end,
        [&](auto add) {
          for (std::size_t i = first; i < last; ++i) add(static_cast<std::size_t>(arrays.order[i]));
        },
        arrays.accumulate);
    first = last;
  }

  for (std::size_t t = 0; t < shape.positions && positions_gradient != nullptr; ++t) {
    sum_rows(
        positions_gradient + t * C, d_out, C, channels.begin, channels.end,
        [&](auto add) {
          for (std::size_t b = 0; b < shape.samples; ++b) add(b * shape.positions + t);
        },
        arrays.accumulate);
  }
}

template <typename G>
void zero(runtime::ComputePool& pool, G* gradient, std::size_t begin, std::size_t end) {
  pool.run([&](int thread, int threads) {
    const auto share = runtime::share_of(end - begin, thread, threads, 1024);
    std::fill(gradient + begin + share.begin, gradient + begin + share.end, G{});
  });
}

/// Table row of a token. Throws ErrorCode::data if there is none.
std::size_t row_of(const EmbeddingShape& shape, const std::int32_t* tokens, std::size_t i) {
  const std::int32_t token = tokens[i];
  if (token < 0 || static_cast<std::size_t>(token) >= shape.vocab_size) {
    fail_bad_token(token, i, shape);
  }
  return static_cast<std::size_t>(token);
}

/// Table row of a position.
std::size_t place_of(const EmbeddingShape& shape, const std::int32_t* positions, std::size_t i) {
  return positions != nullptr ? static_cast<std::size_t>(positions[i]) : i % shape.positions;
}

/// Expected number of positions whose tokens are among `rows` of the vocabulary, if all tokens are equally frequent.
std::size_t positions_within(const EmbeddingShape& shape, std::size_t rows) {
  const std::size_t N = shape.samples * shape.positions;
  if (rows >= shape.vocab_size) return N;
  const double share = static_cast<double>(rows) / static_cast<double>(shape.vocab_size);
  return static_cast<std::size_t>(share * static_cast<double>(N));
}

/// Cost of reading or writing `rows` rows of C elements, and a token for each of `positions`.
runtime::WorkCost cost_of(const EmbeddingShape& shape, runtime::DType dtype, std::size_t rows,
                          std::size_t positions, std::size_t more = 0) {
  return memory_cost(runtime::WorkKind::embedding, dtype,
                     bytes_of(rows * shape.channels, dtype) + positions * sizeof(std::int32_t) + more);
}

/// Cost of reading rows of both tables, or `out` instead of tokens' rows, and writing `out`.
runtime::WorkCost forward_cost(const EmbeddingShape& shape, runtime::DType dtype, const EmbeddingForward& arrays) {
  const std::size_t N = shape.samples * shape.positions;
  std::size_t rows = 2 * N, numbers = 0;
  if (arrays.tokens_table != nullptr) {
    const std::size_t found = positions_within(shape, arrays.token_rows);
    rows = found + std::min({found, arrays.token_rows, shape.vocab_size});
    numbers = N;
  }
  if (arrays.positions_table != nullptr) {
    rows += shape.positions;
    if (arrays.positions != nullptr) numbers += N;
  }
  return cost_of(shape, dtype, rows, numbers);
}

/// Cost of both gradients: rows with a gradient are read and written, or the complete table is written.
runtime::WorkCost backward_cost(const EmbeddingShape& shape, runtime::DType dtype,
                                const EmbeddingBackward& arrays) {
  const std::size_t N = shape.samples * shape.positions;
  std::size_t read = 0, rows = 0;
  if (arrays.tokens_gradient != nullptr) {
    read = positions_within(shape, arrays.token_rows);
    rows += arrays.accumulate ? 2 * std::min(read, arrays.token_rows) : arrays.token_rows;
  }
  if (arrays.positions_gradient != nullptr) {
    read = N;
    rows += arrays.accumulate ? 2 * shape.positions : arrays.position_rows;
  }
  return cost_of(shape, dtype, read, arrays.tokens_gradient == nullptr ? 0 : N,
                 bytes_of(rows * shape.channels, arrays.gradient_dtype));
}

}  // namespace

void embedding_forward(runtime::StreamView stream, const EmbeddingShape& shape, runtime::DType dtype,
                       const EmbeddingForward& given) {
  expect_kernel(dtype, "embedding");
  EmbeddingForward arrays = given;
  if (arrays.token_rows == 0) arrays.token_rows = shape.vocab_size;
  if (ran_on_gpu<embedding_forward_cuda>(stream, shape, dtype, arrays)) return;
  launch_typed(stream, dtype, forward_cost(shape, dtype, arrays), [=]<typename T>(runtime::ComputePool& pool, T) {
    const std::size_t C = shape.channels;
    for_each_row(pool, shape.samples * shape.positions, [&](std::size_t i) {
      T* const to = static_cast<T*>(arrays.out) + i * C;
      const T* word = to;
      if (arrays.tokens_table != nullptr) {
        const std::size_t row = row_of(shape, arrays.tokens, i);
        if (row < arrays.first_row || row - arrays.first_row >= arrays.token_rows) return;
        word = static_cast<const T*>(arrays.tokens_table) + (row - arrays.first_row) * C;
      }
      if (arrays.positions_table == nullptr) {
        std::memcpy(static_cast<void*>(to), word, C * sizeof(T));
        return;
      }
      const T* const place =
          static_cast<const T*>(arrays.positions_table) + place_of(shape, arrays.positions, i) * C;
      simd::for_lanes(0, C, [&](std::size_t c, auto count) {
        simd::store(to + c, simd::load(word + c, count) + simd::load(place + c, count), count);
      });
    });
  });
}

void embedding_backward(runtime::StreamView stream, const EmbeddingShape& shape, runtime::DType dtype,
                        const EmbeddingBackward& arrays) {
  expect_kernel(dtype, "embedding");
  constexpr std::size_t most = std::size_t{1} << 30;  // limit of the counters in `order`
  if (shape.samples * shape.positions > most) {
    fail(ErrorCode::usage,
         "the embedding's gradient supports {} positions per microbatch, not {}; use a smaller `microbatch_size`",
         most, shape.samples * shape.positions);
  }
  if (ran_on_gpu<embedding_backward_cuda>(stream, shape, dtype, arrays)) return;
  launch_typed(stream, dtype, backward_cost(shape, dtype, arrays), [=]<typename T>(runtime::ComputePool& pool, T) {
    runtime::with_float_type(arrays.gradient_dtype, [&]<typename G>(G) {
      if (!arrays.accumulate && arrays.tokens_gradient != nullptr) {
        zero(pool, static_cast<G*>(arrays.tokens_gradient), 0, arrays.token_rows * shape.channels);
      }
      if (!arrays.accumulate && arrays.positions_gradient != nullptr) {
        zero(pool, static_cast<G*>(arrays.positions_gradient), shape.positions * shape.channels,
             arrays.position_rows * shape.channels);
      }
      if (!arrays.in_order) {
        std::int32_t* const end = arrays.order + shape.samples * shape.positions;
        std::iota(arrays.order, end, 0);
        std::sort(arrays.order, end, [&](std::int32_t a, std::int32_t b) {
          return arrays.tokens[a] != arrays.tokens[b] ? arrays.tokens[a] < arrays.tokens[b] : a < b;
        });
      }
      pool.run([&](int thread, int threads) {
        backward<G, T>(shape, arrays, runtime::share_of(shape.channels, thread, threads, 16));
      });
    });
  });
}

}  // namespace ranvier::models
