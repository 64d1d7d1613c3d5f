# cmake -DPROGRAM=... -P check_needed.cmake: fails where the program needs a shared library besides
# the C and C++ runtime. Programs that are carried to a machine with a GPU must not.
execute_process(COMMAND readelf -d ${PROGRAM} OUTPUT_VARIABLE dynamic RESULT_VARIABLE rc)
if(NOT rc EQUAL 0)
  message(FATAL_ERROR "readelf -d ${PROGRAM}: ${rc}")
endif()
string(REGEX MATCHALL "NEEDED[^[]*\\[[^]]*" needed "${dynamic}")
foreach(entry IN LISTS needed)
  string(REGEX REPLACE ".*\\[" "" library "${entry}")
  if(NOT library MATCHES "^(libstdc\\+\\+|libgcc_s|libm|libc|libpthread|libdl|librt|ld-linux.*)\\.so")
    message(FATAL_ERROR "${PROGRAM} needs ${library}")
  endif()
endforeach()
