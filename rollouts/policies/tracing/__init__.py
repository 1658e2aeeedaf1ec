# SPDX-License-Identifier: Apache-2.0
"""The reader behind `rollouts.policies.trace`: a torch module becomes a program.

registers.py   a program as it grows; which element of which register, parameter or literal a
               number in a tensor is
arithmetic.py  elementwise operations, reductions and layers on such elements
memory.py      which elements lie in the memory of the tensors of a forward pass
functions.py   torch functions by name, as operations of arithmetic.py
watching.py    sees every torch function that a module calls
reads.py       what a forward reads besides the weights, and whether that has changed
"""
