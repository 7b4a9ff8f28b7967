# Gates in CI, from the wheel: of times between two runs, and of what a kernel does to memory, which needs no GPU.
set -e
measured="--processes 2 --spread 0 --mode hot --max-time 0.02 --no-ceilings --kernels gemm/numpy.matmul --db ci.db"
kernelmark run gemm/m64n64k64/f32/NT $measured --name base
kernelmark run gemm/m64n64k64/f32/NT $measured --name new
kernelmark compare base new --fail-slower 10000% --db ci.db
kernelmark trend gemm/m64n64k64/f32/NT --db ci.db --json > trend.json

profile="kernelmark profile transpose/cuda.turned transpose/m33n70/f32/out --plugin turned.py --baseline pins.json"
$profile --update
$profile
sed -i 's/^  if (.*/&\n  __syncthreads();\n&/' turned.cu  # everything twice
status=0
$profile > worse.txt || status=$?
test $status = 1
$profile --update
$profile
