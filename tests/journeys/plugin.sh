# A CUDA kernel of one's own, turned.cu and turned.py of docs/adding-a-kernel.md, to its profile, without a GPU.
set -e
kernelmark watch turned.cu transpose/m33n70/f32/out --plugin turned.py --once > watch.txt
kernelmark inspect --plugin turned.py --kernels 'transpose/*turned' --arch sm_90a --format json > inspect.json
kernelmark profile transpose/cuda.turned transpose/m33n70/f32/out --plugin turned.py --json > profile.json
