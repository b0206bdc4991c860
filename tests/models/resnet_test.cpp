#include "models/families/resnet.hpp"

#include "tests/models/model_checks.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

bool is_running(const std::string& tensor) { return tensor.find(".running_") != std::string::npos; }

/// Positive variances.
void set_good_statistics(ModelRun& run) {
  ReferenceParameters parameters = run.reference_parameters();
  for (auto& [tensor, values] : parameters)
    for (double& value : values)
      if (tensor.ends_with(".running_var")) value = 0.5 + static_cast<float>(std::abs(value));
  run.set_parameters(parameters);
}

/// Steps are small because a ReLU's slope has two values.
const SlopeCheck slopes{
    .stride = 7919, .most = test::sanitized ? 2 : 6, .step = 3e-8, .error = 1e-3, .skips = is_running};

}  // namespace

TEST_CASE(
    "loss, activations, gradients and statistics of a residual network equal the reference in double precision") {
  for (const auto& [name, options] : resnet_family()) {
    CAPTURE(name);
    ModelRun run(device_of(2, true), options, 3);
    const ReferenceSamples samples = made_up_samples(options, 40, 3);
    const double factor = 1.0 / 5;
    check_reference(
        run, options, samples,
        {.factor = factor, .loss_scale = 8, .loss_error = allowed(2e-6), .output_error = 1e-4, .slopes = slopes});
    const ReferenceParameters parameters = run.reference_parameters(), gradients = run.gradients_by_name();
    const ReferenceResnet reference(options, parameters);
    static_cast<void>(reference.loss(samples));
    // Three of the five samples of a batch, so this fraction of the batch's mean, without the loss scale.
    for (const auto& [tensor, expected] : reference.statistics()) {
      CAPTURE(tensor);
      for (std::size_t i = 0; i < expected.size(); ++i)
        CHECK(gradients.at(tensor)[i] == doctest::Approx(expected[i] * 3 * factor).epsilon(1e-4).scale(0.01));
    }
  }
}

TEST_CASE("a residual network is evaluated with its running statistics, sample by sample") {
  for (const auto& [name, options] : resnet_family()) {
    CAPTURE(name);
    ModelRun run(device_of(2, true), options, 3);
    set_good_statistics(run);
    const ReferenceSamples samples = made_up_samples(options, 40, 3);
    const ReferenceParameters parameters = run.reference_parameters();
    const double loss = run.forward(samples, 1, 1, false);
    CHECK(loss == doctest::Approx(ReferenceResnet(options, parameters, true).loss(samples)).epsilon(1e-5));
    double sum = 0;
    for (std::size_t b = 0; b < 3; ++b) {
      ReferenceSamples one = samples;
      const std::size_t bytes = 3 * static_cast<std::size_t>(options.image_size * options.image_size);
      std::memmove(one.tokens.data(), reinterpret_cast<const std::byte*>(samples.tokens.data()) + b * bytes, bytes);
      one.samples = 1;
      one.targets = {samples.targets[b]};
      sum += run.forward(one, 1, 1, false);
    }
    CHECK(sum == doctest::Approx(loss).epsilon(allowed(1e-7)));
  }
}

TEST_CASE("frozen running statistics are used in training, and do not change") {
  const ResnetOptions options = resnet_family().front().second;
  ModelRun run(device_of(2, true), options, 3, make_tuning("", "running_"));
  set_good_statistics(run);
  const ReferenceSamples samples = made_up_samples(options, 40, 3);
  ReferenceParameters parameters = run.reference_parameters();
  const ReferenceResnet reference(options, parameters, true);
  const double loss = run.forward(samples, 1);
  CHECK(loss == doctest::Approx(reference.loss(samples)).epsilon(1e-5));
  run.backward(false);
  const ReferenceParameters gradients = run.gradients_by_name();
  for (const auto& [tensor, values] : gradients) CHECK_FALSE(is_running(tensor));
  check_slopes(reference, options, gradients, parameters, samples, 1, slopes);
  const auto halves =
      tests::error_of([&] { static_cast<void>(make_resnet(options, make_tuning("", "running_mean"))); });
  CHECK(halves.code() == ErrorCode::usage);
  CHECK(tests::says(halves, "match both names or none"));
}

TEST_CASE(
    "a residual network in half precision follows fp32 within its rounding, with fp32 and with half gradients") {
  for_each_half(resnet_family, [](const ResnetOptions& options, const ResnetOptions& exact, double unit) {
    const double error = unit > 1 ? 0.5 : 0.1;
    // A pool chooses another of two nearly equal values, and earlier layers then have another gradient.
    const bool pools = !options.small_images();
    check_follows_fp32(
        options, exact, made_up_samples(options, 40, 3), {error / 5, error}, [&](const std::string& tensor) {
          return is_running(tensor) || (pools && !tensor.starts_with("layer4") && !tensor.starts_with("fc"));
        });
  });
}

TEST_CASE("the number of threads and the kind of device do not change any bit of a residual network") {
  for (const Precision precision : {Precision{}, Precision{DType::bf16, DType::f32}}) {
    for (const auto& [name, options] : resnet_family(precision)) {
      CAPTURE(name);
      check_bits(options, made_up_samples(options, 40, 3));
    }
  }
}

TEST_CASE("units and tensors of a residual network have the names, shapes and decay of torchvision's weights") {
  ResnetOptions options;  // wide_resnet50_2
  const Architecture model = make_resnet(options);
  std::map<std::string, UnitSpec> units;
  for (const UnitSpec& unit : model.units()) units.emplace(unit.name, unit);
  const auto tensors = check_tensors(model, {{"conv1.weight", {64, 3, 7, 7}},
                                             {"bn1.running_mean", {64}},
                                             {"layer1.0.conv1.weight", {128, 64, 1, 1}},
                                             {"layer1.0.conv2.weight", {128, 128, 3, 3}},
                                             {"layer1.0.conv3.weight", {256, 128, 1, 1}},
                                             {"layer1.0.downsample.0.weight", {256, 64, 1, 1}},
                                             {"layer1.0.downsample.1.running_var", {256}},
                                             {"layer4.2.conv2.weight", {1024, 1024, 3, 3}},
                                             {"layer4.2.bn3.bias", {2048}},
                                             {"fc.weight", {1000, 2048}},
                                             {"fc.bias", {1000}}});
  // 53 convolutions, as many norms of four tensors, and the last product.
  CHECK(tensors.size() == 53 + 4 * 53 + 2);
  CHECK_FALSE(tensors.contains("layer1.1.downsample.0.weight"));
  CHECK(units.at("layer2.0").averaged == 0);
  CHECK(units.at("layer2.0.statistics").averaged == 0.1f);
  CHECK(units.at("layer2.0.statistics").parameters.size() == 8);
  CHECK(model.parameters() == 68883240 + 2 * 34112);  // torchvision's parameters and buffers
  CHECK(model.layers.size() == 18);
  // MiCS §5.1.4: 3 B.
  options.blocks = {6, 8, 46, 6};
  options.width = 8;
  CHECK(static_cast<double>(make_resnet(options).parameters()) == doctest::Approx(3.04e9).epsilon(0.01));
}

TEST_CASE("invalid sizes of a residual network are refused by name") {
  const auto problem = [](const ResnetOptions& options) { return size_problem(options).value_or(""); };
  CHECK(problem({}).empty());
  CHECK(problem({.blocks = {3, 4, 0, 3}}).starts_with("`blocks` is out of range: 3,4,0,3"));
  CHECK(problem({.channels = 1 << 20}).starts_with("`hidden` 1048576 and `width` 2"));
  CHECK(problem({.width = 0}).starts_with("`width` is too small: 0"));
  CHECK(problem({.classes = -1}).starts_with("`classes` is too small: -1"));
}
