#include "apps/kernels/kernel_choice.hpp"

#include "tests/apps/printed_errors.hpp"

using namespace ranvier;
using namespace ranvier::apps;
using namespace ranvier::tests;
using models::AttentionKernels;

namespace {

/// A shape that the library has kernels for.
TrainOptions suited() {
  TrainOptions options;
  options.device.device = DeviceFlag::cuda;
  options.trainer.precision.compute = runtime::DType::bf16;
  options.model.gpt().hidden = 768;
  options.model.gpt().heads = 12;
  return options;
}

template <typename Change>
TrainOptions with(Change change) {
  TrainOptions options = suited();
  change(options);
  return options;
}

}  // namespace

TEST_CASE("attention is measured if the library may be faster, and uses the built-in kernels otherwise") {
  CHECK(attention_kernels(suited(), true) == AttentionKernels::measured);
  CHECK(attention_kernels(suited(), false) == AttentionKernels::own);
  const auto own = [](auto change) { return attention_kernels(with(change), true) == AttentionKernels::own; };
  CHECK(own([](TrainOptions& o) { o.device.attention = AttentionKernels::own; }));
  CHECK(own([](TrainOptions& o) { o.device.device = DeviceFlag::cpu; }));
  CHECK(own([](TrainOptions& o) { o.device.measures_products = false; }));
  CHECK_FALSE(own([](TrainOptions& o) { o.device.products_file = "products.json"; }));
  CHECK(own([](TrainOptions& o) { o.trainer.precision.compute = runtime::DType::f32; }));
  CHECK(own([](TrainOptions& o) { o.model.gpt().dropout = 0.1f; }));
  CHECK(own([](TrainOptions& o) { o.model.gpt().heads = 64; }));  // 12 channels per head
  CHECK(own([](TrainOptions& o) { o.model.gpt().heads = 4; }));   // 192 channels per head
  for (const char* model : {"llama3-8b", "mistral-7b", "bert-base"}) {
    const auto named = [&](TrainOptions& o) { o.model = {model, models::named_model(model).value()}; };
    CHECK_FALSE(own(named));
    for (const auto documents : {models::Documents::mask, models::Documents::pad}) {
      CHECK(own([&](TrainOptions& o) {
        named(o);
        o.data.documents = documents;
      }));
    }
  }
}

TEST_CASE("--attention cudnn is refused if cuDNN is unavailable, with a remedy") {
  const auto insisting = [](auto change) {
    TrainOptions options = with(change);
    options.device.attention = AttentionKernels::cudnn;
    return options;
  };
  CHECK(attention_kernels(insisting([](TrainOptions& o) { o.device.measures_products = false; }), true) ==
        AttentionKernels::cudnn);
  const auto refused = [&](auto change, std::string_view words, bool built = true) {
    check_usage_error({words}, [&] { static_cast<void>(attention_kernels(insisting(change), built)); });
  };
  refused([](TrainOptions& o) { o.device.device = DeviceFlag::cpu; }, "--device cuda");
  refused([](TrainOptions& o) { o.trainer.precision.compute = runtime::DType::f32; }, "--precision bf16");
  refused([](TrainOptions& o) { o.model.gpt().dropout = 0.1f; }, "--dropout 0");
  refused([](TrainOptions& o) { o.model.gpt().heads = 64; }, "12 channels per head");
  refused([](TrainOptions&) {}, "cudnn-frontend", false);
  refused([](TrainOptions& o) { o.data.documents = models::Documents::mask; }, "--documents mask or pad");
}

TEST_CASE("a fast backward pass is accepted for runs whose attention may use cuDNN") {
  const auto fast = [](AttentionKernels asked, bool built) {
    return attention_kernels(with([&](TrainOptions& o) {
                               o.device.attention = asked;
                               o.device.fast_attention_backward = true;
                             }),
                             built);
  };
  CHECK(fast(AttentionKernels::measured, true) == AttentionKernels::measured);
  CHECK(fast(AttentionKernels::cudnn, true) == AttentionKernels::cudnn);
  for (const auto& [asked, built] : {std::pair{AttentionKernels::own, true}, {AttentionKernels::measured, false}}) {
    check_usage_error({"--attention-backward fast", "--attention cudnn"},
                      [&] { static_cast<void>(fast(asked, built)); });
  }
}
