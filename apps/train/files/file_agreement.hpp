// Ranks compare flags, and flags name files; this compares what is in them. A file that is another on one node, by
// an old copy or one that was cut short, would train on other tokens or from other weights without any error.
#pragma once

#include "apps/train/job.hpp"
#include "apps/train/options/train_options.hpp"
#include "runtime/mpi_transport.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace ranvier::apps {

/// The files whose content decides what is trained: the job's, the tokenizer's, the weights to start from. Throws
/// as models::find_weights() does. Any thread.
[[nodiscard]] std::vector<std::filesystem::path> deciding_files(const TrainOptions& options, const Job& job);

/// Those of --tokenizer, in a fixed order; none: it needs no files. Any thread.
[[nodiscard]] std::vector<std::filesystem::path> tokenizer_files(const TrainOptions& options);

/// One number for the size of a file and what is in it: in its first `whole_bytes`, its last 4096, and 64 blocks of
/// 4096 spread evenly between them. Headers of safetensors and Megatron's indices are read whole. Not against
/// malice. Throws ErrorCode::io. Any thread.
[[nodiscard]] std::uint64_t fingerprint(const std::filesystem::path& file, std::size_t whole_bytes);

/// Identifies what is in the files of these weights, wherever they are stored. As fingerprint().
[[nodiscard]] std::string content_of_weights(const std::filesystem::path& weights);

/// Throws FailedTogether on all ranks, one of which names files and ranks, if the ranks' files are not alike. Ranks
/// of a node that have the very same files read them once. `reads` is told of each; null: nobody is. Blocks; before
/// the loop runs.
void compare_files(runtime::MpiSession& session, std::span<const std::filesystem::path> files,
                   const std::function<void(const std::filesystem::path&)>& reads = nullptr);

}  // namespace ranvier::apps
