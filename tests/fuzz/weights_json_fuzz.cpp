// JSON files next to weights, and JSON files of links, machines and chosen kernels. The first byte selects the kind.
#include "models/families/adapter_files.hpp"
#include "models/families/model.hpp"
#include "models/ops/kernel_choice_file.hpp"
#include "models/weights/safetensors.hpp"
#include "runtime/machine/machine_profile.hpp"
#include "tests/fuzz/input.hpp"

using namespace ranvier;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::InputFolder folder;
  static const auto shard = folder.write("a.safetensors", std::string("\2\0\0\0\0\0\0\0{}", 10));
  std::string_view input = fuzz::view(data, size);
  switch (fuzz::take_byte(input) % 8) {
    case 0:
    case 4:
    case 5:
      fuzz::accepts_or_refuses("config.json", [&] {
        const auto rewritten = [](const std::string& text) {
          return models::model_config_json(models::parse_model_config(text, "config.json").sizes, text);
        };
        const std::string written = rewritten(std::string(input));
        fuzz::require(rewritten(written) == written, "a config reads back as written");
      });
      break;
    case 1: {
      const auto path = folder.write("model.safetensors.index.json", input);
      fuzz::accepts_or_refuses(folder.path().string(), [&] { const models::Safetensors file(path); });
      break;
    }
    case 6:
      fuzz::accepts_or_refuses("machine.json", [&] {
        const std::string written = runtime::to_json(runtime::parse_machine_profile(input, "machine.json"));
        fuzz::require(runtime::to_json(runtime::parse_machine_profile(written, "machine.json")) == written,
                      "a profile reads back as written");
      });
      break;
    case 7: {
      const auto path = folder.write(models::adapter_config_name, input);
      fuzz::accepts_or_refuses(path.string(), [&] {
        const std::string written =
            models::adapter_config_json(models::read_adapter_config(folder.path()), "base", {});
        folder.write(models::adapter_config_name, written);
        fuzz::require(
            models::adapter_config_json(models::read_adapter_config(folder.path()), "base", {}) == written,
            "a config reads back as written");
      });
      break;
    }
    case 3:
      fuzz::accepts_or_refuses("products.json", [&] {
        const auto choices = models::parse_kernel_choices(input, "products.json");
        fuzz::require(models::parse_kernel_choices(models::to_json(choices), "products.json") == choices,
                      "choices read back as written");
      });
      break;
    default:
      fuzz::accepts_or_refuses("links.json", [&] {
        const auto links = runtime::parse_links(input, "links.json");
        fuzz::require(runtime::parse_links(runtime::to_json(links), "links.json") == links,
                      "links read back as written");
      });
  }
  return 0;
}
