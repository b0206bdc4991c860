// Prints the launches and memory passes per layer call that operations declare: the table of models/ops/README.md.
// Computes nothing, so models may have any size.
//
// usage: pass_costs
#include "apps/plan/stage_times.hpp"
#include "models/families/model.hpp"

#include <fmt/format.h>

#include <numeric>
#include <string>
#include <utility>
#include <vector>

using namespace ranvier;
using models::SavedActivations;
using runtime::WorkKind;
using Call = apps::LayerTimes::Kind;

namespace {

/// Records work instead of timing it.
class WorkList final : public runtime::CostModel {
 public:
  [[nodiscard]] runtime::Duration duration(const runtime::WorkCost& cost) const override {
    work_.push_back(cost);
    return {};
  }
  [[nodiscard]] std::vector<runtime::WorkCost> take() const { return std::exchange(work_, {}); }

 private:
  mutable std::vector<runtime::WorkCost> work_;
};

/// Work of one layer call with all modules, for one sample; weight gradients accumulate.
std::vector<runtime::WorkCost> work_of(const models::Architecture& model, std::size_t layer, Call call,
                                       SavedActivations saved) {
  const WorkList list;
  std::vector<int> classes(model.layers.size());
  std::iota(classes.begin(), classes.end(), 0);
  apps::LayerTimes times(model, std::move(classes), list, true, 1);
  const models::LayerPhases parts = model.layers[layer]->parts();
  const std::size_t count = call == Call::forward          ? parts.forward.size()
                            : call == Call::backward_input ? parts.backward_input.size()
                                                           : parts.backward_weight.size();
  std::vector<runtime::WorkCost> all;
  for (std::size_t part = 0; part < count; ++part) {
    static_cast<void>(times.seconds(layer, call, part, 1, saved));
    std::vector<runtime::WorkCost> work = list.take();
    if (call == Call::backward_weight) work.resize(work.size() / 2);  // the second half overwrites
    all.insert(all.end(), work.begin(), work.end());
  }
  return all;
}

/// A row of the table.
void print_layer(const char* name, models::ModelSizes sizes, const std::string& of, std::size_t layer,
                 double channels, SavedActivations saved) {
  models::set_precision(sizes, {runtime::DType::bf16, runtime::DType::f32});
  const models::Architecture model = models::make_model(sizes);
  std::string cells;
  double elements = 0;
  for (const Call call : {Call::forward, Call::backward_input, Call::backward_weight}) {
    int products = 0, others = 0;
    for (const runtime::WorkCost& cost : work_of(model, layer, call, saved)) {
      ++(cost.kind == WorkKind::product ? products : others);
      if (cost.kind != WorkKind::product && cost.kind != WorkKind::attention)
        elements += cost.bytes / static_cast<double>(runtime::size_of(runtime::DType::bf16));
    }
    cells += fmt::format(" {} + {} |", products, others);
  }
  fmt::print("| {} {} | {} |{} {:.1f} |\n", name, of, saved == SavedActivations::all ? "all" : "few", cells,
             elements / (channels * model.positions));
}

}  // namespace

int main() {
  fmt::print("| layer | saved activations | forward | backward_input | backward_weight | passes over N·C |\n");
  fmt::print("|---|---|---|---|---|---|\n");
  for (const char* const name : {"gpt2-small", "gpt2-xl", "llama2-7b", "llama3-8b", "bert-base"}) {
    const models::ModelSizes sizes = *models::named_model(name);
    const double channels = models::value_of(sizes, models::Size::hidden);
    for (const SavedActivations saved : {SavedActivations::few, SavedActivations::all})
      print_layer(name, sizes, "block", 1, channels, saved);
    if (std::string(name) != "gpt2-small") continue;
    models::ModelSizes tiled = sizes;
    *models::find_size(tiled, models::Size::tile) = 4;
    print_layer(name, tiled, "block in 4 tiles", 1, channels, SavedActivations::few);
    print_layer(name, sizes, "embedding", 0, channels, SavedActivations::few);
    const auto head = static_cast<std::size_t>(models::layers_of(sizes)) + 1;
    print_layer(name, sizes, "head", head, channels, SavedActivations::few);
  }
}
