// Checks that all ranks have input files with the same content. Without it, an outdated or truncated copy on one node
// would change the results without an error.
#pragma once

#include "apps/job/job.hpp"
#include "apps/options/train_options.hpp"
#include "runtime/transport/mpi_transport.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace ranvier::apps {

/// Files whose content affects results: data, tokenizer, questions, initial adapter and initial weights. Throws as
/// models::find_weights() does. Callable from any thread.
[[nodiscard]] std::vector<std::filesystem::path> deciding_files(const TrainOptions& options, const Job& job);

/// Files of --tokenizer in a fixed order; empty if it needs none. Callable from any thread.
[[nodiscard]] std::vector<std::filesystem::path> tokenizer_files(const TrainOptions& options);

/// Hash of a file's size, its first `whole_bytes` bytes, its last 4096, and 64 blocks of 4096 spread evenly between
/// them. Reads headers of safetensors and Megatron's indices completely. Not secure against tampering. Throws
/// ErrorCode::io. Callable from any thread.
[[nodiscard]] std::uint64_t fingerprint(const std::filesystem::path& file, std::size_t whole_bytes);

/// Fingerprint of all files of these weights, independent of their paths. Throws ErrorCode::io. Callable from any
/// thread.
[[nodiscard]] std::string content_of_weights(const std::filesystem::path& weights);

/// Compares the files of all ranks. All ranks call it; blocks, so call it before the loop runs. Ranks of a node that
/// share the same files read them once. `reads`: callback before each read, or null. Throws FailedTogether on all ranks
/// if files differ; one rank's message names files and ranks.
void compare_files(runtime::MpiSession& session, std::span<const std::filesystem::path> files,
                   const std::function<void(const std::filesystem::path&)>& reads = nullptr);

/// Fingerprint of the files of --data and --tokenizer, independent of their paths: text from sizes and fingerprints of
/// the files in order, the weights of a mixture and the kind of tokenizer. Throws ErrorCode::io if a file is
/// unreadable.
[[nodiscard]] std::string data_content(const TrainOptions& options, const Job& job);

}  // namespace ranvier::apps
