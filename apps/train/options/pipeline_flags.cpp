#include "apps/train/options/pipeline_flags.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::apps {

using actors::Policy;
using runtime::choice;
using runtime::OptionBinding;
using runtime::OptionTable;
using runtime::switch_on;
using runtime::whole;

namespace {

constexpr int rebalance_steps = 5;
constexpr int most_chunks = 1 << 10;
constexpr int most = 1 << 30;  // keeps products of two sizes inside 64 bits

OptionBinding recompute(int& interval, bool& automatic) {
  return {.read = [&interval, &automatic](const std::string& given) -> std::optional<std::string> {
            int layers = 0;
            if (given != "off" && given != "auto" && whole(layers, 1, most).read(given))
              return "a number of layers, auto or off";
            interval = layers;
            automatic = given == "auto";
            return {};
          },
          .write =
              [&interval, &automatic] {
                if (automatic) return std::string("auto");
                return interval == 0 ? std::string("off") : fmt::format("{}", interval);
              },
          .words = {"auto", "off"}};
}

OptionBinding deferred_limit(std::optional<int>& field) {
  return {.read = [&field](const std::string& given) -> std::optional<std::string> {
            int microbatches = 0;
            if (given == "auto") {
              field.reset();
            } else if (!whole(microbatches, 0, most).read(given)) {
              field = microbatches;
            } else {
              return "a number of microbatches, 0 for none, or auto";
            }
            return {};
          },
          .write = [&field] { return field ? fmt::format("{}", *field) : std::string("auto"); },
          .words = {"auto"}};
}

/// Empty: auto.
OptionBinding layers_per_stage(std::vector<int>& field) {
  return {
      .read = [&field](const std::string& given) -> std::optional<std::string> {
        std::vector<int> layers;
        for (std::size_t begin = 0; given != "auto" && begin <= given.size();) {
          const std::size_t end = std::min(given.find(',', begin), given.size());
          if (whole(layers.emplace_back(), 1, most).read(given.substr(begin, end - begin)))
            return "a number of layers above 0 for each stage, as in 7,7,6, or auto";
          begin = end + 1;
        }
        field = std::move(layers);
        return {};
      },
      .write = [&field] { return field.empty() ? std::string("auto") : fmt::format("{}", fmt::join(field, ",")); },
      .words = {"auto"}};
}

/// Off: 0.
OptionBinding rebalance(int& steps) {
  return {.read = [&steps](const std::string& given) -> std::optional<std::string> {
            bool on = false;
            if (auto problem = switch_on(on).read(given)) return problem;
            steps = on ? rebalance_steps : 0;
            return {};
          },
          .write = [&steps] { return std::string(steps > 0 ? "on" : "off"); },
          .is_switch = true};
}

}  // namespace

void declare_pipeline(OptionTable& table, actors::TrainerOptions& trainer) {
  table.add({"chunks-per-rank", "N",
             "slices of the layers that each rank has, which microbatches pass one after another: stages idle that "
             "many times less, and send as many times more; not under zb-h1",
             whole(trainer.chunks_per_rank, 1, most_chunks)});
  table.add({"pipeline-limit", "N",
             "microbatches in flight per pipeline, with --chunks-per-rank in each chunk; 0: as many as stages, all "
             "under gpipe, what the order of the passes needs with chunks",
             whole(trainer.pipeline_limit, 0, most), "g-inter"});
  table.add({"policy", "NAME",
             "what a stage does next: message-driven, 1f1b or gpipe; with weight gradients that wait until nothing "
             "else can be done zero-bubble, or in a fixed order zb-h1",
             choice<Policy>(trainer.policy, {{"message-driven", Policy::message_driven},
                                             {"1f1b", Policy::one_f_one_b},
                                             {"gpipe", Policy::gpipe},
                                             {"zero-bubble", Policy::zero_bubble},
                                             {"zb-h1", Policy::zb_h1}})});
  table.add({"defer-weights", "", "weight gradients wait under message-driven, too: it is zero-bubble then",
             switch_on(trainer.defer_weights)});
  table.add(
      {"deferred-limit", "N",
       "microbatches whose weight gradients wait at most, with --chunks-per-rank in each chunk, which each take "
       "memory; 0: none; auto: a stage's number, counted from 1, one more with chunks, or 1 with --recompute",
       deferred_limit(trainer.deferred_limit)});
  table.add({"layers-per-stage", "N,N,…",
             "layers of each stage, or with --chunks-per-rank of each slice from the front, what comes before and "
             "after the blocks included; auto: balanced by what they compute",
             layers_per_stage(trainer.layers_per_stage), "auto"});
  table.add(
      {"rebalance", "",
       fmt::format("time the layers in {} steps after the first one, and print the --layers-per-stage that would "
                   "be faster, and by how much",
                   rebalance_steps),
       rebalance(trainer.rebalance_steps)});
  table.add({"recompute", "N",
             "keep one activation for every N layers and compute the others again; auto: the "
             "N with the least memory; off",
             recompute(trainer.recompute, trainer.recompute_auto)});
  using Saved = std::optional<models::SavedActivations>;
  table.add(
      {"saved-activations", "NAME",
       "activations that blocks save for the backward pass: all; few: recompute outputs of norms and activation "
       "functions; auto: all on a GPU if they fit",
       choice<Saved>(
           trainer.saved_activations,
           {{"auto", Saved()}, {"few", models::SavedActivations::few}, {"all", models::SavedActivations::all}})});
}

}  // namespace ranvier::apps
