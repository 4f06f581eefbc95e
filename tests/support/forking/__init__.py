"""Launches without their imports: launcher and ranks are forked from a process that has loaded torch already.

Of a real launch of two ranks most of the processor's time is imports: torch in three processes, inductor in two. What a
test wants to see happens after them. ``server`` runs in a process of its own and forks what it is asked for; ``client``
asks it, with what of ``subprocess.Popen`` the tests and torchrun use.

A forked process runs the command as Python would: the same words, environment, folder, standard streams and
``sys.path``, a new session where asked for, PYTHONPATH with its ``sitecustomize``, and then a script as ``__main__``
that ends as scripts end. The script's first ``import torch`` is an import, which finds the module made already, so
what waits for it takes place. What is decided before Python runs (variables that the loader or a library reads when
it is loaded, flags of Python) is the server's: such launches are real ones, and so are those that look at tracebacks,
at descriptors, at parents of processes, or at ``sys.modules``. Where a test looks at such things in ranks only, the
launcher alone is forked (mark ``forked_launcher``), and its ranks are started as they always are.
"""
