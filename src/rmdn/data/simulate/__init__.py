"""Stand-ins for HAM10000, ADNI and ABCD: simulated, in the same files and folders, and saying so."""

from rmdn.data.simulate.abcd import simulate_abcd
from rmdn.data.simulate.adni import simulate_adni
from rmdn.data.simulate.ham10000 import simulate_ham10000

__all__ = ["simulate_abcd", "simulate_adni", "simulate_ham10000"]
