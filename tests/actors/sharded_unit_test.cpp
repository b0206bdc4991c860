#include "actors/states/sharded_unit.hpp"

#include "models/families/gpt.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::actors;
using collectives::parse_sharding;
using runtime::DType;

namespace {

/// A unit of Muon: a matrix with a gap behind it, and parameters of AdamW in its first and last blocks of 256.
models::UnitSpec matrix_unit() {
  return {.name = "h.0",
          .parameters = {{.name = "norm", .shape = {10}},
                         {.name = "weight", .shape = {50, 41}, .matrices = {{0, 50, 0, 41}}},
                         {.name = "bias", .shape = {300}},
                         {.name = "other", .shape = {32, 64}, .matrices = {{0, 32, 0, 64}}}}};
}

/// PaRO's Table 1, with bytes per parameter of P, G and OS, and of the second copy of P.
struct Row {
  const char* name;
  int p, g, os;  // number of pieces: 0 stands for N, 1 for M, otherwise 1 piece
  bool secondary = false;
};
constexpr int all = 0, group = 1, whole = 2;
constexpr Row table_1[] = {{"zero1", whole, whole, all},    {"zero2", whole, all, all},
                           {"zero3", all, all, all},        {"mics", group, group, group},
                           {"zero++", all, all, all, true}, {"paro-igg", group, all, all},
                           {"paro-iig", group, group, all}, {"paro-nig", whole, group, all}};

models::GptOptions tiny_gpt() {
  return {.layers = 4, .hidden = 48, .heads = 3, .vocab_size = 100, .sequence_length = 20};
}

}  // namespace

TEST_CASE("each rank holds exactly the bytes of PaRO's Table 1") {
  for (const auto& [N, M] : {std::pair{4, 2}, {6, 3}, {6, 2}, {12, 1}, {64, 8}, {5, 5}, {1, 1}}) {
    const std::vector<ShardedUnit> units{
        {std::size_t(N) * 32 * 7}, {std::size_t(N) * 32}, {std::size_t(N) * 32 * 100}};
    const std::size_t psi = std::size_t(N) * 32 * 108;
    const auto share = [&, N = N, M = M](int of) { return psi / std::size_t(of == all ? N : of == group ? M : 1); };
    for (const auto& row : table_1) {
      INFO("name ", row.name, ", N ", N, ", M ", M);
      const auto sharding = parse_sharding(row.name);
      const std::size_t copies = share(row.p) + (row.secondary ? share(group) : 0);
      CHECK(state_bytes(units, sharding, N, M, {DType::bf16, DType::bf16}) ==
            StateBytes{2 * copies, 2 * share(row.g), 12 * share(row.os)});
      CHECK(state_bytes(units, sharding, N, M, {DType::f16, DType::f32}) ==
            StateBytes{2 * copies, 4 * share(row.g), 12 * share(row.os)});
    }
  }
}

TEST_CASE("a rank holds P of Ψ − Ψ′ frozen parameters at one scope, and P, G and OS of Ψ′ trained ones at others") {
  for (const auto& [N, M] : {std::pair{4, 2}, {8, 8}, {64, 8}}) {
    const std::size_t base = std::size_t(N) * 32 * 100, adapters = std::size_t(N) * 32 * 3;
    const std::vector<ShardedUnit> units{{.elements = base / 4, .trained = false},
                                         {.elements = adapters},
                                         {.elements = 3 * (base / 4), .trained = false}};
    const auto share = [N = N, M = M](std::size_t psi, int of) {
      return psi / std::size_t(of == all ? N : of == group ? M : 1);
    };
    for (const auto& frozen : table_1) {
      for (const auto& trained : table_1) {
        INFO("frozen.name ", frozen.name, ", trained.name ", trained.name);
        const std::size_t of_base = share(base, frozen.p) + (frozen.secondary ? share(base, group) : 0);
        const std::size_t of_trained =
            share(adapters, trained.p) + (trained.secondary ? share(adapters, group) : 0);
        CHECK(state_bytes(units, {parse_sharding(frozen.name), parse_sharding(trained.name)}, N, M,
                          {DType::bf16, DType::bf16}) == StateBytes{2 * (of_base + of_trained),
                                                                    2 * share(adapters, trained.g),
                                                                    12 * share(adapters, trained.os), 2 * of_base});
      }
    }
  }
}

TEST_CASE("in fp32 the single copy of parameters has the coarser of two scopes") {
  const std::vector<ShardedUnit> units{{6400}};
  const auto parameters = [&](const char* name) {
    return state_bytes(units, parse_sharding(name), 4, 2, {}).parameters;
  };
  CHECK(parameters("NNN") == 4 * 6400);
  CHECK(parameters("NGG") == 4 * 6400);
  CHECK(parameters("GGN") == 4 * 6400);
  CHECK(parameters("IGG") == 2 * 6400);
  CHECK(parameters("GGI") == 2 * 6400);
  CHECK(parameters("GGG") == 6400);
  CHECK(parameters("zero++") == 3 * 6400);
  CHECK(state_bytes(units, parse_sharding("IGG"), 4, 2, {}).optimizer == 2 * 6400);
}

TEST_CASE("master weights in the layers' type are their parameters, and moments in bf16 have 2 bytes each") {
  const std::vector<ShardedUnit> units{{6400}};
  const auto bytes = [&](const char* name, const TierOptions& tiers) {
    return state_bytes(units, parse_sharding(name), 4, 2, {DType::bf16, DType::bf16}, tiers);
  };
  CHECK(bytes("NNN", {.moments = DType::bf16}) == StateBytes{2 * 6400, 2 * 6400, 8 * 6400});
  CHECK(bytes("NNN", {.master = DType::bf16, .moments = DType::bf16}) == StateBytes{2 * 6400, 2 * 6400, 4 * 6400});
  CHECK(bytes("GGI", {.master = DType::bf16}) == StateBytes{6400, 2 * 1600, 8 * 3200});
  CHECK(bytes("NGG", {.parameters = TierKind::host, .master = DType::bf16}) ==
        StateBytes{2 * 6400, 2 * 1600, 10 * 1600});
}

TEST_CASE("SGD has one moment, none without momentum, and Muon has the states of AdamW") {
  const std::vector<ShardedUnit> units{{6400}};
  const auto bytes = [&](const models::Precision& precision, const TierOptions& tiers) {
    return state_bytes(units, parse_sharding("NGG"), 4, 2, precision, tiers).optimizer;
  };
  const models::Precision half{DType::bf16, DType::bf16};
  CHECK(bytes({}, {.rule = UpdateRule::sgd}) == 4 * 1600);
  CHECK(bytes({}, {.rule = UpdateRule::sgd, .has_momentum = false}) == 0);
  CHECK(bytes(half, {.rule = UpdateRule::sgd}) == 8 * 1600);
  CHECK(bytes(half, {.rule = UpdateRule::sgd, .has_momentum = false}) == 4 * 1600);
  CHECK(bytes(half, {.master = DType::bf16, .moments = DType::bf16, .rule = UpdateRule::sgd}) == 2 * 1600);
  CHECK(bytes(half, {.rule = UpdateRule::muon}) == bytes(half, {}));  // no matrices
  CHECK(TierOptions{.rule = UpdateRule::sgd}.arrays_of(false) == 1);
}

TEST_CASE("Muon has second moments only in blocks of 256 with parameters of AdamW, equally on all ranks") {
  const TierOptions muon{.rule = UpdateRule::muon};
  const models::UnitSpec unit = matrix_unit();  // starts of parameters: 0, 32, 2112, 2432; 4480 elements
  const auto ranges = [&](StateKind kind, const TierOptions& tiers) {
    return stored_elements(kind, unit, 5120, tiers).in({0, 5120});
  };
  CHECK(ranges(StateKind::v, muon) == std::vector<collectives::Range>{{0, 256}, {2048, 512}});
  const std::vector<collectives::Range> complete{{0, 5120}};
  CHECK(ranges(StateKind::m, muon) == complete);
  CHECK(ranges(StateKind::weights, muon) == complete);
  CHECK(ranges(StateKind::v, {}) == complete);
  models::UnitSpec frozen = unit;
  frozen.trained = false;
  CHECK(stored_elements(StateKind::v, frozen, 5120, muon).has_all());
  CHECK(stored_elements(StateKind::v, unit, 2144, muon).before(5120) == 256 + 96);  // the unit ends in a block

  const std::vector<ShardedUnit> units{sharded_unit(unit, padded_elements(unit, 5, muon), muon)};
  REQUIRE(units.front().elements == 4480);
  const auto bytes = [&](const char* name, TierOptions tiers) {
    tiers.rule = UpdateRule::muon;
    return state_bytes(units, parse_sharding(name), 5, 1, {DType::bf16, DType::bf16}, tiers).optimizer;
  };
  CHECK(bytes("NNN", {}) == 8 * 4480 + 4 * 768);
  // Shards of 896 elements: the first has 256 elements with v, the third (1792 to 2687) has 512, the others none.
  CHECK(bytes("GGG", {}) == 8 * 896 + 4 * 512);
  CHECK(bytes("GGG", {.master = DType::bf16, .moments = DType::bf16}) == 2 * 896 + 2 * 512);
  const TierOptions int8{.moments = DType::i8, .rule = UpdateRule::muon};
  const std::vector<ShardedUnit> blocks{sharded_unit(unit, padded_elements(unit, 5, int8), int8)};
  REQUIRE(blocks.front().elements == 5120);
  CHECK(state_bytes(blocks, parse_sharding("GGG"), 5, 1, {}, int8).optimizer == 4 * 260 + 2 * 260);
}

TEST_CASE("a set of elements counts and lists its elements like a list of flags") {
  for (const std::uint64_t seed : test::seeds(200)) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    std::vector<bool> flags(50);
    std::vector<collectives::Range> ranges;
    for (std::size_t at = random() % 3; at < 45; at += 1 + random() % 9) {
      ranges.push_back({at, 1 + random() % 5});
      std::fill_n(flags.begin() + static_cast<std::ptrdiff_t>(at), ranges.back().count, true);
      at += ranges.back().count;
    }
    const ElementSet set = seed % 5 == 0 ? ElementSet() : ElementSet(ranges);
    if (set.has_all()) flags.assign(flags.size(), true);
    const auto count = [&](std::size_t begin, std::size_t end) {
      return static_cast<std::size_t>(std::count(flags.begin() + static_cast<std::ptrdiff_t>(begin),
                                                 flags.begin() + static_cast<std::ptrdiff_t>(end), true));
    };
    const std::size_t begin = random() % 50, end = begin + random() % (51 - begin);
    CHECK(set.before(begin) == count(0, begin));
    CHECK(set.count({begin, end - begin}) == count(begin, end));
    CHECK(set.contains({begin, end - begin}) == (count(begin, end) == end - begin));
    std::size_t listed = 0, last = begin;
    for (const collectives::Range& range : set.in({begin, end - begin})) {
      CHECK(range.begin >= last);
      CHECK(range.count > 0);
      CHECK(count(range.begin, range.begin + range.count) == range.count);
      listed += range.count;
      last = range.begin + range.count;
    }
    CHECK(last <= end);
    CHECK(listed == count(begin, end));
    std::size_t most = 0;
    for (std::size_t part = 0; part < 50; part += 10) most = std::max(most, count(part, part + 10));
    CHECK(set.most_in(10) == most);
  }
  CHECK(ElementSet(std::vector<collectives::Range>{}).most_in(5) == 0);
}

TEST_CASE("moments in int8 have a byte each, and 4 per block of 256") {
  const std::vector<ShardedUnit> units{{25'600}};
  const auto bytes = [&](const char* name, const TierOptions& tiers) {
    return state_bytes(units, parse_sharding(name), 4, 2, {DType::bf16, DType::bf16}, tiers);
  };
  CHECK(bytes("NNN", {.moments = DType::i8}) == StateBytes{2 * 25'600, 2 * 25'600, 4 * 25'600 + 2 * 100 * 260});
  CHECK(bytes("GGI", {.master = DType::bf16, .moments = DType::i8}) == StateBytes{25'600, 2 * 6400, 2 * 50 * 260});
  const TierOptions int8{.moments = DType::i8};
  CHECK(dtype_of(StateKind::m, {}, int8) == DType::i8);
  CHECK(dtype_of(StateKind::v, {}, int8) == DType::u8);
}

TEST_CASE("a unit that two layers of a stage use has two gradients") {
  const std::vector<ShardedUnit> once{{6400, 1}}, twice{{6400, 2}};
  const auto zero3 = parse_sharding("zero3");
  CHECK(state_bytes(twice, zero3, 4, 2, {}).gradients == 2 * state_bytes(once, zero3, 4, 2, {}).gradients);
  CHECK(state_bytes(twice, zero3, 4, 2, {}).parameters == state_bytes(once, zero3, 4, 2, {}).parameters);
}

TEST_CASE("units are padded so that every rank's piece is aligned, and by no more than necessary") {
  const auto gpt = models::make_gpt(tiny_gpt());
  for (const auto& [moments, alignment] : {std::pair{DType::f32, std::size_t{models::UnitSpec::alignment}},
                                           {DType::bf16, models::UnitSpec::alignment},
                                           {DType::i8, runtime::int8_block_elements}}) {
    const TierOptions tiers{.moments = moments};
    for (const int ranks : {1, 2, 3, 4, 6, 7}) {
      CAPTURE_ALL(alignment, ranks);
      const auto units = gpt.units();
      const auto sharded = sharded_units(gpt, {{0, gpt.layers.size()}}, ranks, tiers);
      REQUIRE(sharded.size() == units.size());
      std::size_t largest = 0;
      for (std::size_t u = 0; u < units.size(); ++u) {
        const std::size_t piece_multiple = std::size_t(ranks) * alignment;
        CHECK(sharded[u].elements % piece_multiple == 0);
        CHECK(sharded[u].elements >= units[u].elements());
        CHECK(sharded[u].elements < units[u].elements() + piece_multiple);
        CHECK(sharded[u].uses == (units[u].name == "wte" ? 2 : 1));
        largest = std::max(largest, sharded[u].elements);
      }
      CHECK(largest_units(gpt, ranks, tiers).all == largest);
      CHECK(largest_units(gpt, ranks, tiers).trained == largest);
    }
  }
}

TEST_CASE("units whose messages have blocks are padded to them") {
  using collectives::WireType;
  using collectives::WireTypes;
  models::UnitSpec unit{.name = "w", .parameters = {{.name = "w", .shape = {96}}}};
  const WireTypes gathers{.gather = {.inter_node = WireType::int8}}, sums{.reduce = {.intra_node = WireType::int4}};
  CHECK(padded_elements(unit, 3, {}, gathers) == 3 * 256);
  CHECK(padded_elements(unit, 3, {}, sums) == 3 * 256);
  CHECK(padded_elements(unit, 3, {}, WireTypes{}) == 96);
  unit.trained = false;
  CHECK(padded_elements(unit, 3, {}, gathers) == 3 * 256);
  CHECK(padded_elements(unit, 3, {}, sums) == 96);
}

TEST_CASE("frozen units, which have no moments, are not padded to blocks of int8") {
  models::UnitSpec unit{.name = "w", .parameters = {{.name = "w", .shape = {96}}}};
  CHECK(padded_elements(unit, 3, {.moments = DType::i8}) == 3 * 256);
  unit.trained = false;
  CHECK(padded_elements(unit, 3, {.moments = DType::i8}) == 96);
}

TEST_CASE("stages have the units of their layers, a tied one on both") {
  const auto gpt = models::make_gpt(tiny_gpt());
  const auto first = sharded_units(gpt, {{0, 3}}, 2), last = sharded_units(gpt, {{3, gpt.layers.size()}}, 2);
  CHECK(first.size() == 4);  // wte, wpe, h.0, h.1
  CHECK(last.size() == 4);   // h.2, h.3, ln_f, wte
  for (const auto& stage : {first, last}) {
    for (const ShardedUnit& unit : stage) CHECK(unit.uses == 1);
  }
}

TEST_CASE("units whose optimizer states fit in the budget keep them on the device, from the front") {
  using enum TierKind;
  // 8 bytes per element in fp32: only the moments.
  const std::vector<ShardedUnit> units{{6400}, {.elements = 800, .trained = false}, {1600, 2}, {3200}, {1600}};
  const auto tiers = [&](std::size_t budget, const char* sharding = "NNN",
                         const models::Precision& precision = {}) {
    return optimizer_tiers(units, parse_sharding(sharding), 4, 2, precision,
                           {.optimizer = host, .optimizer_budget = budget});
  };
  using Tiers = std::vector<TierKind>;
  CHECK(tiers(0) == Tiers(5, host));
  CHECK(tiers(8 * 1600 - 1) == Tiers(5, host));
  CHECK(tiers(8 * 1600) == Tiers{host, host, device, host, host});
  CHECK(tiers(8 * 3200) == Tiers{host, host, device, host, device});  // the fourth unit does not fit in the rest
  CHECK(tiers(8 * 6400) == Tiers{device, host, host, host, host});
  CHECK(tiers(8 * 9600) == Tiers{device, host, device, host, device});
  CHECK(tiers(8 * 12800) == Tiers{device, host, device, device, device});  // nothing of a frozen unit
  // A rank's shard counts, master weights included.
  CHECK(tiers(8 * 1600 / 4, "GGG") == Tiers{host, host, device, host, host});
  CHECK(tiers(8 * 1600 / 2, "GGI") == Tiers{host, host, device, host, host});
  CHECK(tiers(12 * 1600 - 1, "NNN", {DType::bf16, DType::f32}) == Tiers(5, host));
  CHECK(tiers(12 * 1600, "NNN", {DType::bf16, DType::f32}) == Tiers{host, host, device, host, host});
  CHECK(optimizer_tiers(units, parse_sharding("NNN"), 4, 2, {}, {}) == Tiers(5, device));
}
