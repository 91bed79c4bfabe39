// Everything that a program needs: #include <tessera/tessera.h>
#pragma once
#include "comm/communicator.h"
#include "comm/mpi.h"
#include "comm/recorder.h"
#include "comm/virtual.h"
#include "runtime/array.h"
#include "runtime/dtype.h"
#include "runtime/error.h"
#include "runtime/shape.h"
