// Runs each kind of layer of a model once, forward and backward, on memory that it takes for that long: so whoever
// measures operations (ops/product_choice.hpp) meets every one that training will do, of all stages, before
// anything of a run is allocated. The numbers mean nothing, but they are random and as large as those of a model.
#pragma once

#include "models/architecture.hpp"
#include "models/sample_source.hpp"
#include "runtime/stream.hpp"

#include <span>

namespace ranvier::models {

/// Layers that are alike but for their names run once per shape; one that the device has no room for is left out.
/// Blocks. Throws what the device throws, but for ErrorCode::memory.
void run_each_layer(const Architecture& architecture, const Precision& precision, const SampleBytes& sample,
                    std::span<const MicrobatchShape> shapes, runtime::StreamView stream);

}  // namespace ranvier::models
