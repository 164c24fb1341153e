"""`penstock pipeline VERB`: one module per verb, and a command for each ready pipeline.

Nothing here imports PySpark: pipelines run in processes of their own. The files of the ready
pipelines are parsed only when one of them, or the help, is asked for.
"""
