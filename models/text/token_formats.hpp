// Headers of token files. Constants; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ranvier::models {

// llm.c's .bin: 256 int32 (magic, version, count, zeros), then the tokens: uint16 in GPT-2's, uint32 in Llama 3's.
inline constexpr std::size_t llmc_header_bytes = 256 * sizeof(std::int32_t);
inline constexpr std::int32_t llmc_magic = 20240520, llmc_version = 1;
inline constexpr std::int32_t llmc_wide_magic = 20240801, llmc_wide_version = 7;

// Megatron's .idx: magic, version (uint64), token type (one byte), numbers of sequences and document bounds (uint64
// each). Then the sizes of the sequences in tokens (int32), their byte offsets in the .bin (int64), and the document
// bounds as sequence numbers, from 0 to the number of sequences (int64). The magic has 9 bytes, so nothing after it
// is aligned.
inline constexpr std::string_view megatron_magic{"MMIDIDX\0\0", 9};
inline constexpr std::uint64_t megatron_version = 1;
inline constexpr std::size_t megatron_header_bytes = 9 + 8 + 1 + 8 + 8;
inline constexpr std::uint8_t megatron_int32 = 4, megatron_uint16 = 8;

}  // namespace ranvier::models
