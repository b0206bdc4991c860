// Runs each kind of layer of a model once, forward and backward, on temporary memory. So measurements of operations
// (ops/product_choice.hpp) cover all stages before a run allocates anything. Values are random with realistic
// magnitudes.
#pragma once

#include "models/core/architecture.hpp"
#include "models/core/sample_source.hpp"
#include "runtime/device/stream.hpp"

#include <span>

namespace ranvier::models {

/// Layers that differ only in names run once per shape; layers that do not fit the device are skipped. Blocks. Throws
/// the device's errors except ErrorCode::memory.
void run_each_layer(const Architecture& architecture, const Precision& precision, const SampleBytes& sample,
                    std::span<const MicrobatchShape> shapes, runtime::StreamView stream);

}  // namespace ranvier::models
