"""Ready pipelines: short PySpark files, each also a command of `penstock pipeline`.

They are made to be read and copied (`penstock pipeline new NAME --from archive`). The settings of
each are the keyword-only parameters of its function `pipeline`.
"""
