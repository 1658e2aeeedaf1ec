# SPDX-License-Identifier: Apache-2.0
"""The reader behind `rollouts.policies.trace`: a torch module becomes a program.

registers.py     a program in progress; the element of a register, parameter or literal that each
                 number in a tensor stands for
arithmetic.py    elementwise operations, reductions and layers on such elements
storage_tags.py  the elements that lie in the memory of each tensor of a forward pass
call.py          a call of a torch function, and operations on its arguments
functions.py     torch functions by name, as operations of arithmetic.py
watching.py      records every torch function that a module calls
reads.py         what a forward reads besides the weights, and whether that has changed
"""
