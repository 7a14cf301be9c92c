// Bytes of activations that kernels take while they run, from sizes alone: neither a queue nor a GPU is asked.
//
// For predictions of memory, which add them to the tensors that a model keeps. They are let go when the operation
// returns, and are those that count at a peak of training; other operations take less, or none. Each device's kernels
// allocate by what cpu/temporaries.h and cuda/temporaries.h say.
#pragma once

#include <cstdint>

#include "runtime/core/device.h"

namespace sixfold::kernels {

/// Of dropout with a probability above 0, on rows of `num_channels` from channel 0 on. CPU: the factors of one row a
/// thread; a GPU keeps none.
int64_t dropout_temporaries(DeviceType device, int64_t num_channels, int num_threads);

/// Of attention_backward() where attention streams, for num_tokens = B T. CPU: two tiles of scores and one float a
/// position, a thread; GPU: one float a query and head.
int64_t attention_backward_temporaries(DeviceType device, int64_t num_tokens, int64_t seq_len, int64_t num_heads,
                                       int num_threads);

/// Of the sum over the rows of a matrix of f32 or bf16: a bias' gradient in linear_backward_weight(). One row of f32
/// for each chunk of rows.
int64_t column_sum_temporaries(DeviceType device, int64_t num_rows, int64_t num_columns);

/// Whether attention keeps no matrix of scores, T x T a head, for heads of so many channels.
bool attention_streams(DeviceType device, int64_t head_dim);

}  // namespace sixfold::kernels
