#include "apps/memory/saved_column.hpp"

#include "runtime/files/json_text.hpp"
#include "tests/test.hpp"

#include <boost/json/serialize.hpp>

using namespace ranvier;
using namespace ranvier::tests;
using apps::column_change;
using apps::SavedColumn;

namespace {

SavedColumn four_rows() {
  return {
      .nodes = {0, 0, 1, 1},
      .group_size = 2,
      .sharding = "GIN",
      .algorithms = {{{"ring", "ring", "ring"}, {"ring", "hierarchical", "torus"}, {"ring", "ring", "ho-ring"}}}};
}

}  // namespace

TEST_CASE("a column reads back from a checkpoint as written, unless it has unknown names") {
  const std::string text = boost::json::serialize(apps::to_json(four_rows()));
  const auto read = [](const std::string& json) {
    const boost::json::value value = runtime::parse_json(json, "text");
    return apps::column_of_json(&value);
  };
  CHECK(read(text) == four_rows());
  CHECK(!apps::column_of_json(nullptr));
  for (const auto& [from, to] :
       {std::pair{"ho-ring", "ho-star"}, {"\"nccl\"", "\"ncc\""}, {"[0,0,1,1]", "4"}, {"\"torus\"", "7"}}) {
    std::string other = text;
    other.replace(other.find(from), std::string(from).size(), to);
    CAPTURE(other);
    CHECK(!read(other));
  }
}

TEST_CASE("nodes are numbered in the order of rows, regardless of the machines") {
  actors::TrainerOptions trainer;
  trainer.grid = {2, 2};
  trainer.batch_size = 2;
  trainer.node_of = {7, 3, 7, 3};
  const SavedColumn column = apps::saved_column(trainer, {}, false);
  trainer.node_of = {1, 0, 1, 0};
  CHECK(column == apps::saved_column(trainer, {}, false));
  CHECK(column.nodes == std::vector<int>{0, 1});
  trainer.trained_sharding = collectives::parse_sharding("zero1");
  CHECK(column.sharding != apps::saved_column(trainer, {}, false).sharding);
}

TEST_CASE(
    "automatically chosen algorithms are kept if rows are on the same nodes, otherwise the change is printed") {
  const SavedColumn before = four_rows();
  SavedColumn now = before;
  CHECK(column_change(before, now, {}).line.empty());
  now.algorithms[2].all_reduce = "ring";
  CHECK(column_change(before, now, {}).keeps);
  check_has(column_change(before, now, {}).line, {"bit-identical"});
  CHECK(!column_change(before, now, {.all_reduce = "ring"}).keeps);  // the flag sets it
  now.nodes = {0, 1, 0, 1};
  CHECK(!column_change(before, now, {}).keeps);
  check_has(column_change(before, now, {}).line, {"within rounding"});
  now.group_size = 4;
  CHECK(column_change(before, now, {}).line.empty());
}
