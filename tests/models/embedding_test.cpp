#include "models/ops/embedding.hpp"
#include "tests/models/device_copies.hpp"
#include "tests/models/every_device.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

constexpr std::size_t B = 3, T = 9, C = 37, V = 20, token_rows = 24, position_rows = 11;
constexpr EmbeddingShape shape{B, T, C, V};

std::vector<std::int32_t> some_tokens() {
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < B * T; ++i) tokens.push_back(static_cast<std::int32_t>((i * i * 7 + 3) % V));
  tokens[5] = tokens[1];
  tokens[20] = tokens[1];
  return tokens;
}

}  // namespace

TEST_CASE("an embedding is the sum of its token's and its position's rows") {
  const auto tokens = some_tokens();
  for (const DType dtype : float_types) {
    const TypedArray words(dtype, token_rows * C, 41), places(dtype, position_rows * C, 42);
    on_every_device([&](runtime::StreamView stream) {
      for (const bool given : {false, true}) {
        CAPTURE(given);
        std::vector<std::int32_t> positions;
        for (std::size_t i = 0; i < B * T; ++i)
          positions.push_back(static_cast<std::int32_t>(given ? i * 5 % position_rows : i % T));
        TypedArray out(dtype, B * T * C), apart(dtype, B * T * C), expected(dtype, B * T * C);
        DeviceCopies at(stream);
        const std::int32_t* const places_of = given ? at(std::as_const(positions)) : nullptr;
        embedding_forward(stream, shape, dtype, {at(out), at(tokens), at(words), at(places), places_of});
        embedding_forward(stream, shape, dtype,
                          {.out = at(apart), .positions_table = at(places), .positions = places_of});
        at.fetch();
        for (std::size_t i = 0; i < B * T; ++i)
          for (std::size_t c = 0; c < C; ++c) {
            const auto place = places[static_cast<std::size_t>(positions[i]) * C + c];
            expected.set(i * C + c, words[static_cast<std::size_t>(tokens[i]) * C + c] + place);
            CHECK(apart[i * C + c] == place);
          }
        CHECK(same_bits(out, expected));
      }
    });
  }
}

TEST_CASE("embedding gradients overwrite every row, or add to it, in the order of the samples") {
  const auto tokens = some_tokens();
  for (const auto& [dtype, gradient_dtype] :
       {std::pair{DType::f32, DType::f32}, std::pair{DType::bf16, DType::f32}, std::pair{DType::bf16, DType::bf16},
        std::pair{DType::f16, DType::f16}}) {
    const TypedArray d_out(dtype, B * T * C, 43);
    for (const bool accumulate : {false, true}) {
      CAPTURE(accumulate);
      on_every_device([&](runtime::StreamView stream) {
        TypedArray words(gradient_dtype, token_rows * C, 44), places(gradient_dtype, position_rows * C, 45);
        TypedArray expect_words = words, expect_places = places;
        std::vector<std::int32_t> order(B * T);
        if (!accumulate) {
          std::memset(words.data(), 0xff, words.size() * size_of(gradient_dtype));
          std::memset(places.data(), 0xff, places.size() * size_of(gradient_dtype));
        }
        DeviceCopies at(stream);
        embedding_backward(stream, shape, dtype,
                           {.tokens_gradient = at(words),
                            .token_rows = token_rows,
                            .positions_gradient = at(places),
                            .position_rows = position_rows,
                            .gradient_dtype = gradient_dtype,
                            .d_out = at(d_out),
                            .tokens = at(tokens),
                            .accumulate = accumulate,
                            .order = at(order)});
        at.fetch();

        const auto add_rows = [&](TypedArray& to, std::size_t rows, auto belongs) {
          for (std::size_t row = 0; row < rows; ++row)
            for (std::size_t c = 0; c < C; ++c) {
              float sum = 0;
              for (std::size_t i = 0; i < B * T; ++i)
                if (belongs(i) == row) sum += static_cast<float>(d_out[i * C + c]);
              to.set(row * C + c, accumulate ? static_cast<float>(to[row * C + c]) + sum : sum);
            }
        };
        add_rows(expect_words, token_rows, [&](std::size_t i) { return static_cast<std::size_t>(tokens[i]); });
        add_rows(expect_places, position_rows, [&](std::size_t i) { return i % T; });
        CHECK(same_bits(words, expect_words));
        CHECK(same_bits(places, expect_places));
      });
    }
  }
}

TEST_CASE("a table in tiles gives the embedding and the gradients of the undivided table") {
  constexpr std::size_t tile_rows = 8;
  const auto tokens = some_tokens();
  for (const DType dtype : float_types) {
    const TypedArray words(dtype, token_rows * C, 41), places(dtype, position_rows * C, 42);
    const TypedArray d_out(dtype, B * T * C, 43);
    on_every_device([&](runtime::StreamView stream) {
      TypedArray whole(dtype, B * T * C), out(dtype, B * T * C, 7);
      DeviceCopies at(stream);
      embedding_forward(stream, shape, dtype, {at(whole), at(tokens), at(words), at(places)});
      for (std::size_t row = 0; row < token_rows; row += tile_rows)
        embedding_forward(stream, shape, dtype,
                          {.out = at(out),
                           .tokens = at(tokens),
                           .tokens_table = at(words, row * C),
                           .first_row = row,
                           .token_rows = tile_rows});
      embedding_forward(stream, shape, dtype, {.out = at(out), .positions_table = at(places)});
      at.fetch();
      CHECK(same_bits(out, whole));

      for (const bool accumulate : {false, true}) {
        TypedArray d_words(DType::f32, token_rows * C, 44), d_places(DType::f32, position_rows * C, 45);
        TypedArray tile_words = d_words, tile_places = d_places;
        std::vector<std::int32_t> order(B * T);
        EmbeddingBackward arrays{.tokens_gradient = at(d_words),
                                 .token_rows = token_rows,
                                 .positions_gradient = at(d_places),
                                 .position_rows = position_rows,
                                 .d_out = at(d_out),
                                 .tokens = at(tokens),
                                 .accumulate = accumulate,
                                 .order = at(order)};
        embedding_backward(stream, shape, dtype, arrays);
        at.fetch();
        order.assign(B * T, -1);
        arrays.token_rows = tile_rows;
        arrays.d_out = at(d_out);
        arrays.tokens = at(tokens);
        arrays.order = at(order);
        for (std::size_t row = 0; row < token_rows; row += tile_rows) {
          arrays.tokens_gradient = at(tile_words, row * C);
          arrays.first_row = row;
          arrays.in_order = row > 0;
          arrays.positions_gradient = row + tile_rows == token_rows ? at(tile_places) : nullptr;
          embedding_backward(stream, shape, dtype, arrays);
        }
        at.fetch();
        CHECK(same_bits(tile_words, d_words));
        CHECK(same_bits(tile_places, d_places));
      }
    });
  }
}

TEST_CASE("a token outside the vocabulary fails the stream and is named") {
  for (const std::int32_t bad : {-1, static_cast<std::int32_t>(V)}) {
    on_every_device([&](runtime::StreamView stream) {
      auto tokens = some_tokens();
      tokens[13] = bad;
      const TypedArray words(DType::f32, token_rows * C), places(DType::f32, position_rows * C);
      TypedArray out(DType::f32, B * T * C);
      DeviceCopies at(stream);
      const Error error = tests::error_of([&] {
        embedding_forward(stream, shape, DType::f32, {at(out), at(tokens), at(words), at(places)});
        stream.synchronize();
      });
      CHECK(tests::says(error, ErrorCode::data, "token " + std::to_string(bad), "vocabulary of 20",
                        "position 4 of sample 1"));
    });
  }
}
