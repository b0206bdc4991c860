// A safetensors file, and the sizes of the model that may be in it.
#include "models/families/model.hpp"
#include "models/weights/safetensors.hpp"
#include "tests/fuzz/input.hpp"

#include <algorithm>
#include <vector>

using namespace ranvier;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::InputFolder folder;
  const auto path = folder.write("model.safetensors", fuzz::view(data, size));
  fuzz::accepts_or_refuses(path.string(), [&] {
    const models::Safetensors file(path);
    for (const auto& tensor : file.tensors()) {
      fuzz::require(file.find(tensor.name) == &tensor, "a tensor is found by its name");
      fuzz::require(tensor.begin <= tensor.end && tensor.end <= size, "a tensor is inside the file");
      if (!tensor.dtype) continue;
      const std::size_t count = tensor.elements();
      const std::size_t some = std::min<std::size_t>(count, 1000);
      std::vector<float> values(some);
      file.read(tensor, 0, some, values.data());
      file.read(tensor, count - some, count, values.data());
    }
    static_cast<void>(models::stored_model(file, 1));
  });
  return 0;
}
