#include "models/ops/embedding.hpp"
#include "tests/models/operator_check.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

constexpr std::size_t B = 3, T = 9, C = 37, V = 20, token_rows = 24, position_rows = 11, tile_rows = 8;
constexpr EmbeddingShape shape{B, T, C, V};

std::vector<std::int32_t> some_tokens() {
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < B * T; ++i) tokens.push_back(static_cast<std::int32_t>((i * i * 7 + 3) % V));
  tokens[5] = tokens[1];
  tokens[20] = tokens[1];
  return tokens;
}

}  // namespace

TEST_CASE("an embedding is the sum of its token's and its position's rows, with the table undivided or in tiles") {
  const auto tokens = some_tokens();
  for (const DType dtype : float_types)
    for (const bool numbered : {false, true}) {
      CAPTURE(numbered);
      const TypedArray words(dtype, token_rows * C, 41), places(dtype, position_rows * C, 42);
      std::vector<std::int32_t> positions;
      for (std::size_t i = 0; i < B * T; ++i)
        positions.push_back(static_cast<std::int32_t>(numbered ? i * 5 % position_rows : i % T));
      TypedArray of_places(dtype, B * T * C), sums = of_places;
      for (std::size_t i = 0; i < sums.size(); ++i) {
        of_places.set(i, places[static_cast<std::size_t>(positions[i / C]) * C + i % C]);
        sums.set(i, words[static_cast<std::size_t>(tokens[i / C]) * C + i % C] + of_places[i]);
      }
      enum Output { all, alone, tiled };
      check_operator(
          {.name = "embedding",
           .outputs = {{"sums", TypedArray(dtype, sums.size()), given(sums)},
                       {"positions alone", TypedArray(dtype, sums.size()), given(of_places)},
                       {"sums of tiles", TypedArray(dtype, sums.size(), 7), nullptr, all}},
           .call = [&](runtime::StreamView stream, DeviceCopies& at, Outputs& out) {
             const std::int32_t* const places_of = numbered ? at(std::as_const(positions)) : nullptr;
             embedding_forward(stream, shape, dtype, {at(out[all]), at(tokens), at(words), at(places), places_of});
             const auto add_positions = [&](Output output) {
               embedding_forward(stream, shape, dtype,
                                 {.out = at(out[output]), .positions_table = at(places), .positions = places_of});
             };
             add_positions(alone);
             for (std::size_t row = 0; row < token_rows; row += tile_rows)
               embedding_forward(stream, shape, dtype,
                                 {.out = at(out[tiled]),
                                  .tokens = at(tokens),
                                  .tokens_table = at(words, row * C),
                                  .first_row = row,
                                  .token_rows = tile_rows});
             add_positions(tiled);
           }});
    }
}

TEST_CASE("embedding gradients overwrite every row, or add to it, in the order of the samples, in tiles or not") {
  const auto tokens = some_tokens();
  for (const auto& [dtype, gradient_dtype] :
       {std::pair{DType::f32, DType::f32}, std::pair{DType::bf16, DType::f32}, std::pair{DType::f16, DType::f32},
        std::pair{DType::bf16, DType::bf16}, std::pair{DType::f16, DType::f16}})
    for (const bool accumulate : {false, true}) {
      CAPTURE_ALL(to_string(dtype), accumulate);
      const TypedArray d_out(dtype, B * T * C, 43);
      TypedArray words(gradient_dtype, token_rows * C, 44), places(gradient_dtype, position_rows * C, 45);
      TypedArray expect_words = words, expect_places = places;
      const auto add_rows = [&](TypedArray& to, std::size_t rows, auto row_of) {
        for (std::size_t at = 0; at < rows * C; ++at) {
          float sum = 0;
          for (std::size_t i = 0; i < B * T; ++i)
            if (row_of(i) == at / C) sum += static_cast<float>(d_out[i * C + at % C]);
          to.set(at, accumulate ? static_cast<float>(to[at]) + sum : sum);
        }
      };
      add_rows(expect_words, token_rows, [&](std::size_t i) { return static_cast<std::size_t>(tokens[i]); });
      add_rows(expect_places, position_rows, [](std::size_t i) { return i % T; });
      if (!accumulate) {
        std::memset(words.data(), 0xff, words.bytes());
        std::memset(places.data(), 0xff, places.bytes());
      }
      enum Output { all_words, all_places, tile_words, tile_places };
      check_operator({.name = "embedding's gradient",
                      .outputs = {{"words", words, given(expect_words)},
                                  {"places", places, given(expect_places)},
                                  {"words in tiles", words, nullptr, all_words},
                                  {"places in tiles", places, nullptr, all_places}},
                      .call = [&](runtime::StreamView stream, DeviceCopies& at, Outputs& out) {
                        EmbeddingBackward arrays{
                            .tokens_gradient = at(out[all_words]),
                            .token_rows = token_rows,
                            .positions_gradient = at(out[all_places]),
                            .position_rows = position_rows,
                            .gradient_dtype = gradient_dtype,
                            .d_out = at(d_out),
                            .tokens = at(tokens),
                            .accumulate = accumulate,
                            .order = reinterpret_cast<std::int32_t*>(at.scratch(B * T * sizeof(std::int32_t)))};
                        embedding_backward(stream, shape, dtype, arrays);
                        arrays.token_rows = tile_rows;
                        arrays.order = reinterpret_cast<std::int32_t*>(at.scratch(B * T * sizeof(std::int32_t)));
                        for (std::size_t row = 0; row < token_rows; row += tile_rows) {
                          arrays.tokens_gradient = at(out[tile_words], row * C);
                          arrays.first_row = row;
                          arrays.in_order = row > 0;
                          arrays.positions_gradient =
                              row + tile_rows == token_rows ? at(out[tile_places]) : nullptr;
                          embedding_backward(stream, shape, dtype, arrays);
                        }
                      }});
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
