# The pattern of quantities that controller-gen writes allows any exponent. Reading 1e-10000000 takes seconds and 1e-300000000 does not end,
# in whatever reads the object: admission, controllers, clients. So what is stored is short, and its exponent at most 100, as in
# internal/machinery/budget.
s/^( *)(pattern: .*numkMGTPE.*)$/\1allOf:\
\1- pattern: ^[^eE]*([eE](i|[+-]?0*(100|[0-9]{0,2})))?$\
\1maxLength: 64\
\1\2/
