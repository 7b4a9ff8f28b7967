// Aggregation of gradients that travel as one bit for each element (onebit.cuh), as in CNTK: see quantised.cuh.
//
// F. Seide, H. Fu, J. Droppo, G. Li, D. Yu, "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel
// Distributed Training of Speech DNNs", Interspeech 2014.
#include "aggregate/onebit.cuh"
#include "aggregate/quantised.cuh"
