#include "kernels/temporaries.h"

#include "kernels/cpu/temporaries.h"
#include "kernels/cuda/temporaries.h"

namespace sixfold::kernels {

int64_t dropout_temporaries(DeviceType device, int64_t num_channels, int num_threads) {
  return device == DeviceType::Cpu ? cpu::dropout_temporaries(num_channels, num_threads) : cuda::dropout_temporaries();
}

int64_t attention_backward_temporaries(DeviceType device, int64_t num_tokens, int64_t seq_len, int64_t num_heads,
                                       int num_threads) {
  return device == DeviceType::Cpu ? cpu::attention_backward_temporaries(seq_len, num_threads)
                                   : cuda::attention_backward_temporaries(num_tokens, num_heads);
}

int64_t column_sum_temporaries(DeviceType device, int64_t num_rows, int64_t num_columns) {
  return device == DeviceType::Cpu ? cpu::column_sum_temporaries(num_rows, num_columns)
                                   : cuda::column_sum_temporaries(num_rows, num_columns);
}

bool attention_streams(DeviceType device, int64_t head_dim) {
  return device == DeviceType::Cpu || cuda::attention_streams(head_dim);
}

}  // namespace sixfold::kernels
