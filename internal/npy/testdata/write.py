# Writes the files beside it: python3 write.py
import numpy as np

nan, inf = np.nan, np.inf
np.save("f2.npy", np.array([[0, 2.0**-24, -1.5], [65504, inf, nan]], "<f2"))
np.save("f4.npy", np.array([[0, 2.0**-149, -1.5], [65504, -inf, nan]], "<f4"))
np.save("f8.npy", np.array([[0, 1e-300, -1.5], [65504, inf, nan]], "<f8"))
np.save("i4.npy", np.array([1, 2], "<i4"))
np.save("scalar.npy", np.float32(3))
np.save("fortran.npy", np.asfortranarray(np.zeros((2, 3), "<f4")))
