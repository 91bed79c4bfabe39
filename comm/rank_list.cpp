#include "comm/rank_list.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera {

std::string rank_list(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

std::vector<std::vector<int>> ranks_of_equal(const std::vector<std::string>& values) {
  std::vector<std::vector<int>> groups;
  for (std::size_t r = 0; r < values.size(); ++r) {
    auto same = std::find_if(groups.begin(), groups.end(), [&](const std::vector<int>& group) {
      return values[static_cast<std::size_t>(group.front())] == values[r];
    });
    if (same == groups.end()) same = groups.emplace(groups.end());
    same->push_back(static_cast<int>(r));
  }
  return groups;
}

}  // namespace tessera
