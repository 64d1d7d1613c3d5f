#pragma once
// Frames without any display: an EGL context without a surface, a framebuffer of our own, and the
// pixels read back. Needs Mesa or a driver that knows EGL_MESA_platform_surfaceless.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/base/result.h"
#include "monitor/view.h"

namespace hearth::monitor {

struct Picture {
  int width = 0, height = 0;
  std::vector<uint32_t> rgba;  ///< top row first; bytes R, G, B, A
  uint32_t at(int x, int y) const {
    return rgba[static_cast<size_t>(y) * static_cast<size_t>(width) + static_cast<size_t>(x)];
  }
};

class Offscreen {
 public:
  /// Makes the context and Dear ImGui's. kUnsupported says what is missing.
  static Result<std::unique_ptr<Offscreen>> create(int width, int height);
  ~Offscreen();

  /// Draws `frames` times (tables and text settle in the second) and reads the last one back.
  Picture draw(const std::function<void()>& frame, int frames = 3);
  /// The part of a frame that is the processor's: building it, without raster.
  void build_only(const std::function<void()>& frame);
  /// The part that is the rasterizer's, of the frame last built.
  void raster();

 private:
  struct Impl;
  explicit Offscreen(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

Result<void> write_png(const Picture& picture, const std::filesystem::path& file);

/// Pictures from pixels, in OpenGL. Needs a current context as long as it lives.
std::unique_ptr<Textures> make_gl_textures();

}  // namespace hearth::monitor
