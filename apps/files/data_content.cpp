#include "apps/files/data_content.hpp"

#include "apps/files/file_agreement.hpp"
#include "models/text/mixed_source.hpp"

#include <fmt/format.h>

#include <cstdint>

namespace ranvier::apps {

std::string data_content(const TrainOptions& options, const Job& job) {
  constexpr std::size_t whole_bytes = std::size_t{256} << 10;  // per file, since a folder may have many
  std::string content;
  for (const models::WeightedPath& data : models::parse_weighted_paths(options.data.data))
    content += fmt::format("{}:", data.weight);
  // Names count only through the order of files in a folder.
  std::uint64_t sum = 0xcbf29ce484222325u;
  for (const auto& file : job.files) sum = (sum ^ fingerprint(file, whole_bytes)) * 0x100000001b3u;
  for (const auto& file : tokenizer_files(options)) sum = (sum ^ fingerprint(file, whole_bytes)) * 0x100000001b3u;
  return fmt::format("{}{}:{:016x}", content, static_cast<int>(options.data.tokenizer), sum);
}

}  // namespace ranvier::apps
