"""How hypothesis looks for counter-examples here: without a limit of time, which a busy machine would break, and without a folder."""

from hypothesis import settings

settings.register_profile("lab", deadline=None, database=None)
settings.load_profile("lab")
