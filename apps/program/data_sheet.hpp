// Peak dense rates from NVIDIA's data sheets, by the driver's GPU name; the reference of MFU. Callable from any thread.
#pragma once

#include "runtime/base/dtype.hpp"

#include <map>
#include <string_view>

namespace ranvier::apps {

/// FLOP per second by element type, without sparsity and TF32, accumulated in fp32. Empty if the table lacks this GPU,
/// for instance a MIG instance or a variant with another power limit.
///
///   data_sheet_rates("NVIDIA A100-SXM4-40GB").at(DType::bf16)  // 3.12e14
[[nodiscard]] std::map<runtime::DType, double> data_sheet_rates(std::string_view gpu);

}  // namespace ranvier::apps
