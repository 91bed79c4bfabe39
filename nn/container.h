// Modules that hold others.
#pragma once
#include <memory>

#include "nn/module.h"
#include "runtime/error.h"

namespace tessera::nn {

// A list of parts named "0", "1", …; the model's forward decides how they are used.
template <class T>
class ModuleList : public Module {
 public:
  // Makes a T in place, or something derived from it (of a ModuleList<Module>), and returns it.
  template <class Part = T, class... Args>
  Part& add(Args&&... args) {
    auto part = std::make_unique<Part>(std::forward<Args>(args)...);
    Part& made = *part;
    register_module(std::to_string(items_.size()), made);
    items_.push_back(std::move(part));
    return made;
  }
  std::size_t size() const { return items_.size(); }
  T& operator[](std::size_t i) { return *items_[i]; }

 private:
  std::vector<std::unique_ptr<T>> items_;
};

// One after another:
//   Sequential net;
//   net.add<Linear>(8, 32).add<Relu>().add<Linear>(32, 1);
class Sequential : public Module {
 public:
  template <class T, class... Args>
  Sequential& add(Args&&... args) {
    return add(std::make_unique<T>(std::forward<Args>(args)...));
  }
  Sequential& add(std::unique_ptr<Module> part) {
    TS_CHECK(part != nullptr, "Sequential", "the module given is null");
    register_module(std::to_string(items_.size()), *part);
    items_.push_back(std::move(part));
    return *this;
  }
  std::size_t size() const { return items_.size(); }
  Module& operator[](std::size_t i) { return *items_[i]; }
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (const std::unique_ptr<Module>& m : items_) y = m->forward(y);
    return y;
  }

 private:
  std::vector<std::unique_ptr<Module>> items_;
};

}  // namespace tessera::nn
