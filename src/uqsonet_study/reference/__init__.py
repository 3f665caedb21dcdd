"""Reference posteriors of u (appendix A.2): what every method is measured against.

The Gaussian input (log k, f or the initial vorticity) is conditioned exactly; what follows depends
on the operator:

- `sampling`: conditioned samples through the problem's own solver, plainly (the paper's way) or
  with a quadratic control variate and, where possible, in closed form over the second input;
- `affine`: u depends affinely on the observed Gaussian input: closed form, or an average over the
  prior of the second input that serves all observation sets at once;
- `files`: the file that references of an evaluation end in.
"""
