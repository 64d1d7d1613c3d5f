#pragma once
// Frames without a display: an EGL context without a surface, an own framebuffer, and the pixels
// read back. Needs Mesa or a driver that supports EGL_MESA_platform_surfaceless.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/base/result.h"
#include "monitor/draw/view.h"

namespace hearth::monitor {

struct Picture {
  int width = 0, height = 0;
  std::vector<uint32_t> rgba;  ///< top row first; bytes R, G, B, A
  uint32_t at(int x, int y) const { return rgba[int64_t{y} * width + x]; }
};

class Offscreen {
 public:
  /// Creates the OpenGL and Dear ImGui contexts. kUnsupported names what is missing.
  static Result<std::unique_ptr<Offscreen>> create(int width, int height);
  ~Offscreen();

  /// Draws `frames` times (tables and text settle in the second frame) and reads the last one back.
  Picture draw(const std::function<void()>& frame, int frames = 3);
  /// The CPU's share of a frame: building it, without rasterizing.
  void build_only(const std::function<void()>& frame);
  /// The rasterizer's share, for the frame built last.
  void raster();

 private:
  struct Impl;
  explicit Offscreen(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

Result<void> write_png(const Picture& picture, const std::filesystem::path& file);

/// Textures from pixels, in OpenGL. Needs a current context for its whole life.
std::unique_ptr<Textures> make_gl_textures();

}  // namespace hearth::monitor
