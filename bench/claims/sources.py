"""The texts that the claims are from, by the keys that files of claims use: author, title, year, where it stands."""

SOURCES = {
    "shi2016": "S. Shi, Q. Wang, P. Xu and X. Chu (Hong Kong Baptist University), Benchmarking State-of-the-Art Deep "
    "Learning Software Tools, 2016-17, arXiv:1608.07249",
    "dettmers2017": "T. Dettmers, Which GPU(s) to Get for Deep Learning, update of 19 March 2017, his blog",
    "alibaba2017": "a cloud provider's own measurements, unnamed, Accelerating deep learning with GPUs, about 2017",
    "woolf2017": "M. Woolf, Benchmarking TensorFlow on Cloud CPUs: Cheaper Deep Learning than Cloud GPUs, 5 July 2017, "
    "minimaxir.com/2017/07/cpu-or-gpu",
    "gpucpu2020": "unnamed, Do I need a GPU for deep learning?, about 2020",
}
