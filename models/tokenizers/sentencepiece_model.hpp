// Reads SentencePiece's tokenizer.model (sentencepiece_model.proto) of type BPE (LLaMA 1 and 2, Mistral): pieces with
// scores and kinds, byte fallback, and the normalization with its character table. Neighbours that form the piece
// with the highest score are joined first. Any thread.
#pragma once

#include "models/tokenizers/tokenizer_pipeline.hpp"

#include <filesystem>
#include <memory>

namespace ranvier::models {

/// Throws ErrorCode::io if the file cannot be read. Throws ErrorCode::data, naming file and offset or field, if it is
/// damaged, of another type, or has unsupported pieces.
[[nodiscard]] std::shared_ptr<const TokenizerPipeline> read_sentencepiece_model(const std::filesystem::path& path);

}  // namespace ranvier::models
