#include "monitor/window/offscreen.h"

#include <EGL/egl.h>
#include <EGL/eglext.h>

#include "monitor/draw/pixels.h"
#define GL_GLEXT_PROTOTYPES
#include <GL/gl.h>
#include <GL/glext.h>
#include <backends/imgui_impl_opengl3.h>
#include <fmt/core.h>
#include <imgui.h>
#include <stb/stb_image_write.h>

#include <algorithm>
#include <string_view>

namespace hearth::monitor {
namespace {

class GlTextures final : public Textures {
 public:
  ~GlTextures() override {
    for (const auto& [slot, texture] : textures_) glDeleteTextures(1, &texture);
  }
  ImTextureID set(int slot, int width, int height, const uint32_t* rgba) override {
    GLuint& texture = textures_[slot];
    if (texture == 0) glGenTextures(1, &texture);
    GLint before = 0;
    glGetIntegerv(GL_TEXTURE_BINDING_2D, &before);
    glBindTexture(GL_TEXTURE_2D, texture);
    glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MIN_FILTER, GL_NEAREST);
    glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MAG_FILTER, GL_NEAREST);
    glPixelStorei(GL_UNPACK_ROW_LENGTH, 0);
    glTexImage2D(GL_TEXTURE_2D, 0, GL_RGBA8, width, height, 0, GL_RGBA, GL_UNSIGNED_BYTE, rgba);
    glBindTexture(GL_TEXTURE_2D, before);
    return reinterpret_cast<ImTextureID>(uintptr_t{texture});
  }

 private:
  std::map<int, GLuint> textures_;
};

Error unsupported(const char* what) {
  return Error::unsupported(
      fmt::format("no picture without a display: {} (EGL error {:#x})", what, eglGetError()));
}

}  // namespace

std::unique_ptr<Textures> make_gl_textures() { return std::make_unique<GlTextures>(); }

struct Offscreen::Impl {
  EGLDisplay display = EGL_NO_DISPLAY;
  EGLContext context = EGL_NO_CONTEXT;
  GLuint frame_buffer = 0, colour = 0;
  int width = 0, height = 0;
  bool imgui = false;

  ~Impl() {
    if (imgui) {
      ImGui_ImplOpenGL3_Shutdown();
      ImGui::DestroyContext();
    }
    if (frame_buffer != 0) glDeleteFramebuffers(1, &frame_buffer);
    if (colour != 0) glDeleteRenderbuffers(1, &colour);
    if (context != EGL_NO_CONTEXT) {
      eglMakeCurrent(display, EGL_NO_SURFACE, EGL_NO_SURFACE, EGL_NO_CONTEXT);
      eglDestroyContext(display, context);
    }
    if (display != EGL_NO_DISPLAY) eglTerminate(display);
  }
};

Offscreen::Offscreen(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Offscreen::~Offscreen() = default;

Result<std::unique_ptr<Offscreen>> Offscreen::create(int width, int height) {
  auto impl = std::make_unique<Impl>();
  impl->width = width;
  impl->height = height;
  const auto get_display = reinterpret_cast<PFNEGLGETPLATFORMDISPLAYEXTPROC>(
      eglGetProcAddress("eglGetPlatformDisplayEXT"));
  if (get_display == nullptr) return unsupported("eglGetPlatformDisplayEXT is missing");
  impl->display = get_display(EGL_PLATFORM_SURFACELESS_MESA, EGL_DEFAULT_DISPLAY, nullptr);
  EGLint major = 0, minor = 0;
  if (impl->display == EGL_NO_DISPLAY || !eglInitialize(impl->display, &major, &minor)) {
    impl->display = EGL_NO_DISPLAY;
    return unsupported("EGL has no surfaceless display");
  }
  if (!eglBindAPI(EGL_OPENGL_API)) return unsupported("EGL has no OpenGL");
  const EGLint config_wanted[] = {EGL_SURFACE_TYPE, EGL_PBUFFER_BIT, EGL_RENDERABLE_TYPE,
                                  EGL_OPENGL_BIT, EGL_NONE};
  EGLConfig config = nullptr;
  EGLint count = 0;
  if (!eglChooseConfig(impl->display, config_wanted, &config, 1, &count) || count < 1) {
    return unsupported("EGL has no configuration with OpenGL");
  }
  const EGLint wanted[] = {EGL_CONTEXT_MAJOR_VERSION,
                           3,
                           EGL_CONTEXT_MINOR_VERSION,
                           3,
                           EGL_CONTEXT_OPENGL_PROFILE_MASK,
                           EGL_CONTEXT_OPENGL_CORE_PROFILE_BIT,
                           EGL_NONE};
  impl->context = eglCreateContext(impl->display, config, EGL_NO_CONTEXT, wanted);
  if (impl->context == EGL_NO_CONTEXT ||
      !eglMakeCurrent(impl->display, EGL_NO_SURFACE, EGL_NO_SURFACE, impl->context)) {
    return unsupported("no OpenGL 3.3 context");
  }
  glGenFramebuffers(1, &impl->frame_buffer);
  glGenRenderbuffers(1, &impl->colour);
  glBindRenderbuffer(GL_RENDERBUFFER, impl->colour);
  glRenderbufferStorage(GL_RENDERBUFFER, GL_RGBA8, width, height);
  glBindFramebuffer(GL_FRAMEBUFFER, impl->frame_buffer);
  glFramebufferRenderbuffer(GL_FRAMEBUFFER, GL_COLOR_ATTACHMENT0, GL_RENDERBUFFER, impl->colour);
  if (glCheckFramebufferStatus(GL_FRAMEBUFFER) != GL_FRAMEBUFFER_COMPLETE) {
    return unsupported("the framebuffer is not complete");
  }
  IMGUI_CHECKVERSION();
  ImGui::CreateContext();
  impl->imgui = true;
  ImGuiIO& io = ImGui::GetIO();
  io.IniFilename = nullptr;
  io.DisplaySize = {pixels(width), pixels(height)};
  io.DeltaTime = 1.0f / 60;
  io.MousePos = {-1e6f, -1e6f};
  if (!ImGui_ImplOpenGL3_Init("#version 330")) return unsupported("Dear ImGui's OpenGL backend");
  return std::unique_ptr<Offscreen>(new Offscreen(std::move(impl)));
}

void Offscreen::build_only(const std::function<void()>& frame) {
  ImGui_ImplOpenGL3_NewFrame();
  ImGui::NewFrame();
  frame();
  ImGui::Render();
}

void Offscreen::raster() {
  glBindFramebuffer(GL_FRAMEBUFFER, impl_->frame_buffer);
  glViewport(0, 0, impl_->width, impl_->height);
  glClearColor(0, 0, 0, 1);
  glClear(GL_COLOR_BUFFER_BIT);
  ImGui_ImplOpenGL3_RenderDrawData(ImGui::GetDrawData());
  glFinish();
}

Picture Offscreen::draw(const std::function<void()>& frame, int frames) {
  for (int i = 0; i < frames; ++i) build_only(frame);
  raster();
  Picture picture{impl_->width, impl_->height, {}};
  const size_t width = impl_->width, height = impl_->height;
  picture.rgba.resize(width * height);
  glPixelStorei(GL_PACK_ALIGNMENT, 4);
  glReadPixels(0, 0, impl_->width, impl_->height, GL_RGBA, GL_UNSIGNED_BYTE, picture.rgba.data());
  for (uint32_t& pixel : picture.rgba) pixel |= 0xFF000000u;
  for (size_t y = 0; y < height / 2; ++y) {  // OpenGL's first row is the lowest
    std::swap_ranges(picture.rgba.begin() + (y * width), picture.rgba.begin() + ((y + 1) * width),
                     picture.rgba.begin() + ((height - 1 - y) * width));
  }
  return picture;
}

Result<void> write_png(const Picture& picture, const std::filesystem::path& file) {
  std::vector<uint8_t> rgb;
  rgb.reserve(picture.rgba.size() * 3);
  for (const uint32_t pixel : picture.rgba) {
    for (int shift = 0; shift < 24; shift += 8) rgb.push_back(static_cast<uint8_t>(pixel >> shift));
  }
  stbi_write_png_compression_level = 9;
  if (stbi_write_png(file.c_str(), picture.width, picture.height, 3, rgb.data(),
                     picture.width * 3) != 0) {
    return {};
  }
  return Error::io(fmt::format("{}: cannot be written", file.string()));
}

}  // namespace hearth::monitor
