// The three kinds of layers of a wide residual network.
#pragma once

#include "models/families/resnet.hpp"

#include <memory>
#include <string>

namespace ranvier::models {

/// Position and input of a block.
struct ResnetBlockShape {
  std::string name;        ///< "layer2.0"
  std::size_t in = 0;      ///< input channels
  std::size_t inner = 0;   ///< channels of its 3 × 3 convolution
  std::size_t out = 0;     ///< output channels
  std::size_t size = 0;    ///< input size in pixels
  std::size_t stride = 1;  ///< stride of the 3 × 3 convolution
};

[[nodiscard]] std::unique_ptr<Layer> make_resnet_stem(const ResnetOptions& options, const Tuning& tuning);
[[nodiscard]] std::unique_ptr<Layer> make_resnet_block(const ResnetBlockShape& place, const Precision& precision,
                                                       const Tuning& tuning);
/// Input: `in` channels, `size` pixels across.
[[nodiscard]] std::unique_ptr<Layer> make_resnet_head(const ResnetOptions& options, std::size_t in,
                                                      std::size_t size, const Tuning& tuning);

/// Output size of the stem in pixels.
[[nodiscard]] std::size_t resnet_stem_size(const ResnetOptions& options);

}  // namespace ranvier::models
