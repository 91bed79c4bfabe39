// What callers told cuDNN, kept as they said it: descriptors with attributes.
#pragma once
#include <cudnn_graph.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

namespace tessera::emulated {

struct Descriptor;

struct Attribute {
  cudnnBackendAttributeType_t type{};
  std::int64_t count = 0;
  std::vector<char> bytes;                            // values
  std::vector<std::shared_ptr<Descriptor>> children;  // or other descriptors
};

struct Descriptor {
  cudnnBackendDescriptorType_t type{};
  bool finalized = false;
  std::map<cudnnBackendAttributeName_t, Attribute> attributes;

  const Attribute* find(cudnnBackendAttributeName_t name) const {
    const auto at = attributes.find(name);
    return at == attributes.end() ? nullptr : &at->second;
  }
  template <class T>
  std::vector<T> values(cudnnBackendAttributeName_t name) const {
    const Attribute* a = find(name);
    if (a == nullptr || a->bytes.size() % sizeof(T) != 0) return {};
    std::vector<T> out(a->bytes.size() / sizeof(T));
    std::memcpy(out.data(), a->bytes.data(), a->bytes.size());
    return out;
  }
  template <class T>
  T value(cudnnBackendAttributeName_t name, T otherwise) const {
    const auto all = values<T>(name);
    return all.empty() ? otherwise : all.front();
  }
  // A float or a double, as it was given.
  double number(cudnnBackendAttributeName_t name, double otherwise) const {
    const Attribute* a = find(name);
    if (a != nullptr && a->type == CUDNN_TYPE_DOUBLE) return value<double>(name, otherwise);
    return value<float>(name, static_cast<float>(otherwise));
  }
  // nullptr if it was not given.
  std::shared_ptr<Descriptor> child(cudnnBackendAttributeName_t name) const {
    const Attribute* a = find(name);
    return a == nullptr || a->children.empty() ? nullptr : a->children.front();
  }
};

}  // namespace tessera::emulated
