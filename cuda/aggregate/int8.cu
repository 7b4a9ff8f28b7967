// Aggregation of gradients that travel as a signed byte for each element (int8.cuh): see quantised.cuh.
//
// T. Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016, with linear quantisation.
#include "aggregate/int8.cuh"
#include "aggregate/quantised.cuh"
