"""Training: job specs, the scheduler, datasets, verl recipes, the model registry and deployment.

Importing this package loads nothing: each module says what it needs. Control state (``jobs``, ``registry``, ``deploy``,
``scheduler``) needs SQLAlchemy and no torch; what runs inside a job needs the extra ``train``.
"""
