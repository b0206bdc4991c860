// What attention_choice.hpp says, on a GPU, real or emulated, whose cuDNN is there.
#include "models/ops/attention_choice.hpp"

#include "runtime/error.hpp"
#include "tests/models/device_copies.hpp"
#include "tests/models/every_device.hpp"
#include "tests/models/typed_array.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

/// Both passes, and what they write.
struct Passes {
  explicit Passes(AttentionShape s, DType type = DType::bf16)
      : shape(s), dtype(type), qkv(type, 3 * elements(s), 1), d_out(type, elements(s), 2) {}

  static std::size_t elements(const AttentionShape& s) {
    return static_cast<std::size_t>(s.samples) * static_cast<std::size_t>(s.positions) *
           static_cast<std::size_t>(s.heads) * static_cast<std::size_t>(s.channels);
  }

  void run(runtime::StreamView stream, const Dropout& dropout = {}) {
    DeviceCopies at(stream);
    std::vector<std::byte> workspace(attention_workspace_bytes(shape, dtype, 1), std::byte{0xff});
    attention_forward(stream, shape, dtype, at(out), at.floats(logsumexp), at(qkv), dropout, at(workspace));
    attention_backward(stream, shape, dtype, at(d_qkv), at(d_out), at(qkv), at(out), at.floats(logsumexp), dropout,
                       at(workspace));
    at.fetch();
  }

  AttentionShape shape;
  DType dtype;
  TypedArray qkv, d_out;
  TypedArray out = TypedArray(dtype, elements(shape)), d_qkv = TypedArray(dtype, 3 * elements(shape));
  TypedArray logsumexp = TypedArray(DType::f32, elements(shape) / static_cast<std::size_t>(shape.channels));
};

double relative_error(const TypedArray& values, const TypedArray& expected) {
  double error = 0, square = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error += (values[i] - expected[i]) * (values[i] - expected[i]);
    square += expected[i] * expected[i];
  }
  return std::sqrt(error / square);
}

bool same(const Passes& a, const Passes& b) {
  return same_bits(a.out, b.out) && same_bits(a.logsumexp, b.logsumexp) && same_bits(a.d_qkv, b.d_qkv);
}

Passes by_own(runtime::StreamView stream, AttentionShape shape, DType dtype = DType::bf16) {
  shape.kernels = AttentionKernels::own;
  Passes passes(shape, dtype);
  passes.run(stream);
  return passes;
}

/// With a GPU that has chosen nothing yet.
template <typename Body>
void with_cudnn(Body body) {
  if (const std::string obstacle = attention_library_obstacle(); !obstacle.empty()) {
    MESSAGE("skipped: " << obstacle);
    return;
  }
  on_one_device([&](runtime::StreamView stream) {
    forget_attention(stream);
    body(stream);
    forget_attention(stream);
  });
}

constexpr AttentionShape small{
    .samples = 2, .positions = 20, .heads = 2, .channels = 8, .kernels = AttentionKernels::cudnn};

}  // namespace

TEST_CASE("cuDNN's attention is ours within rounding, and the same twice") {
  with_cudnn([](runtime::StreamView stream) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
      const Passes own = by_own(stream, small, dtype);
      Passes library(small, dtype);
      (void)measure_attention(stream, [&] { library.run(stream); });
      library.run(stream);
      const double unit = dtype == DType::bf16 ? 4e-3 : 5e-4;
      CHECK_FALSE(same(library, own));
      CHECK(relative_error(library.out, own.out) < 2 * unit);
      CHECK(relative_error(library.logsumexp, own.logsumexp) < 1e-5);
      CHECK(relative_error(library.d_qkv, own.d_qkv) < 3 * unit);
      Passes again(small, dtype);
      again.run(stream);
      CHECK(same(again, library));
    }
  });
}

TEST_CASE("attention is done as it was chosen, wherever the choice is taken over") {
  with_cudnn([](runtime::StreamView stream) {
    Passes library(small);
    library.run(stream);
    CHECK(same(library, by_own(stream, small)));  // nothing was met yet
    const auto choices = measure_attention(stream, [&] { library.run(stream); });
    library.run(stream);
    forget_attention(stream);
    Passes again(small);
    again.run(stream);
    CHECK(same(again, by_own(stream, small)));
    CHECK(adopt_attention(stream, choices));
    again.run(stream);
    CHECK(same(again, library));
    CHECK(attention_description(stream).find("2 of 2 passes") != std::string::npos);
  });
}

TEST_CASE("attention that cuDNN cannot do, or was not met, is done by our own kernels") {
  with_cudnn([](runtime::StreamView stream) {
    Passes met(small);
    (void)measure_attention(stream, [&] { met.run(stream); });
    AttentionShape fewer = small, odd = small;
    fewer.samples = 1;
    odd.channels = 12;
    for (const AttentionShape& shape : {fewer, odd}) {
      Passes passes(shape);
      passes.run(stream);
      CHECK(same(passes, by_own(stream, shape)));
    }
    Passes floats(small, DType::f32);
    (void)measure_attention(stream, [&] { floats.run(stream); });
    CHECK(same(floats, by_own(stream, small, DType::f32)));

    const Dropout dropout{.rate = 0.5f, .key = runtime::philox_key(5, runtime::RandomPurpose::dropout)};
    Passes dropped(small), own(small);
    own.shape.kernels = AttentionKernels::own;
    dropped.run(stream, dropout);
    own.run(stream, dropout);
    CHECK(same(dropped, own));
  });
}

TEST_CASE("measured attention is one of the two, and another cuDNN's choice is not taken over") {
  with_cudnn([](runtime::StreamView stream) {
    AttentionShape shape = small;
    shape.kernels = AttentionKernels::measured;
    Passes measured(shape), library(small);
    auto choices = measure_attention(stream, [&] { measured.run(stream); });
    measured.run(stream);
    forget_attention(stream);
    const auto insisted = measure_attention(stream, [&] { library.run(stream); });
    library.run(stream);
    CHECK(choices.size() == insisted.size());
    const Passes own = by_own(stream, shape);
    CHECK((same_bits(measured.out, own.out) || same_bits(measured.out, library.out)));

    choices = insisted;
    choices.front() ^= std::byte{1};  // of the version
    CHECK_FALSE(adopt_attention(stream, choices));
    CHECK_THROWS_AS((void)adopt_attention(stream, std::vector<std::byte>(3)), Error);
    Passes again(small);
    again.run(stream);
    CHECK(same(again, library));  // nothing changed
  });
}

TEST_CASE("the workspace of cuDNN's backward pass is planned up to 1 GiB") {
  AttentionShape shape{
      .samples = 16, .positions = 1024, .heads = 12, .channels = 64, .kernels = AttentionKernels::cudnn};
  const std::size_t planned = attention_workspace_bytes(shape, DType::bf16, 1);
  CHECK(planned >= 403439872);  // what cuDNN 9.19 asks for on Hopper
  CHECK(planned < 404 << 20);
  shape.kernels = AttentionKernels::own;
  CHECK(attention_workspace_bytes(shape, DType::bf16, 1) < 2 << 20);
  shape.kernels = AttentionKernels::cudnn;
  CHECK(attention_workspace_bytes(shape, DType::f32, 1) < 2 << 20);
  shape.positions = 8192;
  CHECK(library_attention_workspace_bytes(shape, DType::bf16) < 1 << 20);
}
