//! The sources that `run.py` reads belong to a dependency.
