// The three kinds of layers of a wide residual network.
#pragma once

#include "models/resnet.hpp"

#include <memory>
#include <string>

namespace ranvier::models {

/// Where a block stands, and what comes in.
struct ResnetBlockShape {
  std::string name;        ///< "layer2.0"
  std::size_t in = 0;      ///< channels of its input
  std::size_t inner = 0;   ///< of its 3 × 3 convolution
  std::size_t out = 0;     ///< of its output
  std::size_t size = 0;    ///< pixels across its input
  std::size_t stride = 1;  ///< of the 3 × 3 convolution
};

[[nodiscard]] std::unique_ptr<Layer> make_resnet_stem(const ResnetOptions& options, const Tuning& tuning);
[[nodiscard]] std::unique_ptr<Layer> make_resnet_block(const ResnetBlockShape& place, const Precision& precision,
                                                       const Tuning& tuning);
/// `in` channels and `size` pixels across come in.
[[nodiscard]] std::unique_ptr<Layer> make_resnet_head(const ResnetOptions& options, std::size_t in,
                                                      std::size_t size, const Tuning& tuning);

/// Pixels across what the stem puts out.
[[nodiscard]] std::size_t resnet_stem_size(const ResnetOptions& options);

}  // namespace ranvier::models
