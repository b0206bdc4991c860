// The contract of attention_choice.hpp on a real or emulated GPU with cuDNN.
#include "models/ops/attention_choice.hpp"

#include "models/ops/kernel_choice_file.hpp"
#include "models/ops/library_attention_cuda.hpp"
#include "tests/models/every_device.hpp"
#include "tests/models/plain_attention.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

AttentionRun by_own(runtime::StreamView stream, AttentionShape shape, DType dtype = DType::bf16) {
  shape.kernels = AttentionKernels::own;
  AttentionRun passes(shape, dtype);
  passes.run(stream);
  return passes;
}

/// Runs after a measurement of the same passes.
AttentionRun measured_run(runtime::StreamView stream, const AttentionShape& shape, DType dtype = DType::bf16) {
  AttentionRun passes(shape, dtype);
  (void)measure_attention(stream, [&] { passes.run(stream); });
  passes.run(stream);
  return passes;
}

/// Runs the body on a GPU without earlier choices.
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

/// A size that cuDNN has kernels for.
constexpr AttentionShape small{
    .samples = 2, .positions = 64, .heads = 2, .channels = 64, .kernels = AttentionKernels::cudnn};

/// Every mask and every ratio of heads of queries and keys.
std::vector<AttentionShape> shapes() {
  AttentionShape grouped = small, window = small, wide = small, of_all = small, late = small;
  grouped.heads = 4, grouped.key_heads = 2;
  window.positions = 100, window.window = 17;
  wide.heads = 3, wide.key_heads = 1, wide.channels = 128, wide.window = 1000;
  of_all.positions = 72, of_all.causal = false;
  late.heads = 6, late.key_heads = 2, late.samples = 1, late.positions = 130, late.window = 64;
  AttentionShape of_all_grouped = of_all;
  of_all_grouped.heads = 4, of_all_grouped.key_heads = 1;
  return {small, grouped, window, wide, of_all, late, of_all_grouped};
}

}  // namespace

TEST_CASE(
    "cuDNN's attention equals the built-in kernels and the definition within rounding, and repeats its bits") {
  with_cudnn([](runtime::StreamView stream) {
    for (const AttentionShape& shape : shapes()) {
      CAPTURE_ALL(shape.heads, shape.key_heads, shape.causal, shape.window);
      for (const DType dtype : {DType::bf16, DType::f16}) {
        const double unit = half_unit(dtype);
        const AttentionRun own = by_own(stream, shape, dtype);
        const AttentionRun library = measured_run(stream, shape, dtype);
        INFO(attention_description(stream));
        CHECK_FALSE(same_bits(library, own));
        CHECK(relative_error(library.out, doubles(own.out)) < 2 * unit);
        CHECK(relative_error(library.logsumexp, doubles(own.logsumexp)) < 1e-5);
        CHECK(relative_error(library.d_qkv, doubles(own.d_qkv)) < 3 * unit);

        const PlainAttention plain{shape, {}};
        Doubles out, logsumexp;
        plain.forward(doubles(library.qkv), out, logsumexp);
        CHECK(relative_error(library.out, out) < 1.5 * unit);
        CHECK(relative_error(library.logsumexp, logsumexp) < 1e-5);
        CHECK(relative_error(library.d_qkv, plain.backward(doubles(library.qkv), doubles(library.d_out))) <
              3 * unit);
        AttentionRun again(shape, dtype);
        again.run(stream);
        CHECK(same_bits(again, library));
      }
    }
  });
}

TEST_CASE("attention uses the chosen kernels, also with a choice from another run") {
  with_cudnn([](runtime::StreamView stream) {
    AttentionRun library(small);
    library.run(stream);
    CHECK(same_bits(library, by_own(stream, small)));  // no choice was made yet
    const auto choices = measure_attention(stream, [&] { library.run(stream); }).choices;
    library.run(stream);
    forget_attention(stream);
    AttentionRun again(small);
    again.run(stream);
    CHECK(same_bits(again, by_own(stream, small)));
    CHECK(adopt_attention(stream, choices));
    again.run(stream);
    CHECK(same_bits(again, library));
    CHECK(attention_description(stream).find("2 of 2 passes") != std::string::npos);
  });
}

TEST_CASE("attention that cuDNN does not support, or without a choice, uses the built-in kernels") {
  with_cudnn([](runtime::StreamView stream) {
    const AttentionRun met = measured_run(stream, small);
    AttentionShape fewer = small, odd = small, grouped = small, window = small, of_all = small;
    fewer.samples = 1;
    odd.channels = 12;
    grouped.key_heads = 1;
    window.window = 20;
    of_all.causal = false;
    for (const AttentionShape& shape : {fewer, odd, grouped, window, of_all}) {
      AttentionRun passes(shape);
      passes.run(stream);
      CHECK(same_bits(passes, by_own(stream, shape)));
    }
    AttentionShape of_all_positions = small;  // by a window that hides nothing
    of_all_positions.window = small.positions;
    AttentionRun passes(of_all_positions);
    passes.run(stream);
    CHECK(same_bits(passes, met));
    CHECK(same_bits(measured_run(stream, small, DType::f32), by_own(stream, small, DType::f32)));

    const Dropout dropout{.rate = 0.5f, .key = runtime::philox_key(5, runtime::RandomPurpose::dropout)};
    AttentionRun dropped(small), own(small);
    own.shape.kernels = AttentionKernels::own;
    dropped.run(stream, dropout);
    own.run(stream, dropout);
    CHECK(same_bits(dropped, own));
  });
}

TEST_CASE("measured attention is one of the two, and a choice of another cuDNN is not used") {
  with_cudnn([](runtime::StreamView stream) {
    AttentionShape shape = small;
    shape.kernels = AttentionKernels::measured;
    AttentionRun measured(shape), library(small);
    const auto choices = measure_attention(stream, [&] { measured.run(stream); }).choices;
    measured.run(stream);
    forget_attention(stream);
    auto insisted = measure_attention(stream, [&] { library.run(stream); }).choices;
    library.run(stream);
    CHECK(choices.choices.size() == insisted.choices.size());
    const AttentionRun own = by_own(stream, shape);
    CHECK((same_bits(measured.out, own.out) || same_bits(measured.out, library.out)));

    ++insisted.of.version;
    CHECK_FALSE(adopt_attention(stream, insisted));
    AttentionRun again(small);
    again.run(stream);
    CHECK(same_bits(again, library));  // nothing changed
  });
}

TEST_CASE("a saved choice of attention is used without a measurement, if it is for the same cuDNN") {
  with_cudnn([](runtime::StreamView stream) {
    const tests::TemporaryFolder folder;
    const auto path = folder.path() / "products.json";
    AttentionShape shape = small;
    shape.kernels = AttentionKernels::measured;
    AttentionRun passes(shape);
    const KernelQuestion question{.attention = AttentionKernels::measured, .file = path, .flag = "--products-file"};
    const auto choose = [&] { return choose_kernels(stream, question, [&] { passes.run(stream); }); };
    const ChosenKernels measured = choose();
    REQUIRE(measured.choices.attention.size() == 1);
    CHECK(measured.choices.attention.front().choices.size() == 2);
    CHECK(measured.remembered_passes == 0);

    // A later run follows the file, even if the measurement chose otherwise.
    KernelChoices all = parse_kernel_choices(folder.read("products.json"), "a test");
    CHECK(all.attention == measured.choices.attention);
    for (const bool by_library : {true, false}) {
      for (AttentionChoice& choice : all.attention.front().choices) choice.by_library = by_library;
      folder.write("products.json", to_json(all));
      forget_attention(stream);
      const ChosenKernels remembered = choose();
      CHECK(remembered.remembered_passes == 2);
      CHECK(remembered.choices.attention == all.attention);
      passes.run(stream);
      CHECK(same_bits(passes, by_own(stream, small)) != by_library);
    }

    --all.attention.front().of.version;
    folder.write("products.json", to_json(all));
    forget_attention(stream);
    const ChosenKernels anew = choose();
    CHECK(anew.remembered_passes == 0);
    CHECK(anew.instead.attention == all.attention);
    CHECK(parse_kernel_choices(folder.read("products.json"), "a test").attention.size() == 2);
  });
}

TEST_CASE("cuDNN's handle works on the given stream, after one that was destroyed") {
  with_cudnn([](runtime::StreamView stream) {
    AttentionRun library(small), again(small);
    AttentionChoices choices;
    {
      const auto other = stream.device().make_stream("gone", runtime::StreamWidth::one);
      choices = measure_attention(*other, [&] { library.run(*other); }).choices;
      library.run(*other);
    }
    forget_attention(stream);
    CHECK(adopt_attention(stream, choices));  // creates new plans
    again.run(stream);
    CHECK(same_bits(again, library));
  });
}

TEST_CASE("slices of samples and of heads have the bits of undivided attention") {
  with_cudnn([](runtime::StreamView stream) {
    AttentionShape samples = small, two_samples = small, heads = small, two_heads = small;
    samples.samples = 5, two_samples.samples = 2;
    heads.heads = 6, heads.key_heads = 3, heads.window = 20;
    two_heads.heads = 4, two_heads.key_heads = 2, two_heads.samples = 1;
    for (const auto& [shape, fitting, slice] :
         {std::tuple{samples, two_samples, AttentionSlice{2, 2}}, {heads, two_heads, AttentionSlice{1, 2}}}) {
      AttentionRun whole = measured_run(stream, shape);
      const std::size_t for_all = library_attention_workspace_bytes(shape, DType::bf16),
                        for_two = library_attention_workspace_bytes(fitting, DType::bf16);
      CHECK(library_attention_slice(shape, DType::bf16, for_all) ==
            AttentionSlice{shape.samples, shape.stored_key_heads()});
      REQUIRE(library_attention_slice(shape, DType::bf16, for_two) == slice);

      const auto planned_in = [&, shape = shape](std::size_t bytes) {
        const auto other = stream.device().make_stream("planning", runtime::StreamWidth::one);
        cuda::bind_cudnn(*other);
        cuda::SlicedPlan plan =
            cuda::plan_sliced_attention(*other, shape, DType::bf16, AttentionPass::backward, bytes);
        cuda::unbind_cudnn(*other);
        return plan;
      };
      const cuda::SlicedPlan none = planned_in(1000);
      CHECK(none.attention == nullptr);
      CHECK(none.obstacle == "one head of keys needs more workspace than is planned");
      const cuda::SlicedPlan plan = planned_in(for_two);
      INFO(plan.obstacle);
      REQUIRE(plan.attention != nullptr);
      TypedArray d_qkv(DType::bf16, whole.d_qkv.size());
      std::vector<std::byte> workspace(for_two + 256, std::byte{0xff});
      DeviceCopies at(stream);
      const auto address = reinterpret_cast<std::uintptr_t>(at(workspace));
      cuda::bind_cudnn(stream);
      auto arrays = whole.arrays(at, reinterpret_cast<std::byte*>((address + 255) / 256 * 256));
      arrays.d_qkv = at(d_qkv);
      plan.attention->run(stream, arrays);
      at.fetch();
      cuda::unbind_cudnn(stream);
      CHECK(same_bits(d_qkv, whole.d_qkv));
    }
  });
}

TEST_CASE("a fast backward pass equals the built-in one within rounding, and reports that bits differ") {
  with_cudnn([](runtime::StreamView stream) {
    for (AttentionShape shape : shapes()) {
      const AttentionRun own = by_own(stream, shape);
      shape.fast_backward = true;
      AttentionRun fast(shape);
      const auto choices = measure_attention(stream, [&] { fast.run(stream); }).choices;
      fast.run(stream);
      CHECK(relative_error(fast.d_qkv, doubles(own.d_qkv)) < 1.2e-2);
      const bool by_library = std::any_of(choices.choices.begin(), choices.choices.end(), [](const auto& choice) {
        return choice.task.pass == AttentionPass::fast_backward && choice.by_library;
      });
      CHECK((attention_description(stream).find("bits differ from run to run") != std::string::npos) == by_library);
    }
  });
}

TEST_CASE("the workspace of cuDNN's backward pass is planned up to 1 GiB, above that for slices") {
  AttentionShape shape{
      .samples = 16, .positions = 1024, .heads = 12, .channels = 64, .kernels = AttentionKernels::cudnn};
  const std::size_t planned = attention_workspace_bytes(shape, DType::bf16, 1);
  CHECK(planned >= 403439872 + 256);  // cuDNN 9.19 requests it on Hopper; the same below
  CHECK(planned < 404 << 20);
  shape.fast_backward = true;
  CHECK(attention_workspace_bytes(shape, DType::bf16, 1) >= 101449856 + 256);  // on Ampere; half on Hopper
  CHECK(attention_workspace_bytes(shape, DType::bf16, 1) < 97 << 20);
  shape.fast_backward = false;
  shape.kernels = AttentionKernels::own;
  CHECK(attention_workspace_bytes(shape, DType::bf16, 1) < 2 << 20);
  shape.kernels = AttentionKernels::cudnn;
  CHECK(attention_workspace_bytes(shape, DType::f32, 1) < 2 << 20);
  constexpr std::size_t limit = (1 << 30) + 4096;
  const AttentionShape billions{.samples = 4, .positions = 2048, .heads = 32, .channels = 128};  // gpt-7b
  AttentionShape larger = shape;
  larger.samples = 43;
  for (const auto& [of, at_a_time] : {std::pair{billions, 3}, {larger, 42}}) {
    CHECK(library_attention_slice(of, DType::bf16, 1 << 30) == AttentionSlice{at_a_time, of.heads});
    CHECK(library_attention_workspace_bytes(of, DType::bf16) <= limit);
    AttentionShape fewer = of;
    fewer.samples = at_a_time;
    CHECK(library_attention_workspace_bytes(fewer, DType::bf16) ==
          library_attention_workspace_bytes(of, DType::bf16));
  }
  AttentionShape grouped{.samples = 2, .positions = 2048, .heads = 32, .channels = 128, .key_heads = 8};
  CHECK(library_attention_slice(grouped, DType::bf16, 1 << 30) == AttentionSlice{2, 8});
  CHECK(library_attention_workspace_bytes(grouped, DType::bf16) >= 604504320 + 256);
  grouped.positions = 4096;  // llama-8b
  const AttentionSlice half = library_attention_slice(grouped, DType::bf16, 1 << 30);
  CHECK(half == AttentionSlice{1, 4});
  const std::size_t of_half = library_attention_workspace_bytes(grouped, DType::bf16);
  CHECK(of_half >= 570687744 + 256);
  CHECK(library_attention_slice(grouped, DType::bf16, of_half) == half);
  grouped.samples = 1;
  CHECK(library_attention_workspace_bytes(grouped, DType::bf16) == of_half);
  shape.positions = 1 << 15;
  CHECK(library_attention_slice(shape, DType::bf16, 1 << 30) == AttentionSlice{});
  CHECK(library_attention_workspace_bytes(shape, DType::bf16) < 1 << 20);
}
