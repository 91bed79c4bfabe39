// Descriptors as text, for plans that are kept in files.
#pragma once
#include <string>

#include "emulated/cudnn_descriptors.h"

namespace tessera::emulated {

std::string to_text(const Descriptor& descriptor);
// nullptr where the text is none of ours.
std::shared_ptr<Descriptor> from_text(const std::string& text);

}  // namespace tessera::emulated
