// Dense rates on NVIDIA's data sheets, by the name that the driver gives a GPU: what MFU is a share of. Any thread.
#pragma once

#include "runtime/dtype.hpp"

#include <map>
#include <string_view>

namespace ranvier::apps {

/// FLOP per second by element type, without sparsity and without TF32, summed in fp32. Empty if the table lacks this
/// GPU, which includes a part of one (MIG) and variants with another power limit.
///
///   data_sheet_rates("NVIDIA A100-SXM4-40GB").at(DType::bf16)  // 3.12e14
[[nodiscard]] std::map<runtime::DType, double> data_sheet_rates(std::string_view gpu);

}  // namespace ranvier::apps
