// SentencePiece's tokenizer.model (sentencepiece_model.proto) of type BPE, as LLaMA 1 and 2 and Mistral have: pieces
// with scores, of which neighbours become the one with the highest score first, their kinds, bytes for what is no
// piece, and how text is normalised, characters by a table included. Any thread.
#pragma once

#include "models/text/tokenizer_pipeline.hpp"

#include <filesystem>
#include <memory>

namespace ranvier::models {

/// Throws ErrorCode::io if the file cannot be read, ErrorCode::data, naming file and offset or field, if it is damaged,
/// of another type, or has pieces of a kind that is not read.
[[nodiscard]] std::shared_ptr<const TokenizerPipeline> read_sentencepiece_model(const std::filesystem::path& path);

}  // namespace ranvier::models
