"""How to install the extras that an installation lacks: by path, as README has it.

Never by this distribution's name: on the public index that is another project's, and pip would put it in our place.
"""


def install_command(extras: str) -> str:
    return f"`pip install ./models '.[{extras}]'` in a clone of the repository"
