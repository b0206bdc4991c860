#include "apps/bench/kernel_cases.hpp"

#include "models/ops/matmul.hpp"
#include "runtime/base/arithmetic.hpp"

namespace ranvier::apps {

namespace {

using runtime::DType;

constexpr std::size_t alignment = 256;
std::size_t aligned(std::size_t bytes) { return runtime::round_up(bytes, alignment); }

ProductCase product(DType dtype, const models::MatmulShape& shape, bool weight_gradient) {
  const std::size_t width = runtime::size_of(dtype);
  const DType c_dtype = weight_gradient ? DType::f32 : dtype;
  const std::size_t b = aligned(shape.m * shape.k * width), c = b + aligned(shape.k * shape.n * width);
  const std::size_t bytes = c + aligned(shape.m * shape.n * runtime::size_of(c_dtype));
  return {{shape.m, shape.n, shape.k}, {bytes, [=](runtime::StreamView stream, std::byte* at) {
                                          models::matmul(stream, shape,
                                                         {.c = at + c,
                                                          .c_dtype = c_dtype,
                                                          .a = at,
                                                          .b = at + b,
                                                          .dtype = dtype,
                                                          .accumulate = weight_gradient});
                                        }}};
}

/// Three matrix multiplications of a layer from `in` to `out` channels. Its weight is [in, out] or [out, in].
void add_layer(std::vector<ProductCase>& cases, DType dtype, std::size_t tokens, std::size_t in, std::size_t out,
               bool out_in) {
  cases.push_back(product(dtype, {.m = tokens, .n = out, .k = in, .transpose_b = out_in}, false));
  cases.push_back(product(dtype, {.m = tokens, .n = in, .k = out, .transpose_b = !out_in}, false));
  cases.push_back(
      product(dtype, {.m = out_in ? out : in, .n = out_in ? in : out, .k = tokens, .transpose_a = true}, true));
}

}  // namespace

std::vector<ProductCase> product_cases(DType dtype, const ProductSizes& sizes) {
  std::vector<ProductCase> cases;
  for (const std::size_t tokens : sizes.tokens) {
    for (const std::size_t channels : sizes.channels) {
      add_layer(cases, dtype, tokens, channels, 4 * channels, false);
      add_layer(cases, dtype, tokens, 4 * channels, channels, true);
    }
  }
  const std::size_t medium = sizes.channels[sizes.channels.size() / 2];
  add_layer(cases, dtype, sizes.tokens[sizes.tokens.size() / 2], medium, sizes.vocab_size, true);
  const std::size_t square = sizes.channels.back() * 3 / 4;
  cases.push_back(product(dtype, {.m = square, .n = square, .k = square}, false));
  return cases;
}

}  // namespace ranvier::apps
