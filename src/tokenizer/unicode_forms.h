// The four Unicode normal forms, in one pass over text that mostly is normal already.
#pragma once

#include <string>

namespace medley::unicode {

enum class Form { nfc, nfd, nfkc, nfkd };

void normalize(std::string& text, Form form);  // valid UTF-8

}  // namespace medley::unicode
