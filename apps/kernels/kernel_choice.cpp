#include "apps/kernels/kernel_choice.hpp"

#include "apps/program/agreement.hpp"
#include "apps/program/flag_names.hpp"
#include "models/ops/kernel_choice_file.hpp"
#include "runtime/device/device.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <string>
#include <vector>

namespace ranvier::apps {
namespace {

constexpr const char* flag = "--products-file";

std::string text_of(const models::ProductLibrary& library) {
  return fmt::format("{} with cuBLASLt {}", library.gpu, library.version);
}

std::string text_of(const models::AttentionLibrary& library) {
  return fmt::format("{} with {}", library.gpu, models::cudnn_text(library.version));
}

/// Text that shows whether the bits of an earlier run are kept: "3 from products.json, 2 measured and added to it".
/// `here` has one element; `instead`: entries of the file for other GPUs or versions.
template <typename Choices>
std::string memory_text(std::size_t remembered, const std::vector<Choices>& here,
                        const std::vector<Choices>& instead, const std::string& file) {
  const std::size_t measured = here.front().choices.size() - remembered;
  std::string text = fmt::format("{} from {}", remembered, file);
  if (!instead.empty()) {
    std::vector<std::string> others;
    for (const Choices& other : instead) others.push_back(text_of(other.of));
    text += fmt::format(" (measured on {}, but this is {})", fmt::join(others, ", "), text_of(here.front().of));
  }
  return text + fmt::format(", {} measured{}", measured, measured > 0 ? " and added to it" : "");
}

/// Whether this rank supports rank 0's choice of attention kernels. Throws if not and --attention cudnn is given.
bool adopt_attention(const runtime::MpiSession& session, const TrainOptions& options, runtime::StreamView stream,
                     const std::vector<models::AttentionChoices>& choices) {
  const std::string obstacle = models::attention_library_obstacle();
  const bool can = obstacle.empty() && !choices.empty() && models::adopt_attention(stream, choices.front());
  if (options.device.attention != models::AttentionKernels::cudnn) return can;
  if (!obstacle.empty())
    fail(ErrorCode::device, "--attention cudnn is not possible on rank {}: {}; or use --attention auto",
         session.rank(), obstacle);
  if (!can)
    fail(ErrorCode::device,
         "--attention cudnn: rank {} does not support rank 0's kernels ({}); install the same cuDNN on every "
         "node, or use --attention auto",
         session.rank(), models::attention_description(stream));
  return true;
}

std::string attention_line(runtime::StreamView stream, const models::ChosenKernels& chosen,
                           const TrainOptions& options, long long lacking_ranks) {
  if (chosen.choices.attention.empty())
    return fmt::format("attention: built-in kernels, since {}", with_flags(models::attention_library_obstacle()));
  if (lacking_ranks > 0)
    return fmt::format("attention: built-in kernels, since cuDNN on {} rank{} does not support rank 0's kernels",
                       lacking_ranks, lacking_ranks > 1 ? "s" : "");
  std::string line = fmt::format("attention: {}", models::attention_description(stream));
  const std::string& file = options.device.products_file;
  if (!file.empty() && options.device.attention == models::AttentionKernels::measured)
    line += "; " + memory_text(chosen.remembered_passes, chosen.choices.attention, chosen.instead.attention, file);
  return line;
}

}  // namespace

void choose_kernels(runtime::MpiSession& session, const TrainOptions& options, runtime::Device& device,
                    const std::function<void(runtime::StreamView)>& run_layers) {
  if (options.device.device != DeviceFlag::cuda || options.trainer.precision.compute == runtime::DType::f32) return;
  const models::KernelQuestion question{.products = options.device.measures_products,
                                        .attention = attention_kernels(options),
                                        .file = options.device.products_file,
                                        .flag = flag};
  const bool asks_for_attention = question.attention != models::AttentionKernels::own;
  if (!question.products && !asks_for_attention) return;
  const auto stream = device.make_stream("products", runtime::StreamWidth::whole);
  const bool speaks = session.rank() == 0;
  models::ChosenKernels chosen;
  on_rank_0(session, [&] { chosen = models::choose_kernels(*stream, question, [&] { run_layers(*stream); }); });
  if (speaks && question.products && !question.file.empty()) {
    fmt::print("products: {}\n\n", memory_text(chosen.remembered_products, chosen.choices.products,
                                               chosen.instead.products, options.device.products_file));
  }
  const std::string text = broadcast_text(session, speaks ? models::to_json(chosen.choices) : std::string());
  models::KernelChoices choices;
  on_all_ranks(session, [&] {
    choices = models::parse_kernel_choices(text, "rank 0's choices");
    for (const models::ProductChoices& one : choices.products) models::adopt_products(*stream, one);
  });
  if (!asks_for_attention) return;
  bool can = true;
  on_all_ranks(session, [&] { can = adopt_attention(session, options, *stream, choices.attention); });
  const long long lacking = session.sum(can ? 0 : 1);
  if (lacking > 0) models::forget_attention(*stream);
  if (!speaks) return;
  fmt::print("{}\n\n", attention_line(*stream, chosen, options, lacking));
  std::fflush(stdout);
}

}  // namespace ranvier::apps
