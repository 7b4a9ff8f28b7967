# An author's table, figure and CSV of NT over NN, from an empty folder: one suite and three commands.
set -e
cat > products.toml <<'TOML'
[[sweep]]
op = "gemm"
dtype = ["f32"]
layout = ["NT", "NN"]
together = ["layout"]
points = [[32, 32, 32], [64, 64, 64]]
TOML
kernelmark run products.toml --kernels gemm/numpy.matmul --mode hot --max-time 0.05 --no-ceilings --db paper.db
kernelmark export --db paper.db --columns problem,kernel,against,ratio,ratio_ci95_low,ratio_ci95_high -o ratios.csv
kernelmark export --db paper.db --format latex --metric ratio --sizes -o table.tex
kernelmark report --db paper.db --out page
