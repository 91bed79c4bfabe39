// Whether all ranks were told the same.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "comm/communicator.h"
#include "comm/rank_list.h"
#include "runtime/error.h"
#include "train/config.h"

namespace tessera::train {
namespace {

struct Told {
  std::string value;
  std::string source;
};
using Column = std::vector<Told>;  // of one rank: help, then every option that ranks must have alike

std::string packed(const Column& column) {
  nlohmann::json list = nlohmann::json::array();
  for (const Told& told : column) list.push_back({told.value, told.source});
  return list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Column unpacked(const std::string& text) {
  Column column;
  for (const auto& pair : nlohmann::json::parse(text)) column.push_back({pair.at(0), pair.at(1)});
  return column;
}

// "4 on ranks 0, 2 (default); 2 on rank 1 (command line)": equal values together, in the order of ranks.
std::string who_has_which(const std::vector<Column>& all, std::size_t row) {
  std::vector<std::string> values;
  for (const Column& column : all) values.push_back(column[row].value);
  std::vector<std::string> who;
  for (const std::vector<int>& ranks : ranks_of_equal(values)) {
    const Told& told = all[static_cast<std::size_t>(ranks.front())][row];
    who.push_back(fmt::format("{} on {} ({})", told.value, rank_list(ranks), told.source));
  }
  return fmt::format("{}", fmt::join(who, "; "));
}

}  // namespace

void Config::check_same(const Communicator& world) const {
  std::vector<std::string> names{"--help"};
  Column mine{{help_asked_ ? "true" : "false", help_asked_ ? "command line" : "default"}};
  for (const Entry& e : entries_) {
    if (e.option->own_of_rank_) continue;
    names.push_back(e.option->key());
    mine.push_back({e.option->value(), e.option->source()});
  }
  std::vector<Column> all;
  for (const std::string& text : world.all_gather_bytes(packed(mine))) all.push_back(unpacked(text));
  for (const Column& column : all)
    TS_CHECK(column.size() == names.size(), program_.c_str(), "the ranks run programs with other options");
  for (std::size_t row = 0; row < names.size(); ++row)
    for (std::size_t r = 1; r < all.size(); ++r)
      TS_CHECK(all[r][row].value == all[0][row].value, program_.c_str(),
               "{} must be the same on every rank, given {}", names[row], who_has_which(all, row));
}

}  // namespace tessera::train
