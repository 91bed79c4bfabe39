// Plans by what they depend on: a bounded number, those that were asked for last.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace tessera::cuda {

constexpr std::size_t kMostPlans = 1024;

// Of all threads. Who holds a plan that the table drops goes on using it.
template <class Key, class Plan, class Hash>
class PlanTable {
 public:
  // `make(key)` where there is none.
  template <class Make>
  std::shared_ptr<Plan> get(const Key& key, const Make& make) {
    const std::lock_guard lock(mutex_);
    auto at = plans_.find(key);
    if (at == plans_.end()) {
      std::shared_ptr<Plan> made = make(key);
      if (plans_.size() >= kMostPlans) drop_oldest();
      at = plans_.emplace(key, Entry{std::move(made), 0}).first;
    }
    at->second.last_use = ++now_;
    return at->second.plan;
  }

 private:
  struct Entry {
    std::shared_ptr<Plan> plan;
    std::uint64_t last_use = 0;
  };
  // Looks at all of them, which is little beside the making of a plan.
  void drop_oldest() {
    auto oldest = plans_.begin();
    for (auto i = plans_.begin(); i != plans_.end(); ++i)
      if (i->second.last_use < oldest->second.last_use) oldest = i;
    plans_.erase(oldest);
  }

  std::mutex mutex_;
  std::unordered_map<Key, Entry, Hash> plans_;
  std::uint64_t now_ = 0;
};

}  // namespace tessera::cuda
