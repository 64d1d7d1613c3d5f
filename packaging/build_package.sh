# Sourced by build_deb.sh and build_tarball.sh: what both pack, built in $build, hardened, without tests; with
# cuda=ON the worker for GPUs of $archs too (default: machine code for compute capability 8.0, 8.6, 8.9 and 9.0, and
# 12.0 in a form that newer drivers translate).
bash packaging/install_deps.sh --package
build=build/package
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DHEARTH_TESTS=OFF \
  -DHEARTH_CUDA="${cuda:-OFF}" -DHEARTH_CUDA_ARCHS="${archs:-80-real;86-real;89-real;90a-real;120}" \
  -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_INSTALL_SYSCONFDIR=/etc -DHEARTH_SYSTEMD_DIR=/lib/systemd \
  -DCMAKE_CXX_FLAGS="-D_FORTIFY_SOURCE=2 -fstack-protector-strong" -DCMAKE_EXE_LINKER_FLAGS="-Wl,-z,relro,-z,now" \
  -DCMAKE_POSITION_INDEPENDENT_CODE=ON >/dev/null
cmake --build "$build" -j "${HEARTH_JOBS:-$(nproc)}"
