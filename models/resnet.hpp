// Wide residual networks (He et al. 2016; Zagoruyko and Komodakis 2016) that say which class an image is of: a stem,
// four rows of bottleneck blocks (1 × 1, 3 × 3 and 1 × 1 convolutions, batch normalisation, ReLU, a shortcut), a mean
// over the pixels and a product. They compute what torchvision's wide_resnet50_2 does, and parameters have the names
// and layouts of its weights. Images of at most small_image pixels across begin with a 3 × 3 convolution and no pool,
// as is usual for CIFAR-10, larger ones with a 7 × 7 convolution and a pool, which leave a quarter of the pixels
// across.
//
// Inputs are images as bytes [3, S, S] (ops/pixels.hpp), targets a class each, int32 [1]. Batch statistics are those
// of a microbatch; running statistics are state (parts/batch_norm.hpp).
//
// There are no tiles, and --tile is refused: the largest kernel, of the last row's 3 × 3 convolutions, has 151M of the
// 3.04G weights of "wide-resnet-3b", one in twenty. A whole block at a time is what fits.
//
// Layers: one stem, one for each block, one head. Units: "stem", "layer1.0" … "layer4.2", "fc", and of each but the
// last its running statistics: "stem.statistics" …
#pragma once

#include "models/architecture.hpp"
#include "models/tuning.hpp"

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::models {

struct ResnetOptions {
  static constexpr int expansion = 4;  ///< channels of a block's output, over those of its row
  static constexpr int small_image = 64;
  static constexpr std::size_t rows = 4;

  std::array<int, rows> blocks{3, 4, 6, 3};
  int channels = 64;     ///< C, of the stem; a row has C, 2 C, 4 C, 8 C, and its blocks put out four times as many
  int width = 2;         ///< inner channels of a block, over those of its row
  int image_size = 224;  ///< S, pixels across
  int classes = 1000;    ///< V
  Precision precision;

  [[nodiscard]] int layers() const noexcept { return blocks[0] + blocks[1] + blocks[2] + blocks[3] + 2; }
  [[nodiscard]] bool small_images() const noexcept { return image_size <= small_image; }
};

/// "wide-resnet" for sizes of one's own, "wide-resnet-50-2", "wide-resnet-101-2", and of MiCS §5.1.4 "wide-resnet-3b".
struct NamedResnet {
  std::string_view name;
  bool is_preset;
  ResnetOptions sizes;
};
[[nodiscard]] const std::vector<NamedResnet>& named_resnets();

/// What a message calls the sizes: the fields' own names, or those of the flags or keys that set them.
struct ResnetSizeNames {
  std::string_view blocks = "blocks", channels = "channels", width = "width", image_size = "image_size",
                   classes = "classes";
};

/// What is wrong with sizes that make no model, and what to choose. None: nothing is wrong.
[[nodiscard]] std::optional<std::string> size_problem(const ResnetOptions& options,
                                                      const ResnetSizeNames& names = {});

/// Throws ErrorCode::usage for sizes that make no model.
[[nodiscard]] Architecture make_resnet(const ResnetOptions& options, const Tuning& tuning = {});

}  // namespace ranvier::models
