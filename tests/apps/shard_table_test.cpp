#include "apps/memory/job_plan.hpp"
#include "apps/memory/shard_table.hpp"

#include "actors/states/sharded_unit.hpp"
#include "models/families/model.hpp"
#include "runtime/device/arena.hpp"
#include "tests/apps/train_flags.hpp"

using namespace ranvier;
using namespace ranvier::apps;
using namespace ranvier::tests;

namespace {

struct Table {
  TrainOptions options;
  models::Architecture architecture;
  std::string text;

  explicit Table(const Flags& flags) : options(parse_train(join("--dry-run", flags), 1)) {
    architecture = models::make_model(options.model.sizes, options.model.tuning());
    actors::TrainerOptions trainer = options.trainer;
    trainer.node_of = nodes_of(options, {});
    text = shard_table(architecture, trainer, plan_stages(architecture, {}, trainer), options.shard.links);
  }

  /// Plan of the first rank.
  [[nodiscard]] actors::RankPlan plan() const {
    actors::TrainerOptions trainer = options.trainer;
    trainer.node_of = nodes_of(options, {});
    const std::size_t ids = static_cast<std::size_t>(architecture.positions) * sizeof(std::int32_t);
    return actors::plan_rank(architecture, {ids, ids}, trainer, 0);
  }

  /// Cells of the line of that name, without the mark of the chosen one: the name, four cells of memory (five for a
  /// partly trained model), twice three of sent bytes, Table 2's value, and seconds.
  [[nodiscard]] std::vector<std::string> line(const std::string& name, const std::string& flag = "shard") const {
    std::istringstream lines(text.substr(text.find("\n  " + flag + " ")));
    for (std::string line; std::getline(lines, line);) {
      if (line.substr(0, 2 + name.size() + 1) != "  " + name + " " &&
          line.substr(0, 2 + name.size() + 1) != "* " + name + " ")
        continue;
      std::istringstream words(line.substr(2));
      std::vector<std::string> cells;
      for (std::string word; words >> word;) {
        const bool is_unit = word.ends_with("B") || word == "s";
        if (is_unit) {
          cells.back() += " " + word;
        } else {
          cells.push_back(word);
        }
      }
      return cells;
    }
    return {};
  }
};

}  // namespace

TEST_CASE("every named sharding has a line, the chosen one a mark, and letters without a name a separate line") {
  const Table named("--world 8 --node-size 4 --shard mics");
  for (const auto& [name, sharding] : collectives::named_shardings()) {
    CAPTURE(name);
    CHECK(named.line(std::string(name)).size() == 13);
    CHECK(has(named.text, "\n* " + std::string(name) + " ") == (name == "mics"));
  }
  const Table letters("--world 8 --node-size 4 --shard ing");
  check_has(letters.text, {"\n* ING "});
  CHECK(letters.line("zero3") == named.line("zero3"));
}

TEST_CASE("a table says where the second copy is, and which batches have the bytes of frozen parameters") {
  const Flags flags = "--world 8 --g-data 8 --node-size 4 --shard zero++ --batch-size 8";
  check_lacks(Table(flags).text, {"second copy", "first batch"});
  check_has(Table(join(flags, "--secondary-tier host")).text, {"second copy of parameters is in host memory"});
  const Table frozen(join(flags, "--lora-rank 2"));
  check_has(frozen.text, {"only the first batch sends them between groups"});
  const auto cells = frozen.line("zero++"), of_zero3 = frozen.line("zero3");
  REQUIRE(cells.size() == 14);
  CHECK(cells[6] != of_zero3[6]);  // forward, between nodes
  CHECK(cells[1] != of_zero3[1]);  // frozen parameters, with their second copy
}

TEST_CASE("Figure 5's setting: 7 B parameters, 64 ranks in 8 groups, 8 microbatches") {
  const Table table(
      "--world 64 --g-data 64 --node-size 8 --model gpt-7b --precision bf16 --gradient-dtype half "
      "--microbatch-size 1 --batch-size 512 --shard paro-iig --all-gather ring --reduce-scatter ring --all-reduce "
      "ring");
  constexpr std::uint64_t N = 64, M = 8, g = 8, s = 8;
  std::uint64_t psi = 0, used = 0;  // each use of the tied table is gathered and reduced separately
  for (const auto& unit : actors::sharded_units(table.architecture, {{0, table.architecture.layers.size()}}, N)) {
    psi += unit.elements;
    used += unit.elements * static_cast<std::uint64_t>(unit.uses);
  }
  const auto bytes = [](std::uint64_t elements) {
    return elements == 0 ? std::string("–") : runtime::format_bytes(2 * elements);
  };
  const auto ring = [&](std::uint64_t elements) { return g * (elements / N * (N - 1)); };
  const auto X = [&](std::uint64_t elements) { return elements * (g - 1); };
  struct Row {
    const char* name;
    std::uint64_t parameters, gradients, forward, backward, update;
  };
  const Row rows[] = {{"zero1", psi, used, 0, 0, 2 * ring(psi)},
                      {"zero2", psi, used / N, 0, s * ring(used), ring(psi)},
                      {"zero3", psi / N, used / N, s * ring(used), 2 * s * ring(used), 0},
                      {"mics", psi / M, used / M, 0, 0, 2 * X(psi)},
                      {"zero++", psi / N + psi / M, used / N, s * ring(used), s * ring(used), 0},
                      {"paro-igg", psi / M, used / N, 0, s * X(used), X(psi)},
                      {"paro-iig", psi / M, used / M, 0, 0, 2 * X(psi)},
                      {"paro-nig", psi, used / M, 0, 0, 2 * X(psi)}};
  for (const auto& row : rows) {
    CAPTURE(row.name);
    const auto cells = table.line(row.name);
    REQUIRE(cells.size() == 13);
    CHECK(cells[1] == bytes(row.parameters));
    CHECK(cells[2] == bytes(row.gradients));
    CHECK(cells[3] == (std::string(row.name) == "mics" ? bytes(6 * psi / M) : bytes(6 * psi / N)));
    CHECK(cells[7] == bytes(row.update));
    CHECK(cells[11] == bytes(row.forward + row.backward + row.update));
    // With buffers for three blocks, a pass finds the last three of the previous one, and always the table.
    const bool gathers = row.forward > 0;
    CHECK((cells[5] == bytes(row.forward)) == !gathers);
    if (!gathers) CHECK(cells[6] == bytes(row.backward));
  }
  check_has(table.text, {"64 rows in groups of 8; 64 ranks on 8 nodes; 8 microbatches"});
}

TEST_CASE("the table counts the bytes of messages in blocks, and names their types") {
  const Table table(
      "--world 8 --g-data 8 --node-size 4 --precision bf16 --gradient-dtype half --microbatch-size 1 --batch-size "
      "8 "
      "--shard zero3 --gather-dtype int8 --reduce-dtype inter=int4 --reuse off --all-gather ring --reduce-scatter "
      "ring");
  constexpr std::uint64_t N = 8, M = 4, g = 2;
  std::uint64_t used = 0;  // each use of the tied table is gathered and reduced separately
  for (const auto& unit : actors::sharded_units(table.architecture, {{0, table.architecture.layers.size()}}, N,
                                                table.options.trainer.tiers, table.options.trainer.wire)) {
    CHECK(unit.elements % (N * 256) == 0);
    used += unit.elements * static_cast<std::uint64_t>(unit.uses);
  }
  const std::uint64_t gathered = g * (used / N * (N - 1)) / 256 * 260;
  const std::uint64_t reduced = used * (g - 1) / 256 * 132;
  const auto cells = table.line("zero3");
  REQUIRE(cells.size() == 13);
  CHECK(cells[5] == runtime::format_bytes(gathered));
  CHECK(cells[6] == runtime::format_bytes(gathered + reduced));
  CHECK(cells[9] ==
        runtime::format_bytes((N - g) * (used / N * (N - 1)) / 256 * 260 + N * (used / M * (M - 1)) * 2));
  check_has(table.text, {"column: all-gather ring in int8", "group: reduce-scatter ring;",
                         "replicas: reduce-scatter direct in int4"});
  check_has(Table("--world 8 --node-size 4 --shard ddp --all-gather ring --reduce-dtype int8").text,
            {"group: all-gather ring in int8, reduce-scatter direct in int8",
             "replicas: all-reduce direct and ring in int8"});
}

TEST_CASE("stages add up their sent bytes, and the largest memory of a stage is shown") {
  const Table one(
      "--world 4 --node-size 2 --g-inter 1 --g-data 4 --batch-size 8 --shard zero1 --all-gather ring "
      "--reduce-scatter ring");
  const Table two(
      "--world 8 --node-size 4 --g-inter 2 --g-data 4 --batch-size 8 --shard zero1 --all-gather ring "
      "--reduce-scatter ring");
  CHECK(one.line("zero1")[7] != "–");  // columns of four on two nodes
  CHECK(two.line("zero1")[7] == "–");  // each on one node
  CHECK(two.line("zero1")[10] != "–");
  std::size_t most = 0;
  const std::size_t layers = two.architecture.layers.size();
  for (const models::LayerRange range : {models::LayerRange{0, layers / 2}, {layers / 2, layers}}) {
    const auto units = actors::sharded_units(two.architecture, {range}, 4);
    most = std::max(most, actors::state_bytes(units, collectives::parse_sharding("zero1"), 4, 4, {}).total());
  }
  CHECK(two.line("zero1")[4] == runtime::format_bytes(most));
}

TEST_CASE("measured links are named, and assumed ones are marked as assumed") {
  check_has(Table("--world 4").text, {"assumed"});
}

TEST_CASE("a LLaMA-65B with adapters on 8 x 80 GB: parameters by Ψ, gradients and states by Ψ'") {
  const Flags flags =
      "--world 8 --g-data 8 --model llama-65b --precision bf16 --lora-rank 8 --shard GNN --recompute 1 "
      "--batch-size 8 --microbatch-size 1";
  const Table table(flags);
  constexpr std::uint64_t N = 8, C = 8192, F = 22016, V = 32000, L = 80, R = 8;
  constexpr std::uint64_t psi = L * (4 * C * C + 3 * C * F + 2 * C) + 2 * V * C + C;  // divisible by the ranks
  constexpr std::uint64_t psi_trained = L * 2 * R * 2 * C;                            // in q_proj and v_proj
  CHECK(table.architecture.trained_parameters() == psi_trained);
  CHECK(table.architecture.parameters() == psi + psi_trained);
  check_has(table.text, {"65.3G parameters (Ψ); 21M of them are trained (Ψ′)"});
  const auto cells = table.line("GNN");
  REQUIRE(cells.size() == 14);
  CHECK(cells[1] == runtime::format_bytes(2 * psi / N));
  CHECK(cells[2] == runtime::format_bytes(2 * psi_trained / N));
  CHECK(cells[3] == runtime::format_bytes(4 * psi_trained));
  CHECK(cells[4] == runtime::format_bytes(12 * psi_trained));
  CHECK(table.line("ddp")[1] == runtime::format_bytes(2 * psi));
  CHECK(table.line("zero3")[4] == runtime::format_bytes(12 * psi_trained / N));
  // Without gradients of the base and with one block of it at a time, the memory of a rank suffices.
  CHECK(table.plan().memory.bytes(runtime::MemorySpace::device) < std::size_t{80'000'000'000});
}

TEST_CASE(
    "a base sharded over all rows, replicated adapters: 2 (Ψ − Ψ′) / 8 and 18 Ψ′ bytes per rank, as planned") {
  const Flags flags =
      "--world 8 --g-data 8 --model llama-65b --precision bf16 --lora-rank 16 --shard zero3 --shard-trained ddp "
      "--recompute 1 --batch-size 8 --microbatch-size 1 --all-reduce ring --all-gather ring";
  const Table table(flags);
  constexpr std::uint64_t N = 8, C = 8192, F = 22016, V = 32000, L = 80, R = 16;
  constexpr std::uint64_t base = L * (4 * C * C + 3 * C * F + 2 * C) + 2 * V * C + C, adapters = L * 2 * R * 2 * C;
  const auto plan = table.plan();
  using runtime::MemoryKind;
  CHECK(plan.memory.bytes(MemoryKind::parameters) == 2 * base / N + 2 * adapters);
  CHECK(plan.memory.bytes(MemoryKind::gradients) == 4 * adapters);
  CHECK(plan.memory.bytes(MemoryKind::optimizer) == 12 * adapters);
  CHECK(plan.memory.bytes(runtime::MemorySpace::device) < std::size_t{80'000'000'000});

  const auto bytes = [](std::uint64_t count) { return runtime::format_bytes(count); };
  const auto cells = table.line("zero3");
  REQUIRE(cells.size() == 14);
  CHECK(cells[1] == bytes(2 * base / N));
  CHECK(cells[2] == bytes(2 * adapters));
  CHECK(cells[3] == bytes(4 * adapters));
  CHECK(cells[4] == bytes(12 * adapters));
  CHECK(cells[5] == bytes(2 * base / N + 18 * adapters));
  // Both passes gather the base, except units still in their buffers; only batch sums of the adapters are sent.
  for (const std::size_t between : {6u, 7u, 8u, 12u}) CHECK(cells[between] == "–");
  const Table every_time(join(flags, "--reuse off"));
  CHECK(every_time.line("zero3")[9] == bytes((N - 1) * 2 * base));
  CHECK(cells[11] == bytes(2 * (N - 1) * 4 * adapters));
  check_has(table.text, {"\n* zero3 ", "sharding zero3, trained parameters ddp: "});

  // Other shardings of the trained part, and of the base.
  CHECK(table.line("ddp", "shard-trained") == [&] {
    auto same = cells;
    same[0] = "ddp";
    return same;
  }());
  const auto shared = table.line("zero1", "shard-trained");
  CHECK(shared[1] == cells[1]);
  CHECK(shared[4] == bytes(12 * adapters / N));
  CHECK(table.line("ddp")[1] == bytes(2 * base));
  CHECK(table.line("ddp")[4] == cells[4]);
}
