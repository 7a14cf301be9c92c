// The functions of this folder, as a table (kernel_table.h).
#pragma once

#include "kernels/kernel_table.h"

namespace sixfold::kernels::cuda {

const KernelTable& kernel_table();

}  // namespace sixfold::kernels::cuda
