#include "models/families/resnet.hpp"

#include "models/weights/unit_weights.hpp"
#include "tests/models/config_check.hpp"
#include "tests/models/safetensors_writer.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::models;

namespace {

constexpr ResnetOptions small{.blocks = {1, 2, 1, 3}, .channels = 4, .width = 3, .image_size = 40, .classes = 7};

/// Weights with torchvision's names, including a count of batches.
void write_weights(const std::filesystem::path& path, const ResnetOptions& options) {
  std::vector<TensorToStore> tensors;
  for (const UnitSpec& unit : make_resnet(options).units())
    for (const ParameterSpec& parameter : unit.parameters)
      tensors.push_back({parameter.name, runtime::DType::f32, parameter.shape});
  tensors.push_back({"bn1.num_batches_tracked", runtime::DType::f32, {1}});
  tests::write_tensors(path, tensors, std::vector<float>(tests::elements_of(tensors), 0.5f));
}

}  // namespace

TEST_CASE("the config.json of a residual network reads back as written, and keeps unknown entries") {
  const std::string json = model_config_json(small);
  CHECK(same_sizes(parsed_config(json).sizes, small));
  const std::string like = R"({"model_type": "wide_resnet", "note": [1, 2], "num_labels": 3})";
  const std::string kept = model_config_json(small, like);
  CHECK(kept.find("\"note\": [1, 2]") != std::string::npos);
  CHECK(same_sizes(parsed_config(kept).sizes, small));
}

TEST_CASE("a config.json of another kind of model is refused with the key") {
  const auto with = [](const std::string& blocks, const std::string& width = "2") {
    return R"({"model_type": "wide_resnet", "hidden_size": 64, "width_factor": )" + width +
           R"(, "image_size": 224, "num_labels": 1000, "blocks": )" + blocks + "}";
  };
  CHECK_NOTHROW(parsed_config(with("[3, 4, 6, 3]")));
  check_refused(with("[3, 4, 6]"), "'blocks'");
  check_refused(with("[3, 4, 6, 0]"), "'blocks'");
  check_refused(with("\"all\""), "'blocks'");
  check_refused(with("[3, 4, 6, 3]", "-1"), "'width_factor'");
  check_refused(with("[3, 4, 6, 3]", "2000000"), "'width_factor' is too large: 2000000");
}

TEST_CASE("weights with torchvision's names determine their sizes, and counts of batches are unused") {
  const tests::TemporaryFolder folder;
  for (const int image_size : {32, 224}) {
    ResnetOptions options = small;
    options.image_size = image_size;
    const auto path = folder.path() / "model.safetensors";
    write_weights(path, options);
    const Safetensors weights(path);
    const auto stored = stored_model(weights, std::nullopt);
    REQUIRE(stored);
    CHECK(same_sizes(stored->sizes, options));
    CHECK_NOTHROW(check_weights(weights, make_resnet(options).units()));
  }
}

TEST_CASE("a residual network's weights are read with the options of their config.json") {
  const tests::TemporaryFolder folder;
  ResnetOptions options = small;
  options.image_size = 48;
  write_weights(folder.path() / "model.safetensors", options);
  std::ofstream(folder.path() / "config.json") << model_config_json(options);
  const Safetensors weights(folder.path() / "model.safetensors");
  CHECK(same_sizes(stored_model(weights, std::nullopt)->sizes, options));
}
