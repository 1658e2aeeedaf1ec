// SPDX-License-Identifier: Apache-2.0
#include "race_digits.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>

namespace rollouts::race {
namespace {

constexpr std::int32_t kCell = 2;      // pixels
constexpr std::int32_t kNumRows = 16;  // a glyph's, in cells
constexpr std::int32_t kMiddle = 60;   // column
constexpr std::int32_t kTop = 731;     // row
constexpr Lanes kWhite = LanesOf(255, 255, 255);

using Glyph = std::array<std::string_view, kNumRows>;

// pixels from a digit to the next, as measured with pygame's font
constexpr std::int32_t kFromMinus = 14;
constexpr std::int32_t kLast = 23;
constexpr std::uint8_t kNext[10][10] = {
    {25, 23, 26, 26, 23, 26, 23, 23, 25, 26}, {23, 19, 23, 23, 23, 23, 23, 20, 23, 23},
    {26, 23, 23, 25, 23, 23, 26, 23, 25, 26}, {25, 23, 25, 26, 23, 26, 25, 23, 26, 26},
    {26, 23, 25, 26, 23, 26, 26, 23, 27, 26}, {23, 23, 23, 26, 23, 26, 23, 23, 25, 26},
    {25, 23, 23, 26, 23, 26, 25, 23, 26, 26}, {23, 23, 23, 23, 20, 23, 23, 23, 23, 23},
    {25, 23, 25, 26, 23, 26, 25, 23, 25, 26}, {23, 23, 25, 25, 23, 25, 23, 23, 23, 25}};

constexpr Glyph kGlyphs[] = {
    {"   #####   ", "  #######  ", " ####.#### ", " ###   ### ", "####   ####", "###     ###",
     "###     ###", "###     ###", "###     ###", "###     ###", "###     ###", "####   ####",
     " ###   ### ", " #### #### ", "  #######  ", "   #####   "},
    {"           ", "      ##   ", "     ###   ", "    ####   ", "  ######   ", "  ######   ",
     "     ###   ", "     ###   ", "     ###   ", "     ###   ", "     ###   ", "     ###   ",
     "     ###   ", "     ###   ", "     ###   ", "     ###   "},
    {"           ", "   #####   ", "  #######  ", " ####  ### ", " ###   ####", " ###    ###",
     "        ###", "       ####", "      #### ", "     ####  ", "   #####   ", "  ####     ",
     " ####      ", " ###       ", " ##########", " ##########"},
    {"   #####   ", "  #######  ", " #### #### ", " ###   ### ", " ###   ### ", "       ### ",
     "      #### ", "    ####   ", "    #####  ", "      #### ", "        ###", " ##     ###",
     "####    ###", " ####  ####", " ######### ", "   #####   "},
    {"           ", "      ###  ", "      ###  ", "     ####  ", "    #####  ", "    #####  ",
     "   ## ###  ", "  ### ###  ", "  ##  ###  ", " ##   ###  ", "###   ###  ", "###########",
     "###########", "      ###  ", "      ###  ", "      ###  "},
    {"           ", "  #########", "  #########", "  ###      ", " ###       ", " ###       ",
     " ########  ", " ######### ", " ###  #### ", "        ###", "        ###", "        ###",
     "####    ###", " ###   ####", " ######### ", "   #####   "},
    {"    ####   ", "  #######  ", " ####  ### ", " ###   ### ", "###        ", "###        ",
     "### #####  ", "########## ", "####   ####", "###     ###", "###     ###", "###     ###",
     "####    ###", " ####  ### ", "  #######  ", "   #####   "},
    {"           ", "###########", "###########", "       ### ", "       ### ", "      ###  ",
     "      ###  ", "     ###   ", "     ###   ", "    ####   ", "    ###    ", "    ###    ",
     "   ####    ", "   ###     ", "   ###     ", "   ###     "},
    {"   #####   ", "  #######  ", " ####  ####", " ###    ###", " ###    ###", " ####  ####",
     "  #######  ", "  #######  ", " #### #### ", "####   ####", "###     ###", "###     ###",
     "###     ###", "####   ####", " ######### ", "   #####   "},
    {"   #####   ", "  #######  ", " ####  ### ", "####   ####", "###     ###", "###     ###",
     "###     ###", "####   ####", " ##########", "  ##### ###", "        ###", "       ####",
     " ###   ### ", " #### #### ", "  #######  ", "   ####    "},
};
constexpr Glyph kMinus = {
    "           ", "           ", "           ", "           ", "           ", "           ",
     "           ", "           ", " ######    ", " ######    ", " ######    ", "           ",
    "           ", "           ", "           ", "           "};

const Glyph& GlyphOf(char character) {
  return character == '-' ? kMinus : kGlyphs[character - '0'];
}

// The distance from character i to the next one.
std::int32_t Advance(std::string_view text, std::size_t i) {
  if (text[i] == '-') return kFromMinus;
  return i + 1 < text.size() ? kNext[text[i] - '0'][text[i + 1] - '0'] : kLast;
}

}  // namespace

Digits::Digits(double score) {
  char text[32];
  // like Python's "%04i"; every real score has few digits
  std::snprintf(text, sizeof(text), "%04d", static_cast<int>(std::clamp(score, -1e6, 1e6)));
  text_ = text;
  std::int32_t width = 0;
  for (std::size_t i = 0; i < text_.size(); ++i) width += Advance(text_, i);
  left_ = kMiddle - width / 2;
}

bool Digits::Changes(std::int32_t y) {
  return y >= kTop && y <= kTop + kNumRows * kCell && (y - kTop) % kCell == 0;
}

void Digits::PaintRow(std::int32_t y, PixelRow& row) const {
  if (y < kTop || y >= kTop + kNumRows * kCell) return;
  std::int32_t left = left_;
  for (std::size_t i = 0; i < text_.size(); ++i) {
    const std::string_view cells = GlyphOf(text_[i])[(y - kTop) / kCell];
    for (std::size_t cell = cells.find('#'); cell < cells.size(); cell = cells.find('#', cell)) {
      const std::size_t end = std::min(cells.find_first_not_of('#', cell), cells.size());
      row.Fill(left + static_cast<std::int32_t>(cell) * kCell,
               left + static_cast<std::int32_t>(end) * kCell - 1, kWhite);
      cell = end;
    }
    left += Advance(text_, i);
  }
}

}  // namespace rollouts::race
